// Values over a square of the plane as a picture: colours that fade to paper, and the line where two classes are even.
import { rgb, s } from "../dom.js";

export function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

const mix = (from, to, share) => from.map((value, place) => Math.round(value + (to[place] - value) * share));
const entropy = (p) => (p <= 0 || p >= 1 ? 0 : -(p * Math.log2(p) + (1 - p) * Math.log2(1 - p)));

// The colour is the likelier class's, and fades as the answer becomes uncertain.
export function posteriorColours() {
  const [paper, first, second] = [rgb("--card"), rgb("--first"), rgb("--second")];
  return Array.from({ length: 256 }, (_, level) => {
    const p = level / 255;
    return mix(paper, p < 0.5 ? first : second, 0.82 * (1 - entropy(p)) ** 0.8);
  });
}

export function doubtColours() {
  const [paper, dark] = [rgb("--card"), rgb("--unsure")];
  return Array.from({ length: 256 }, (_, level) => mix(paper, dark, (level / 255) ** 0.8));
}

export function paint(canvas, levels, side, colours) {
  const small = new OffscreenCanvas(side, side);
  const context = small.getContext("2d");
  const image = context.createImageData(side, side);
  levels.forEach((level, place) => image.data.set([...colours[level], 255], 4 * place));
  context.putImageData(image, 0, 0);
  const target = canvas.getContext("2d");
  target.imageSmoothingEnabled = true;
  target.imageSmoothingQuality = "high";
  target.drawImage(small, 0, 0, canvas.width, canvas.height);
}

export function ramp(canvas, colours) {
  const context = canvas.getContext("2d");
  colours.forEach((colour, level) => { context.fillStyle = `rgb(${colour})`; context.fillRect(level / 256 * canvas.width, 0, 2, canvas.height); });
}

// Marching squares at one half, in a square of side 100.
export function evenLine(levels, side) {
  const at = (row, column) => levels[row * side + column] - 127.5;
  const place = (index) => (index + 0.5) / side * 100;
  let path = "";
  for (let row = 0; row + 1 < side; row += 1) {
    for (let column = 0; column + 1 < side; column += 1) {
      const corners = [[row, column], [row, column + 1], [row + 1, column + 1], [row + 1, column]];
      const crossings = [];
      corners.forEach(([a, b], number) => {
        const [c, d] = corners[(number + 1) % 4];
        const [one, two] = [at(a, b), at(c, d)];
        if (one * two < 0) {
          const share = one / (one - two);
          crossings.push([place(b + (d - b) * share), place(a + (c - a) * share)]);
        }
      });
      for (let pair = 0; pair + 1 < crossings.length; pair += 2) {
        path += `M${crossings[pair].map((v) => v.toFixed(1)).join(" ")}L${crossings[pair + 1].map((v) => v.toFixed(1)).join(" ")}`;
      }
    }
  }
  return s("path", { class: "contour", d: path, "vector-effect": "non-scaling-stroke" });
}
