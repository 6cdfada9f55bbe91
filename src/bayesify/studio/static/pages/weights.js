// Weights: how the posterior's weights are spread, which carry a signal, and what it costs to do without the others.
import { h, s, slider, select, announce, problem, percent, short, modelName, figure } from "../dom.js";
import { pageState } from "../state.js";
import { models, get } from "../api.js";
import { axes, legend } from "../charts/axes.js";
import { exporting } from "../export.js";

const FRACTIONS = [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98];
const KINDS = ["", "b", "c", "d", "faint"];

export async function show(place) {
  const head = h("div", { class: "head" }, h("div", {}, h("h1", {}, "Weights"), h("p", { class: "lead" },
    "A Bayesian weight is a distribution. Where its width exceeds its mean it carries more noise than signal, and the network can do without it.")));
  place.append(head);
  const known = await models(() => announce("The runs are still being read"));
  if (!known.models.length) {
    place.append(h("p", { class: "empty" }, "No run is loaded. Start the studio with one: bayesify serve RUN"));
    return undefined;
  }
  const preferred = known.models.find((model) => model.gaussian) ?? known.models[0];
  const state = pageState({ model: preferred.name, fraction: 0.75, by: "snr", draws: 30, seed: 0 });
  if (!known.models.some((model) => model.name === state.model)) state.set({ model: preferred.name });
  const content = h("div", { class: "stack" }, h("p", { class: "waiting" }, "Reading the weights…"));
  let about = null, turn = 0;
  const measured = new Map();

  async function load() {
    const mine = ++turn;
    measured.clear();
    content.replaceChildren(h("p", { class: "waiting" }, "Reading the weights…"));
    try {
      const found = await get("weights", { model: state.model });
      if (mine !== turn) return;
      about = found;
      layout();
      if (about.snr) measureAll(mine);
    } catch (error) {
      if (mine === turn) content.replaceChildren(problem(error));
    }
  }

  const tiles = h("dl", { class: "tiles", "aria-live": "polite" });
  const densityFigure = figure(h("span"), "", null);
  const singleFigure = figure(h("span"), "", ["weight", "mean", "standard deviation", "signal-to-noise"], () => []);
  const snrFigure = figure(h("span"), "", ["signal-to-noise from", "to", "share of weights"], () => []);
  const curveFigure = figure(h("span"), "", ["weights removed", "error", "NLL"], () => []);
  const trouble = h("div");

  function layout() {
    const density = h("section", { class: "card" }, h("h2", { "data-words": "" }, "Posterior densities by layer"), densityFigure);
    drawDensities();
    if (!about.snr) {
      content.replaceChildren(h("p", { class: "empty" }, `${modelName(about.model ? { name: about.model, method: about.method } : about)}: ${about.why}. A variational run has one.`), density);
      return;
    }
    drawSingles();
    content.replaceChildren(
      h("section", { class: "card stack" }, slider({ label: "Remove this share of the weights, the weakest first", min: 0, max: 0.99, step: 0.01, value: state.fraction, format: (v) => percent(v, 0), wide: true,
        oninput: (fraction) => { state.set({ fraction }); render(); }, onchange: () => measure(turn, state.fraction) }), tiles, trouble),
      h("div", { class: "two" },
        h("section", { class: "card" }, h("h2", { "data-words": "" }, "Signal-to-noise, and the cut"), snrFigure),
        h("section", { class: "card" }, h("h2", { "data-words": "" }, "What pruning costs"), curveFigure),
        density,
        h("section", { class: "card" }, h("h2", { "data-words": "" }, "Single weights, strongest to weakest"), singleFigure)));
    render();
  }

  async function measure(mine, fraction) {
    if (measured.has(fraction)) return;
    try {
      const found = await get("weights/pruned", { model: state.model, fraction, by: state.by, draws: state.draws, seed: state.seed });
      if (mine !== turn) return;
      measured.set(fraction, found);
      trouble.replaceChildren();
      render();
    } catch (error) {
      if (mine === turn) trouble.replaceChildren(problem(error));
    }
  }

  async function measureAll(mine) {
    for (const fraction of [...new Set([0, state.fraction, ...FRACTIONS])]) if (mine === turn) await measure(mine, fraction);
  }

  function drawDensities() {
    const [low, high] = [about.centres[0], about.centres.at(-1)];
    const top = Math.max(...about.layers.flatMap((layer) => layer.density)) * 1.12;
    const chart = axes({ x: { min: low, max: high, name: "weight" }, y: { min: 0, max: top, name: "density" }, label: `Densities of the weights of ${about.layers.length} layers over ${about.draws} posterior draws.` });
    const pairs = (values) => values.map((value, k) => [about.centres[k], Math.min(value, top)]);
    about.layers.forEach((layer, k) => { chart.area(pairs(layer.density), k % 2 ? "b" : ""); chart.line(pairs(layer.density), KINDS[k % KINDS.length]); });
    if (about.prior) chart.line(pairs(about.prior), "prior");
    legend(chart, [...about.layers.map((layer, k) => [`${layer.name} (${layer.weights.toLocaleString("en")})`, KINDS[k % KINDS.length]]), ...(about.prior ? [["prior", "prior"]] : [])]);
    const caption = about.prior ? "Where the curve leaves the prior, the data has spoken." : `Over ${about.draws} posterior draws.`;
    densityFigure.update(chart.svg, caption);
  }

  // One row for each weight, every density scaled to its row: their widths are what differs.
  function drawSingles() {
    const reach = Math.max(...about.single.map(({ mean, std }) => Math.abs(mean) + 2.6 * std));
    const rows = about.single.length;
    const chart = axes({ x: { min: -reach, max: reach, name: "weight" }, y: { min: 0, max: rows, count: 1, name: "weakest to strongest", format: () => "" }, label: `Gaussian posteriors of ${rows} weights, from the strongest signal to the weakest.` });
    chart.add(s("line", { class: "zero", x1: chart.at.x(0), x2: chart.at.x(0), y1: chart.top, y2: chart.height - chart.bottom }));
    about.single.forEach(({ mean, std, name }, k) => {
      const base = rows - 1 - k;
      const points = Array.from({ length: 81 }, (_, i) => mean + (i / 40 - 1) * 3.2 * std).filter((x) => Math.abs(x) <= reach).map((x) => `${chart.at.x(x).toFixed(1)} ${chart.at.y(base + 0.86 * Math.exp(-0.5 * ((x - mean) / std) ** 2)).toFixed(1)}`);
      chart.add(s("path", { class: "ridge", d: `M${points.join("L")}` }));
      chart.words(-reach * 0.98, base + 0.62, name);
      chart.words(reach * 0.98, base + 0.62, `signal-to-noise ${short(Math.abs(mean) / std)}`, "direct", "end");
    });
    singleFigure.update(chart.svg, "Each row is one weight's posterior, scaled to its row. The strongest is narrow and away from zero, the weakest is wide and lies on it.", () => about.single.map(({ name, mean, std }) => [name, mean.toFixed(4), std.toFixed(4), short(Math.abs(mean) / std)]));
  }

  function render() {
    const { snr } = about;
    const cut = snr.cuts[Math.round(state.fraction * 100)];
    const removed = Math.round(state.fraction * snr.prunable);
    const [before, now] = [measured.get(0), measured.get(state.fraction)];
    const tile = (name, value, more, warn) => h("div", { class: warn ? "tile warn" : "tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)));
    const cost = before && now ? now.error - before.error : null;
    tiles.replaceChildren(
      tile("Weights removed", removed.toLocaleString("en"), `of ${snr.prunable.toLocaleString("en")}; biases stay`),
      tile("Cut", state.by === "snr" ? short(cut) : "by size", state.by === "snr" ? "signal-to-noise below it goes" : "the smallest means go"),
      tile("Error without pruning", before ? percent(before.error, 2) : "…", before ? `${before.examples} test examples` : "measuring"),
      tile("Error after pruning", now ? percent(now.error, 2) : "…", now ? `NLL ${short(now.nll)}, was ${short(before?.nll)}` : "measured when you let go"),
      tile("What it costs", cost === null ? "…" : `${cost >= 0 ? "+" : "−"}${percent(Math.abs(cost), 2)}`, cost === null ? "measuring" : Math.abs(cost) < 0.005 ? "hardly anything" : cost > 0 ? "more errors" : "fewer errors", cost !== null && cost > 0.02));
    const top = Math.max(...snr.shares) * 1.2;
    const chart = axes({ x: { min: snr.edges[0], max: snr.edges.at(-1), log: true, name: "signal-to-noise |mean| / standard deviation (log)" }, y: { min: 0, max: top, name: "share of weights", format: (v) => percent(v, 0) }, label: `Histogram of signal-to-noise; ${percent(state.fraction, 0)} of the weights lie below ${short(cut)}.` });
    chart.bars(snr.edges, snr.shares, (k) => (state.by === "snr" && snr.edges[k + 1] <= cut ? "removed" : ""));
    if (state.by === "snr") chart.cut(Math.max(cut, snr.edges[0]), `${percent(state.fraction, 0)} below ${short(cut)}`);
    snrFigure.update(chart.svg, "Dashed bars are removed. Near 1 and below, a weight could as well be zero.", () => snr.shares.map((share, k) => [short(snr.edges[k]), short(snr.edges[k + 1]), percent(share, 2)]));
    const points = [...measured.values()].sort((a, b) => a.fraction - b.fraction);
    const high = Math.max(0.02, ...points.map((point) => point.error)) * 1.2;
    const pruning = axes({ x: { min: 0, max: 1, name: "weights removed", format: (v) => percent(v, 0) }, y: { min: 0, max: high, name: "test error", format: (v) => percent(v, high < 0.05 ? 1 : 0) }, label: `Error after pruning: ${points.map((point) => `${percent(point.fraction, 0)} removed, ${percent(point.error, 2)}`).join("; ")}.` });
    if (points.length) pruning.line(points.map((point) => [point.fraction, point.error]));
    for (const point of points) pruning.mark(point.fraction, point.error, "dot", 4);
    pruning.cut(state.fraction, percent(state.fraction, 0));
    curveFigure.update(pruning.svg, "Measured at the dots, on the test examples, by posterior draws before and after.", () => points.map((point) => [percent(point.fraction, 0), percent(point.error, 2), short(point.nll)]));
    if (now) announce(`${percent(state.fraction, 0)} removed: error ${percent(now.error, 2)}`);
  }

  place.append(h("section", { class: "card controls", "aria-label": "Settings" },
    select({ label: "Run", options: known.models.map((model) => [model.name, modelName(model)]), value: state.model, onchange: (model) => { state.set({ model }); load(); } }),
    select({ label: "Weakest by", options: [["snr", "signal-to-noise"], ["magnitude", "magnitude"]], value: state.by, onchange: (by) => { state.set({ by }); load(); } }),
    slider({ label: "Posterior draws", min: 1, max: 100, step: 1, value: state.draws, onchange: (draws) => { state.set({ draws }); load(); } })), content);
  head.append(exporting("weights", place, {
    python: () => ["weights", { model: state.model, fraction: state.fraction, by: state.by, draws: state.draws, seed: state.seed }],
    data: () => ({ ...about, pruned: [...measured.values()] }),
  }));
  await load();
  return () => { turn += 1; };
}
