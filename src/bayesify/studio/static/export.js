// Export of what is shown: the Python that makes it, the data behind it, the picture as SVG, and a link.
import { h, button, announce, problem } from "./dom.js";
import { post } from "./api.js";

// `python` gives [path, body] for the server; `data` gives what is shown as an object; `link` waits until the address
// says what is shown, and gives words where it cannot.
export function exporting(name, place, { python, data, link = async () => null }) {
  const note = h("p", { class: "small", role: "status" });
  const group = h("div", { class: "export", role: "group", "aria-label": "Export what is shown" });
  if (python) group.append(button("Python", () => showPython(...python())));
  group.append(
    button("Data", () => save(`${name}.json`, new Blob([JSON.stringify(data(), null, 1)], { type: "application/json" }))),
    button("Picture", () => save(`${name}.svg`, new Blob([picture(place)], { type: "image/svg+xml" }))),
    button("Copy link", async (event) => {
      const missing = await link();
      note.textContent = missing ?? "";
      try {
        await navigator.clipboard.writeText(location.href);
        event.target.textContent = "Copied";
      } catch {
        event.target.textContent = "Use the address bar";
      }
      announce([event.target.textContent, missing].filter(Boolean).join(". "));
      setTimeout(() => { event.target.textContent = "Copy link"; }, 1500);
    }), note);
  return group;
}

export function save(name, content) {
  const link = h("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 2000);
}

async function showPython(path, body) {
  const dialog = h("dialog", { "aria-label": "Python" });
  try {
    const { python } = await post(`python/${path}`, body);
    const copy = button("Copy", async () => {
      try { await navigator.clipboard.writeText(python); copy.textContent = "Copied"; } catch { copy.textContent = "Select and copy it"; }
    }, { class: "main" });
    dialog.append(h("h2", {}, "The Python that makes this"), h("pre", { tabindex: 0, "aria-label": "Python" }, h("code", {}, python)),
      h("div", { class: "row" }, copy, button("Save as a file", () => save(`${path}.py`, new Blob([python], { type: "text/x-python" }))), button("Close", () => dialog.close())));
  } catch (error) {
    dialog.append(problem(error), button("Close", () => dialog.close()));
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "fill-opacity",
  "font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline", "paint-order"];

// Everything marked `data-picture` below `place`, where it stands, as one SVG that needs nothing else.
export function picture(place) {
  const frame = place.getBoundingClientRect();
  const parts = [];
  const drawn = [...place.querySelectorAll("[data-picture] canvas, [data-picture] svg, [data-picture] img, [data-words]")];
  let [right, bottom] = [0, 0];
  for (const element of drawn) {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.parentElement.closest("svg")) continue;
    const at = { x: box.left - frame.left, y: box.top - frame.top };
    right = Math.max(right, at.x + box.width);
    bottom = Math.max(bottom, at.y + box.height);
    if (element instanceof HTMLCanvasElement) parts.push(image(element.toDataURL(), at, box));
    else if (element instanceof SVGSVGElement) parts.push(nested(element, at, box));
    else if (element instanceof HTMLElement && element.dataset.words !== undefined) parts.push(words(element, at, box));
  }
  const back = getComputedStyle(document.body).backgroundColor;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${right + 20}" height="${bottom + 20}" viewBox="-10 -10 ${right + 20} ${bottom + 20}">` +
    `<rect x="-10" y="-10" width="${right + 20}" height="${bottom + 20}" fill="${back}"/>${parts.join("")}</svg>`;
}

const image = (data, at, box) => `<image href="${data}" x="${at.x}" y="${at.y}" width="${box.width}" height="${box.height}" preserveAspectRatio="none"/>`;

function nested(svg, at, box) {
  const copy = svg.cloneNode(true);
  const [from, to] = [[...svg.querySelectorAll("*")], [...copy.querySelectorAll("*")]];
  from.forEach((element, place) => {
    const style = getComputedStyle(element);
    for (const name of STYLES) to[place].setAttribute(name, style.getPropertyValue(name));
    to[place].removeAttribute("class");
  });
  for (const [name, value] of Object.entries({ x: at.x, y: at.y, width: box.width, height: box.height })) copy.setAttribute(name, value);
  return new XMLSerializer().serializeToString(copy);
}

function words(element, at, box) {
  const style = getComputedStyle(element);
  const text = element.textContent.replace(/[<&>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  return `<text x="${at.x}" y="${at.y + box.height * 0.75}" font-family="sans-serif" font-size="${style.fontSize}" font-weight="${style.fontWeight}" fill="${style.color}">${text}</text>`;
}
