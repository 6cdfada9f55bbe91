// Weights: how the posterior's weights are spread, which carry a signal, and what it costs to do without the others.
import { h, s, slider, select, announce, problem, percent, short, modelName, figure, missingRun, settings } from "../dom.js";
import { pageState } from "../state.js";
import { models, get } from "../api.js";
import { axes, legend } from "../charts/axes.js";
import { NetworkGraph } from "../charts/graph.js";
import { exporting } from "../export.js";

const FRACTIONS = [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98];
const KINDS = ["", "b", "c", "d", "faint"];
// Below a thousandth the size of a ratio says nothing more.
const ratio = (value) => (value < 0.001 ? "below 0.001" : short(value));

export async function show(place) {
  const head = h("div", { class: "head" }, h("div", {}, h("h1", {}, "Weights"), h("p", { class: "lead" },
    "The part you do not need: if a weight's standard deviation is larger than its mean, it carries more noise than signal. Drag the slider to remove such weights, and see whether the accuracy holds.")));
  place.append(head);
  const known = await models(() => announce("The runs are still being read"));
  if (!known.models.length) {
    place.append(h("p", { class: "empty" }, "No run is loaded. Start the studio with one: bayesify serve RUN"));
    return undefined;
  }
  const preferred = known.models.find((model) => model.gaussian && model.kind === "classification") ?? known.models.find((model) => model.gaussian) ?? known.models[0];
  const state = pageState({ model: preferred.name, fraction: 0.75, by: "snr", draws: 30, seed: 0 });
  const missing = missingRun(state.model, known.models, modelName(preferred));
  if (missing) { state.set({ model: preferred.name }); place.append(missing); }
  // Classes have a share of wrong answers, numbers a distance in the units of what is predicted.
  const counted = () => known.models.find((model) => model.name === state.model).kind === "classification";
  const measure = () => (counted() ? "error" : "RMSE");
  const amount = (value, digits = 2) => (counted() ? percent(value, digits) : short(value));
  const content = h("div", { class: "stack" }, h("p", { class: "waiting" }, "Reading the weights…"));
  let about = null, turn = 0, waiting = 0;
  const measured = new Map();

  async function load() {
    const mine = ++turn;
    clearTimeout(waiting);  // what the slider waits to measure is of the run before
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
  const curveFigure = figure(h("span"), "", ["weights removed", "error or RMSE", "NLL"], () => []);
  const trouble = h("div");
  const [large, largeLeft] = [h("p", { class: "large", role: "status" }), h("p", { class: "large" })];
  const graph = new NetworkGraph();
  // While the slider moves, it is measured where it rests for a moment.
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(() => measureOne(turn, state.fraction), 120); };

  function layout() {
    const density = h("section", { class: "card" }, h("h2", { "data-words": "" }, about.draws === 1 ? "Weights by layer" : "Posterior densities by layer"), densityFigure);
    drawDensities();
    if (!about.snr) {
      const other = known.models.find((model) => model.gaussian);
      content.replaceChildren(h("p", { class: "empty", "data-why": "" }, `About ${modelName({ ...about, name: about.model })}: ${about.why}. Its weights by layer are below. ${other ? `Choose ${modelName(other)} to see signal-to-noise ratios.` : "A variational run has them."}`), density);
      return;
    }
    drawSingles();
    graph.set(about.graph, state.by, state.fraction);
    content.replaceChildren(
      h("section", { class: "card stack", "data-tour": "prune" }, h("div", { class: "hero-number" }, large, largeLeft), slider({ label: "Remove this share of the weights, the weakest first", min: 0, max: 0.99, step: 0.01, value: state.fraction, format: (v) => percent(v, 0), wide: true,
        oninput: (fraction) => { state.set({ fraction }); render(); soon(); }, onchange: () => measureOne(turn, state.fraction) }), graph.element, tiles, trouble),
      h("div", { class: "two" },
        h("section", { class: "card" }, h("h2", { "data-words": "" }, "Signal-to-noise ratio of the weights"), snrFigure),
        h("section", { class: "card" }, h("h2", { "data-words": "" }, "What pruning costs"), curveFigure),
        density,
        h("section", { class: "card" }, h("h2", { "data-words": "" }, "Single weights, the strongest on top"), singleFigure)));
    render();
  }

  async function measureOne(mine, fraction) {
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
    for (const fraction of [...new Set([0, state.fraction, ...FRACTIONS])]) if (mine === turn) await measureOne(mine, fraction);
  }

  function drawDensities() {
    const [low, high] = [about.centres[0], about.centres.at(-1)];
    const top = Math.max(...about.layers.flatMap((layer) => layer.density)) * 1.12;
    const over = about.draws === 1 ? (about.method === "point" ? "of a single network" : about.method === "ensemble" ? "of one of its networks" : "of one posterior draw") : `over ${about.draws} posterior draws`;
    const draw = (width) => {
      const chart = axes({ width, x: { min: low, max: high, name: "weight" }, y: { min: 0, max: top, name: "density" }, label: `Densities of the weights of ${about.layers.length} layers ${over}.` });
      const pairs = (values) => values.map((value, k) => [about.centres[k], Math.min(value, top)]);
      about.layers.forEach((layer, k) => { chart.area(pairs(layer.density), k % 2 ? "b" : ""); chart.line(pairs(layer.density), KINDS[k % KINDS.length]); });
      if (about.prior) chart.line(pairs(about.prior), "prior");
      legend(chart, [...about.layers.map((layer, k) => [`${layer.name} (${layer.weights.toLocaleString("en")})`, KINDS[k % KINDS.length]]), ...(about.prior ? [["prior", "prior"]] : [])]);
      return chart.svg;
    };
    const caption = about.prior ? "Curves that differ from the dotted prior were shaped by data." : `${over[0].toUpperCase()}${over.slice(1)}.`;
    densityFigure.update(draw, caption);
  }

  // One row for each weight, every density scaled to its row: their widths are what differs.
  function drawSingles() {
    const reach = Math.max(...about.single.map(({ mean, std }) => Math.abs(mean) + 2.6 * std));
    const rows = about.single.length;
    const draw = (width) => {
      const chart = axes({ width, x: { min: -reach, max: reach, name: "weight" }, y: { min: 0, max: rows, count: 1, name: "one row for each weight", format: () => "" }, label: `Gaussian posteriors of ${rows} weights, from the strongest signal to the weakest.` });
      chart.add(s("line", { class: "zero", x1: chart.at.x(0), x2: chart.at.x(0), y1: chart.top, y2: chart.height - chart.bottom }));
      about.single.forEach(({ mean, std, name }, k) => {
        const base = rows - 1 - k;
        const points = Array.from({ length: 81 }, (_, i) => mean + (i / 40 - 1) * 3.2 * std).filter((x) => Math.abs(x) <= reach).map((x) => `${chart.at.x(x).toFixed(1)} ${chart.at.y(base + 0.58 * Math.exp(-0.5 * ((x - mean) / std) ** 2)).toFixed(1)}`);
        chart.add(s("path", { class: "ridge", d: `M${points.join("L")}` }));
        // Above the curve of the row, which ends below it.
        chart.words(-reach * 0.98, base + 0.72, name);
        chart.words(reach * 0.98, base + 0.72, `${width < 440 ? "SNR" : "signal-to-noise"} ${ratio(Math.abs(mean) / std)}`, "direct", "end");
      });
      return chart.svg;
    };
    singleFigure.update(draw, "Each row is the posterior of one weight, scaled to the same height. The strongest is narrow and far from zero. The weakest is wide and centred on zero.", () => about.single.map(({ name, mean, std }) => [name, mean.toFixed(4), std.toFixed(4), ratio(Math.abs(mean) / std)]));
  }

  function render() {
    const { snr } = about;
    const cut = snr.cuts[Math.round(state.fraction * 100)];
    const removed = Math.round(state.fraction * snr.prunable);
    const [before, now] = [measured.get(0), measured.get(state.fraction)];
    graph.cut(state.fraction, state.by);
    const near = now ?? [...measured.values()].sort((a, b) => Math.abs(a.fraction - state.fraction) - Math.abs(b.fraction - state.fraction))[0];
    large.replaceChildren(near ? (counted() ? percent(1 - near.error, 1) : short(near.error)) : "…", h("small", {}, `${counted() ? "right" : "RMSE"}${now || !near ? "" : `, measured at ${percent(near.fraction, 0)} removed`}${before && now ? `; ${counted() ? percent(1 - before.error, 1) : short(before.error)} with all weights` : ""}`));
    largeLeft.replaceChildren(percent(1 - state.fraction, 0), h("small", {}, `of the weights left: ${(snr.prunable - removed).toLocaleString("en")} of ${snr.prunable.toLocaleString("en")}`));
    const tile = (name, value, more, warn) => h("div", { class: warn ? "tile warn" : "tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)));
    const cost = before && now ? now.error - before.error : null;
    tiles.replaceChildren(
      tile("Weights removed", removed.toLocaleString("en"), `of ${snr.prunable.toLocaleString("en")}; biases are kept`),
      tile("Cut", state.by === "snr" ? short(cut) : "by size", state.by === "snr" ? "weights with less signal-to-noise are removed" : "the smallest means are removed"),
      tile(counted() ? "Error without pruning" : "RMSE without pruning", before ? amount(before.error) : "…", before ? `${before.examples} test examples` : "measuring"),
      tile(counted() ? "Error after pruning" : "RMSE after pruning", now ? amount(now.error) : "…", now ? `NLL ${short(now.nll)}, was ${short(before?.nll)}` : "measured when the slider rests"),
      tile("What it costs", cost === null ? "…" : `${cost >= 0 ? "+" : "−"}${counted() ? `${(100 * Math.abs(cost)).toFixed(2)} points` : short(Math.abs(cost))}`, cost === null ? "measuring" : costWords(cost, before.error), cost !== null && cost > (counted() ? 0.02 : 0.1 * before.error)));
    const top = Math.max(...snr.shares) * 1.2;
    const drawSnr = (width) => {
      const chart = axes({ width, x: { min: snr.edges[0], max: snr.edges.at(-1), log: true, name: "signal-to-noise |mean| / standard deviation (log)" }, y: { min: 0, max: top, name: "share of weights", format: (v) => percent(v, 0) }, label: `Histogram of signal-to-noise; ${percent(state.fraction, 0)} of the weights lie below ${short(cut)}.` });
      chart.bars(snr.edges, snr.shares, (k) => (state.by === "snr" && snr.edges[k + 1] <= cut ? "removed" : ""));
      if (state.by === "snr") chart.cut(Math.max(cut, snr.edges[0]), `${percent(state.fraction, 0)} below ${short(cut)}`);
      return chart.svg;
    };
    snrFigure.update(drawSnr, `Dotted bars are removed. A weight with a ratio of about 1 or less could as well be zero.${snr.gathered ? ` The first bar includes ${snr.gathered.toLocaleString("en")} ${snr.gathered === 1 ? "weight" : "weights"} below ${short(snr.edges[0])}.` : ""}`, () => snr.shares.map((share, k) => [short(snr.edges[k]), short(snr.edges[k + 1]), percent(share, 2)]));
    const points = [...measured.values()].sort((a, b) => a.fraction - b.fraction);
    const high = Math.max(counted() ? 0.02 : 1e-9, ...points.map((point) => point.error)) * 1.2;
    const drawCost = (width) => {
      const pruning = axes({ width, x: { min: 0, max: 1, name: "weights removed", format: (v) => percent(v, 0) }, y: { min: 0, max: high, name: counted() ? "test error" : "RMSE on the test examples", format: counted() ? (v) => percent(v, high < 0.05 ? 1 : 0) : undefined }, label: `${measure()} after pruning: ${points.map((point) => `${percent(point.fraction, 0)} removed, ${amount(point.error)}`).join("; ")}.` });
      if (points.length) pruning.line(points.map((point) => [point.fraction, point.error]));
      for (const point of points) pruning.mark(point.fraction, point.error, "dot", 4);
      pruning.cut(state.fraction, percent(state.fraction, 0));
      return pruning.svg;
    };
    const part = before && before.examples < before.total ? `${before.examples.toLocaleString("en")} of the ${before.total.toLocaleString("en")} test examples, evenly spread` : "the test examples";
    curveFigure.update(drawCost, `Each dot was measured on ${part}, with ${state.draws} posterior draws.${counted() ? "" : " The root mean squared error has the units of what is predicted."}`, () => points.map((point) => [percent(point.fraction, 0), amount(point.error), short(point.nll)]));
    if (now) announce(`${percent(state.fraction, 0)} removed: ${measure()} ${amount(now.error)}`);
  }

  function costWords(cost, before) {
    if (Math.abs(cost) < (counted() ? 0.005 : 0.01 * before)) return "almost nothing";
    return counted() ? `${cost > 0 ? "more" : "fewer"} errors, in percentage points` : `RMSE, ${cost > 0 ? "more" : "less"}`;
  }

  place.append(h("div", { class: "side" }, h("div", { class: "card" }, select({ label: "Run", options: known.models.map((model) => [model.name, modelName(model)]), value: state.model, onchange: (model) => { state.set({ model }); load(); } })), settings(
    select({ label: "Rank weights by", options: [["snr", "signal-to-noise"], ["magnitude", "magnitude"]], value: state.by, onchange: (by) => { state.set({ by }); load(); } }),
    slider({ label: "Posterior draws", min: 1, max: 100, step: 1, value: state.draws, onchange: (draws) => { state.set({ draws }); load(); } }))), content);
  head.append(exporting("weights", place, {
    python: () => ["weights", { model: state.model, fraction: state.fraction, by: state.by, draws: state.draws, seed: state.seed }],
    data: () => ({ ...about, pruned: [...measured.values()] }),
  }));
  await load();
  return () => { turn += 1; };
}
