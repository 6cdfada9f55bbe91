// Ten methods, one data set: every method on the same points, each tile with its distance to HMC and its time.
import { h, button, announce, problem, percent, seconds } from "../dom.js";
import { stream } from "../api.js";
import { bytes, paint, posteriorColours } from "../charts/surface.js";

const REFERENCE = "hmc";
const DRAWS = 200;

// The mean difference of the probabilities of two surfaces: with two classes it is their total variation distance.
export function distance(one, other) {
  return one.reduce((sum, level, k) => sum + Math.abs(level - other[k]), 0) / one.length / 255;
}

export function tenMethods({ methods, lesson, state }) {
  const order = [...methods].sort((a, b) => (b.name === REFERENCE) - (a.name === REFERENCE));
  const list = h("ul", { class: "tile-grid", "data-picture": "" });
  const status = h("p", { class: "note", role: "status", id: "ten-status" }, "Train every method on your points. HMC samples the posterior itself, so it is the reference: 150 draws per chain after 150 warm-up draws. The other methods use the settings of this page.");
  const trouble = h("div");
  let [stopping, surfaces] = [null, new Map()];
  const tiles = new Map();

  function layout() {
    tiles.clear();
    surfaces = new Map();
    list.replaceChildren(...order.map((method) => {
      const canvas = h("canvas", { width: 224, height: 224, role: "img", "aria-label": `${method.title}: not trained yet` });
      const words = h("span", {}, "waiting");
      tiles.set(method.name, { canvas, words });
      return h("li", { class: method.name === REFERENCE ? "reference" : null, "data-method": method.name }, h("strong", { "data-words": "" }, method.title), canvas, words);
    }));
  }

  function say(method, frame) {
    const { canvas, words } = tiles.get(method.name);
    const levels = bytes(frame.probs);
    paint(canvas, levels, frame.side, posteriorColours());
    surfaces.set(method.name, { levels, seconds: frame.seconds });
    const reference = surfaces.get(REFERENCE);
    const far = method.name === REFERENCE ? "the reference" : reference ? `${percent(distance(levels, reference.levels))} from HMC` : "HMC failed";
    words.textContent = `${far} · ${seconds(frame.seconds)}`;
    canvas.setAttribute("aria-label", `${method.title}: ${words.textContent}, ${percent(frame.accuracy, 0)} of the points right`);
  }

  async function train() {
    stop();
    const mine = new AbortController();
    stopping = mine;
    trouble.replaceChildren();
    layout();
    state.set({ all: true });
    start.textContent = "Stop";
    for (const [place, method] of order.entries()) {
      if (mine.signal.aborted) break;
      const { words } = tiles.get(method.name);
      words.textContent = "training…";
      status.textContent = `Training ${place + 1} of ${order.length}: ${method.title}.`;
      try {
        await stream("understand/train", { ...lesson(), method: method.name, draws: DRAWS, watch: false }, (kind, content) => {
          if (kind === "problem") throw new Error(content.detail);
          if (kind !== "frame") return;
          if (content.probs) say(method, content);
          else words.textContent = `${percent(content.share, 0)}${content.left ? `, ${seconds(content.left)} left` : ""}`;
        }, mine.signal);
      } catch (error) {
        if (error.name === "AbortError" || mine.signal.aborted) break;
        words.textContent = `failed: ${error.message}`;
      }
    }
    if (stopping === mine) {
      finish();
      stopping = null;
      start.textContent = `Train all ${order.length}`;
    }
  }

  function finish() {
    const far = [...surfaces].filter(([name]) => name !== REFERENCE && surfaces.has(REFERENCE)).map(([name, { levels }]) => [name, distance(levels, surfaces.get(REFERENCE).levels)]).sort((a, b) => a[1] - b[1]);
    const title = (name) => order.find((method) => method.name === name).title;
    status.textContent = far.length ? `Closest to HMC on these points: ${far.slice(0, 3).map(([name, value]) => `${title(name)} (${percent(value)})`).join(", ")}. The distance is the mean absolute difference in the probability of ▲ over the square, from ${DRAWS} draws each.` : "There is nothing to compare: HMC did not finish.";
    announce(status.textContent);
  }

  function stop() {
    stopping?.abort();
    if (stopping) { stopping = null; start.textContent = `Train all ${order.length}`; status.textContent = "Stopped."; }
  }

  const start = button(`Train all ${order.length}`, () => (stopping ? stop() : train().catch((error) => trouble.replaceChildren(problem(error)))), { class: "main", "data-tour": "all" });
  const element = h("section", { class: "card stack", "aria-label": "Ten methods, one data set" }, h("div", { class: "row" }, h("h2", {}, "Ten methods, one data set"), start), status, trouble, list);
  return { element, train, stop, distances: () => Object.fromEntries([...surfaces].map(([name, { levels, seconds: spent }]) => [name, { seconds: spent, distance_to_hmc: surfaces.has(REFERENCE) ? distance(levels, surfaces.get(REFERENCE).levels) : null }])) };
}
