// A tour of six steps: each opens a page in a given state, and its words point at what is on the picture.
import { h, button, announce } from "./dom.js";

const STEPS = [
  { query: "page=draw", press: "[aria-label='Digit 7']", title: "Every network answers",
    words: [["The pad", ".pad-frame"], " shows a digit. ", ["Each card", ".answers"], " is a network with its answer, its confidence and a bar for each class."] },
  { query: "page=draw", press: "[aria-label='Letter K']", title: "Something they never saw",
    words: ["No network was trained on letters, so the honest answer is “I do not know”. ", ["Dots far apart", ".answers"], " mean that versions of a network disagree. Below ", ["this threshold", ".threshold"], " a network does not answer."] },
  { query: "page=decide", title: "Fewer answers, fewer mistakes",
    words: ["Move ", ["the threshold", "[data-tour='threshold']"], ". Fewer examples are answered. If the uncertainty is good, ", ["their error", ".tiles"], " falls too."] },
  { query: "page=understand", title: "Where there is no data",
    words: ["Colour shows the predicted class. It ", ["fades", ".surface"], " away from the points, because networks that fit the points disagree there."] },
  { query: "page=understand", title: "Ten methods, one data set", press: "[data-tour='all']", scroll: ".tile-grid",
    words: ["HMC samples the posterior itself. ", ["Each tile", ".tile-grid"], " shows one method on the same points, with its distance to HMC and its time."] },
  { query: "page=weights", title: "The part you do not need",
    words: ["Drag ", ["the share to remove", "[data-tour='prune']"], ". ", ["Connections", ".graph"], " with more noise than signal disappear first. Watch ", ["the accuracy", ".large"], " stay high."] },
];

const given = () => Number(new URLSearchParams(location.search).get("tour"));
let panel = null;
// What the pointer or the focus asks for, which may not be on the page yet.
let looking = null;

function look(selector, on) {
  looking = on ? selector : null;
  for (const element of document.querySelectorAll(selector)) element.classList.toggle("looked-at", on);
}

function go(step) {
  const next = new URLSearchParams(step ? `${STEPS[step - 1].query}&tour=${step}` : location.search);
  if (!step) next.delete("tour");
  history.pushState(null, "", `?${next}`);
  dispatchEvent(new PopStateEvent("popstate"));
}

// The words of a step come at once; what it presses and shows comes when its page is ready, which may take seconds.
export function showTour() {
  panel?.remove();
  panel = looking = null;
  for (const element of document.querySelectorAll(".looked-at")) element.classList.remove("looked-at");
  const step = given();
  if (!(step >= 1 && step <= STEPS.length)) return;
  const { title, words } = STEPS[step - 1];
  const linked = words.map((part) => {
    if (typeof part === "string") return part;
    const [text, selector] = part;
    return h("button", { type: "button", class: "word", onclick: () => { const target = document.querySelector(selector); target?.scrollIntoView({ block: "center", behavior: "smooth" }); },
      onpointerenter: () => look(selector, true), onpointerleave: () => look(selector, false), onfocus: () => look(selector, true), onblur: () => look(selector, false) }, text);
  });
  panel = h("aside", { class: "tour", "aria-label": `Tour, step ${step} of ${STEPS.length}` }, h("h2", {}, `${step}. ${title}`), h("p", {}, linked),
    h("div", { class: "row" }, button("Back", () => go(step - 1), { disabled: step === 1 }), step < STEPS.length ? button("Next", () => go(step + 1), { class: "main" }) : button("Finish", () => go(0), { class: "main" }),
      h("span", { class: "small" }, `${step} of ${STEPS.length}`), button("Close", () => go(0))));
  document.body.append(panel);
  announce(`Tour, step ${step}: ${title}`);
}

export function playTour() {
  const { press, scroll } = STEPS[given() - 1] ?? {};
  if (press) document.querySelector(press)?.click();
  if (scroll) document.querySelector(scroll)?.scrollIntoView({ block: "center" });
  if (looking) look(looking, true);
}
