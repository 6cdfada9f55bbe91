// Which labels would you ask for next? The places that each acquisition function chooses, as numbered rings on the board.
import { h, s, select, slider, button, announce, problem } from "../dom.js";
import { get } from "../api.js";

const KINDS = [["batchbald", "BatchBALD (chooses jointly)"], ["bald", "BALD (chooses one by one)"], ["epig", "EPIG (helps predictions)"], ["entropy", "entropy (least certain)"], ["variation_ratio", "variation ratio"], ["random", "random"]];

// `trained()` names the network on the server; `board` is the page's board.
export function askingPart(trained, board) {
  let [by, n] = ["batchbald", 5];
  const said = h("p", { class: "small", role: "status" });
  const find = button("Show these places", async () => {
    if (!trained()) { said.replaceChildren("Train the network first."); return; }
    try {
      const { places } = await get("understand/ask", { trained: trained(), by, n });
      board.ring.replaceChildren(...places.flatMap(({ x, y }, k) => {
        const [cx, cy] = board.toPage([x, y]);
        const name = s("text", { class: "ask-name", x: cx + 3.4, y: cy - 2, "font-size": 4 }, String(k + 1));
        name.style.cssText = "font-size: 4px; stroke-width: 1px";
        return [s("circle", { class: "ask-ring", cx, cy, r: 2.6, "vector-effect": "non-scaling-stroke" }), name];
      }));
      const words = places.length ? `It asks for labels at ${places.map(({ x, y }) => `(${x.toFixed(2)}, ${y.toFixed(2)})`).join(", ")}.` : "A single network has no epistemic uncertainty, so no label stands out.";
      said.replaceChildren(words);
      announce(words);
    } catch (error) {
      said.replaceChildren(problem(error));
    }
  });
  return h("fieldset", { class: "row" }, h("legend", { class: "unseen" }, "Which labels would you ask for next?"),
    select({ label: "Next labels chosen by", options: KINDS, value: by, onchange: (value) => { by = value; } }),
    slider({ label: "Labels", min: 1, max: 10, step: 1, value: n, oninput: (value) => { n = value; } }), find, said);
}
