// What a run says about one drawing: a bar for each class, a dot for each posterior draw, and the doubt in its two parts.
import { s, percent, sure } from "../dom.js";

const WIDTH = 300, LEFT = 40, RIGHT = 46, ROW = 20;

export function answerChart(answer, threshold, label) {
  const wide = Math.max(...answer.classes.map((name) => name.length)) > 3;
  const left = wide ? 78 : LEFT;
  const span = WIDTH - left - RIGHT;
  const height = answer.classes.length * ROW + 8;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  const best = answer.probs.indexOf(Math.max(...answer.probs));
  answer.classes.forEach((name, place) => {
    const y = 4 + place * ROW;
    const kind = place === best ? " best" : "";
    const dots = answer.draw_probs.map((draw, number) => {
      // Draws are told apart by height: the same draw has the same height in every row.
      const lift = y + 3 + ((number * 0.618034) % 1) * (ROW - 8);
      return `M${(left + draw[place] * span).toFixed(1)} ${lift.toFixed(1)}h0`;
    }).join("");
    svg.append(
      s("rect", { class: "track", x: left, y: y + 1, width: span, height: ROW - 4, rx: 3 }),
      s("rect", { class: `bar-mean${kind}`, x: left, y: y + 1, width: answer.probs[place] < 0.003 ? 0 : answer.probs[place] * span, height: ROW - 4, rx: 3 }),
      s("path", { class: "draw-dots", d: dots }),
      s("text", { class: `class-name${kind}`, x: left - 8, y: y + 13, "text-anchor": "end" }, name.length > 11 ? `${name.slice(0, 10)}…` : name),
      s("text", { class: "class-value", x: WIDTH, y: y + 13, "text-anchor": "end" }, place === best ? sure(answer.confidence) : percent(answer.probs[place], answer.probs[place] < 0.0995 ? 1 : 0)));
  });
  svg.append(s("line", { class: "cut", x1: left + threshold * span, x2: left + threshold * span, y1: 0, y2: height }));
  return svg;
}

export function doubtChart(answer) {
  const most = Math.log(answer.classes.length);
  const width = 300;
  const inData = answer.aleatoric / most * width;
  const inWeights = answer.epistemic / most * width;
  const svg = s("svg", { viewBox: `0 0 ${width} 38`, role: "img",
    "aria-label": `Doubt of ${answer.entropy.toFixed(3)} nats: aleatoric, in the data, ${answer.aleatoric.toFixed(3)}; epistemic, in the weights, ${answer.epistemic.toFixed(3)}.` });
  svg.append(
    s("defs", {}, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { class: "hatch-back", width: 6, height: 6 }), s("line", { class: "hatch-line", x1: 0, x2: 0, y1: 0, y2: 6 }))),
    s("rect", { class: "track", x: 0, y: 2, width, height: 12, rx: 3 }),
    s("rect", { class: "part-data", x: 0, y: 2, width: inData, height: 12 }),
    s("rect", { class: "part-weights", x: inData, y: 2, width: inWeights, height: 12 }),
    s("text", { x: 0, y: 32 }, `■ aleatoric ${answer.aleatoric.toFixed(2)}`),
    s("text", { x: 110, y: 32 }, `▨ epistemic ${answer.epistemic.toFixed(2)}`),
    s("text", { x: width, y: 32, "text-anchor": "end" }, `of ${most.toFixed(2)} nats`));
  return svg;
}
