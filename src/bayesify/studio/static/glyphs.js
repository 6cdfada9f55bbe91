// Ready drawings as strokes of our own on a pad of side 1: digits, letters that no digit network knows, and scribbles.
const arc = (cx, cy, rx, ry, from, to, steps = 22) => Array.from({ length: steps + 1 }, (_, k) => {
  const turn = (from + (to - from) * k / steps) * Math.PI / 180;
  return [cx + rx * Math.cos(turn), cy + ry * Math.sin(turn)];
});
const dense = (points) => points.flatMap(([x, y], place) => {
  if (!place) return [[x, y]];
  const [a, b] = points[place - 1];
  return Array.from({ length: 6 }, (_, k) => [a + (x - a) * (k + 1) / 6, b + (y - b) * (k + 1) / 6]);
});

export const DIGITS = {
  0: [arc(0.5, 0.5, 0.19, 0.33, -90, 270, 40)],
  1: [dense([[0.42, 0.28], [0.53, 0.17], [0.53, 0.83]])],
  2: [[...arc(0.49, 0.36, 0.19, 0.19, 195, 395), ...dense([[0.64, 0.47], [0.31, 0.82], [0.71, 0.82]])]],
  3: [[...arc(0.47, 0.34, 0.18, 0.16, 205, 440), ...arc(0.47, 0.66, 0.2, 0.17, -85, 155)]],
  4: [dense([[0.5, 0.17], [0.3, 0.57], [0.72, 0.57]]), dense([[0.6, 0.4], [0.57, 0.84]])],
  5: [[...dense([[0.67, 0.18], [0.38, 0.18], [0.36, 0.47]]), ...arc(0.48, 0.64, 0.2, 0.19, -125, 140)]],
  6: [[...arc(0.72, 0.5, 0.4, 0.4, 245, 180), ...arc(0.49, 0.65, 0.18, 0.17, 180, -180, 34)]],
  7: [dense([[0.3, 0.19], [0.7, 0.19], [0.45, 0.83]])],
  8: [[...arc(0.5, 0.34, 0.16, 0.16, 80, -260, 30), ...arc(0.5, 0.66, 0.19, 0.17, -80, 260, 34)]],
  9: [[...arc(0.49, 0.36, 0.17, 0.17, 0, -350, 30), ...dense([[0.66, 0.33], [0.62, 0.83]])]],
};

export const LETTERS = {
  A: [dense([[0.28, 0.84], [0.5, 0.16], [0.72, 0.84]]), dense([[0.37, 0.6], [0.63, 0.6]])],
  E: [dense([[0.68, 0.17], [0.34, 0.17], [0.34, 0.83], [0.7, 0.83]]), dense([[0.34, 0.5], [0.62, 0.5]])],
  K: [dense([[0.34, 0.16], [0.34, 0.84]]), dense([[0.7, 0.18], [0.36, 0.52], [0.72, 0.84]])],
  M: [dense([[0.22, 0.84], [0.27, 0.18], [0.5, 0.6], [0.73, 0.18], [0.78, 0.84]])],
  R: [dense([[0.34, 0.84], [0.34, 0.17]]), [[0.34, 0.17], ...arc(0.5, 0.33, 0.19, 0.16, -90, 90), ...dense([[0.36, 0.49], [0.7, 0.84]])]],
  X: [dense([[0.28, 0.17], [0.72, 0.83]]), dense([[0.72, 0.17], [0.28, 0.83]])],
};

// A scribble that a seed repeats: a point pulled about by slow waves.
export function scribble(seed) {
  let held = (seed * 2654435761 + 12345) >>> 0;
  const chance = () => { held = (Math.imul(held, 1664525) + 1013904223) >>> 0; return held / 4294967296; };
  const waves = Array.from({ length: 4 }, () => [2 + chance() * 7, chance() * 6.28, 1.5 + chance() * 8, chance() * 6.28]);
  return [Array.from({ length: 90 }, (_, k) => {
    const turn = k / 90 * 3;
    let [x, y] = [0, 0];
    for (const [a, b, c, d] of waves) { x += Math.sin(a * turn + b); y += Math.sin(c * turn + d); }
    return [0.5 + x * 0.1, 0.5 + y * 0.1];
  })];
}
