// Moons and circles: points, a small network and a method; training streams into surfaces of the answer and of its uncertainty.
import { h, s, slider, select, number, button, announce, problem, percent, short, table, settings, seconds, figure } from "../dom.js";
import { pageState, packPoints, unpackPoints } from "../state.js";
import { get, stream } from "../api.js";
import { Points } from "../points.js";
import { bytes, paint, ramp, posteriorColours, doubtColours, evenLine } from "../charts/surface.js";
import { axes } from "../charts/axes.js";
import { tenMethods } from "./ten.js";
import { exporting } from "../export.js";
import { askingPart } from "./asking.js";

const DEFAULTS = { data: "moons", n: 80, noise: 0.15, seed: 0, method: "variational", units: 16, layers: 1, activation: "tanh", prior: "normal", scale: 3,
  hyperprior: "none", epochs: 600, rate: 0.03, doubt: "epistemic", points: "", trained: false, all: false };
const HYPER = { "half-normal": (scale) => `half-normal(${scale})`, "half-cauchy": (scale) => `half-cauchy(${scale})`, "inverse-gamma": (scale) => `inverse-gamma(1,${scale})`, learned: () => "learned()" };

export async function show(place, head) {
  head.append(h("div", {}, h("h1", {}, "Moons and circles"), h("p", { class: "lead" },
    "Colour shows the predicted class and fades where the prediction is uncertain. Add or move points, then train again.")));
  const [options, state] = [await get("understand/options"), pageState(DEFAULTS)];
  if (!options.methods.some((method) => method.name === state.method)) state.set({ method: options.methods[0].name });
  const chosen = () => options.methods.find(({ name }) => name === state.method);
  let frame = null, trained = null, stopping = null, asked = 0, drawsShown = [], shownLesson = "";
  // Every frame of the last training, to be played again.
  let frames = [], at = -1, playing = 0, following = true;

  const tools = [["0", "Add ●"], ["1", "Add ▲"], ["move", "Move"], ["remove", "Remove"]];
  let tool = "0";
  const toolRow = h("fieldset", { class: "row point-tools" }, h("legend", { class: "small" }, "Points"), tools.map(([key, name]) => h("label", { class: "row small" }, h("input", { type: "radio", name: "tool", value: key, checked: key === tool, onchange: () => { tool = key; } }), name)));
  const board = new Points({ tool: () => tool, changed: (words) => { state.set({ points: packPoints(board.points) }); announce(words); if (frame) stale(); count(); } });
  const doubtCanvas = h("canvas", { width: 448, height: 448, role: "img", "aria-label": "Uncertainty surface: not trained yet" });
  const doubtMarks = s("svg", { viewBox: "0 0 100 100", "aria-hidden": "true" });
  const status = h("p", { class: "note", id: "training-status", "data-state": "untrained" }, "Not trained yet.");
  const say = (stage, words) => { status.dataset.state = stage; status.textContent = words; };
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Training" });
  const trouble = h("div");
  const drawsPlace = h("section", { class: "card", hidden: true, "aria-label": "Posterior draws" });
  const numbers = h("details", {}, h("summary", {}, "The numbers"));
  const counted = h("span", { class: "small" });
  const [answerRamp, doubtRamp] = [h("canvas", { width: 256, height: 12, "aria-hidden": "true" }), h("canvas", { width: 256, height: 12, "aria-hidden": "true" })];

  const count = () => { counted.textContent = `${board.points.length} points`; };
  const stale = (what = "points") => { state.set({ trained: false }); say("stale", `The ${what} have changed. Train again to see the effect.`); };

  function priorText() {
    if (state.prior === "none") return "none";
    const scale = state.hyperprior === "none" ? state.scale : HYPER[state.hyperprior](state.scale);
    return { "student-t": `student-t:3,${scale}`, "scale-mixture": `scale-mixture:0.5,${state.scale},${Number((state.scale / 20).toPrecision(3))}` }[state.prior] ?? `${state.prior}:${scale}`;
  }

  const lesson = () => ({ points: board.points, low: board.view.low, high: board.view.high, method: state.method, units: state.units, layers: state.layers, activation: state.activation, prior: priorText(), epochs: state.epochs, learning_rate: state.rate, seed: state.seed });

  // Until its points are there, nothing can be trained; of several requests the last one counts.
  async function fresh() {
    stop();
    const mine = ++asked;
    trainButton.disabled = true;
    try {
      const points = state.points ? unpackPoints(state.points) : (await get("understand/points", { data: state.data, n: state.n, noise: state.noise, seed: state.seed })).points;
      if (mine !== asked) return;
      board.points = points;
      trouble.replaceChildren();
    } catch (error) {
      if (mine === asked) trouble.replaceChildren(problem(error));
      return;
    } finally {
      if (mine === asked) trainButton.disabled = false;
    }
    board.fitView();
    frame = trained = null;
    frames = [];
    at = -1;
    state.set({ trained: false });
    clear();
    board.draw();
    board.showAsk(null);
    count();
  }

  function clear() {
    for (const canvas of [board.canvas, doubtCanvas]) canvas.getContext("2d").clearRect(0, 0, 448, 448);
    board.under.replaceChildren();
    doubtMarks.replaceChildren();
    doubtCanvas.setAttribute("aria-label", "Uncertainty surface: not trained yet");
    drawsPlace.hidden = true;
    unitsPlace.hidden = lossCard.hidden = true;
    drawsButton.disabled = unitsButton.disabled = askButtons.disabled = true;
    for (const element of [playButton, stepButton, scrubber]) element.disabled = true;
    frameWords.textContent = "";
    bar.value = 0;
    say("untrained", "Not trained yet.");
    numbers.querySelector(".scroll")?.remove();
  }

  async function train() {
    stop();
    const mine = new AbortController();
    stopping = mine;
    trouble.replaceChildren();
    pause();
    drawsPlace.hidden = unitsPlace.hidden = true;
    trainButton.textContent = "Stop";
    say("training", "Training…");
    shownLesson = JSON.stringify(lesson());
    answerTitle.textContent = state.method === "point" ? "Answer" : "Posterior";
    bar.removeAttribute("value");
    frames = [];
    at = -1;
    following = true;
    try {
      await stream("understand/train", lesson(), (kind, content) => {
        if (mine.signal.aborted) return;
        if (kind === "problem") throw new Error(content.detail);
        if (kind === "done") { trained = content.trained; drawsButton.disabled = false; unitsButton.disabled = state.layers === 0; }
        if (kind === "frame") progress(content);
      }, mine.signal);
      if (stopping === mine) finished();
    } catch (error) {
      if (error.name !== "AbortError") { trouble.replaceChildren(problem(error)); bar.value = 0; }
      if (!mine.signal.aborted) say("failed", "Training did not finish.");
    } finally {
      if (stopping === mine) { stopping = null; trainButton.textContent = "Train"; }
    }
  }

  // Where training is: the epoch, the loss, the time left; the picture follows unless it was paused.
  function progress({ losses = [], ...content }) {
    content = { ...content, losses };
    bar.value = content.share;
    const words = [content.epochs ? `Epoch ${content.epoch} of ${content.epochs}` : null, content.losses.length ? `loss ${short(content.losses.at(-1)[1])}` : null, content.left && content.share < 1 ? `about ${seconds(content.left)} left` : null].filter(Boolean);
    if (content.share < 1 && words.length) say("training", `${words.join(", ")}.`);
    drawLoss(content);
    if (!content.probs) return;
    frames.push(content);
    scrubber.max = frames.length - 1;
    if (following) showFrame(frames.length - 1);
  }

  function drawLoss({ losses, epochs }) {
    lossCard.hidden = losses.length < 2;
    if (lossCard.hidden) return;
    const values = losses.map(([, value]) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = 0.08 * (high - low) || 1;
    lossFigure.update((width) => {
      const chart = axes({ width, height: 150, x: { min: 0, max: epochs, name: "epoch", whole: true }, y: { min: low - room, max: high + room, count: 3, name: "loss" }, label: `Training loss from ${short(values[0])} to ${short(values.at(-1))} nats per example.` });
      chart.line(losses);
      return chart.svg;
    }, "The training loss, in nats per example.", () => losses.map(([epoch, value]) => [epoch, short(value)]));
  }

  function showFrame(place) {
    if (!frames[place]) return;
    at = place;
    frame = frames[place];
    scrubber.value = place;
    frameWords.textContent = `frame ${place + 1} of ${frames.length}${frame.epoch ? `, epoch ${frame.epoch}` : ""}`;
    scrubber.setAttribute("aria-valuetext", frameWords.textContent);
    for (const element of [playButton, stepButton, scrubber]) element.disabled = frames.length < 2;
    render();
  }

  function pause() {
    clearInterval(playing);
    playing = 0;
    playButton.textContent = "Play";
  }

  function play() {
    if (playing) { pause(); following = false; return; }
    if (stopping && following) { following = false; playButton.textContent = "Play"; return; }
    if (at >= frames.length - 1) showFrame(0);
    playButton.textContent = "Pause";
    playing = setInterval(() => {
      if (at < frames.length - 1) showFrame(at + 1);
      else { following = true; pause(); }
    }, 90);
  }

  const playButton = button("Play", play, { disabled: true });
  const stepButton = button("Step", () => { pause(); following = false; showFrame(Math.min(frames.length - 1, at + 1)); }, { disabled: true });
  const scrubber = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, disabled: true, "aria-label": "Frame of the training", oninput: () => { pause(); following = false; showFrame(Number(scrubber.value)); } });
  const frameWords = h("span", { class: "small" });
  const player = h("div", { class: "player", role: "group", "aria-label": "Training, frame by frame" }, playButton, stepButton, scrubber, frameWords);
  const lossFigure = figure(h("span"), "", ["epoch", "loss"], () => []);
  const lossCard = h("section", { class: "card", hidden: true, "aria-label": "Loss" }, h("h2", { "data-words": "" }, "Loss"), lossFigure);

  function stop() {
    stopping?.abort();
    bar.value = frame ? frame.share : 0;
    stopping = null;
    trainButton.textContent = "Train";
  }

  function finished() {
    following = true;
    showFrame(frames.length - 1);
    const sentence = `${chosen().title} trained in ${seconds(frame.seconds)}: ${percent(frame.accuracy, 0)} of the points are right, NLL ${short(frame.nll)} nats. ${frame.ask ? `A label at (${frame.ask.x.toFixed(1)}, ${frame.ask.y.toFixed(1)}) would teach it most.` : "A single network has no epistemic uncertainty, so it does not suggest a label."}`;
    say("trained", sentence);
    state.set({ trained: JSON.stringify(lesson()) === shownLesson });
    announce(sentence);
    fillNumbers();
  }

  function render() {
    const levels = bytes(frame.probs);
    paint(board.canvas, levels, frame.side, posteriorColours());
    board.under.replaceChildren(evenLine(levels, frame.side));
    board.draw();
    board.showAsk(frame.ask);
    askButtons.disabled = !frame.ask;
    renderDoubt();
  }

  function renderDoubt() {
    if (!frame) return;
    const parts = { epistemic: bytes(frame.epistemic), aleatoric: bytes(frame.aleatoric) };
    const levels = parts[state.doubt] ?? parts.epistemic.map((value, k) => Math.min(255, value + parts.aleatoric[k]));
    paint(doubtCanvas, levels, frame.side, doubtColours());
    const line = evenLine(bytes(frame.probs), frame.side);
    doubtMarks.replaceChildren(line, ...(frame.ask ? [s("circle", { class: "ask-ring", cx: board.toPage([frame.ask.x, frame.ask.y])[0], cy: board.toPage([frame.ask.x, frame.ask.y])[1], r: 4.2, "vector-effect": "non-scaling-stroke" })] : []));
    doubtCanvas.setAttribute("aria-label", `Uncertainty surface (${state.doubt}): at most ${percent(frame.most_epistemic / Math.log(2), 0)} of the largest possible is epistemic (${frame.most_epistemic.toFixed(3)} nats).`);
  }

  function fillNumbers() {
    numbers.querySelector(".scroll")?.remove();
    if (!frame || !numbers.open) return;
    const [probs, epistemic] = [bytes(frame.probs), bytes(frame.epistemic)];
    const rows = [];
    for (let row = 3; row < frame.side; row += 10) for (let column = 3; column < frame.side; column += 10) {
      const k = row * frame.side + column;
      const [x, y] = board.toPlane([(column + 0.5) / frame.side * 100, (row + 0.5) / frame.side * 100]);
      rows.push([`${x.toFixed(2)}, ${y.toFixed(2)}`, (probs[k] / 255).toFixed(2), (epistemic[k] / 255 * Math.log(2)).toFixed(3)]);
    }
    numbers.append(table(["place", "probability of ▲", "epistemic (nats)"], rows, "The surface at selected places"));
  }
  numbers.addEventListener("toggle", fillNumbers);

  async function showDraws() {
    try {
      const found = await get("understand/draws", { trained, draws: 6, seed: state.seed });
      drawsShown = found.draws;
      drawsPlace.hidden = false;
      drawsPlace.replaceChildren(h("h2", { "data-words": "" }, found.draws.length === 1 ? "Single network" : `${found.draws.length} draws from the posterior`),
        h("ul", { class: "draws", "data-picture": "" }, found.draws.map((draw, k) => {
          const canvas = h("canvas", { width: 224, height: 224, role: "img", "aria-label": `Posterior draw ${k + 1}` });
          paint(canvas, bytes(draw), found.side, posteriorColours());
          return h("li", {}, canvas, `draw ${k + 1}`);
        })), h("p", { class: "note" }, found.draws.length === 1 ? "The surface above is its prediction." : `Each draw is one version of the network that fits the points. The surface above is the mean of ${frame.draws} draws and fades where they disagree.`));
      announce(`${found.draws.length} draws shown`);
    } catch (error) {
      trouble.replaceChildren(problem(error));
    }
  }

  async function showUnits() {
    try {
      const found = await get("understand/units", { trained, activation: state.activation, seed: state.seed });
      unitsPlace.hidden = false;
      unitsPlace.replaceChildren(h("h2", { "data-words": "" }, `Hidden units of one posterior draw: ${found.units.length}`),
        h("ul", { class: "draws", "data-picture": "" }, found.units.map(({ unit, effect, levels }) => {
          const canvas = h("canvas", { width: 160, height: 160, role: "img", "aria-label": `Hidden unit ${unit + 1}, supports ${effect > 0 ? "▲" : "●"}` });
          paint(canvas, bytes(levels), found.side, doubtColours());
          return h("li", {}, canvas, `unit ${unit + 1}: ${effect > 0 ? "▲" : "●"} ${short(Math.abs(effect))}`);
        })), h("p", { class: "note" }, "Dark areas are where a unit of the first hidden layer is most active. ● or ▲ is the class it supports, and the number is the size of its outgoing weight. The most influential unit comes first."));
      announce(`${found.units.length} hidden units shown`);
    } catch (error) {
      trouble.replaceChildren(problem(error));
    }
  }

  const unitsPlace = h("section", { class: "card", hidden: true, "aria-label": "Hidden units" });
  const unitsButton = button("Hidden units", showUnits, { disabled: true });
  const trainButton = button("Train", () => (stopping ? (stop(), say("stopped", "Stopped. The surface shows the last finished frame.")) : train()), { class: "main" });
  const drawsButton = button("Six posterior draws", showDraws, { disabled: true });
  const label = (k) => button(`Label it ${"●▲"[k]}`, () => { const { x, y } = frame.ask; board.showAsk(null); board.add([Number(x.toFixed(3)), Number(y.toFixed(3))], k); train(); });
  const askButtons = h("fieldset", { class: "row", disabled: true }, h("legend", { class: "small" }, "Label the marked place (largest epistemic uncertainty)"), label(0), label(1));
  const again = async (changes) => { state.set({ points: "", ...changes }); await fresh(); if (board.points.length && !trainButton.disabled) train(); };
  const controls = settings(
    select({ label: "Data", options: ["moons", "circles"], value: state.data, onchange: (data) => again({ data }) }),
    slider({ label: "Points", min: 10, max: 300, step: 10, value: state.n, onchange: (n) => again({ n }) }),
    slider({ label: "Noise", min: 0, max: 0.6, step: 0.01, value: state.noise, onchange: (noise) => again({ noise }) }),
    select({ label: "Method", options: options.methods.map(({ name, title }) => [name, title]), value: state.method, onchange: (method) => { state.set({ method }); about(); } }),
    h("p", { class: "small", id: "method-about" }),
    select({ label: "Hidden layers", options: ["0", "1", "2", "3"], value: String(state.layers), onchange: (layers) => state.set({ layers: Number(layers) }) }),
    slider({ label: "Units per layer", min: 2, max: 64, step: 2, value: state.units, oninput: (units) => state.set({ units }) }),
    select({ label: "Activation", options: options.activations, value: state.activation, onchange: (activation) => state.set({ activation }) }),
    select({ label: "Prior", options: [["none", "the default"], ...options.priors], value: state.prior, onchange: (prior) => state.set({ prior }) }),
    slider({ label: "Prior scale", min: 0.1, max: 5, step: 0.1, value: state.scale, oninput: (scale) => state.set({ scale }) }),
    select({ label: "Hyperprior on the scale", options: [["none", "none (fixed scale)"], ...options.hyperpriors], value: state.hyperprior, onchange: (hyperprior) => state.set({ hyperprior }) }),
    slider({ label: "Epochs", min: 20, max: 2000, step: 20, value: state.epochs, oninput: (epochs) => state.set({ epochs }) }),
    select({ label: "Learning rate", options: ["0.003", "0.01", "0.03", "0.1"], value: String(state.rate), onchange: (rate) => state.set({ rate: Number(rate) }) }),
    number({ label: "Seed", value: state.seed, onchange: (seed) => (state.points ? state.set({ seed }) : again({ seed })) }));
  const about = () => { controls.querySelector("#method-about").textContent = chosen().about; };
  about();
  controls.addEventListener("change", () => { if (frame && !stopping && JSON.stringify(lesson()) !== shownLesson) stale("settings"); });
  const answerTitle = h("h2", { "data-words": "" }, state.method === "point" ? "Answer" : "Posterior");
  head.append(exporting("understand", place, { python: () => ["understand", lesson()], data: () => ({ lesson: lesson(), frame: frame && { ...frame, probs: [...bytes(frame.probs)].map((v) => v / 255), epistemic: [...bytes(frame.epistemic)].map((v) => v / 255 * Math.log(2)), aleatoric: [...bytes(frame.aleatoric)].map((v) => v / 255 * Math.log(2)) }, draws: drawsShown.length, methods: ten.distances() }) }));
  ramp(answerRamp, posteriorColours());
  ramp(doubtRamp, doubtColours());
  const ten = tenMethods({ methods: options.methods, lesson, state });
  place.append(h("div", { class: "page lesson" }, controls, h("div", { class: "stack" },
    h("div", { class: "top-tools" }, trainButton, button(`All ${options.methods.length} methods`, () => { ten.element.scrollIntoView({ block: "start", behavior: "smooth" }); ten.train(); }), toolRow, counted),
    h("div", { class: "boards", "data-picture": "" },
      h("section", { class: "card stack" }, answerTitle, board.element, h("div", { class: "legend" }, "● sure", answerRamp, "▲ sure")),
      h("section", { class: "card stack" }, h("h2", { "data-words": "" }, "Uncertainty"), h("div", { class: "surface" }, doubtCanvas, doubtMarks), h("div", { class: "legend" }, "0%", doubtRamp, "100%"))),
    trouble, bar, player, status, lossCard, ten.element,
    h("div", { class: "card bar-tools" }, select({ label: "Uncertainty", options: [["epistemic", "epistemic (more data helps)"], ["aleatoric", "aleatoric (classes overlap)"], ["total", "total (both)"]], value: state.doubt, onchange: (doubt) => { state.set({ doubt }); renderDoubt(); } }), askButtons, askingPart(() => trained, board), h("div", { class: "row" }, drawsButton, unitsButton),
      h("p", { class: "small", id: "points-help" }, "Keys: arrows move the cross, a adds ●, b adds ▲, Enter picks up or puts down the nearest point, Delete removes it. On the black line both classes are equally likely.")),
    drawsPlace, unitsPlace, numbers)));
  const all = state.all;
  await fresh();
  // The page opens with something trained; a link to all methods trains them after it.
  if (board.points.length) train().then(() => { if (all && place.isConnected) ten.train(); });
  return () => { pause(); stop(); ten.stop(); };
}
