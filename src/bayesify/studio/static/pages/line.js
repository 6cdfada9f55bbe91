// The line: slope and intercept of dragged points, exactly and on a grid, with the lines that the data allows.
import { h, s, settings, slider, button, announce, problem, short, figure } from "../dom.js";
import { pageState } from "../state.js";
import { post } from "../api.js";
import { axes, legend } from "../charts/axes.js";
import { exporting } from "../export.js";

const START = "-2,-6.2503;-0.6667,-2.5021;0.6667,-6.0753;2,7.9208";
const X = [-5, 5], Y = [-25, 25];

export async function show(place, head) {
  head.append(h("div", {}, h("h1", {}, "The line"), h("p", { class: "lead" }, "Drag the points. The band shows where the next point is expected. It is narrow near the data and widens away from it.")));
  const state = pageState({ points: START, noise: 3, cells: 31, draws: 20, seed: 0 });
  let points = read(state.points) ?? read(START);
  const body = () => ({ points, noise: state.noise, cells: state.cells, draws: state.draws, seed: state.seed });
  const trouble = h("div"), tiles = h("dl", { class: "tiles" });
  const picture = figure(h("span"), "", ["x", "mean", "95% from", "to"], () => []);
  const gridPicture = figure(h("span"), "", null);
  let found = null, busy = false, again = false, grabbed = -1, chart = null;

  async function update() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      found = await post("line", body());
      trouble.replaceChildren();
      render();
    } catch (error) {
      trouble.replaceChildren(problem(error));
    } finally {
      busy = false;
      if (again) { again = false; update(); }
    }
  }

  function render() {
    const clip = (value) => Math.min(Y[1], Math.max(Y[0], value));
    const shown = found.x.map((x, k) => k).filter((k) => found.x[k] >= X[0] && found.x[k] <= X[1]);
    const pairs = (values) => shown.map((k) => [found.x[k], clip(values[k])]);
    const draw = (width) => {
      chart = axes({ width, height: 380, x: { min: X[0], max: X[1], name: "x" }, y: { min: Y[0], max: Y[1], name: "y" }, label: `Line through ${points.length} points: slope ${found.exact.mean[0].toFixed(3)} ± ${found.exact.std[0].toFixed(3)}, intercept ${found.exact.mean[1].toFixed(3)} ± ${found.exact.std[1].toFixed(3)}.` });
      chart.svg.setAttribute("role", "group");
      chart.band(pairs(found.lower), pairs(found.upper));
      chart.band(pairs(found.line_lower), pairs(found.line_upper), "inner");
      for (const [slope, intercept] of found.draws) chart.line([X[0], X[1]].map((x) => [x, slope * x + intercept]).map(([x, y]) => inside(x, y, slope, intercept)), "hair");
      chart.line(pairs(found.mean));
      points.forEach((point, k) => handle(point, k));
      return chart.svg;
    };
    const focused = document.activeElement?.dataset?.point;
    picture.update(draw, "Dark band: 95% interval of the line. Light band: 95% interval of the next point, with its noise. Thin lines: posterior draws.", () => shown.filter((_, k) => k % 4 === 0).map((k) => [found.x[k], found.mean[k], found.lower[k], found.upper[k]].map((value) => value.toFixed(2))));
    if (focused !== undefined) chart.svg.querySelector(`[data-point="${focused}"]`)?.focus();
    renderGrid();
    const tile = (name, exact, grid, spread) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, `${exact.toFixed(3)} ± ${spread.toFixed(3)}`, h("small", {}, `grid of ${state.cells}²: ${grid.toFixed(3)}`)));
    tiles.replaceChildren(tile("Slope (exact)", found.exact.mean[0], found.grid.mean[0], found.exact.std[0]), tile("Intercept (exact)", found.exact.mean[1], found.grid.mean[1], found.exact.std[1]));
    announce(`Slope ${found.exact.mean[0].toFixed(2)}, intercept ${found.exact.mean[1].toFixed(2)}`);
  }

  function inside(x, y, slope, intercept) {
    if (y >= Y[0] && y <= Y[1]) return [x, y];
    const edge = y > Y[1] ? Y[1] : Y[0];
    return [Math.min(X[1], Math.max(X[0], (edge - intercept) / slope)), edge];
  }

  function handle([x, y], k) {
    const mark = chart.mark(x, y, "handle", 8);
    const words = () => `Point ${k + 1} at ${points[k][0].toFixed(2)}, ${points[k][1].toFixed(2)}`;
    for (const [name, value] of Object.entries({ tabindex: 0, role: "button", "aria-label": `${words()}: arrow keys move it, Delete removes it`, "data-point": k })) mark.setAttribute(name, value);
    mark.addEventListener("pointerdown", (event) => { event.preventDefault(); grabbed = k; mark.focus({ preventScroll: true }); });
    mark.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.5], ArrowDown: [0, -0.5] }[event.key];
      if (moves) move(k, points[k][0] + moves[0], points[k][1] + moves[1]);
      else if ((event.key === "Delete" || event.key === "Backspace") && points.length > 2) { points.splice(k, 1); changed(); }
      else return;
      event.preventDefault();
    });
  }

  function move(k, x, y) {
    points[k] = [Math.min(X[1], Math.max(X[0], x)), Math.min(Y[1], Math.max(Y[0], y))].map((value) => Number(value.toFixed(3)));
    changed();
  }

  function changed() {
    state.set({ points: points.map((point) => point.join(",")).join(";") });
    update();
  }

  const drag = (event) => {
    if (grabbed < 0 || !chart) return;
    const box = chart.svg.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width * chart.width, (event.clientY - box.top) / box.height * chart.height];
    move(grabbed, X[0] + (share[0] - chart.left) / (chart.width - chart.right - chart.left) * (X[1] - X[0]), Y[1] - (share[1] - chart.top) / (chart.height - chart.bottom - chart.top) * (Y[1] - Y[0]));
  };
  const release = () => { grabbed = -1; };
  addEventListener("pointermove", drag);
  addEventListener("pointerup", release);

  function renderGrid() {
    const { slope, intercept, weights } = found.grid;
    const most = Math.max(...weights.flat());
    const draw = (width) => {
      const plot = axes({ width, height: 380, x: { min: slope[0], max: slope.at(-1), name: "slope" }, y: { min: intercept[0], max: intercept.at(-1), name: "intercept" }, label: `Posterior of slope and intercept on a grid of ${state.cells} by ${state.cells}, with the exact ellipses of one and two standard deviations.` });
      const half = [(slope[1] - slope[0]) / 2, (intercept[1] - intercept[0]) / 2];
      slope.forEach((a, i) => intercept.forEach((b, j) => {
        const share = weights[i][j] / most;
        if (share < 0.004) return;
        const [x, y] = [plot.at.x(a - half[0]), plot.at.y(b + half[1])];
        plot.add(s("rect", { class: "fill", x, y, width: plot.at.x(a + half[0]) - x + 0.3, height: plot.at.y(b - half[1]) - y + 0.3 })).style.opacity = share * 0.85;
      }));
      const [[aa, ab], [, bb]] = found.exact.covariance;
      const [l11, l21] = [Math.sqrt(aa), ab / Math.sqrt(aa)];
      const l22 = Math.sqrt(Math.max(0, bb - l21 * l21));
      for (const size of [1, 2]) {
        const path = Array.from({ length: 61 }, (_, k) => { const turn = k / 60 * 2 * Math.PI; const [u, v] = [size * Math.cos(turn), size * Math.sin(turn)]; return [found.exact.mean[0] + l11 * u, found.exact.mean[1] + l21 * u + l22 * v]; });
        plot.add(s("path", { class: "ellipse", d: path.map(([x, y], k) => `${k ? "L" : "M"}${plot.at.x(x).toFixed(1)} ${plot.at.y(y).toFixed(1)}`).join("") }));
      }
      legend(plot, [["exact, 1 and 2 standard deviations", "b"]]);
      return plot.svg;
    };
    gridPicture.update(draw, "Squares: grid. Dashed: exact posterior.");
  }

  const control = (label, name, min, max, step) => slider({ label, min, max, step, value: state[name], oninput: (value) => { state.set({ [name]: value }); update(); } });
  head.append(exporting("line", place, { python: () => ["line", body()], data: () => ({ ...body(), ...found }) }));
  place.append(settings(control("Noise", "noise", 0.5, 10, 0.1), control("Grid points per axis", "cells", 5, 61, 2), control("Lines drawn", "draws", 0, 60, 1),
    h("div", { class: "row" }, button("Add a point", () => { if (points.length < 40) { points.push([Number(((points.length * 1.7) % 8 - 4).toFixed(2)), 0]); changed(); } }), button("Start over", () => { points = read(START); changed(); }))),
  trouble, tiles, h("div", { class: "two" }, h("section", { class: "card" }, h("h2", { "data-words": "" }, "Lines that fit the data"), picture), h("section", { class: "card" }, h("h2", { "data-words": "" }, "Slope and intercept: grid and exact posterior"), gridPicture)));
  await update();
  return () => { removeEventListener("pointermove", drag); removeEventListener("pointerup", release); };
}

function read(text) {
  const found = text.split(";").map((pair) => pair.split(",").map(Number));
  return found.length >= 2 && found.every((pair) => pair.length === 2 && pair.every(Number.isFinite)) ? found : null;
}
