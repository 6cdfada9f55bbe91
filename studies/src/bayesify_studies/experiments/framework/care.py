"""How many settings each method got, for pages that compare methods and whose tables do not say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Results = Mapping[str, Any]
TITLE = "Settings tried for each method"


def told(results: Results) -> str:
    """The number of settings tried for each method, and on which data; nothing where a table of the page has it."""
    say = SAID.get(results["name"])
    return "" if say is None else say if isinstance(say, str) else say(results["settings"])


def _transfer(settings: Mapping[str, Any]) -> str:
    each, powers = len(settings["scales"]) * len(settings["rates"]), len(settings["powers"])
    return (
        f"{each * powers} for the discounted old posterior ({len(settings['scales'])} prior scales, "
        f"{len(settings['rates'])} learning rates, {powers} weights of the old data), {each} for each other way. So "
        "the old posterior was tuned with more care than its rivals, which favours it."
    )


SAID: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "transfer": _transfer,
    "hmc-distance": "Each method has one setting for all data sets, with a few exceptions. It was chosen once by the "
    "loss and the score on held-out data, on seeds that are not scored, never by the distance to HMC. How many "
    "settings were tried for each method was not recorded.",
    "uncertainty-kinds": "HMC and mean-field VI have the settings of the page hmc-distance, one for "
    "each. Nothing was chosen here.",
    "gaussian-logits": "One for each objective, that of the study. Nothing was chosen.",
    "regression-bands": "One for each method. It was chosen by looking at one data set, which is not scored. How many "
    "were tried was not recorded.",
}
