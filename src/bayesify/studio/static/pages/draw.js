// Draw: a digit goes through the preparation of the training digits, and every loaded run answers while it is drawn.
import { h, slider, number, button, announce, problem, percent, sure as surely, modelName, table, settings, narrow, lookOf } from "../dom.js";
import { pageState, packStrokes, unpackStrokes } from "../state.js";
import { models, post, blob } from "../api.js";
import { Pad } from "../pad.js";
import { DIGITS, LETTERS, scribble } from "../glyphs.js";
import { answerChart, doubtChart } from "../charts/answer.js";
import { exporting, save } from "../export.js";
import { shareCard } from "../share.js";

// What is on the pad stays while another page is looked at.
let kept = null;
// What was shown so far with what it really is, and what each network said: the confident mistakes are counted from it.
const rounds = new Map();
const NONE = "none of the classes";
const KINDS = ["test", "withheld", "clothes"];
const OWN = "own";

// What the networks have learned, and how far that goes: nobody should wonder why a digit is refused.
function learned(drawable) {
  const kinds = new Map(drawable.map((model) => [`${model.data}/${model.image.height}/${model.withheld}`, model]));
  const list = new Intl.ListFormat("en").format([...kinds.values()].map(({ data, examples, image, withheld }) =>
    `${examples ? `${examples.toLocaleString("en")} images` : "images"} of ${data === "mnist" ? "MNIST" : data}, ${image.width} × ${image.height} pixels${withheld.length ? `, without ${withheld.join(" and ")}` : ""}`));
  const checked = drawable.every((model) => model.checked) ? " A drawing that is unlike these images is refused, even if a network is sure." : "";
  const small = drawable.some((model) => model.data === "digits") ? " Images this small differ from what people draw, so about half of all drawn digits are refused too. If MNIST is in $BAYESIFY_DATA, bayesify serve trains on its 28 × 28 pixels instead." : "";
  return `The networks were trained on ${list}.${checked}${small}`;
}

