// The frame around the pages: which one the URL asks for, loaded when it is first opened.
import { h, problem, announce } from "./dom.js";
import { currentPage, controlsHidden } from "./state.js";
import { ApiError, GONE } from "./api.js";
import { showTour, playTour } from "./tour.js";

const PAGES = {
  draw: () => import("./pages/draw.js"),
  decide: () => import("./pages/decide.js"),
  understand: () => import("./pages/understand.js"),
  weights: () => import("./pages/weights.js"),
  results: () => import("./pages/results.js"),
  runs: () => import("./pages/runs.js"),
};
const main = document.getElementById("main");
const nav = document.querySelector("nav");
let leave = null;
let turn = 0;

async function show() {
  const name = PAGES[currentPage()] ? currentPage() : "draw";
  const mine = ++turn;
  leave?.();
  leave = null;
  document.body.classList.toggle("hide-controls", controlsHidden());
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    if (link.dataset.page === name) { link.setAttribute("aria-current", "page"); nav.scrollTo({ left: link.offsetLeft - nav.clientWidth / 2 + link.clientWidth / 2 }); }
    else link.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · bayesify studio`;
  try {
    const page = await PAGES[name]().catch(() => { throw new ApiError(GONE, 0); });
    if (mine !== turn) return;
    const place = h("div", { class: "page", id: `page-${name}` });
    main.replaceChildren(place);
    showTour();
    const left = await page.show(place);
    if (mine === turn) leave = left ?? null;
    else left?.();
    if (mine === turn) playTour();
  } catch (error) {
    if (mine !== turn) return;
    main.replaceChildren(problem(error), h("p", { class: "note" }, "Reload the page once the server is running again."));
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const next = new URLSearchParams(link.getAttribute("href"));
  if (controlsHidden()) next.set("controls", "0");
  history.pushState(null, "", `?${next}`);
  main.focus();
  show().then(() => announce(document.title));
});
addEventListener("popstate", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();
