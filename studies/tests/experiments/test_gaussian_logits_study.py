"""Study A's experiment: the objectives by quadrature, the scores of known outputs, words from numbers, resuming."""

import json
import math
from dataclasses import replace

import pytest
import torch

import bayesify as bf
from bayesify.data import label_noise
from bayesify.likelihoods import GaussianLogits
from bayesify.predictive import Predictive
from bayesify.workflows.prepare import PreparedData, read_pairs
from bayesify_studies.experiments import gaussian_logits
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.study_a import logits_cells, logits_page
from bayesify_studies.experiments.study_a.logits_pictures import losses

TINY = {
    "data": ["mnist"],
    "swaps": [0.3],
    "seeds": 2,
    "examples": 32,
    "test": 40,
    "epochs": 1,
    "batch_size": 32,
    "samples": 5,
    "compiled": False,
}


@pytest.fixture
def pictures(monkeypatch):
    """Ten kinds of noisy pictures in the place of MNIST."""

    def prepare_data(recipe):
        generator = torch.Generator().manual_seed(0)
        y = torch.arange(160) % 10
        x = torch.rand(160, 1, 28, 28, generator=generator) * 0.2
        x[torch.arange(160), 0, 2 * y] += 1.0
        data = bf.data.load("digits")
        known = replace(data, class_names=tuple(map(str, range(10))))
        noisy = label_noise(y, read_pairs(recipe.label_noise, known)) if recipe.label_noise else y
        x = x.flatten(1) if recipe.network == "mlp" else x
        prepared = data.prepare().preparation
        names = tuple(map(str, range(10)))
        return PreparedData((x, noisy), None, (x, y), None, "classification", names, 0.0, 1.0, prepared, {})

    monkeypatch.setattr(logits_cells, "prepare_data", prepare_data)


def test_no_spread_is_best_for_one_objective_and_any_spread_for_the_other():
    entropy = -0.7 * math.log(0.7) - 0.3 * math.log(0.3)
    found = [losses(0.7, spread) for spread in (0.0, 0.5, 1.0, 2.0)]
    rising = [one["expected"] for one in found]
    assert rising[0] == pytest.approx(entropy, abs=1e-6)
    assert rising == sorted(rising)
    assert rising[-1] > entropy + 0.1
    # The best mean makes up for any spread.
    assert [one["log_expected"] for one in found] == pytest.approx([entropy] * 4, abs=1e-5)
    sure = [losses(1.0, spread) for spread in (0.0, 1.0, 2.0)]
    for name in ("expected", "log_expected"):
        values = [one[name] for one in sure]
        assert values[0] == pytest.approx(math.log1p(math.exp(-4)), abs=1e-9)
        assert values == sorted(values)


def test_scores_are_those_of_known_outputs():
    y = torch.arange(10).repeat(4)
    outputs = torch.zeros(2, 40, 20)
    outputs[:, torch.arange(40), y] = 9.0
    # The second member is wrong about the first four; both are unsure where the digit is 1 or 7, the first perfectly.
    outputs[1, :4] = outputs[1, :4].roll(1, -1)
    outputs[..., 10:] = -9.0
    odd = (y == 1) | (y == 7)
    outputs[0, odd, 10:] = 0.0
    outputs[1, :, 10:] = 0.0

    class Known:
        members = 2
        likelihood = GaussianLogits(samples=50)

        def predict(self, x, draws):
            return Predictive(outputs, self.likelihood)

    prepared = PreparedData((y, y), None, (y, y), None, "classification", (), 0.0, 1.0, None, {})
    found = logits_cells._scores(Known(), prepared)
    assert found["accuracy"] == pytest.approx([1.0, 0.9])
    assert found["spread_auroc"] == pytest.approx([1.0, 0.5])
    assert found["spread_ambiguous"] == pytest.approx([math.log(2)] * 2, rel=1e-6)
    assert found["spread_others"] == pytest.approx([math.log1p(math.exp(-9)), math.log(2)], rel=1e-5)
    assert found["by_spread"][0][-1] == 1.0
    assert found["by_confidence"][1][-1] == pytest.approx(0.9)
    assert found["spread_by_digit"][1] == pytest.approx(math.log(2), rel=1e-6)