export async function show(place) {
  const answers = h("div", { class: "answers", "data-picture": "" });
  place.append(h("div", { class: "head" }, h("div", {}, h("h1", {}, "Does it know when it does not know?"), h("p", { class: "lead" },
    "Each network answers as you draw. Each dot is one version of the network; dots far apart mean it is unsure."))));
  const known = await models(() => announce("The runs are still being read"));
  const drawable = known.models.filter((model) => model.drawable);
  if (!drawable.length) {
    place.append(h("p", { class: "empty" }, known.models.length ? `No loaded run takes pictures: ${known.models.map((m) => `${m.name}: ${m.why}`).join("; ")}.` : "No run is loaded. Start the studio with one: bayesify serve RUN"));
    return undefined;
  }
  const state = pageState({ threshold: 0.9, draws: 30, seed: 0, pen: drawable[0].pen, strokes: "", boxed: true, scribble: 1, image: "" });
  // What a ready example is; of a drawing by hand only the visitor can say.
  let [ready, truth] = [null, null];
  const pad = new Pad({ pen: state.pen, changed: () => { fetching += 1; [truth, ready] = [ready, null]; remember(); ask(); }, dropped: drop });
  const put = (strokes, picture, isReally) => { ready = isReally; pad.set(strokes, picture); };
  let [shown, drawnAt] = [null, 0];
  let fetching = 0;
  let [busy, again] = [false, false];
  let pending = Promise.resolve();
  const body = () => ({ strokes: pad.strokes, pen: state.pen, picture: pad.picture?.encoded ?? null, picture_name: pad.picture?.name ?? null,
    picture_changed: pad.picture?.changed ?? false, sample: pad.picture?.sample ?? null, boxed: pad.picture ? pad.picture.boxed : state.boxed,
    draws: state.draws, seed: state.seed, models: drawable.map((model) => model.name) });

  let saving = 0;
  function remember() {
    clearTimeout(saving);
    kept = pad.empty ? null : { strokes: pad.strokes, picture: pad.picture };
    saving = setTimeout(write, 250);
  }

  // The address says what is on the pad, as far as an address can.
  const MOST = 6000;
  const packed = () => packStrokes(pad.strokes);
  function write() {
    clearTimeout(saving);
    const { sample } = pad.picture ?? {};
    state.set({ strokes: packed().length <= MOST ? packed() : "", image: sample ? [sample.kind, sample.number, sample.model].filter((part) => part !== null).join(".") : pad.picture ? OWN : "" });
  }

  async function link() {
    await pending;
    write();
    if (pad.picture && !pad.picture.sample) return "The link does not include your own picture: whoever opens it sees the pad without it.";
    return packed().length > MOST ? "The drawing is too long for a link: whoever opens it sees an empty pad." : null;
  }

  async function ask() {
    if (busy) { again = true; return; }
    if (pad.empty) { shown = null; render(); return; }
    busy = true;
    try {
      const said = await post("draw", body());
      shown = pad.empty || said.empty ? null : said.answers;
      truth ??= shown && said.truth;
      count();
      render();
    } catch (error) {
      answers.replaceChildren(problem(error));
    } finally {
      busy = false;
      if (again) { again = false; ask(); }
    }
  }

  const seenCanvas = h("canvas", { width: 8, height: 8, role: "img", "aria-label": "What the network sees: nothing yet" });
  const seenWords = h("p", { class: "note" }, "Nothing yet: the pad is empty.");

  function render() {
    if (!shown) {
      answers.style.setProperty("--columns", columns(drawable.length));
      answers.replaceChildren(...drawable.map(waiting), h("div", { class: "empty across stack" }, h("p", {}, "The pad is empty. Draw a digit, or something that is not a digit."),
        h("div", { class: "row try", role: "group", "aria-label": "Begin with" }, button("Try a digit", () => put(DIGITS[7], null, "7"), { class: "main" }), button("Try a letter", () => put(LETTERS.K, null, NONE)), button("Try a scribble", () => put(scribble(state.scribble), null, NONE)))));
      renderTruths();
      seenCanvas.getContext("2d").clearRect(0, 0, 64, 64);
      seenCanvas.setAttribute("aria-label", "What the network sees: nothing yet");
      seenWords.textContent = "Nothing yet: the pad is empty.";
      announce("The pad is empty");
      return;
    }
    answers.style.setProperty("--columns", columns(shown.length));
    answers.replaceChildren(...shown.map(card));
    renderTruths();
    look(shown);
    announce(shown.map((answer) => `${modelName(answer)}: ${verdictWords(answer)}`).join(". "));
  }

  // A run may have a check for unknown inputs: what is unlike its training data is not answered, however sure it is.
  const unlike = (answer) => answer.known === false;
  const accepted = (answer) => !unlike(answer) && answer.confidence >= state.threshold;
  const guess = (answer) => `${unlike(answer) ? "unlike the training data; " : ""}best guess: ${answer.label} (${surely(answer.confidence)})`;
  const verdictWords = (answer) => (accepted(answer) ? `${answer.label}, ${surely(answer.confidence)} sure` : `I do not know; ${guess(answer)}`);

  // Fool it: a network that is sure and wrong has made a confident mistake.
  const roundKey = () => JSON.stringify([packStrokes(pad.strokes), pad.picture?.sample ?? pad.picture?.name ?? null]);
  function count() {
    if (!shown || truth === null || truth === undefined) return;
    rounds.set(roundKey(), { truth, answers: shown.map(({ name, label, confidence, known }) => ({ name, label, confidence, known })) });
  }
  function mistakes(name) {
    const seen = [...rounds.values()].map((round) => ({ ...round, answer: round.answers.find((answer) => answer.name === name) })).filter((round) => round.answer);
    return [seen.filter((round) => accepted(round.answer) && round.answer.label !== round.truth).length, seen.length];
  }
  const saved = h("p", { class: "small", role: "status" });
  const saveButton = button("Save a card to share", share, { class: "main", disabled: true });
  const truths = h("div", { class: "row", role: "group", "aria-label": "What it really is" });
  const tally = h("p", { class: "note", role: "status" });
  function renderTruths() {
    saveButton.disabled = !shown;
    const names = [...new Set(drawable.flatMap((model) => model.classes)), ...new Set(drawable.flatMap((model) => model.withheld))].sort();
    truths.replaceChildren(...[...names, NONE].map((name) => button(name === NONE ? "None of these" : name, () => { truth = name; count(); render(); }, { class: "small", "aria-pressed": String(shown !== null && truth === name), disabled: !shown })));
    const each = drawable.map((model) => [model, ...mistakes(model.name)]);
    tally.textContent = rounds.size ? `Drawings counted: ${rounds.size}. Confident mistakes at a threshold of ${percent(state.threshold, 0)}: ${each.map(([model, wrong]) => `${modelName(model)} ${wrong}`).join(", ")}.` : "Nothing counted yet.";
  }

  async function share() {
    const rows = (shown ?? []).map((answer) => { const [wrong, seen] = mistakes(answer.name); return { name: modelName(answer), label: answer.label, confidence: answer.confidence, accepted: accepted(answer), unlike: unlike(answer), mistakes: wrong, rounds: seen }; });
    await pending;
    write();
    save("bayesify-card.png", await shareCard(pad.canvas, rows, location.href));
    // The card is a picture: its link is given along, to be pasted beside it.
    try { await navigator.clipboard.writeText(location.href); saved.textContent = "The card is saved, and the link to this drawing is in the clipboard."; } catch { saved.textContent = "The card is saved. The address bar has the link to this drawing."; }
    announce(saved.textContent);
  }

  // As many columns as there is room for, in even rows.
  const GAP = 18;
  function columns(number) {
    const width = answers.clientWidth || 900;
    const fit = width < 440 ? 2 : Math.floor((width + GAP) / (205 + GAP));
    return Math.ceil(number / Math.ceil(number / fit));
  }

  const waiting = (model) => h("div", { class: `card answer waits ${lookOf(known.models, model.name)}` }, h("h2", {}, modelName(model)), h("p", { class: "small" }, "waiting for a drawing"));

  function card(answer) {
    const sure = accepted(answer);
    const classes = answer.classes.length;
    const rows = answer.classes.map((name, k) => {
      const each = answer.draw_probs.map((draw) => draw[k]);
      return [name, answer.probs[k].toFixed(3), Math.min(...each).toFixed(3), Math.max(...each).toFixed(3)];
    });
    const [wrong, seen] = mistakes(answer.name);
    const isOpen = (part, otherwise) => opened.get(`${part}/${answer.name}`) ?? otherwise;
    const remembered = (part, element) => { element.addEventListener("toggle", () => opened.set(`${part}/${answer.name}`, element.open)); return element; };
    const numbers = remembered("numbers", h("details", { open: isOpen("numbers", false) }, h("summary", {}, "The numbers"), table(["class", "mean", "lowest draw", "highest draw"], rows, `${modelName(answer)}: probabilities`),
      h("p", { class: "small" }, `Uncertainty: aleatoric ${answer.aleatoric.toFixed(3)}, epistemic ${answer.epistemic.toFixed(3)} of ${Math.log(classes).toFixed(3)} nats.`)));
    const width = Math.max(150, Math.floor((answers.clientWidth - GAP * (columns(shown.length) - 1)) / columns(shown.length)) - 28);
    return h("article", { class: `card answer ${lookOf(known.models, answer.name)}${sure ? "" : " unsure-bars"}`, "aria-label": modelName(answer), "data-model": answer.name },
      h("header", {}, h("h2", { "data-words": "" }, modelName(answer)), h("small", {}, answer.draws === 1 ? "Single network" : `${answer.draws} draws`)),
      h("p", { class: `verdict${sure ? "" : " unsure"}` }, h("strong", { "data-words": "" }, sure ? answer.label : "I do not know"),
        h("span", {}, sure ? `${surely(answer.confidence)} sure` : guess(answer))),
      seen ? h("p", { class: `fooled small${wrong ? " wrong" : ""}` }, `Sure but wrong: ${wrong} of ${seen}`) : null,
      remembered("bars", h("details", { class: "more", open: isOpen("bars", !narrow()) }, h("summary", {}, "Bars"),
        answerChart(answer, state.threshold, `${modelName(answer)} says ${verdictWords(answer)}. Bars are mean class probabilities, dots are posterior draws; the dashed line is the threshold.`, width),
        doubtChart(answer, width), numbers)));
  }
  const opened = new Map();

  function look([first, ...rest]) {
    const { width, height, levels } = first.seen;
    const alike = rest.every(({ seen }) => seen.width === width && seen.height === height);
    seenCanvas.width = width;
    seenCanvas.height = height;
    const context = seenCanvas.getContext("2d");
    const image = context.createImageData(width, height);
    levels.forEach((level, k) => image.data.set([level * 255, level * 255, level * 255, 255], 4 * k));
    context.putImageData(image, 0, 0);
    seenCanvas.setAttribute("aria-label", `What the network sees: a picture of ${width} by ${height} pixels`);
    const boxed = pad.picture ? pad.picture.boxed : state.boxed;
    seenWords.textContent = `${width} × ${height} pixels, ${boxed && drawable[0].boxed ? "cropped, scaled and centred like the training digits" : "the whole pad, scaled down"}.${alike ? "" : ` This is what ${modelName(first)} sees; other networks take images of another size.`}`;
  }

  // A picture that the server has is asked about by its number; one of yours is sent as it is, where it is not too large.
  async function useSample(content, sample) {
    put([], { bitmap: await createImageBitmap(content), sample, boxed: false, dark: true }, sample.kind === "test" ? null : NONE);
  }

  async function usePicture(content, boxed) {
    const bitmap = await createImageBitmap(content);
    const whole = ["image/png", "image/jpeg"].includes(content.type) && content.size <= 1_000_000 && bitmap.width * bitmap.height <= 4_000_000;
    const encoded = await base64(whole ? content : await smaller(bitmap));
    pad.set([], { bitmap, encoded, name: content.name ?? "picture.png", changed: !whole, boxed, dark: false });
  }

  async function smaller(bitmap) {
    const scale = Math.min(1, 320 / Math.max(bitmap.width, bitmap.height));
    const small = new OffscreenCanvas(Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale)));
    const context = small.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, small.width, small.height);
    context.drawImage(bitmap, 0, 0, small.width, small.height);
    return small.convertToBlob({ type: "image/png" });
  }

  async function base64(content) {
    const data = new Uint8Array(await content.arrayBuffer());
    let text = "";
    for (let k = 0; k < data.length; k += 8192) text += String.fromCharCode(...data.subarray(k, k + 8192));
    return btoa(text);
  }

  async function drop(file) {
    try {
      await (pending = usePicture(file, state.boxed));
    } catch {
      answers.replaceChildren(problem(`${file.name} could not be read: expected a PNG or JPEG picture`));
    }
  }

  async function fetchSample(sample, strokes = null) {
    const mine = (fetching += 1);
    seenWords.textContent = "Fetching the picture…";
    try {
      const content = await blob("draw/sample", sample);
      // Only the picture asked for last is shown, and none over strokes made meanwhile.
      if (mine === fetching) await useSample(content, sample);
      if (strokes?.length) pad.set(strokes, pad.picture);
    } catch (error) {
      answers.replaceChildren(problem(error));
    }
  }

  const [first] = state.image.split(".", 1);
  const opened_at = Number(state.image.split(".")[1]);
  const next = Object.fromEntries(KINDS.map((kind) => [kind, kind === first && Number.isFinite(opened_at) ? opened_at : 0]));
  const STRIDES = { test: 7, withheld: 5, clothes: 37 };
  const take = (kind, model) => { next[kind] += STRIDES[kind]; pending = fetchSample({ kind, number: next[kind], model }); };
  const withheld = drawable.find((model) => model.withheld.length);
  const file = h("input", { type: "file", accept: "image/png,image/jpeg", class: "unseen", tabindex: -1, "aria-hidden": "true", onchange: () => { if (file.files[0]) drop(file.files[0]); file.value = ""; } });
  const glyphs = (set, kind) => Object.entries(set).map(([name, strokes]) => button(name, () => put(strokes, null, kind === "Digit" ? name : NONE), { class: "small", "aria-label": `${kind} ${name}` }));
  const threshold = h("section", { class: "card threshold", "aria-label": "Threshold" },
    slider({ label: "Answer only if at least this sure", min: 0, max: 1, step: 0.01, value: state.threshold, format: (v) => percent(v, 0), wide: true, oninput: (value) => { state.set({ threshold: value }); render(); } }));
  const controls = settings(
    slider({ label: "Posterior draws", min: 1, max: 100, step: 1, value: state.draws, oninput: (draws) => { state.set({ draws }); ask(); } }),
    slider({ label: "Pen", min: 0.03, max: 0.2, step: 0.01, value: state.pen, format: (v) => percent(v, 0), oninput: (pen) => { state.set({ pen }); pad.pen = pen; pad.draw(); ask(); } }),
    number({ label: "Seed", value: state.seed, onchange: (seed) => { state.set({ seed }); ask(); } }));
  const fool = h("section", { class: "card stack fool", "aria-label": "Fool it" }, h("h2", {}, "Fool it"),
    h("p", { class: "note" }, "Draw something that is not a digit, or an unusual digit, and press what it really is. A network that is sure and wrong has made a confident mistake."),
    truths, tally, h("div", { class: "row" }, saveButton, button("Start counting again", () => { rounds.clear(); render(); })), saved);
  const examples = h("section", { class: "card examples", "aria-label": "Ready examples" },
    h("h2", {}, "Ready examples"),
    h("div", { class: "row", role: "group", "aria-label": "Digits" }, glyphs(DIGITS, "Digit")),
    h("div", { class: "row" },
      button("Test image", () => take("test", drawable[0].name), { class: "small" }),
      button("Picture…", () => file.click(), { class: "small" }), file),
    h("p", { class: "small" }, "Not in the training data:"),
    h("div", { class: "row", role: "group", "aria-label": "Letters" }, glyphs(LETTERS, "Letter")),
    h("div", { class: "row" },
      button("Scribble", () => { state.set({ scribble: state.scribble + 1 }); put(scribble(state.scribble), null, NONE); }, { class: "small" }),
      button("Clothes", () => take("clothes", null), { class: "small", disabled: !known.clothes }),
      withheld ? button(`Withheld ${withheld.withheld.join(", ")}`, () => take("withheld", withheld.name), { class: "small" }) : null),
    known.clothes ? null : h("p", { class: "small" }, "For clothes, put Fashion-MNIST into $BAYESIFY_DATA."));
  place.firstChild.append(exporting("draw", place, {
    python: () => ["draw", { ...body(), at_least: state.threshold }],
    data: () => ({ threshold: state.threshold, strokes: pad.strokes, picture: pad.picture?.sample ?? pad.picture?.name ?? null, answers: shown ?? [] }),
    link,
  }));
  new ResizeObserver(() => { const width = Math.round(answers.clientWidth); if (shown && width && width !== drawnAt) { drawnAt = width; render(); } }).observe(answers);
  place.append(h("div", { class: "page draw" },
    h("div", { class: "column stack" }, h("section", { "aria-label": "Pad", class: "stack pad-part" }, h("div", { "data-picture": "" }, pad.element),
      h("div", { class: "row tools" }, button("Undo", () => pad.undo()), button("Clear", () => { pad.clear(); pad.canvas.focus(); })),
      h("p", { class: "small pad-words", id: "pad-help" }, "Draw with a mouse, a finger or the keys: arrows move, Space puts the pen down or up, Backspace removes the last stroke, Delete clears. You can drop a picture here.")),
      examples,
      h("section", { class: "card seen", "aria-label": "What the network sees" }, h("div", { "data-picture": "" }, seenCanvas), h("div", {}, h("h2", {}, "What the network sees"), seenWords))),
    h("div", { class: "column stack" }, threshold, h("section", { "aria-label": "Answers", class: "stack answers-part" }, answers, h("p", { class: "note", id: "learned" }, learned(drawable)),
      known.models.some((model) => !model.drawable) ? h("p", { class: "note" }, `Not shown: ${known.models.filter((m) => !m.drawable).map((m) => `${m.name} (${m.why})`).join("; ")}.`) : null), fool, controls)));
  await open();
  return () => clearTimeout(saving);

  // What the address says, else what was on the pad before another page was opened.
  async function open() {
    const strokes = unpackStrokes(state.strokes);
    const [kind, number, ...name] = state.image.split(".");
    if (KINDS.includes(kind) && Number.isFinite(Number(number))) {
      const model = kind === "clothes" ? null : drawable.find((each) => each.name === name.join("."))?.name;
      if (model !== undefined) { await (pending = fetchSample({ kind, number: Number(number), model }, strokes)); return; }
      pad.set([]);
      answers.replaceChildren(problem(`The link asks for an image of a run called ${name.join(".")}, which is not loaded here.`));
    } else if (kept && ((!strokes.length && !state.image) || state.image === OWN)) {
      pad.set(kept.strokes, kept.picture);
    } else {
      pad.set(strokes);
      if (state.image === OWN) place.firstChild.after(problem("The sender had a picture of their own on the pad. A link cannot include it."));
    }
  }
}
