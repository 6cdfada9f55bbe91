// The coin: a Beta posterior exactly, and the same on a grid that anyone could write in five lines.
import { h, settings, slider, announce, problem, figure } from "../dom.js";
import { pageState } from "../state.js";
import { post } from "../api.js";
import { axes, legend } from "../charts/axes.js";
import { exporting } from "../export.js";

export async function show(place, head) {
  head.append(h("div", {}, h("h1", {}, "The coin"), h("p", { class: "lead" }, "How likely is heads, given the tosses? The grid tries a few values and weighs each by how well it explains the tosses. The curve is the exact posterior.")));
  const state = pageState({ heads: 3, tails: 0, a: 1, b: 1, cells: 19 });
  const body = () => ({ heads: state.heads, tails: state.tails, a: state.a, b: state.b, cells: state.cells });
  const tiles = h("dl", { class: "tiles" });
  const picture = figure(h("span"), "", ["probability of heads", "grid", "exact"], () => []);
  const trouble = h("div");
  let found = null, busy = false, again = false;

  async function update() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      found = await post("coin", body());
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
    const { grid } = found;
    const top = Math.max(1.2, Math.min(60, Math.max(...found.exact, ...grid.density))) * 1.12;
    const draw = (width) => {
      const chart = axes({ width, height: 350, x: { min: 0, max: 1, name: "probability of heads" }, y: { min: 0, max: top, name: "posterior density" }, label: `Posterior after ${state.heads} heads and ${state.tails} tails: exact mean ${found.mean.toFixed(4)}, on the grid ${grid.mean.toFixed(4)}.` });
      const half = 0.5 / (state.cells + 1);
      grid.theta.forEach((theta, k) => chart.bars([Math.max(0, theta - half), Math.min(1, theta + half)], [Math.min(grid.density[k], top)]));
      const pairs = (values) => values.map((value, k) => [found.theta[k], Math.min(value, top)]);
      chart.line(pairs(found.prior), "prior");
      chart.line(pairs(found.exact), "b");
      chart.cut(found.mean, `mean ${found.mean.toFixed(3)}`);
      legend(chart, [["exact", "b"], ["prior", "prior"], [`grid of ${state.cells} (bars)`, ""]], found.mean > 0.5 ? "left" : "right");
      return chart.svg;
    };
    picture.update(draw, `Bars: the grid. Dashed: the exact Beta(${state.a + state.heads}, ${state.b + state.tails}).`, () => grid.theta.map((theta, k) => [theta.toFixed(3), grid.density[k].toFixed(4), beta(theta).toFixed(4)]));
    const tile = (name, value, more) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)));
    tiles.replaceChildren(tile("Next toss is heads (exact)", found.mean.toFixed(4), `${state.a + state.heads} / ${state.a + state.b + state.heads + state.tails}`),
      tile(`On a grid of ${state.cells}`, grid.mean.toFixed(4), `off by ${Math.abs(grid.mean - found.mean).toFixed(4)}`),
      tile("95% interval", found.interval.map((value) => value.toFixed(3)).join(" to "), "exact, central"));
    announce(`Probability of heads ${found.mean.toFixed(3)}, on the grid ${grid.mean.toFixed(3)}`);
  }

  function beta(theta) {
    const place = theta * 200;
    const low = Math.max(0, Math.min(199, Math.floor((theta - 0.001) / 0.998 * 200)));
    return Number.isFinite(place) ? found.exact[low] : 0;
  }

  const control = (label, name, min, max, step = 1) => slider({ label, min, max, step, value: state[name], oninput: (value) => { state.set({ [name]: value }); update(); } });
  head.append(exporting("coin", place, { python: () => ["coin", body()], data: () => ({ ...body(), ...found }) }));
  place.append(h("div", { class: "page lesson" }, settings(control("Heads", "heads", 0, 60), control("Tails", "tails", 0, 60), control("Prior a (heads)", "a", 0.5, 30, 0.5), control("Prior b (tails)", "b", 0.5, 30, 0.5), control("Grid points", "cells", 3, 101, 2)),
    h("div", { class: "stack" }, trouble, tiles, h("section", { class: "card" }, picture))));
  await update();
  return undefined;
}
