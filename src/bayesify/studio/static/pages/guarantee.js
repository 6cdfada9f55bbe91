// Choose an error instead of a threshold: the server finds the threshold on half of the test examples and tries it on the rest.
import { h, select, button, percent, problem } from "../dom.js";
import { get } from "../api.js";

const ERRORS = ["0.005", "0.01", "0.02", "0.05", "0.1"];

// `asked()` has the settings of the page; `use(threshold)` moves its slider.
export function guaranteeChooser(asked, use) {
  let error = "0.01";
  const found = h("p", { class: "note", role: "status" });
  const find = button("Find the threshold", async () => {
    find.disabled = true;
    found.replaceChildren("Trying thresholds on half of the test examples…");
    try {
      const settings = asked();
      const told = await get("decide/promise", { ...settings, max_error: error, confidence: 0.95 });
      use(told.threshold);
      found.replaceChildren(`With 95% confidence, at most ${percent(Number(error))} of the accepted answers are wrong. The threshold was found on ${told.examples} test examples. `
        + `On the other ${told.others}: ${percent(told.accepted / told.others)} accepted, ${told.wrong} of ${told.accepted} wrong. To save this guarantee with the run: bayesify certify ${settings.model} --max-error ${error}`);
    } catch (trouble) {
      found.replaceChildren(problem(trouble));
    } finally {
      find.disabled = false;
    }
  }, { class: "small" });
  return h("section", { class: "card", "aria-label": "Choose an error" }, h("div", { class: "row chooser" },
    select({ label: "Or choose the error to allow among accepted answers (95% confidence)", options: ERRORS.map((value) => [value, percent(Number(value))]), value: error, onchange: (value) => { error = value; } }), find), found);
}
