// The posterior of a line: mean, 90% bands of the line and of a new point.
(() => {
  const box = document.getElementById("line");
  if (!box) return;
  const noise = 0.3, scale = 2;
  let points = [[-1.2, -0.6], [-0.6, -0.4], [0.3, 0.5]];
  box.innerHTML = '<svg viewBox="0 0 640 340" role="img" aria-label="Points, the mean line and two bands" style="cursor:crosshair"></svg>' +
    '<button type="button" class="md-button">Remove all points</button><p aria-live="polite"></p>';
  const svg = box.querySelector("svg"), X = (x) => 320 + 80 * x, Y = (y) => 170 - 60 * y;
  const posterior = () => {
    let a = 1 / scale ** 2, b = 0, c = 1 / scale ** 2, u = 0, v = 0;
    for (const [x, y] of points) { a += 1 / noise ** 2; b += x / noise ** 2; c += x * x / noise ** 2; u += y / noise ** 2; v += x * y / noise ** 2; }
    const det = a * c - b * b, S = [c / det, -b / det, a / det];
    return {m: [S[0] * u + S[1] * v, S[1] * u + S[2] * v], S};
  };
  const draw = () => {
    const {m, S} = posterior(), xs = Array.from({length: 81}, (_, i) => -4 + i / 10);
    const spread = (x, extra) => 1.645 * Math.sqrt(S[0] + 2 * S[1] * x + S[2] * x * x + extra);
    const band = (extra, opacity) => {
      const up = xs.map((x) => `${X(x)},${Y(m[0] + m[1] * x + spread(x, extra))}`), down = xs.map((x) => `${X(x)},${Y(m[0] + m[1] * x - spread(x, extra))}`).reverse();
      return `<polygon points="${up.concat(down).join(" ")}" fill="#5c6bc0" opacity="${opacity}"/>`;
    };
    svg.innerHTML = band(noise ** 2, 0.18) + band(0, 0.35) +
      `<line x1="${X(-4)}" y1="${Y(m[0] - 4 * m[1])}" x2="${X(4)}" y2="${Y(m[0] + 4 * m[1])}" stroke="#5c6bc0" stroke-width="2"/>` +
      points.map(([x, y]) => `<circle cx="${X(x)}" cy="${Y(y)}" r="5" fill="currentColor"/>`).join("");
    box.querySelector("p").textContent = `${points.length} points. Line: ${m[0].toFixed(2)} + ${m[1].toFixed(2)} x. Dark band: 90% of the lines. Light band: 90% of new points.`;
  };
  svg.addEventListener("click", (event) => {
    const place = svg.getBoundingClientRect(), k = 640 / place.width;
    points.push([((event.clientX - place.left) * k - 320) / 80, (170 - (event.clientY - place.top) * k) / 60]);
    draw();
  });
  box.querySelector("button").addEventListener("click", () => { points = []; draw(); });
  draw();
})();
