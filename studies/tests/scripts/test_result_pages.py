"""The pages of docs/results say what their JSON says, and each begins with a short verdict."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework import care, code_state
from bayesify_studies.experiments.framework.page import markdown
from bayesify_studies.experiments.framework.unfinished import FINDERS, unfinished
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


# Several data sets with a sentence each.
@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in {"cifar10", "unseen-class"}])
def test_a_verdict_is_one_sentence_or_two(name: str) -> None:
    assert len(re.findall(r"[.?!](?= |$)", verdict(_results(name)))) <= 2


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_gallery_has_a_picture_of_every_experiment(name: str) -> None:
    pictures = _results(name)["pictures"]
    assert pictures
    assert all((result_pages.RESULTS / one["file"]).is_file() for one in pictures)


def test_words_follow_the_numbers() -> None:
    def gain(mean: float) -> dict[str, object]:
        return {"mean": mean, "interval": [mean - 0.001, mean + 0.001], "standard_error": 4e-4, "values": [mean] * 5}

    told = VERDICTS["kl-reweighting"]
    both = told({"gain": {"study": gain(0.003), "adam": gain(-0.004)}})
    assert "raises the test error by 0.30 points with the study's training, and lowers" in both
    assert "raises the test error by 0.30 points with Adam" in told(
        {"gain": {"study": gain(-0.003), "adam": gain(0.003)}}
    )
    assert "does not change" in told({"gain": {"study": gain(0.0), "adam": gain(0.003)}})


def test_the_nearest_method_is_called_so_significantly_only_where_every_other_one_is_farther() -> None:
    def row(label: str, *values: float) -> dict[str, object]:
        return {"label": label, "scores": {"total_variation": {"mean": sum(values) / 3, "values": list(values)}}}

    vi, ensemble = row("Variational", 0.5, 0.51, 0.5), row("Ensemble of 5", 0.4, 0.41, 0.4)
    clear = [row("SGHMC", 0.1, 0.1, 0.11), ensemble, vi]
    close = [row("SGHMC", 0.1, 0.1, 0.11), row("IVON", 0.09, 0.12, 0.12), ensemble, vi]
    told = VERDICTS["hmc-distance"]({"data": {"moons": {"rows": clear}, "gap": {"rows": close}}})
    assert told.startswith("SGHMC is nearest to HMC on all 2 data sets, significantly so on 1; ensembles are nearer")


def test_the_verdict_on_uci_says_whether_all_splits_were_fitted() -> None:
    told = VERDICTS["uci"]
    tables = {"boston": {"standing": "ahead", "splits": 20}, "protein": {"standing": "level", "splits": 5}}
    assert told({"auto": tables}).endswith("and ahead on 1. Auto has all published splits: 20, of protein 5.")
    tables["boston"]["splits"] = 9
    assert "Auto has 5 to 9 splits of each table" in told({"auto": tables})


def test_chains_that_are_colder_than_the_posterior_are_named_so() -> None:
    scores = {"ensemble": {"total_variation": 0.14, "networks": 2}, "sghmc": {"total_variation": 0.16, "networks": 2}}
    told = VERDICTS["hmc-cifar10"]
    assert "SGHMC (cold posterior) 0.160" in told({"scores": scores, "chosen": "0.003, cold"})
    assert "cold" not in told({"scores": scores, "chosen": "0.003"})


def test_the_first_sentence_of_a_verdict_answers_the_question() -> None:
    """The gallery of the studio shows the first sentence alone in large letters."""
    result_files = [result_pages.RESULTS / f"{name}.json" for name in NAMES]
    for file in filter(Path.is_file, result_files):
        first = verdict(json.loads(file.read_text())).split(". ")[0]
        assert first.rstrip(".") not in {"Yes", "No"}, file.stem
        assert not first.startswith("Mean NLL over"), file.stem


def test_a_verdict_on_one_other_method_does_not_call_it_the_best() -> None:
    def scores(nll: float) -> dict[str, object]:
        return {"nll": {"all": {"mean": nll}}, "scaled_nll": {"all": {"mean": nll / 2}}}

    several = {"point": scores(4.0), "ivon": scores(3.0), "variational": scores(2.0)}
    told = VERDICTS["shift"](
        {"digits": {"rotation": several}, "cifar10": {"point": scores(1.0), "laplace": scores(2.0)}}
    )
    assert told.startswith("Mean NLL on turned MNIST digits, over all strengths: plain network 4.00")
    assert "best other method 2.00 (Variational)" in told
    assert "Laplace approximation 2.00 (no other method was run)" in told


def test_a_page_on_corruptions_speaks_of_the_narrow_network_where_it_has_every_method() -> None:
    def scores(nll: float) -> dict[str, object]:
        return {"nll": {"all": {"mean": nll}}, "scaled_nll": {"all": {"mean": nll / 2}}}

    numbers = {"digits": {"rotation": {"point": scores(4.0), "swag": scores(3.0)}}, "cifar10": {"point": scores(1.0)}}
    narrow = {"point": scores(2.0), "ivon": scores(1.5), "variational": scores(1.6)}
    told = VERDICTS["shift"](numbers | {"narrow": narrow})
    assert "narrow ResNet: plain network 2.00, temperature-scaled 1.00, best other method 1.50 (IVON)" in told


def test_the_goal_on_cifar10_is_reached_or_missed_by_so_much() -> None:
    def numbers(best: float) -> dict[str, object]:
        goals = {
            "ivon": {"nll": best, "nll_goal": 0.2, "nll_reached": best <= 0.2},
            "variational": {"nll": 0.4, "nll_goal": 0.2, "nll_reached": False},
        }
        scores = {"point": {"nll": {"mean": 0.3}}, "ivon": {"nll": {"mean": best}}}
        return {"scores": scores, "goals": goals, "size": {"width": 8, "examples": 20_000, "epochs": 12}}

    missed = VERDICTS["cifar10"](numbers(0.25))
    assert missed.startswith("ResNet-18 of width 8, 20,000 images, 12 epochs. Test NLL: IVON 0.250, plain 0.300.")
    assert missed.endswith("The goal for VI or IVON, 0.200, is missed by 0.050.")
    assert VERDICTS["cifar10"](numbers(0.19)).endswith("is reached.")
    longer = numbers(0.25)
    longer["scores"] |= {"longer": {"nll": {"mean": 0.27}}}
    assert "Test NLL: IVON 0.250, plain 0.300 (trained longer: 0.270). The goal" in VERDICTS["cifar10"](longer)


def test_the_goal_of_nearness_to_hmc_is_reached_or_missed_by_so_much() -> None:
    def told(ensemble: float) -> str:
        rows = {"ensemble": (ensemble, 14), "ivon": (0.157, 1)}
        scores = {kind: {"total_variation": far, "networks": count} for kind, (far, count) in rows.items()}
        return VERDICTS["hmc-cifar10"]({"scores": scores})

    assert "Ensemble of 14 networks (total variation 0.143), then IVON 0.157." in told(0.143)
    assert "missed by 0.044" in told(0.143)
    assert "IVON (total variation 0.157), then Ensemble 0.200" in told(0.2)
    assert told(0.09).endswith("is reached.")


def test_chains_that_have_not_converged_are_named_with_the_answer() -> None:
    widths = {name: {"ratio": {"mean": 2.0}} for name in ("variational", "hmc", "ensemble", "mc-dropout")}
    told = VERDICTS["regression-bands"]
    assert "not fully converged: R-hat 1.08" in told({"methods": widths, "largest_r_hat": 1.08})
    assert "converged" not in told({"methods": widths, "largest_r_hat": 1.009})


def test_a_hyperprior_is_compared_at_the_same_number_of_networks_where_that_was_done() -> None:
    def points(mean: float) -> dict[str, object]:
        return {"mean": mean, "interval": [mean - 0.001, mean + 0.001], "values": [mean] * 5}

    unlike = {"advantage": {way: {"pooled": points(-0.05)} for way in ("plain", "warm")}}
    told = VERDICTS["hyperpriors"]
    assert told(unlike).startswith("Compared with a scale tuned on validation data, a hyperprior lowers")
    alike = unlike | {"as_many_tries": {"less": {"tuned": points(0.02)}}, "one_try": {"less": {"fixed": points(0.0)}}}
    assert told(alike).startswith(
        "Against a tuned scale, with KL warm-up, a hyperprior raises the accuracy with five networks each (+2.00 points) "
        "and makes no significant difference with one each"
    )


def test_a_page_says_what_was_not_run_in_full_until_it_was() -> None:
    short = {"name": "priors", "settings": {"study_epochs": 150}, "numbers": {"elbo": {}}}
    assert unfinished(short) == "Not run in full: the study's training has 150 of its 600 epochs."
    whole = short | {"settings": {"study_epochs": 600}}
    assert unfinished(whole) == ""
    without = "the ELBO of the page's networks was not recorded"
    assert unfinished(whole | {"numbers": {}}) == f"Not run in full: {without}."
    horses = {"study": {"dropout": {"epochs": 400}, "variational": {"epochs": 200}}}
    page = {"name": "unseen-class", "settings": {"cifar": horses}, "numbers": {}}
    assert "with the study's settings, variational has 200 of 700 epochs" in unfinished(page)
    assert "of CIFAR-10 only horses were withheld" in unfinished(page)
    assert "MC dropout" not in unfinished(page)
    assert "horses" not in unfinished(page | {"numbers": {"every_class": {"classes": ["bird"]}}})
    smaller = {"classes": [str(number) for number in range(10)], "examples": 9000, "epochs": 20}
    assert "every class in turn with 9,000 images and 20 epochs" in unfinished(
        page | {"numbers": {"every_class": smaller}}
    )
    assert "all images; 1 of 10 classes in turn with" in unfinished(
        page | {"numbers": {"every_class": smaller | {"classes": ["bird"]}}}
    )
    assert unfinished({"name": "mnist-cnn", "numbers": {"whole_kl": {}}}) == ""
    assert "full KL there are only the validation scores" in unfinished({"name": "mnist-cnn", "numbers": {}})
    moons = {"name": "uncertainty-kinds", "settings": {"sizes": [50, 1600]}, "numbers": {"elbo": {"50": {}}}}
    assert "the ELBO was not computed on moons with 1,600 examples and on digits" in unfinished(moons)
    assert "1,600" not in unfinished(moons | {"numbers": {"elbo": {"50": {}, "1600": {}}}})
    # Every page with a posterior says so where its ELBO is not beside that of a network that knows nothing.
    for name in ("regression-bands", "hyperpriors", "text"):
        assert unfinished({"name": name, "numbers": {}}) == f"Not run in full: {without}."
        assert unfinished({"name": name, "numbers": {"elbo": {}}}) == ""
    assert unfinished({"name": "uci", "shortfalls": ["For lack of time, 3 fits were not computed.", "Other."]}) == (
        "Not run in full: 3 fits were not computed."
    )
    assert unfinished({"name": "coin"}) == ""


def test_a_page_says_how_many_settings_each_method_got() -> None:
    settings = {"scales": [0.3, 1.0], "rates": [1e-3, 3e-3, 1e-2], "powers": [1e-2, 1e-3, 1e-4, 1e-5]}
    told = care.told({"name": "transfer", "settings": settings})
    assert told.startswith("24 for the discounted old posterior (2 prior scales, 3 learning rates, 4 weights")
    assert "6 for each other way" in told
    assert care.told({"name": "coin", "settings": {}}) == ""
    assert all(care.told(_results(name)) for name in care.SAID)


@pytest.mark.parametrize("name", [name for name in FINDERS if name in PUBLISHED])
def test_what_was_not_run_in_full_is_read_from_todays_files(name: str) -> None:
    """A finder that looks for what a file no longer has would say nothing for ever."""
    assert FINDERS[name](_results(name)) is not None


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
