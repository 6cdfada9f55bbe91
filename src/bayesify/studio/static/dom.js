// Small builders: elements, native controls with labels, figures with a table behind them, words for screen readers.
const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "textContent" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

let sliders = 0;
export function slider({ label, min, max, step, value, format = String, oninput, onchange, wide = false }) {
  // An output inside a label would take the label for itself: it stands beside it.
  const id = `slider-${(sliders += 1)}`;
  const output = h("output", { for: id }, format(value));
  const input = h("input", { type: "range", id, min, max, step, value });
  const say = () => {
    output.textContent = format(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  say();
  input.addEventListener("input", () => { say(); oninput?.(Number(input.value)); });
  input.addEventListener("change", () => onchange?.(Number(input.value)));
  const field = h("div", { class: wide ? "field wide" : "field" }, h("span", {}, h("label", { for: id }, label), output), input);
  field.set = (next) => { input.value = next; say(); };
  field.input = input;
  return field;
}

export function select({ label, options, value, onchange }) {
  const input = h("select", { onchange: () => onchange(input.value) },
    options.map((option) => {
      const [key, name, disabled] = Array.isArray(option) ? option : [option, option];
      return h("option", { value: key, disabled }, name);
    }));
  input.value = value;
  const field = h("label", { class: "field" }, h("span", {}, label), input);
  field.input = input;
  return field;
}

export function number({ label, value, min = 0, max = 2147483647, step = 1, onchange }) {
  const input = h("input", { type: "number", min, max, step, value, onchange: () => {
    const given = input.value === "" ? NaN : Number(input.value);
    const kept = Number.isFinite(given) ? Math.min(max, Math.max(min, given)) : value;
    input.value = kept;
    onchange(kept);
  } });
  return h("label", { class: "field" }, h("span", {}, label), input);
}

export function button(label, onclick, props = {}) {
  return h("button", { type: "button", onclick, ...props }, label);
}

export function table(columns, rows, caption) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => place === 0 ? h("th", { scope: "row" }, String(cell)) : h("td", {}, String(cell))))))));
}

// A chart with what to notice below it and its numbers behind it. `update` takes what draws the chart at a given width;
// `numbers` is called when they are asked for.
export function figure(chart, caption, columns, numbers) {
  const details = h("details", {}, h("summary", {}, "The numbers"));
  const words = h("figcaption", {}, caption);
  const place = h("div", { "data-picture": "" }, chart);
  let shown = numbers;
  const fillTable = () => {
    if (!details.open) return;
    details.querySelector(".scroll")?.remove();
    details.append(table(columns, shown(), words.textContent || "Numbers of the chart"));
  };
  details.addEventListener("toggle", fillTable);
  const element = h("figure", {}, place, words, columns ? details : null);
  let [make, drawn] = [null, 0];
  const redraw = () => {
    drawn = Math.round(place.clientWidth) || 520;
    place.replaceChildren(make(drawn));
  };
  // A chart is drawn at the width it has, so that its words are as large as all others.
  new ResizeObserver(() => { if (make && place.clientWidth && Math.round(place.clientWidth) !== drawn) redraw(); }).observe(place);
  element.update = (next, text, nextNumbers) => {
    make = next;
    redraw();
    if (text !== undefined) words.textContent = text;
    if (nextNumbers) shown = nextNumbers;
    fillTable();
  };
  return element;
}

// Settings: open where there is room for them, folded on a phone, where the picture comes first.
export const narrow = () => matchMedia("(max-width: 700px)").matches;
export function settings(...children) {
  return h("details", { class: "card fold", open: !narrow() }, h("summary", {}, "Settings"), h("section", { class: "controls", "aria-label": "Settings" }, children));
}

let pending = 0;
export function announce(words, { now = false } = {}) {
  clearTimeout(pending);
  if (now) { document.getElementById("live").textContent = words; return; }
  // Only what stays for a moment is read out.
  pending = setTimeout(() => { document.getElementById("live").textContent = words; }, 350);
}

export function problem(error) {
  return h("p", { class: "problem", role: "alert" }, error?.message ?? String(error));
}

// Words for a link that asks for a run which is not here; nothing where it is.
export function missingRun(asked, models, instead) {
  if (models.some((model) => model.name === asked)) return null;
  return h("p", { class: "problem", role: "alert" }, `The link asks for a run called ${asked}, which is not loaded here. ${instead} is shown instead.`);
}

// How sure: 100% only where it is exactly that.
export const sure = (value) => (value >= 1 || percent(value, 0) !== "100%" ? percent(value, 0) : value > 0.999 ? ">99.9%" : percent(value, 1));
export const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)}%`;
// An uncertainty in percent of the largest possible one, for so many classes; nats stand behind it.
export const ofLargest = (nats, classes) => { const share = nats / Math.log(classes); return share > 0 && share < 0.0095 ? "<1%" : percent(share, 0); };
// A number and its unit stay on one line.
export const seconds = (value) => (value < 1 ? `${Math.max(0.01, value).toFixed(2)}\u00a0s` : value < 10 ? `${value.toFixed(1)}\u00a0s` : value < 100 ? `${Math.round(value)}\u00a0s` : `${Math.round(value / 60)}\u00a0min`);
// A network has one colour and one dash on every page, by its place among the loaded ones.
export const lookOf = (models, name) => `run-${Math.max(0, models.findIndex((model) => model.name === name)) % 8}`;
export const short = (value) => (value === null || value === undefined ? "–" : Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value.toPrecision(3)).toString());

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function rgb(name) {
  const text = colour(name).replace("#", "");
  return [0, 2, 4].map((place) => parseInt(text.slice(place, place + 2), 16));
}

// A run by the title of its method, with its own name where that says more.
export const modelName = (model) => (model.name === model.method || model.title.toLowerCase().startsWith(model.name) ? model.title : `${model.title} (${model.name})`);