def part(spread, odd, auroc):
    seeds = [0.0, 0.001]
    return {
        "accuracy": [0.97 + s for s in seeds],
        "nll": [0.1, 0.1],
        "entropy_auroc": [0.9, 0.9],
        "by_confidence": [[1.0] * 7] * 2,
        "by_spread": [[1.0] * 7] * 2,
        "spread": [spread] * 2,
        "spread_ambiguous": [odd] * 2,
        "spread_others": [spread] * 2,
        "spread_auroc": [auroc] * 2,
    }


def test_what_is_said_follows_from_the_numbers():
    heads, networks = logits_cells.HEADS, logits_cells.NETWORKS
    found = {("mnist", n, "adam", h, s): part(0.003, 0.008, 0.6) for n in networks for h in heads for s in (0.0, 0.3)}
    for network in networks:
        found["mnist", network, "adam", "log_expected", 0.3] = part(0.04, 0.61, 0.994)
    times = {"training": {"plain": 1.0, "expected": 1.2, "log_expected": 1.2}}
    assert logits_page.shortfalls(found, times, [0.3]) == []
    assert logits_page.answer(found, [0.3]).startswith(
        "Both objectives collapse on clean digits with an MLP and Adam. "
    )
    assert "ot collapsed" not in logits_page.answer(found, [0.3])
    # What plain descent has not brought to the mark is not left out of the sentence.
    slow = found | {("mnist", "cnn", "sgd", "expected", 0.0): part(0.075, 0.075, 0.5)}
    assert "not collapsed by the end of training: CNN, sgd, `expected` 0.0750" in logits_page.answer(slow, [0.3])
    found["mnist", "cnn", "adam", "log_expected", 0.3] = part(0.04, 0.61, 0.97)
    found["mnist", "mlp", "adam", "log_expected", 0.0] = part(0.2, 0.2, 0.5)
    times["training"]["expected"] = 1.5
    said = logits_page.shortfalls(found, times, [0.3])
    assert len(said) == 3
    assert any("cnn: 0.970" in one and "wanted 0.99" in one for one in said)
    assert any("1.50 times as long" in one for one in said)
    assert logits_page.answer(found, [0.3]).startswith("Only expected collapses")


def test_an_interrupted_run_goes_on_and_its_page_has_the_numbers_of_its_parts(pictures, tmp_path, monkeypatch):
    study = gaussian_logits.EXPERIMENT
    tiny = Experiment("gaussian-logits", study.title, study.study, study.question, study.run, quick=TINY)
    fit, fits = bf.Ensemble.fit, []

    def interrupted(self, *given, **settings):
        fits.append(1)
        if len(fits) == 3:
            raise KeyboardInterrupt
        return fit(self, *given, **settings)

    monkeypatch.setattr(bf.Ensemble, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tiny, tmp_path / "a", progress=False)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "a" / "parts").glob("*.json")}
    assert len(kept) == 2
    results = reproduce(tiny, tmp_path / "a", progress=False)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    # 12 clean cells and 6 swapped ones, and the one that was interrupted.
    assert len(fits) == 18 + 1
    cell = json.loads((tmp_path / "a" / "parts" / "mnist-mlp-adam-plain-0.json").read_text())
    mean = sum(cell["accuracy"]) / 2
    assert results["numbers"]["cells"]["mnist-mlp-adam-plain-0"]["accuracy"]["mean"] == pytest.approx(mean)
    assert f"{100 * mean:.2f} ±" in (tmp_path / "a" / "page.md").read_text()
    assert {one["file"] for one in results["pictures"]} == {"why.svg", "spread.svg", "coverage.svg"}


def test_the_spread_of_gaussian_logits_is_the_softplus_of_the_second_half():
    outputs = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    spread = GaussianLogits().spread(outputs)
    assert torch.allclose(spread, torch.nn.functional.softplus(outputs[..., 3:]))
