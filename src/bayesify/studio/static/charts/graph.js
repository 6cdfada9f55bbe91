// A fully connected network as nodes and edges: edges of weights that are removed dissolve.
import { h, colour } from "../dom.js";

// An edge fades over this share of the weights, so that a dragged cut looks like dissolving.
const FADE = 0.04;

export class NetworkGraph {
  constructor() {
    this.canvas = h("canvas", { class: "graph", role: "img", "aria-label": "The network" });
    this.words = h("p", { class: "note" });
    this.element = h("div", { "data-picture": "" }, this.canvas, this.words);
    this.graph = null;
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  set(graph, by, fraction) {
    this.graph = graph;
    this.canvas.hidden = graph === null;
    this.canvas.style.display = graph === null ? "none" : "";
    // Weak edges first, so that strong ones lie on top.
    if (graph) graph.edges.sort((a, b) => a[3] - b[3]);
    const part = graph?.shown.some((count, layer) => count < graph.sizes[layer]);
    this.words.textContent = graph ? `${graph.sizes.join(" → ")} nodes${part ? ` (${graph.shown.join(", ")} of them are drawn)` : ""}. Strong lines have a high signal-to-noise ratio. Solid blue: positive weight; dashed orange: negative weight.` : "This network is not fully connected, so its connections are not drawn.";
    this.cut(fraction, by);
  }

  cut(fraction, by) {
    [this.fraction, this.by] = [fraction, by];
    this.draw();
  }

  draw() {
    const { graph, canvas } = this;
    if (!graph || !canvas.clientWidth) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const layers = graph.shown.length;
    const place = (layer, node) => [24 + layer / (layers - 1) * (width - 48), height * (node + 0.5) / graph.shown[layer]];
    const rank = this.by === "magnitude" ? 4 : 3;
    const alive = graph.shown.map((count) => new Array(count).fill(0));
    let left = 0;
    for (const edge of graph.edges) {
      const [layer, from, to] = edge;
      const strength = edge[rank];
      const there = Math.min(1, Math.max(0, (strength - this.fraction) / FADE + (this.fraction === 0 ? 1 : 0)));
      if (there <= 0) continue;
      left += 1;
      alive[layer][from] += 1;
      alive[layer + 1][to] += 1;
      context.globalAlpha = there * (0.06 + 0.84 * strength ** 4);
      context.strokeStyle = colour(edge[5] > 0 ? "--first" : "--second");
      context.setLineDash(edge[5] > 0 ? [] : [5, 3]);
      context.lineWidth = 0.5 + 1.8 * strength ** 4;
      const [[x0, y0], [x1, y1]] = [place(layer, from), place(layer + 1, to)];
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
      context.stroke();
    }
    context.globalAlpha = 1;
    context.setLineDash([]);
    graph.shown.forEach((count, layer) => {
      const radius = Math.min(6, height / count / 3);
      for (let node = 0; node < count; node += 1) {
        context.beginPath();
        context.arc(...place(layer, node), radius, 0, 7);
        context.fillStyle = colour(alive[layer][node] ? "--ink" : "--line");
        context.fill();
      }
    });
    canvas.setAttribute("aria-label", `The network with ${left} of the ${graph.edges.length} drawn connections left.`);
  }
}
