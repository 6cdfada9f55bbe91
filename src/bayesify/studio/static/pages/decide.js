// Decide: one threshold over the whole test set; what is accepted, what is refused, and which wrong answers were kept.
import { h, slider, select, number, announce, problem, percent, modelName, figure, missingRun, settings, lookOf, ofLargest, narrow } from "../dom.js";
import { pageState } from "../state.js";
import { models, get, blob } from "../api.js";
import { axes, legend } from "../charts/axes.js";
import { exporting } from "../export.js";
import { guaranteeChooser } from "./guarantee.js";

const NAMES = { confidence: "confidence", entropy: "total uncertainty (entropy)", epistemic: "epistemic uncertainty" };
const MOST = narrow() ? 12 : 30;

export async function show(place) {
  const head = h("div", { class: "head" }, h("div", {}, h("h1", {}, "Decide"), h("p", { class: "lead" },
    "A network that refuses the answers it is unsure of makes fewer mistakes. Move the threshold and see how many answers it gives and how many are wrong, on test examples that it was not trained on.")));
  place.append(head);
  const known = await models(() => announce("The runs are still being read"));
  const usable = known.models.filter((model) => model.kind === "classification");
  if (!usable.length) {
    place.append(h("p", { class: "empty" }, "No loaded run predicts classes. Start the studio with one: bayesify serve RUN"));
    return undefined;
  }
  const preferred = usable.find((model) => model.method === "variational") ?? usable[0];
  const state = pageState({ model: preferred.name, by: "confidence", threshold: 0.9, draws: 50, seed: 0 });
  const missing = missingRun(state.model, usable, modelName(preferred));
  if (missing) { state.set({ model: preferred.name }); place.append(missing); }
  if (!NAMES[state.by]) state.set({ by: "confidence" });
  const content = h("div", { class: "stack", "aria-busy": "true" }, h("p", { class: "waiting" }, "Predicting every test example…"));
  const others = new Map();
  let table = null, sheets = {}, turn = 0;

  const bounds = () => (state.by === "confidence" ? [0, 1, 0.005] : [0, Number(Math.log(table ? table.classes.length : 10).toFixed(2)), 0.005]);
  const certain = (score) => (state.by === "confidence" ? score >= state.threshold : score <= state.threshold);
  const format = (value) => (state.by === "confidence" ? percent(value) : `${ofLargest(value, table ? table.classes.length : 10)} (${value.toFixed(2)} nats)`);

  const summary = h("p", { class: "note", role: "status" });
  const tiles = h("dl", { class: "tiles" });
  const curveFigure = figure(h("span"), "", ["threshold", "coverage", "error of accepted"], () => []);
  const spreadFigure = figure(h("span"), "", ["score", "right", "wrong", "unknown"], () => []);
  const galleries = h("div", { class: "stack" });
  const sliderPlace = h("div", { class: "card", "data-tour": "threshold" });
  const guaranteePlace = h("p", { class: "note" });
  const chooser = guaranteeChooser(() => ({ model: state.model, by: state.by, draws: state.draws, seed: state.seed }),
    (threshold) => { state.set({ threshold }); makeSlider(); render(); });

  // A certified run has thresholds with a guarantee: one press sets them.
  function makePromises() {
    const known = (table.promises ?? []).filter((promise) => promise.by === state.by);
    guaranteePlace.hidden = known.length === 0;
    guaranteePlace.replaceChildren(...known.flatMap((promise) => [
      h("button", { type: "button", onclick: () => { state.set({ threshold: promise.threshold }); makeSlider(); render(); } }, `Guaranteed: at most ${percent(promise.max_error)} wrong`),
      ` with ${percent(promise.confidence, 0)} confidence, from ${promise.examples} examples${promise.holds ? "" : ` (made for ${promise.draws} draws and seed ${promise.seed}, so it does not hold for the draws shown here)`}. `]));
  }

  function makeSlider() {
    const [min, max, step] = bounds();
    sliderPlace.replaceChildren(slider({ label: state.by === "confidence" ? "Accept if the confidence is at least" : `Accept if the ${NAMES[state.by]} is at most`, min, max, step, value: state.threshold, format, wide: true,
      oninput: (threshold) => { state.set({ threshold }); render(); } }));
  }

  async function load() {
    const mine = ++turn;
    // Another run's numbers must not stand there meanwhile.
    table = null;
    content.setAttribute("aria-busy", "true");
    content.replaceChildren(h("p", { class: "waiting" }, `${modelName(usable.find((model) => model.name === state.model))} predicts every test example…`));
    try {
      const found = await get("decide", { model: state.model, draws: state.draws, seed: state.seed });
      const drawn = found.picture ? await sprites(found) : {};
      if (mine !== turn) return;
      [table, sheets] = [found, drawn];
      makeSlider();
      makePromises();
      content.replaceChildren(sliderPlace, chooser, guaranteePlace, tiles, summary, h("div", { class: "two" }, h("section", { class: "card" }, h("h2", { "data-words": "" }, "Error against coverage"), curveFigure), h("section", { class: "card" }, h("h2", { "data-words": "" }, "Confidence of right and wrong answers"), spreadFigure)), galleries);
      render();
      compareOthers(mine);
    } catch (error) {
      if (mine === turn) content.replaceChildren(problem(error));
    } finally {
      if (mine === turn) content.removeAttribute("aria-busy");
    }
  }

  async function sprites(found) {
    const sheet = async (unknown) => createImageBitmap(await blob("decide/images", { model: found.model, unknown }));
    return { known: await sheet(false), unknown: found.unknown ? await sheet(true) : null };
  }

  async function compareOthers(mine) {
    for (const model of usable) {
      if (mine !== turn) return;
      if (model.name === state.model || model.data !== usable.find((m) => m.name === state.model).data) continue;
      const key = `${model.name}/${state.draws}/${state.seed}`;
      try { if (!others.has(key)) others.set(key, await get("decide", { model: model.name, draws: state.draws, seed: state.seed })); } catch { /* its curve is left out */ }
    }
    if (mine === turn) render();
  }

  function curve(of) {
    const order = of.scores[state.by].map((score, k) => [score, of.labels[k] !== of.truth[k] ? 1 : 0]).sort((a, b) => (state.by === "confidence" ? b[0] - a[0] : a[0] - b[0]));
    const points = [];
    let wrong = 0;
    order.forEach(([score, loss], k) => {
      wrong += loss;
      // Answers that are equally sure are accepted together.
      if (k + 1 === order.length || order[k + 1][0] !== score) points.push([(k + 1) / order.length, wrong / (k + 1), score]);
    });
    return points;
  }

  function render() {
    if (!table) return;
    const scores = table.scores[state.by];
    // A run may have a check for unknown inputs, which comes before the threshold.
    const like = (of, k) => of?.known?.[k] ?? true;
    const rows = scores.map((score, k) => ({ k, score, kept: certain(score) && like(table, k), right: table.labels[k] === table.truth[k] }));
    const kept = rows.filter((row) => row.kept);
    const wrongKept = kept.filter((row) => !row.right);
    const refused = rows.filter((row) => !row.kept);
    const unknown = table.unknown?.scores[state.by] ?? [];
    const unknownKept = unknown.map((score, k) => ({ k, score, kept: certain(score) && like(table.unknown, k) })).filter((row) => row.kept);
    const unlike = rows.filter((row) => !like(table, row.k)).length;
    const error = kept.length ? wrongKept.length / kept.length : null;
    const all = rows.filter((row) => !row.right).length / rows.length;
    const tile = (name, value, more, warn) => h("div", { class: warn ? "tile warn" : "tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)));
    tiles.replaceChildren(
      tile("Coverage", percent(kept.length / rows.length), `${kept.length} of ${rows.length} accepted`),
      tile("Error of what is accepted", error === null ? "none" : percent(error), error === null ? "nothing is accepted" : `${percent(all)} if all are accepted`),
      tile("Wrong but accepted", String(wrongKept.length), `${rows.filter((row) => !row.right && !row.kept).length} wrong ones refused`, wrongKept.length > 0),
      tile("Refused", String(refused.length), `${refused.filter((row) => row.right).length} of them were right`),
      ...(table.unknown ? [tile("Unknown but accepted", String(unknownKept.length), `of ${unknown.length}, ${table.unknown.what}`, unknownKept.length > 0)] : []));
    const words = `At a threshold of ${format(state.threshold)}, ${percent(kept.length / rows.length)} of the test examples are answered${error === null ? "" : ` and ${percent(error)} of these answers are wrong`}.`;
    summary.textContent = `${words} Measured on ${table.shown < table.total ? `${table.shown.toLocaleString("en")} of the ${table.total.toLocaleString("en")} examples` : "all examples"} of ${table.what}${table.shown < table.total ? ", evenly spread" : ""}, with ${table.draws === 1 ? "a single network" : `${table.draws} draws each`}.${unlike ? ` ${unlike} of them are unlike the training data and refused at any threshold.` : ""}`;
    drawCurve(kept.length / rows.length, error);
    drawSpread(rows, unknown);
    const less = (a, b) => (state.by === "confidence" ? a.score - b.score : b.score - a.score);
    galleries.replaceChildren(
      gallery("Wrong but accepted", wrongKept.sort(less).reverse(), "known", "No wrong answer is accepted at this threshold."),
      ...(table.unknown ? [gallery("Unknown but accepted", unknownKept.sort(less).reverse(), "unknown", "No unknown input is accepted at this threshold.")] : []),
      gallery("Refused, the least sure first", refused.sort(less), "known", "Nothing is refused at this threshold."),
      gallery("Accepted, the least sure first", kept.sort(less), "known", "Nothing is accepted at this threshold."));
  }

  function drawCurve(coverage, error) {
    const points = curve(table);
    const compared = usable.map((model) => others.get(`${model.name}/${state.draws}/${state.seed}`)).filter((other) => other && other.model !== table.model && other.classes.join() === table.classes.join());
    const top = Math.max(0.02, ...[points, ...compared.map(curve)].map((each) => each.at(-1)[1])) * 1.25;
    const draw = (width) => {
      const chart = axes({ width, x: { min: 0, max: 1, name: "coverage: share of answers accepted", format: (v) => percent(v, 0) }, y: { min: 0, max: top, name: "error of what is accepted", format: (v) => percent(v, top < 0.05 ? 1 : 0) },
        label: `Risk against coverage for ${table.model}: ${percent(points.at(-1)[1])} error if all are answered. Now at ${percent(coverage)} coverage${error === null ? "" : ` and ${percent(error)} error`}.` });
      const look = (of) => lookOf(known.models, of.model);
      compared.forEach((other) => chart.line(curve(other).map(([a, b]) => [a, Math.min(b, top)]), look(other)));
      chart.line(points.map(([a, b]) => [a, Math.min(b, top)]), `${look(table)} chosen`);
      if (error !== null) chart.mark(coverage, Math.min(error, top));
      const name = (of) => modelName({ ...of, name: of.model });
      legend(chart, usable.map((model) => [table, ...compared].find((of) => of.model === model.name)).filter(Boolean).map((of) => [name(of), look(of) + (of === table ? " chosen" : "")]), "left");
      return chart.svg;
    };
    const step = Math.max(1, Math.floor(points.length / 40));
    curveFigure.update(draw, "The curve starts to rise where errors are accepted. With good uncertainty it stays flat for longer. The dot marks the threshold.", () => points.filter((_, k) => k % step === 0 || k + 1 === points.length).map(([a, b, t]) => [t.toFixed(4), percent(a), percent(b, 2)]));
  }

  function drawSpread(rows, unknown) {
    const [min, max] = bounds();
    const bins = 20;
    const edges = Array.from({ length: bins + 1 }, (_, k) => min + (max - min) * k / bins);
    const bin = (score) => Math.min(bins - 1, Math.max(0, Math.floor((score - min) / (max - min) * bins)));
    const count = (list) => { const found = Array(bins).fill(0); for (const score of list) found[bin(score)] += 1; return list.length ? found.map((n) => n / list.length) : found; };
    const parts = [["right", count(rows.filter((r) => r.right).map((r) => r.score)), ""], ["wrong", count(rows.filter((r) => !r.right).map((r) => r.score)), "b"]];
    if (unknown.length) parts.push(["unknown", count(unknown), "d"]);
    const top = Math.max(...parts.flatMap(([, values]) => values)) * 1.1 || 1;
    const draw = (width) => {
      const chart = axes({ width, x: { min, max, name: NAMES[state.by], format: state.by === "confidence" ? (v) => percent(v, 0) : undefined }, y: { min: 0, max: top, name: "share of each kind", format: (v) => percent(v, 0) }, label: `How the ${NAMES[state.by]} is spread over right answers, wrong answers${unknown.length ? " and unknown inputs" : ""}.` });
      for (const [, values, kind] of parts) chart.line(values.flatMap((value, k) => [[edges[k], value], [edges[k + 1], value]]), kind);
      chart.cut(Math.min(max, Math.max(min, state.threshold)), "threshold");
      legend(chart, parts.map(([name, , kind]) => [name, kind]), state.by === "confidence" ? "left" : "right");
      return chart.svg;
    };
    spreadFigure.update(draw, "Wrong answers and unknown inputs should lie on the refused side of the threshold.", () => edges.slice(0, -1).map((edge, k) => [edge.toFixed(3), ...["right", "wrong", "unknown"].map((name) => { const part = parts.find(([own]) => own === name); return part ? percent(part[1][k]) : "–"; })]));
  }

  function gallery(name, rows, which, none) {
    const from = which === "unknown" ? table.unknown : table;
    const items = rows.slice(0, MOST).map((row) => {
      const said = table.classes[from.labels[row.k]];
      const truth = which === "unknown" ? null : table.classes[table.truth[row.k]];
      const words = [h("span", { class: truth !== said ? "wrong" : "" }, truth === null ? `${said} ✗` : said === truth ? `${said} ✓` : `${said} ✗ (is ${truth})`), h("br"), format(row.score)];
      return h("li", {}, sheets[which] ? thumbnail(sheets[which], row.k, `example ${row.k}`) : null, words);
    });
    const more = rows.length > MOST ? ` · ${MOST} shown` : "";
    return h("section", { class: "card", "data-gallery": name }, h("h2", {}, `${name} `, h("small", {}, `${rows.length}${more}`)), items.length ? h("ul", { class: "gallery" }, items) : h("p", { class: "note" }, none));
  }

  function thumbnail(sheet, k, label) {
    const { width, height, columns } = table.picture;
    const canvas = h("canvas", { width, height, role: "img", "aria-label": label });
    canvas.getContext("2d").drawImage(sheet, (k % columns) * width, Math.floor(k / columns) * height, width, height, 0, 0, width, height);
    return canvas;
  }

  place.append(settings(
    select({ label: "Run", options: usable.map((model) => [model.name, modelName(model)]), value: state.model, onchange: (model) => { state.set({ model }); load(); } }),
    select({ label: "Confidence measured by", options: Object.entries(NAMES), value: state.by, onchange: (by) => { state.set({ by, threshold: by === "confidence" ? 0.9 : 0.3 }); if (table) { makeSlider(); makePromises(); render(); } } }),
    slider({ label: "Posterior draws", min: 1, max: 100, step: 1, value: state.draws, onchange: (draws) => { state.set({ draws }); load(); } }),
    number({ label: "Seed", value: state.seed, onchange: (seed) => { state.set({ seed }); load(); } })), content);
  head.append(exporting("decide", place, {
    python: () => ["decide", { model: state.model, by: state.by, threshold: state.threshold, draws: state.draws, seed: state.seed }],
    data: () => ({ threshold: state.threshold, by: state.by, ...(table ?? {}) }),
  }));
  await load();
  return () => { turn += 1; };
}
