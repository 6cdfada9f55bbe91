// A chart with two axes as SVG: scales, ticks, lines, areas, steps; colours and dashes come from the style sheet.
import { s } from "../dom.js";

export function axes({ width = 520, height = 310, x, y, label }) {
  const left = 56, right = 14, top = 12, bottom = 42;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const at = { x: scale(x, left, width - right), y: scale(y, height - bottom, top) };
  for (const value of ticks(x)) {
    const place = at.x(value);
    svg.append(s("line", { class: "grid", x1: place, x2: place, y1: top, y2: height - bottom }),
      s("text", { x: place, y: height - bottom + 16, "text-anchor": "middle" }, (x.format ?? plain)(value)));
  }
  for (const value of ticks(y)) {
    const place = at.y(value);
    svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: place, y2: place }),
      s("text", { x: left - 7, y: place + 4, "text-anchor": "end" }, (y.format ?? plain)(value)));
  }
  svg.append(s("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }),
    s("text", { class: "axis-name", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.name),
    s("text", { class: "axis-name", transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.name));
  const path = (points) => points.map(([a, b], place) => `${place ? "L" : "M"}${at.x(a).toFixed(1)} ${at.y(b).toFixed(1)}`).join("");
  return {
    svg, at, width, height, left, right, top, bottom,
    line(points, kind = "") { return this.add(s("path", { class: `series ${kind}`, d: path(points) })); },
    area(points, kind = "") { return this.add(s("path", { class: `fill ${kind}`, d: `${path([[points[0][0], y.min], ...points, [points.at(-1)[0], y.min]])}Z` })); },
    band(lower, upper, kind = "") { return this.add(s("path", { class: `fill ${kind}`, d: `${path([...lower, ...[...upper].reverse()])}Z` })); },
    bars(edges, values, kind) {
      return values.map((value, place) => value > 0 && this.add(s("rect", { class: `histogram ${kind?.(place) ?? ""}`, x: at.x(edges[place]), y: at.y(value),
        width: Math.max(0.5, at.x(edges[place + 1]) - at.x(edges[place])), height: Math.max(0, at.y(y.min) - at.y(value)) })));
    },
    cut(value, words) {
      const place = at.x(value);
      // Words stand where they have room: to the left of the line near the right edge.
      const end = place + 7.2 * words.length > width - right;
      this.add(s("line", { class: "cut", x1: place, x2: place, y1: top, y2: height - bottom }));
      return this.add(s("text", { class: "cut-name", x: place + (end ? -6 : 6), y: top + 10, "text-anchor": end ? "end" : "start" }, words));
    },
    mark(a, b, kind = "mark", radius = 6) { return this.add(s("circle", { class: kind, cx: at.x(a), cy: at.y(b), r: radius })); },
    words(a, b, text, kind = "direct", anchor = "start") { return this.add(s("text", { class: kind, x: at.x(a), y: at.y(b), "text-anchor": anchor }, text)); },
    add(element) { svg.append(element); return element; },
  };
}

// Lines by name in an upper corner, each with its own dash.
export function legend(chart, entries, side = "right") {
  entries.forEach(([name, kind], place) => {
    const y = chart.top + 8 + 16 * place;
    const [x, sign] = side === "right" ? [chart.width - chart.right - 8, -1] : [chart.left + 10, 1];
    chart.add(s("line", { class: `series ${kind}`, x1: x, x2: x + 26 * sign, y1: y, y2: y }));
    chart.add(s("text", { class: "direct", x: x + 32 * sign, y: y + 4, "text-anchor": side === "right" ? "end" : "start" }, name));
  });
}

function scale({ min, max, log }, from, to) {
  const [a, b] = log ? [Math.log(min), Math.log(max)] : [min, max];
  const size = b - a || 1;
  return (value) => from + ((log ? Math.log(Math.max(value, 1e-300)) : value) - a) / size * (to - from);
}

// `whole` is for what is counted: there is no half epoch.
function ticks({ min, max, log, whole = false, count = 5 }) {
  if (log) {
    const found = [];
    for (let power = Math.ceil(Math.log10(min)); power <= Math.log10(max); power += 1) found.push(10 ** power);
    return found;
  }
  const rough = Math.max((max - min || 1) / count, whole ? 1 : 0);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ((whole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).find((factor) => factor * unit >= rough) ?? 10);
  const found = [];
  for (let value = Math.ceil(min / step - 1e-9) * step; value <= max + step * 1e-6; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

const plain = (value) => Number(value.toPrecision(6)).toString();
