// Points of two classes on a square of the plane, to be added, moved and removed by mouse, finger or keys.
import { h, s, announce } from "./dom.js";

const NEAR = 5;
const NAMES = ["circle", "triangle"];

export class Points {
  constructor({ changed, tool }) {
    this.points = [];
    this.view = { low: [-1, -1], high: [1, 1] };
    this.changed = changed;
    this.tool = tool;
    this.cursor = [50, 50];
    this.held = -1;
    this.canvas = h("canvas", { width: 448, height: 448, "aria-hidden": "true" });
    this.under = s("g");
    this.over = s("g");
    this.ring = s("g");
    this.svg = s("svg", { viewBox: "0 0 100 100", tabindex: 0, role: "application", "aria-label": "Points and posterior surface", "aria-describedby": "points-help" }, this.under, this.over, this.ring);
    this.element = h("div", { class: "surface" }, this.canvas, this.svg);
    this.#listen();
  }

  // The square around all points, with room to see what is said far from them.
  fitView() {
    const ends = [0, 1].map((axis) => { const values = this.points.map((point) => point[axis]); return [Math.min(...values), Math.max(...values)]; });
    const half = 0.75 * Math.max(...ends.map(([a, b]) => b - a)) + 0.3;
    const middle = ends.map(([a, b]) => (a + b) / 2);
    this.view = { low: middle.map((value) => value - half), high: middle.map((value) => value + half) };
  }

  toPage([x, y]) {
    const { low, high } = this.view;
    return [(x - low[0]) / (high[0] - low[0]) * 100, (high[1] - y) / (high[1] - low[1]) * 100];
  }

  toPlane([x, y]) {
    const { low, high } = this.view;
    return [low[0] + x / 100 * (high[0] - low[0]), high[1] - y / 100 * (high[1] - low[1])].map((value) => Number(value.toFixed(3)));
  }

  draw() {
    this.over.replaceChildren(...this.points.map((point, place) => shape(point, this.toPage(point), place === this.held)), ...(document.activeElement === this.svg ? [this.#cross()] : []));
  }

  showAsk(ask) {
    this.ring.replaceChildren();
    if (!ask) return;
    const [x, y] = this.toPage([ask.x, ask.y]);
    this.ring.append(s("circle", { class: "ask-ring", cx: x, cy: y, r: 4.2, "vector-effect": "non-scaling-stroke" }),
      s("text", { class: "ask-name", x: x + (x > 72 ? -6 : 6), y: y - 3, "font-size": 4, "text-anchor": x > 72 ? "end" : "start" }, "ask here"));
    // The style sheet's pixels would be a fifth of the picture here.
    this.ring.querySelector("text").style.fontSize = "4px";
    this.ring.querySelector("text").style.strokeWidth = "1.2px";
  }

  add(plane, label) {
    this.points.push([...plane, label]);
    this.draw();
    this.changed(`A ${NAMES[label]} added: ${this.points.length} points`);
  }

  #cross() {
    const [x, y] = this.cursor;
    return s("path", { class: "cross", "vector-effect": "non-scaling-stroke", d: `M${x - 4} ${y}h8M${x} ${y - 4}v8` });
  }

  #nearest([x, y], within = Infinity) {
    let [best, distance] = [-1, within];
    this.points.forEach((point, place) => {
      const [a, b] = this.toPage(point);
      if (Math.hypot(a - x, b - y) < distance) [best, distance] = [place, Math.hypot(a - x, b - y)];
    });
    return best;
  }

  #remove(place) {
    const [point] = this.points.splice(place, 1);
    this.held = -1;
    this.draw();
    this.changed(`A ${NAMES[point[2]]} removed: ${this.points.length} points`);
  }

  #listen() {
    const { svg } = this;
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width * 100, (event.clientY - box.top) / box.height * 100].map((value) => Math.min(100, Math.max(0, value)));
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      svg.focus({ preventScroll: true });
      const at = place(event);
      this.cursor = at;
      const near = this.#nearest(at, NEAR / 1.6);
      if (near >= 0 && this.tool() === "remove") this.#remove(near);
      else if (near >= 0) { this.held = near; svg.setPointerCapture(event.pointerId); this.draw(); }
      else if (this.tool() === "0" || this.tool() === "1") this.add(this.toPlane(at), Number(this.tool()));
    });
    let moved = false;
    svg.addEventListener("pointermove", (event) => {
      if (this.held < 0 || !event.buttons) return;
      moved = true;
      this.points[this.held].splice(0, 2, ...this.toPlane(place(event)));
      this.draw();
    });
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => {
      if (this.held < 0) return;
      this.held = -1;
      this.draw();
      if (moved) this.changed("A point moved");
      moved = false;
    });
    for (const kind of ["focus", "blur"]) svg.addEventListener(kind, () => this.draw());
    svg.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (moves[event.key]) {
      const size = event.shiftKey ? 1 : 4;
      this.cursor = this.cursor.map((value, axis) => Math.min(100, Math.max(0, value + size * moves[event.key][axis])));
      if (this.held >= 0) this.points[this.held].splice(0, 2, ...this.toPlane(this.cursor));
      else announce(this.toPlane(this.cursor).map((value) => value.toFixed(1)).join(", "));
    } else if (event.key === "a" || event.key === "b") {
      this.add(this.toPlane(this.cursor), event.key === "a" ? 0 : 1);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      const near = this.#nearest(this.cursor);
      if (near >= 0) this.#remove(near);
    } else if (event.key === "Enter" || event.key === " ") {
      if (this.held >= 0) { this.held = -1; this.changed("Put down"); }
      else {
        this.held = this.#nearest(this.cursor);
        if (this.held >= 0) { this.cursor = this.toPage(this.points[this.held]); announce(`A ${NAMES[this.points[this.held][2]]} picked up: arrows move it`); }
      }
    } else return;
    event.preventDefault();
    this.draw();
  }
}

function shape([, , label], [x, y], held) {
  const kind = `point-${label}${held ? " held" : ""}`;
  const size = held ? 2.2 : 1.5;
  if (label === 0) return s("circle", { class: kind, cx: x, cy: y, r: size, "vector-effect": "non-scaling-stroke" });
  return s("path", { class: kind, "vector-effect": "non-scaling-stroke", d: `M${x} ${y - 1.25 * size}L${x + 1.2 * size} ${y + 0.9 * size}H${x - 1.2 * size}Z` });
}
