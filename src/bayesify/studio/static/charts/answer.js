// What a run says about one drawing: a bar for each class, a dot for each posterior draw, and the doubt in its two parts.
import { s, percent, sure, ofLargest } from "../dom.js";

const RIGHT = 54, ROW = 20;

// Drawn at the width that it has, so that its words are as large as all others.
export function answerChart(answer, threshold, label, width = 300) {
  const longest = Math.max(...answer.classes.map((name) => name.length));
  const left = longest > 3 ? 78 : 8 + 9 * longest;
  const span = width - left - RIGHT;
  const height = answer.classes.length * ROW + 8;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const best = answer.probs.indexOf(Math.max(...answer.probs));
  answer.classes.forEach((name, place) => {
    const y = 4 + place * ROW;
    const kind = place === best ? " best" : "";
    const dots = answer.draw_probs.map((draw, number) => {
      // Each draw has a height of its own, the same in every row.
      const lift = y + 3 + ((number * 0.618034) % 1) * (ROW - 8);
      return `M${(left + draw[place] * span).toFixed(1)} ${lift.toFixed(1)}h0`;
    }).join("");
    svg.append(
      s("rect", { class: "track", x: left, y: y + 1, width: span, height: ROW - 4, rx: 3 }),
      s("rect", { class: `bar-mean${kind}`, x: left, y: y + 1, width: answer.probs[place] < 0.003 ? 0 : answer.probs[place] * span, height: ROW - 4, rx: 3 }),
      s("path", { class: "draw-dots", d: dots }),
      s("text", { class: `class-name${kind}`, x: left - 6, y: y + 14, "text-anchor": "end" }, name.length > 11 ? `${name.slice(0, 10)}…` : name),
      s("text", { class: "class-value", x: width, y: y + 14, "text-anchor": "end" }, place === best ? sure(answer.confidence) : percent(answer.probs[place], answer.probs[place] < 0.0995 ? 1 : 0)));
  });
  svg.append(s("line", { class: "cut", x1: left + threshold * span, x2: left + threshold * span, y1: 0, y2: height }));
  return svg;
}

export function doubtChart(answer, width = 300) {
  const classes = answer.classes.length;
  const most = Math.log(classes);
  const inData = answer.aleatoric / most * width;
  const inWeights = answer.epistemic / most * width;
  const wide = width >= 250;
  const svg = s("svg", { viewBox: `0 0 ${width} ${wide ? 38 : 54}`, role: "img",
    "aria-label": `Uncertainty: ${ofLargest(answer.entropy, classes)} of the largest possible (${answer.entropy.toFixed(3)} nats): aleatoric, in the data, ${ofLargest(answer.aleatoric, classes)} (${answer.aleatoric.toFixed(3)} nats); epistemic, in the weights, ${ofLargest(answer.epistemic, classes)} (${answer.epistemic.toFixed(3)} nats).` });
  svg.append(
    s("title", {}, `aleatoric ${answer.aleatoric.toFixed(3)}, epistemic ${answer.epistemic.toFixed(3)}, of at most ${most.toFixed(3)} nats`),
    s("defs", {}, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { class: "hatch-back", width: 6, height: 6 }), s("line", { class: "hatch-line", x1: 0, x2: 0, y1: 0, y2: 6 }))),
    s("rect", { class: "track", x: 0, y: 2, width, height: 12, rx: 3 }),
    s("rect", { class: "part-data", x: 0, y: 2, width: inData, height: 12 }),
    s("rect", { class: "part-weights", x: inData, y: 2, width: inWeights, height: 12 }),
    s("text", { x: 0, y: 32 }, `■ aleatoric ${ofLargest(answer.aleatoric, classes)}`),
    s("text", wide ? { x: width, y: 32, "text-anchor": "end" } : { x: 0, y: 49 }, `▨ epistemic ${ofLargest(answer.epistemic, classes)}`));
  return svg;
}
