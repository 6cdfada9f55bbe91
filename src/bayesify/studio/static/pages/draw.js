// Draw: a digit goes through the preparation of the training digits, and every loaded run answers while it is drawn.
import { h, slider, number, button, announce, problem, percent, modelName, table } from "../dom.js";
import { pageState, packStrokes, unpackStrokes } from "../state.js";
import { models, post, blob } from "../api.js";
import { Pad } from "../pad.js";
import { DIGITS, LETTERS, scribble } from "../glyphs.js";
import { answerChart, doubtChart } from "../charts/answer.js";
import { exporting } from "../export.js";

export async function show(place) {
  const answers = h("div", { class: "answers", "data-picture": "" });
  const heading = h("h1", {}, "Draw");
  place.append(h("div", { class: "head" }, h("div", {}, heading, h("p", { class: "lead" },
    "Each network answers as you draw. Every dot is one draw from its posterior: where the dots disagree, the network does not know."))));
  const known = await models(() => announce("The runs are still being read"));
  const drawable = known.models.filter((model) => model.drawable);
  if (!drawable.length) {
    place.append(h("p", { class: "empty" }, known.models.length ? `No loaded run takes pictures: ${known.models.map((m) => `${m.name}: ${m.why}`).join("; ")}.` : "No run is loaded. Start the studio with one: bayesify serve RUN"));
    return undefined;
  }
  const state = pageState({ threshold: 0.9, draws: 30, seed: 0, pen: drawable[0].pen, strokes: "", boxed: true, scribble: 1, example: 0 });
  const pad = new Pad({ pen: state.pen, changed: () => { fetching += 1; remember(); ask(); }, dropped: drop });
  let shown = null;
  let fetching = 0;
  let [busy, again] = [false, false];
  const body = () => ({ strokes: pad.strokes, pen: state.pen, picture: pad.picture?.encoded ?? null, boxed: pad.picture ? pad.picture.boxed : state.boxed,
    draws: state.draws, seed: state.seed, models: drawable.map((model) => model.name) });

  let saving = 0;
  function remember() {
    clearTimeout(saving);
    saving = setTimeout(() => { const packed = packStrokes(pad.strokes); state.set({ strokes: packed.length < 1800 ? packed : "" }); }, 250);
  }

  async function ask() {
    if (busy) { again = true; return; }
    if (pad.empty) { shown = null; render(); return; }
    busy = true;
    try {
      const said = await post("draw", body());
      shown = pad.empty || said.empty ? null : said.answers;
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
      answers.replaceChildren(h("p", { class: "empty" }, "The pad is empty, so there is nothing to say. Draw a digit, or take a ready one."));
      seenCanvas.getContext("2d").clearRect(0, 0, 64, 64);
      seenCanvas.setAttribute("aria-label", "What the network sees: nothing yet");
      seenWords.textContent = "Nothing yet: the pad is empty.";
      announce("The pad is empty");
      return;
    }
    answers.replaceChildren(...shown.map(card));
    look(shown[0].seen);
    announce(shown.map((answer) => `${modelName(answer)}: ${verdictWords(answer)}`).join(". "));
  }

  const accepted = (answer) => answer.confidence >= state.threshold;
  const verdictWords = (answer) => (accepted(answer) ? `${answer.label}, ${percent(answer.confidence, 0)} sure` : `I do not know; at best ${answer.label}, ${percent(answer.confidence, 0)}`);

  function card(answer) {
    const sure = accepted(answer);
    const rows = answer.classes.map((name, k) => {
      const each = answer.draw_probs.map((draw) => draw[k]);
      return [name, answer.probs[k].toFixed(3), Math.min(...each).toFixed(3), Math.max(...each).toFixed(3)];
    });
    const details = h("details", { open: opened.has(answer.name) }, h("summary", {}, "The numbers"), table(["class", "mean", "lowest draw", "highest draw"], rows, `${modelName(answer)}: probabilities`));
    details.addEventListener("toggle", () => (details.open ? opened.add(answer.name) : opened.delete(answer.name)));
    return h("article", { class: `card answer${sure ? "" : " unsure-bars"}`, "aria-label": modelName(answer), "data-model": answer.name },
      h("header", {}, h("h2", { "data-words": "" }, modelName(answer)), h("small", {}, answer.draws === 1 ? "1 draw: it cannot disagree" : `${answer.draws} draws`)),
      h("p", { class: `verdict${sure ? "" : " unsure"}` }, h("strong", { "data-words": "" }, sure ? answer.label : "I do not know"),
        h("span", {}, sure ? `${percent(answer.confidence, 0)} sure` : `at best ${answer.label}, ${percent(answer.confidence, 0)}`)),
      answerChart(answer, state.threshold, `${modelName(answer)} says ${verdictWords(answer)}. Bars are mean class probabilities, dots are posterior draws; the dashed line is the threshold.`),
      doubtChart(answer), details);
  }
  const opened = new Set();

  function look({ width, height, levels }) {
    seenCanvas.width = width;
    seenCanvas.height = height;
    const context = seenCanvas.getContext("2d");
    const image = context.createImageData(width, height);
    levels.forEach((level, k) => image.data.set([level * 255, level * 255, level * 255, 255], 4 * k));
    context.putImageData(image, 0, 0);
    seenCanvas.setAttribute("aria-label", `What the network sees: a picture of ${width} by ${height} pixels`);
    const boxed = pad.picture ? pad.picture.boxed : state.boxed;
    seenWords.textContent = `${width} × ${height} pixels, ${boxed && drawable[0].boxed ? "boxed and centred by mass as the training digits were" : "shrunk as it is"}.`;
  }

  async function usePicture(content, boxed, dark) {
    const bitmap = await createImageBitmap(content);
    const scale = Math.min(1, 320 / Math.max(bitmap.width, bitmap.height));
    const small = new OffscreenCanvas(Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale)));
    const context = small.getContext("2d");
    if (!dark) { context.fillStyle = "#fff"; context.fillRect(0, 0, small.width, small.height); }
    context.drawImage(bitmap, 0, 0, small.width, small.height);
    const data = new Uint8Array(await (await small.convertToBlob({ type: "image/png" })).arrayBuffer());
    let text = "";
    for (let k = 0; k < data.length; k += 8192) text += String.fromCharCode(...data.subarray(k, k + 8192));
    pad.set([], { bitmap, encoded: btoa(text), boxed, dark });
  }

  async function drop(file) {
    try {
      await usePicture(file, state.boxed, false);
    } catch {
      answers.replaceChildren(problem(`${file.name} is not a picture that this browser can read`));
    }
  }

  async function fetchPicture(path, values, boxed) {
    const mine = (fetching += 1);
    seenWords.textContent = "Fetching the picture…";
    try {
      const content = await blob(path, values);
      // Only the picture asked for last is shown, and none over strokes made meanwhile.
      if (mine === fetching) await usePicture(content, boxed, true);
    } catch (error) {
      answers.replaceChildren(problem(error));
    }
  }

  let clothes = 0;
  const withheld = drawable.find((model) => model.withheld.length);
  const file = h("input", { type: "file", accept: "image/png,image/jpeg", class: "unseen", tabindex: -1, "aria-hidden": "true", onchange: () => { if (file.files[0]) drop(file.files[0]); file.value = ""; } });
  const glyphs = (set, kind) => Object.entries(set).map(([name, strokes]) => button(name, () => pad.set(strokes), { class: "small", "aria-label": `${kind} ${name}` }));
  const controls = h("section", { class: "card controls", "aria-label": "Settings" },
    slider({ label: "Answer only if at least this sure", min: 0, max: 1, step: 0.01, value: state.threshold, format: (v) => percent(v, 0), wide: true, oninput: (threshold) => { state.set({ threshold }); render(); } }),
    slider({ label: "Posterior draws", min: 1, max: 100, step: 1, value: state.draws, oninput: (draws) => { state.set({ draws }); ask(); } }),
    slider({ label: "Pen", min: 0.03, max: 0.2, step: 0.01, value: state.pen, format: (v) => percent(v, 0), oninput: (pen) => { state.set({ pen }); pad.pen = pen; pad.draw(); ask(); } }),
    number({ label: "Seed", value: state.seed, onchange: (seed) => { state.set({ seed }); ask(); } }));
  const examples = h("section", { class: "card examples", "aria-label": "Ready examples" },
    h("h2", {}, "Ready examples"),
    h("div", { class: "row", role: "group", "aria-label": "Digits" }, glyphs(DIGITS, "Digit")),
    h("p", { class: "small" }, "Nothing they know:"),
    h("div", { class: "row", role: "group", "aria-label": "Letters" }, glyphs(LETTERS, "Letter")),
    h("div", { class: "row" },
      button("Scribble", () => { state.set({ scribble: state.scribble + 1 }); pad.set(scribble(state.scribble)); }, { class: "small" }),
      button("Clothes", () => { clothes += 1; fetchPicture("draw/clothes", { number: clothes * 37 }, false); }, { class: "small", disabled: !known.clothes }),
      button("Test image", () => { state.set({ example: state.example + 1 }); fetchPicture("draw/example", { model: drawable[0].name, number: state.example * 7 }, false); }, { class: "small" }),
      withheld ? button(`Withheld ${withheld.withheld.join(", ")}`, () => { state.set({ example: state.example + 1 }); fetchPicture("draw/example", { model: withheld.name, number: state.example * 5, unknown: true }, false); }, { class: "small" }) : null,
      button("Picture…", () => file.click(), { class: "small" }), file),
    known.clothes ? null : h("p", { class: "small" }, "Clothes need Fashion-MNIST in $BAYESIFY_DATA: it is not here."));
  place.firstChild.append(exporting("draw", place, {
    python: () => ["draw", { ...body(), at_least: state.threshold }],
    data: () => ({ threshold: state.threshold, strokes: pad.strokes, answers: shown ?? [] }),
  }));
  place.append(controls, h("div", { class: "page draw" },
    h("div", { class: "stack" }, h("section", { "aria-label": "Pad", class: "stack" }, h("div", { "data-picture": "" }, pad.element),
      h("div", { class: "row" }, button("Undo", () => pad.undo()), button("Clear", () => { pad.clear(); pad.canvas.focus(); })),
      h("p", { class: "small", id: "pad-help" }, "Mouse, finger, or keys: arrows move, space puts the pen down or up, Backspace takes a stroke back, Delete clears. A picture can be dropped here.")),
      h("section", { class: "card seen", "aria-label": "What the network sees" }, h("div", { "data-picture": "" }, seenCanvas), h("div", {}, h("h2", {}, "What the network sees"), seenWords)),
      examples),
    h("section", { "aria-label": "Answers", class: "stack" }, answers,
      known.models.some((model) => !model.drawable) ? h("p", { class: "note" }, `Not asked: ${known.models.filter((m) => !m.drawable).map((m) => `${m.name} (${m.why})`).join("; ")}.`) : null)));
  pad.set(unpackStrokes(state.strokes));
  return () => clearTimeout(saving);
}
