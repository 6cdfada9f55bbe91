"""The two uncertainties: slopes of known laws, the truth of moons, resuming, and the study's example on digits."""

import math
from dataclasses import replace

import pytest
import torch

import bayesify as bf
from bayesify.workflows.prepare import prepare_data
from bayesify_studies.experiments import uncertainty_kinds
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a import uncertainty_elbo, uncertainty_page, uncertainty_parts

TINY = {
    "seeds": 2,
    "sizes": [20, 60],
    "at": 60,
    "swaps": [0.3],
    "draws": 20,
    "steps": 4,
    "hmc": {"chains": 2, "warm_up": 20, "samples": 4},
    "digits": [64, 128],
    "digit_steps": 4,
    "digit_draws": 3,
}


@pytest.fixture(autouse=True)
def eight_by_eight(monkeypatch):
    """The small digits in the place of MNIST."""

    def small(recipe, raw=None):
        return prepare_data(replace(recipe, data="digits") if recipe.data == "mnist" else recipe, raw)

    monkeypatch.setattr(uncertainty_parts, "prepare_data", small)


def test_an_interrupted_run_goes_on_and_its_page_has_the_numbers_of_its_parts(tmp_path, monkeypatch):
    study = uncertainty_kinds.EXPERIMENT
    tiny = Experiment("uncertainty-kinds", study.title, "A", study.question, study.run, quick=TINY)
    fit, fits = bf.HMC.fit, []

    def interrupted(self, *given, **settings):
        fits.append(1)
        if len(fits) == 2:
            raise KeyboardInterrupt
        return fit(self, *given, **settings)

    monkeypatch.setattr(bf.HMC, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tiny, tmp_path / "a", progress=False)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "a" / "parts").glob("*.json")}
    # Four fleets on digits, two variational networks and one HMC.
    assert len(kept) == 4 + 2 + 1
    results = reproduce(tiny, tmp_path / "a", progress=False)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    # Two sizes and one swap, each for two seeds, and the one that was interrupted.
    assert len(fits) == 6 + 1
    row = next(one for one in results["numbers"]["moons"] if one["method"] == "hmc" and one["examples"] == 20)
    assert f"{row['epistemic']['mean']:.4f}" in (tmp_path / "a" / "page.md").read_text()
    # So few draws have not converged, and the page says so.
    assert len(results["shortfalls"]) == 1
    assert [one["file"] for one in results["pictures"]] == ["moons.svg", "digits.svg"]


def test_slopes_are_those_of_known_laws():
    sizes = [50, 200, 800]
    found = {("hmc", n, 0.0): {"epistemic": [3 / n, 5 / n], "aleatoric": [0.4, 0.3]} for n in sizes}
    assert uncertainty_page.slopes_of(found, "hmc", "epistemic", sizes)["values"] == pytest.approx([-1.0, -1.0])
    assert uncertainty_page.slopes_of(found, "hmc", "aleatoric", sizes)["values"] == pytest.approx(
        [0.0, 0.0], abs=1e-12
    )


def test_the_true_entropy_is_a_coin_s_when_half_of_the_labels_are_swapped(tmp_path):
    work = Work(tmp_path, TINY)
    assert uncertainty_parts.truth(work, 0.5)["entropy"] == pytest.approx([math.log(2)] * 2)
    clean, swapped = (uncertainty_parts.truth(work, swap)["entropy"] for swap in (0.0, 0.3))
    assert all(0.2 < a < b < math.log(2) for a, b in zip(clean, swapped, strict=True))
    # The same by counting: the labels' log-likelihood under the true probabilities, within 4.5 standard errors.
    raw = uncertainty_parts._moons(work, 0, 60)
    probs = uncertainty_parts.planar.moons(0.4).probs(raw.x_test)
    losses = -probs.gather(1, raw.y_test[:, None]).log()[:, 0]
    assert abs(float(losses.mean()) - clean[0]) < 4.5 * float(losses.std()) / math.sqrt(len(losses))


def test_test_inputs_do_not_depend_on_the_size_and_sets_hold_the_smaller_ones(tmp_path):
    work = Work(tmp_path, TINY)
    few, many = (uncertainty_parts._moons(work, 1, size) for size in (20, 60))
    assert torch.equal(few.x_test, many.x_test)
    assert torch.equal(few.x_train, many.x_train[:20])


def test_swapped_digits_are_aleatoric_where_they_are_swapped(tmp_path):
    work = Work(tmp_path, {**TINY, "digit_steps": 200, "digit_draws": 10}, progress=False)
    clean, swapped = (uncertainty_parts.on_digits(work, 900, swap) for swap in (0.0, 0.5))
    for before, after in zip(clean["aleatoric_ambiguous"], swapped["aleatoric_ambiguous"], strict=True):
        assert after - before > 0.15
    for where in ("aleatoric_ambiguous", "aleatoric_others"):
        assert len(swapped[where]) == 2
    for odd, others in zip(swapped["aleatoric_ambiguous"], swapped["aleatoric_others"], strict=True):
        assert odd > others


def test_the_elbo_stands_beside_that_of_a_constant_answer(tmp_path):
    work = Work(tmp_path, {**TINY, "sizes": [60], "steps": 150}, progress=False)
    parts = uncertainty_elbo.parts(work)
    assert list(parts) == ["elbo-60-0", "elbo-60-1"]
    compute, *given = parts["elbo-60-0"]
    found = compute(*given)
    ones = float(uncertainty_parts._moons(work, 0, 60).y_train.double().mean())
    assert found["constant"] == pytest.approx(-ones * math.log(ones) - (1 - ones) * math.log(1 - ones))
    trained = found["trained"]
    assert trained["loss"] == pytest.approx(trained["nll"] + trained["kl"])

    def told(constant):
        # Two seeds whose networks have the losses 0.5 and 0.6.
        pair = [found | {"trained": trained | {"loss": loss}, "constant": constant} for loss in (0.5, 0.6)]
        return uncertainty_elbo.tell(work, dict(zip(parts, pair, strict=True)), {})

    assert told(0.69).numbers["60"]["loss"]["mean"] == pytest.approx(0.55)
    # The 95% interval of a mean of two is 0.64 to either side.
    assert "ELBO is not significantly different with 60 examples." in told(1.1).tables[0].note
    assert "ELBO is better with 60 examples." in told(1.3).tables[0].note
    assert "ELBO is worse with 60 examples." in told(-0.2).tables[0].note
    # One of two seeds is no mean.
    assert not uncertainty_elbo.tell(work, {"elbo-60-0": found}, {}).tables
