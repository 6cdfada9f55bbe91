// Runs: the loaded runs side by side with their scores and training curves, and a place to drop a table or a run folder.
import { h, select, button, announce, problem, percent, short, seconds, modelName, figure, lookOf, ofLargest } from "../dom.js";
import { get, post, forgetModels } from "../api.js";
import { pageState } from "../state.js";
import { axes, legend } from "../charts/axes.js";
import { exporting } from "../export.js";

const CURVES = { loss: "training loss (nats per example)", nll: "training NLL (nats)", kl: "KL to the prior (nats)", validation_nll: "validation NLL (nats)", validation_error: "validation error" };
const MOST_BYTES = 6_000_000;

export async function show(place) {
  const head = h("div", { class: "head" }, h("div", {}, h("h1", {}, "Runs"), h("p", { class: "lead" }, "Compare the loaded runs, or add your own table or run folder.")));
  const state = pageState({ curve: "loss", own: "" });
  place.append(head);
  let { runs } = await get("runs");
  const tablePlace = h("section", { class: "card" });
  const picture = figure(h("span"), "", ["run", "epoch", "value"], () => []);
  const choice = h("div", { class: "row" });
  const curveCard = h("section", { class: "card stack" }, h("h2", { "data-words": "" }, "Training curves"), choice, picture);
  const answersPlace = h("div");
  const trouble = h("div");

  function render() {
    const found = Object.keys(CURVES).filter((name) => runs.some((run) => run.curves[name]));
    curveCard.hidden = !found.length;
    if (found.length) {
      if (!found.includes(state.curve)) state.set({ curve: found[0] });
      choice.replaceChildren(select({ label: "Show", options: found.map((name) => [name, CURVES[name]]), value: state.curve, onchange: (curve) => { state.set({ curve }); drawCurves(); } }));
      drawCurves();
    }
    drawTable();
  }

  function drawCurves() {
    const shown = runs.filter((run) => run.curves[state.curve]?.length > 1);
    const points = shown.flatMap((run) => run.curves[state.curve]);
    if (!points.length) { picture.update(() => h("p", { class: "note" }, "No run has two epochs of this curve."), "", () => []); return; }
    const values = points.map(([, value]) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    // Runs whose losses differ by powers of ten are legible on a logarithmic axis only; above them is room for the names.
    const log = low > 0 && high > 30 * low;
    const room = 0.08 * (high - low) || 1;
    const floor = 10 ** Math.floor(Math.log10(low));
    const taken = Math.min(0.5, 0.06 * shown.length);
    const [min, max] = log ? [floor, high * (high / floor) ** (taken / (1 - taken))] : [low - room, high + room];
    const name = CURVES[state.curve] + (log ? ", log scale" : "");
    picture.update((width) => {
      const chart = axes({ width, height: 330, x: { min: 0, max: Math.max(...points.map(([epoch]) => epoch)), name: "epoch", whole: true }, y: { min, max, log, name }, label: `${CURVES[state.curve]} by epoch of ${shown.map(modelName).join(", ")}.` });
      for (const run of shown) chart.line(run.curves[state.curve], lookOf(runs, run.name));
      legend(chart, shown.map((run) => [modelName(run), lookOf(runs, run.name)]));
      return chart.svg;
    }, "Each run has the same colour on every page.", () => shown.flatMap((run) => run.curves[state.curve].filter((_, k, all) => k % Math.ceil(all.length / 12) === 0).map(([epoch, value]) => [modelName(run), epoch, short(value)])));
  }

  function drawTable() {
    // The first scores of each kind of run; of runs on the same data the best value is bold.
    const kinds = [...new Set(runs.map((run) => run.kind))];
    const scored = (some) => [...new Set(some.flatMap((run) => Object.keys(run.scores)))].filter((name) => name !== "error").slice(0, 6);
    const names = [...new Set(kinds.flatMap((kind) => scored(runs.filter((run) => run.kind === kind))))];
    const titles = new Map(runs.flatMap((run) => Object.entries(run.scores)).map(([name, score]) => [name, score]));
    const rivals = (run, name) => runs.filter((other) => other.data === run.data && other.scores[name]).map((other) => other.scores[name].value);
    const best = (run, name) => { const [values, { better }] = [rivals(run, name), titles.get(name)]; return values.length > 1 && better && run.scores[name].value === (better === "higher" ? Math.max(...values) : Math.min(...values)); };
    const score = (run, name) => { const { text } = run.scores[name] ?? { text: "–" }; return run.scores[name] && best(run, name) ? h("strong", {}, text) : text; };
    const query = (page, run) => `?${new URLSearchParams({ page, model: run.name })}`;
    // Links and scores come first: the table may be wider than the page, and its end is then out of sight.
    const links = (run) => h("div", { class: "links" }, run.kind === "classification" ? [h("a", { href: query("decide", run) }, "Decide"), " · "] : null, h("a", { href: query("weights", run) }, "Weights"), " · ", h("a", { href: `?${new URLSearchParams({ page: "runs", own: run.name })}` }, "Answers"));
    const row = (run) => h("tr", {}, h("th", { scope: "row" }, h("span", { class: `swatch ${lookOf(runs, run.name)}`, "aria-hidden": "true" }), run.name, links(run)),
      names.map((name) => h("td", {}, score(run, name))),
      h("td", {}, run.seconds ? seconds(run.seconds) : "–"), h("td", {}, run.weights.toLocaleString("en")), h("td", {}, run.title), h("td", {}, run.data));
    tablePlace.replaceChildren(h("h2", {}, runs.length === 1 ? "1 run" : `${runs.length} runs`), h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Runs side by side" }, h("table", { class: "runs-table" }, h("caption", { class: "unseen" }, "Runs side by side"),
      h("thead", {}, h("tr", {}, ["run", ...names.map((name) => titles.get(name).title), "training", "weights", "method", "data"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, runs.map(row)))),
      names.length ? h("p", { class: "note" }, "The scores are on test examples, and are stored in each run by bayesify evaluate or bayesify report. Bold: the best of the runs on the same data.") : h("p", { class: "note" }, "No run has scores yet. To add them: bayesify evaluate RUN"));
  }

  // A table is trained on and a run folder is loaded; either is then one more run of the studio, until the server ends.
  const methodChoice = { method: "auto", target: "", withhold: "" };
  const status = h("p", { class: "note", role: "status" });
  const options = await get("understand/options");
  const text = (label, name, hint) => h("label", { class: "field" }, h("span", {}, label), h("input", { type: "text", placeholder: hint, oninput: (event) => { methodChoice[name] = event.target.value.trim(); } }));
  const file = h("input", { type: "file", accept: ".csv,.tsv,text/csv", class: "unseen", tabindex: -1, "aria-label": "A table", onchange: () => { if (file.files[0]) useTable(file.files[0]); file.value = ""; } });
  const folder = h("input", { type: "file", webkitdirectory: true, class: "unseen", tabindex: -1, "aria-label": "A run folder", onchange: () => { if (folder.files.length) useFolder([...folder.files]); folder.value = ""; } });
  const dropZone = h("section", { class: "drop", "aria-label": "Your own" }, h("h2", {}, "Your own"),
    h("p", { class: "note" }, "Drop a CSV table here to train on it, or a run folder to look at it. It stays on this server and is deleted when the server stops."),
    h("div", { class: "controls" }, text("Target column", "target", "the last one"), text("Class to withhold", "withhold", "none"),
      select({ label: "Method", options: [["auto", "chosen automatically"], ...options.methods.map(({ name, title }) => [name, title])], value: "auto", onchange: (method) => { methodChoice.method = method; } })),
    h("div", { class: "row" }, button("Choose a table…", () => file.click()), button("Choose a run folder…", () => folder.click()), file, folder), status, trouble);
  dropZone.addEventListener("dragover", (event) => { event.preventDefault(); dropZone.classList.add("over"); });
  dropZone.addEventListener("dragleave", () => dropZone.classList.remove("over"));
  dropZone.addEventListener("drop", async (event) => {
    event.preventDefault();
    dropZone.classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const dropped = entries.find((entry) => entry.isDirectory);
    if (dropped) useFolder(await filesOf(dropped), dropped.name);
    else if (event.dataTransfer.files[0]) useTable(event.dataTransfer.files[0]);
  });

  async function filesOf(directory) {
    const entries = await new Promise((resolve, reject) => directory.createReader().readEntries(resolve, reject));
    return Promise.all(entries.filter((entry) => entry.isFile).map((entry) => new Promise((resolve, reject) => entry.file(resolve, reject))));
  }

  async function bring(words, path, body) {
    trouble.replaceChildren();
    status.textContent = words;
    try {
      const added = await post(path, body);
      forgetModels();
      ({ runs } = await get("runs"));
      state.set({ own: added.name });
      render();
      status.textContent = `${modelName(added)} is now one of the runs.`;
      announce(status.textContent);
      await showAnswers(added.name);
    } catch (error) {
      status.textContent = "";
      trouble.replaceChildren(problem(error));
    }
  }

  async function useTable(given) {
    if (given.size > MOST_BYTES) { trouble.replaceChildren(problem(`${given.name} has more than 6 MB: train on it with bayesify train --data ${given.name}`)); return; }
    await bring(`Training on ${given.name}; this takes up to a minute…`, "own/table", { name: given.name, text: await given.text(), target: methodChoice.target || null, method: methodChoice.method, withhold: methodChoice.withhold || null });
  }

  async function useFolder(given, name = given[0]?.webkitRelativePath.split("/")[0] ?? "run") {
    const wanted = given.filter((each) => ["config.json", "model.safetensors", "history.jsonl", "metrics.json", "unknown.safetensors"].includes(each.name) && (each.webkitRelativePath || "").split("/").length <= 2);
    if (wanted.reduce((sum, each) => sum + each.size, 0) > 0.95 * MOST_BYTES) { trouble.replaceChildren(problem(`${name} has more than 6 MB: serve it by its path, bayesify serve ${name}`)); return; }
    const files = {};
    for (const each of wanted) files[each.name] = await base64(each);
    await bring(`Loading ${name}…`, "own/run", { name, files });
  }

  async function base64(content) {
    const data = new Uint8Array(await content.arrayBuffer());
    let words = "";
    for (let k = 0; k < data.length; k += 8192) words += String.fromCharCode(...data.subarray(k, k + 8192));
    return btoa(words);
  }

  // The answers of one run: the least sure, the surest, and those about unknown inputs.
  async function showAnswers(name) {
    const run = runs.find((each) => each.name === name);
    if (!run) { answersPlace.replaceChildren(problem(`The link asks for a run called ${name}, which is not loaded here.`)); return; }
    answersPlace.replaceChildren(h("p", { class: "waiting" }, `${modelName(run)} predicts its test examples…`));
    try {
      const found = await get("own/answers", { model: name });
      const classes = run.kind === "classification";
      const columns = classes ? ["test row", "answer", "sure", "aleatoric", "epistemic", "truth"] : ["test row", "answer", "95% from", "to", "truth"];
      const cells = (row) => (classes ? [row.row, row.answer, percent(row.confidence, 0), ofLargest(row.aleatoric, run.classes.length || 2), ofLargest(row.epistemic, run.classes.length || 2), row.truth === null ? "unknown" : row.truth === row.answer ? `${row.truth} ✓` : `${row.truth} ✗`] : [row.row, short(row.answer), short(row.lower), short(row.upper), row.truth === null ? "–" : short(row.truth)]);
      const part = (title, rows) => h("section", { class: "card" }, h("h2", {}, title), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, h("table", {}, h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))), h("tbody", {}, rows.map((row) => h("tr", {}, cells(row).map((value, k) => (k ? h("td", {}, String(value)) : h("th", { scope: "row" }, String(value))))))))));
      answersPlace.replaceChildren(h("h2", {}, `Answers of ${modelName(run)} on ${found.what}`), h("p", { class: "note" }, classes ? "Uncertainties are in percent of the largest possible." : "The least sure answers have the widest intervals."),
        h("div", { class: "two" }, part("Least sure", found.unsure), part("Surest", found.sure), found.unknown ? part(`Unknown inputs (${found.unknown_what}), the least sure first`, found.unknown) : null,
          found.unlike?.length ? part(`Unlike the training data: ${found.unlike_total} of ${found.total} test rows`, found.unlike) : null),
        ...(found.unlike && !found.unlike.length ? [h("p", { class: "note" }, "No test row is unlike the training data.")] : []));
    } catch (error) {
      answersPlace.replaceChildren(problem(error));
    }
  }

  head.append(exporting("runs", place, { data: () => runs }));
  place.append(tablePlace, curveCard, dropZone, answersPlace);
  render();
  if (state.own) await showAnswers(state.own);
  return undefined;
}
