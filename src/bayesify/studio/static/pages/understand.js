// Understand: watch a posterior form over points of the plane, or turn the coin and the line of Bayes' rule by hand.
import { h } from "../dom.js";
import { pageState } from "../state.js";
import { ApiError, GONE } from "../api.js";

const TOPICS = { plane: ["Moons and circles", () => import("./plane.js")], coin: ["The coin", () => import("./coin.js")], line: ["The line", () => import("./line.js")] };

export async function show(place) {
  const { topic } = pageState({ topic: "plane" });
  const chosen = TOPICS[topic] ? topic : "plane";
  const links = Object.entries(TOPICS).map(([name, [title]]) => h("a", { href: `?page=understand${name === "plane" ? "" : `&topic=${name}`}`, "aria-current": name === chosen ? "true" : null }, title));
  const head = h("div", { class: "head lesson-head" }, h("div", { class: "topics", role: "navigation", "aria-label": "Topics" }, links));
  place.append(head);
  const page = await TOPICS[chosen][1]().catch(() => { throw new ApiError(GONE, 0); });
  return page.show(place, head);
}
