"""The pages of docs/results say what their JSON says, and each begins with a short verdict."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework.verdicts import LONGEST, VERDICTS, verdict

_file = Path(__file__).parents[2] / "scripts" / "result_pages.py"
_spec = importlib.util.spec_from_file_location("result_pages", _file)
result_pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(result_pages)
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


def test_without_the_numbers_the_answer_is_shown() -> None:
    assert verdict({"name": "coin", "numbers": {}, "answer": "It depends."}) == "It depends."
    assert verdict({"name": "something new", "numbers": {}, "answer": "It does."}) == "It does."
