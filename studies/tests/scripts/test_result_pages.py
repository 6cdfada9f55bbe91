"""The pages of docs/results say what their JSON says, and each begins with a short verdict."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework import code_state
from bayesify_studies.experiments.framework.page import markdown
from bayesify_studies.experiments.framework.verdicts import LONGEST, VERDICTS, verdict

_file = Path(__file__).parents[2] / "scripts" / "result_pages.py"
_spec = importlib.util.spec_from_file_location("result_pages", _file)
result_pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(result_pages)
# Computed at a commit that this repository does not have.
LOST_COMMIT = "ec0099b"
PUBLISHED = [name for name in NAMES if (result_pages.RESULTS / f"{name}.json").is_file()]


@pytest.mark.parametrize("page", result_pages.pages(), ids=lambda page: page.stem)
def test_a_page_is_what_its_json_says(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == result_pages.pages()[page], (
        f"{page.name} is older than its JSON: python studies/scripts/result_pages.py"
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_verdict_is_short(name: str) -> None:
    results = json.loads((result_pages.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert len(verdict(results).split()) <= LONGEST


def test_words_follow_the_numbers() -> None:
    def gain(mean: float) -> dict[str, object]:
        return {"mean": mean, "interval": [mean - 0.001, mean + 0.001], "standard_error": 4e-4, "values": [mean] * 5}

    told = VERDICTS["kl-reweighting"]
    both = told({"gain": {"study": gain(0.003), "adam": gain(-0.004)}})
    assert "re-weighting the KL raises the test error by 0.30 points. With Adam, it lowers" in both
    assert "it raises the test error by 0.30" in told({"gain": {"study": gain(-0.003), "adam": gain(0.003)}})
    assert "does not change" in told({"gain": {"study": gain(0.0), "adam": gain(0.003)}})


def test_a_verdict_on_one_other_method_does_not_call_it_the_best() -> None:
    def scores(nll: float) -> dict[str, object]:
        return {"nll": {"all": {"mean": nll}}, "scaled_nll": {"all": {"mean": nll / 2}}}

    several = {"point": scores(4.0), "ivon": scores(3.0), "variational": scores(2.0)}
    told = VERDICTS["shift"](
        {"digits": {"rotation": several}, "cifar10": {"point": scores(1.0), "laplace": scores(2.0)}}
    )
    assert "best other method 2.00 (Variational)" in told
    assert "Laplace approximation 2.00 (no other method was run)" in told


def test_chains_that_have_not_converged_are_named_with_the_answer() -> None:
    widths = {name: {"ratio": {"mean": 2.0}} for name in ("variational", "hmc", "ensemble", "mc-dropout")}
    told = VERDICTS["regression-bands"]
    assert "not fully converged (R-hat 1.08)" in told({"methods": widths, "largest_r_hat": 1.08})
    assert "converged" not in told({"methods": widths, "largest_r_hat": 1.009})


def test_a_hyperprior_is_compared_at_the_same_number_of_networks_where_that_was_done() -> None:
    def points(mean: float) -> dict[str, object]:
        return {"mean": mean, "interval": [mean - 0.001, mean + 0.001], "values": [mean] * 5}

    unlike = {"advantage": {way: {"pooled": points(-0.05)} for way in ("plain", "warm")}}
    told = VERDICTS["hyperpriors"]
    assert told(unlike).startswith("Compared with a scale tuned on validation data, a hyperprior lowers")
    alike = unlike | {"as_many_tries": {"less": {"tuned": points(0.02)}}, "one_try": {"less": {"fixed": points(0.0)}}}
    assert told(alike).startswith(
        "KL warm-up, five networks each: a hyperprior raises the accuracy compared with a tuned scale (+2.00 points). "
        "One network each: it makes no significant difference"
    )


def test_without_the_numbers_the_answer_is_shown() -> None:
    assert verdict({"name": "coin", "numbers": {}, "answer": "It depends."}) == "It depends."
    assert verdict({"name": "something new", "numbers": {}, "answer": "It does."}) == "It does."


def _results(name: str) -> dict[str, Any]:
    return json.loads((result_pages.RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_page_names_the_commit_and_the_day_of_its_computation(name: str) -> None:
    page = (result_pages.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert re.search(r"computed at commits? [0-9a-f]{7}.* on (or before )?20\d\d-\d\d-\d\d", page)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_page_notices_that_the_code_has_changed_since(name: str) -> None:
    results = _results(name)
    if results["commit"] == LOST_COMMIT:
        assert "There is no record of the state of the code" in markdown(results, "")
        return
    now = {module: code_state.digest(module) for module in results["code"]}
    results |= {"added": []}
    assert "code has not changed since" in markdown(results | {"code": now}, "")
    for module in now:
        edited = markdown(results | {"code": now | {module: "0" * 12}}, "")
        assert f"Changed modules: {module.removeprefix(code_state.PACKAGE + '.')}." in edited
