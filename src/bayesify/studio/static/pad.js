// A pad to draw on with a mouse, a finger or the keyboard; strokes are kept as points, so that each can be taken back.
import { h, colour, announce } from "./dom.js";
import { onGrid } from "./state.js";

const STEP = 0.04;

export class Pad {
  constructor({ pen, changed, dropped }) {
    this.strokes = [];
    this.picture = null;
    this.pen = pen;
    this.changed = changed;
    this.cursor = [0.5, 0.5].map(onGrid);
    this.penDown = false;
    this.hint = h("div", { class: "hint", "aria-hidden": "true" }, "Draw a digit here");
    this.canvas = h("canvas", { class: "pad", width: 560, height: 560, tabindex: 0, role: "application", "aria-label": "Drawing pad",
      "aria-describedby": "pad-help" });
    this.element = h("div", { class: "pad-frame" }, this.canvas, this.hint);
    this.#listen(dropped);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  get empty() { return !this.strokes.length && !this.picture; }

  set(strokes, picture = null) {
    this.strokes = strokes.map((stroke) => stroke.map((point) => point.map(onGrid)));
    this.picture = picture;
    this.draw();
    this.changed();
  }

  undo() {
    if (this.strokes.length) this.strokes.pop();
    else this.picture = null;
    this.penDown = false;
    this.draw();
    this.changed();
  }

  clear() { this.penDown = false; this.set([]); }

  draw() {
    const [context, side] = [this.canvas.getContext("2d"), this.canvas.width];
    context.clearRect(0, 0, side, side);
    if (this.picture) {
      const { width, height } = this.picture.bitmap;
      const scale = side / Math.max(width, height);
      context.imageSmoothingEnabled = width > 64;
      context.drawImage(this.picture.bitmap, (side - width * scale) / 2, (side - height * scale) / 2, width * scale, height * scale);
    }
    context.strokeStyle = context.fillStyle = this.picture?.dark ? "#ffffff" : colour("--ink");
    context.lineWidth = this.pen * side;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.strokes) {
      context.beginPath();
      stroke.forEach(([x, y], place) => (place ? context.lineTo(x * side, y * side) : context.moveTo(x * side, y * side)));
      if (stroke.length === 1) context.lineTo(stroke[0][0] * side + 0.01, stroke[0][1] * side);
      context.stroke();
    }
    if (document.activeElement === this.canvas) this.#drawCursor(context, side);
    this.canvas.setAttribute("aria-label", this.penDown ? "Drawing pad, pen down" : "Drawing pad");
    this.hint.hidden = !this.empty;
    this.hint.style.display = this.empty ? "" : "none";
  }

  #drawCursor(context, side) {
    const [x, y] = this.cursor.map((value) => value * side);
    context.lineWidth = 3;
    context.strokeStyle = colour(this.penDown ? "--doubt" : "--accent");
    context.beginPath();
    context.arc(x, y, Math.max(8, this.pen * side / 2 + 4), 0, 7);
    context.moveTo(x - 7, y); context.lineTo(x + 7, y); context.moveTo(x, y - 7); context.lineTo(x, y + 7);
    context.stroke();
  }

  #listen(dropped) {
    const { canvas, element } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map(onGrid);
    };
    let drawing = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      drawing = [place(event)];
      this.strokes.push(drawing);
      this.draw();
      this.changed();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drawing) return;
      for (const each of event.getCoalescedEvents?.() ?? [event]) {
        const [next, last] = [place(each), drawing.at(-1)];
        if (Math.hypot(next[0] - last[0], next[1] - last[1]) > 0.012) drawing.push(next);
      }
      this.draw();
      this.changed();
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { drawing = null; });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, () => { if (kind === "blur") this.penDown = false; this.draw(); });
    element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("over"); });
    element.addEventListener("dragleave", () => element.classList.remove("over"));
    element.addEventListener("drop", (event) => {
      event.preventDefault();
      element.classList.remove("over");
      if (event.dataTransfer.files.length) dropped(event.dataTransfer.files[0]);
    });
  }

  #key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (moves[event.key]) {
      const size = event.shiftKey ? STEP / 4 : STEP;
      this.cursor = this.cursor.map((value, axis) => onGrid(value + moves[event.key][axis] * size));
      if (this.penDown) { this.strokes.at(-1).push([...this.cursor]); this.changed(); }
    } else if (event.key === " " || event.key === "Enter") {
      this.penDown = !this.penDown;
      if (this.penDown) { this.strokes.push([[...this.cursor]]); this.changed(); }
      announce(this.penDown ? "Pen down: arrow keys draw" : "Pen up", { now: true });
    } else if ((event.key === "z" && (event.ctrlKey || event.metaKey)) || event.key === "Backspace") {
      this.undo();
    } else if (event.key === "Delete" || event.key === "Escape") {
      if (this.empty) return;
      this.clear();
      announce("The pad is empty");
    } else return;
    event.preventDefault();
    this.draw();
  }
}
