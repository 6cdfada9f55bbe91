// Results: reproduced experiments as their files have them: the claim, the numbers, the figures, the command.
import { h, problem, short, table } from "../dom.js";
import { get, blob } from "../api.js";
import { exporting } from "../export.js";

export async function show(place) {
  const head = h("div", { class: "head" }, h("div", {}, h("h1", {}, "Results"), h("p", { class: "lead" }, "Experiments that were run again from the recipe, with the command that repeats each.")));
  place.append(head);
  let found;
  try {
    found = await get("results");
  } catch (error) {
    place.append(problem(error));
    return undefined;
  }
  if (!found.results.length) {
    place.append(h("p", { class: "empty" }, "No reproduced experiments yet. This page shows the JSON files of a folder, with the figures beside them: the one given by ", h("code", {}, "--results FOLDER"), `, else docs/results below the folder that the server was started in. It looked in ${found.looked_in.join(", ")}.`));
    return undefined;
  }
  head.append(exporting("results", place, { data: () => found }));
  const urls = [];
  place.append(h("div", { class: "results" }, found.results.map((result, place) => card(result, place, urls))));
  return () => urls.forEach((url) => URL.revokeObjectURL(url));
}

function card(result, place, urls) {
  const parts = [h("h2", {}, result.content?.title ?? result.name)];
  if (result.problem) parts.push(problem(result.problem));
  for (const name of ["claim", "description", "summary", "conclusion"]) if (typeof result.content?.[name] === "string") parts.push(h("p", {}, result.content[name]));
  for (const [name, value] of Object.entries(result.content ?? {})) parts.push(section(name, value, result.name));
  result.figures.forEach((name, number) => {
    const image = h("img", { alt: `${result.name}: ${name.replace(/[-_.]/g, " ")}`, loading: "lazy" });
    parts.push(h("figure", { "data-picture": "" }, image, h("figcaption", {}, name)));
    blob("results/figure", { result: place, number }).then((content) => { image.src = URL.createObjectURL(content); urls.push(image.src); }, (error) => image.replaceWith(problem(error)));
  });
  return h("section", { class: "card stack", "data-result": result.name }, parts);
}

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const words = (name) => name.replaceAll("_", " ");
const cell = (value) => (typeof value === "number" ? short(value) : value === null ? "–" : isRecord(value) && "mean" in value ? spread(value) : typeof value === "object" ? JSON.stringify(value) : String(value));
const spread = (value) => `${short(value.mean)}${value.standard_error === null || value.standard_error === undefined ? "" : ` ± ${short(value.standard_error)}`}`;

function section(name, value, of) {
  if (["title", "claim", "description", "conclusion"].includes(name) || value === null) return null;
  if (typeof value === "string") return name === "summary" ? null : h("p", { class: "small" }, `${words(name)}: `, h("code", {}, value));
  if (typeof value === "number" || typeof value === "boolean") return h("p", {}, `${words(name)}: ${cell(value)}`);
  if (Array.isArray(value) && value.length && value.every(isRecord)) {
    const columns = [...new Set(value.flatMap((row) => Object.keys(row)))].filter((column) => value.some((row) => !isRecord(row[column]) || "mean" in row[column]));
    return h("details", {}, h("summary", {}, `${words(name)} (${value.length})`), table(columns.map(words), value.map((row) => columns.map((column) => cell(row[column] ?? null))), `${of}: ${words(name)}`));
  }
  if (isRecord(value)) {
    const rows = Object.entries(value).filter(([, each]) => !isRecord(each) || "mean" in each);
    const inner = Object.entries(value).filter(([, each]) => isRecord(each) && !("mean" in each));
    return h("div", { class: "stack" }, rows.length ? [h("h3", {}, words(name)), table(["", rows.some(([, each]) => isRecord(each)) ? "mean ± standard error" : "value"], rows.map(([key, each]) => [words(key), cell(each)]), `${of}: ${words(name)}`)] : null,
      inner.map(([key, each]) => section(key, each, of)));
  }
  return h("p", { class: "small" }, `${words(name)}: ${cell(value)}`);
}
