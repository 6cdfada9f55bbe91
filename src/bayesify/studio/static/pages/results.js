// Results: a gallery of reproduced experiments, each with its picture, question and answer; a click opens all of it.
import { h, problem, short, table } from "../dom.js";
import { get, blob } from "../api.js";
import { pageState } from "../state.js";
import { exporting } from "../export.js";

export async function show(place) {
  const state = pageState({ of: "" });
  const urls = [];
  const leave = () => urls.forEach((url) => URL.revokeObjectURL(url));
  if (state.of) await one(place, state.of, urls);
  else await gallery(place, urls);
  return leave;
}

async function gallery(place, urls) {
  const head = h("div", { class: "head" }, h("div", {}, h("h1", {}, "Results"), h("p", { class: "lead" }, "Each experiment has a question, a picture and an answer. Open one for its numbers and the command that repeats it.")));
  place.append(head);
  let found;
  try {
    found = await get("results");
  } catch (error) {
    place.append(problem(error));
    return;
  }
  if (!found.results.length) {
    place.append(h("p", { class: "empty" }, "No reproduced experiments yet. This page shows the JSON files of a folder and the figures beside them. The folder is the one given by ", h("code", {}, "--results FOLDER"), `, or docs/results in the folder where the server was started. It looked in ${found.looked_in.join(", ")}.`));
    return;
  }
  head.append(exporting("results", place, { data: () => found }));
  // Experiments with a question come first; files of numbers alone follow as a list of links.
  const asked = found.results.filter((result) => result.question || result.figures.length || result.answer);
  const others = found.results.filter((result) => !asked.includes(result));
  place.append(h("ul", { class: "cards results" }, asked.map((result) => card(result, urls))));
  if (others.length) place.append(h("section", { class: "card" }, h("h2", {}, "More numbers"), h("p", { class: "more-numbers" }, others.flatMap((result, k) => [k ? " · " : "", result.problem ? problem(result.problem) : h("a", { href: link(result) }, result.title)]))));
}

const link = (result) => `?${new URLSearchParams({ page: "results", of: result.name })}`;

function card(result, urls) {
  // Without a picture the answer itself takes its place.
  const pictured = result.figures.length > 0;
  const cover = pictured ? image(result, 0, urls, "picture") : h("div", { class: "plain-cover" }, result.answer || result.title);
  return h("li", { class: "card", "data-result": result.name }, h("a", { href: link(result), tabindex: -1, "aria-label": pictured ? result.title : null }, cover), h("h2", {}, h("a", { href: link(result) }, result.title)),
    result.question ? h("p", { class: "asked" }, result.question) : null, result.answer && pictured ? h("p", { class: "told" }, result.answer) : null, result.more ? h("p", { class: "small" }, result.more) : null, result.problem ? problem(result.problem) : null,
    h("p", { class: "small" }, h("a", { href: link(result), "aria-label": `${result.title}: numbers and command` }, "Numbers and command")));
}

// What the result says of a figure, else the name of its file.
function caption(content, figure) {
  const told = Array.isArray(content.pictures) ? content.pictures.find((each) => each?.file === figure)?.caption : null;
  return typeof told === "string" && told ? told : figure.replace(/\.\w+$/, "").replace(/[-_.]/g, " ");
}

function image(result, number, urls, kind = null) {
  const element = h("img", { alt: `${result.title ?? result.name}: ${result.figures[number].replace(/\.\w+$/, "").replace(/[-_.]/g, " ")}`, class: [kind, result.figures[number].endsWith(".svg") ? "drawn" : null].filter(Boolean).join(" ") || null });
  blob("results/figure", { result: result.number, number }).then((content) => { element.src = URL.createObjectURL(content); urls.push(element.src); }, (error) => element.replaceWith(problem(error)));
  return element;
}

async function one(place, name, urls) {
  let result;
  try {
    result = await get("results/one", { name });
  } catch (error) {
    place.append(h("h1", {}, "Results"), problem(error), h("p", {}, h("a", { href: "?page=results" }, "All results")));
    return;
  }
  const content = result.content ?? {};
  place.append(h("p", {}, h("a", { href: "?page=results" }, "← All results")),
    h("div", { class: "head" }, h("div", {}, h("h1", {}, content.title || result.heading || result.name), content.question ? h("p", { class: "lead" }, content.question) : null), exporting(result.name, place, { data: () => result.content })));
  const parts = [];
  if (result.problem) parts.push(problem(result.problem));
  for (const key of WORDS) if (typeof content[key] === "string") parts.push(h("p", {}, content[key]));
  result.figures.forEach((figure, number) => parts.push(h("figure", { "data-picture": "" }, h("div", { class: "scroll wide-picture", tabindex: 0, role: "region", "aria-label": caption(content, figure) }, image(result, number, urls)), h("figcaption", {}, caption(content, figure)))));
  if (typeof content.command === "string") parts.push(h("p", { class: "small" }, "Repeat it: ", h("code", {}, content.command)));
  const numbers = Object.entries(content).filter(([key, value]) => !(["title", "question", "name", "command", "lines", "pictures"].includes(key) || (WORDS.includes(key) && typeof value === "string"))).map(([key, value]) => section(key, value, result.name)).filter(Boolean);
  if (numbers.length) parts.push(h("details", {}, h("summary", {}, "All numbers"), h("div", { class: "stack" }, numbers)));
  place.append(h("section", { class: "card stack results", "data-result": result.name }, parts));
}

const WORDS = ["answer", "claim", "description", "summary", "conclusion"];
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const words = (name) => name.replaceAll("_", " ");
const MOST = 400;
const cell = (value) => (typeof value === "number" ? short(value) : value === null || value === undefined ? "–" : isRecord(value) && "mean" in value ? spread(value) : typeof value === "object" ? JSON.stringify(value).slice(0, 120) : String(value).slice(0, MOST));
const spread = (value) => `${short(value.mean)}${value.standard_error === null || value.standard_error === undefined ? "" : ` ± ${short(value.standard_error)}`}`;

function section(name, value, of) {
  if (value === null) return null;
  if (typeof value === "string") return h("p", { class: "small" }, `${words(name)}: `, h("code", {}, value.slice(0, MOST)));
  if (typeof value === "number" || typeof value === "boolean") return h("p", {}, `${words(name)}: ${cell(value)}`);
  if (Array.isArray(value) && value.length && value.every(isRecord)) {
    const columns = [...new Set(value.flatMap((row) => Object.keys(row)))].filter((column) => value.some((row) => !isRecord(row[column]) || "mean" in row[column]));
    return h("details", {}, h("summary", {}, `${words(name)} (${value.length})`), table(columns.map(words), value.slice(0, MOST).map((row) => columns.map((column) => cell(row[column]))), `${of}: ${words(name)}`));
  }
  if (isRecord(value)) {
    const rows = Object.entries(value).filter(([, each]) => !isRecord(each) || "mean" in each);
    const inner = Object.entries(value).filter(([, each]) => isRecord(each) && !("mean" in each));
    return h("details", {}, h("summary", {}, words(name)), h("div", { class: "stack" }, rows.length ? table(["", rows.some(([, each]) => isRecord(each)) ? "mean ± standard error" : "value"], rows.slice(0, MOST).map(([key, each]) => [words(key), cell(each)]), `${of}: ${words(name)}`) : null,
      inner.map(([key, each]) => section(key, each, of))));
  }
  return h("p", { class: "small" }, `${words(name)}: ${cell(value)}`);
}
