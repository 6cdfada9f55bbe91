"""Study D's networks: the study's mistake is made on purpose, the state best on validation is kept, runs resume."""

import math

import pytest
import torch

from bayesify import Variational, networks
from bayesify.evaluation.seed_statistics import over_images, sign_test
from bayesify.fleets import Fleet
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import training, words
from bayesify_studies.experiments.study_d.training import HALF, STUDY, Trained

TINY = {"data": "digits", "examples": 200, "units": 8, "study_epochs": 4, "epochs": 4, "seeds": 2, "draws": 5}
QUARTER = training.QUARTER


def layers(method):
    """The widths before softplus, by layer (weights and biases together)."""
    names = list(dict.fromkeys(place.name.rpartition(".")[0] for place in method.network.places))
    return [
        torch.cat(
            [method.rho[p.start : p.stop] for p in method.network.places if p.name.startswith(f"{name}.")]
        ).detach()
        for name in names
    ]


@pytest.mark.parametrize("priors", [[HALF, HALF], [HALF, QUARTER]])
def test_the_entropy_of_layer_2_counts_twice_and_that_of_layer_3_never(priors):
    # One SGD step from the same place: the two objectives differ by entropies alone, whose slope is known.
    x, y = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    rate, share, rho = 0.1, 1.0, -3.0

    def stepped(*, wrong):
        methods = [
            Variational(lambda: networks.mlp(5, 3, units=4), "categorical", prior=prior, rho=rho, seed=seed)
            for seed, prior in enumerate(priors)
        ]
        if wrong:
            training.miscount(methods[0])
        fleet = Fleet(methods)
        fleet.fit((x, y), learning_rates=[rate] * 2, epochs=1, batch_size=20, optimizer="sgd", progress=False)
        return methods

    slope = torch.sigmoid(torch.tensor(rho)) / math.log1p(math.exp(rho))  # of log softplus(rho)
    for right, wrong in zip(stepped(wrong=False), stepped(wrong=True), strict=True):
        torch.testing.assert_close(wrong.mu, right.mu)
        for extra, counted, miscounted in zip((0, 1, -1), layers(right), layers(wrong), strict=True):
            expected = rate * share / 20 * extra * slope
            assert torch.allclose(miscounted - counted, expected.expand_as(counted), atol=1e-6)


def fitted(folder, evaluate, way=STUDY):
    work = Work(folder, TINY, progress=False)
    data = training.images(work)
    members = {"half": {"prior": HALF}, "quarter": {"prior": QUARTER}}
    return training.train(
        work, "networks", way, data, members, units=8, epochs=10, seeds=[0, 1], evaluate=lambda t: evaluate(t, data)
    )


def test_the_state_kept_is_the_one_that_erred_least_on_validation(tmp_path):
    def check(trained, data):
        for one in trained:
            error = float(training.mistakes(one.method, data.validation, draws=training.STUDY_DRAWS).double().mean())
            assert error == one.validation == min(seen["error"] for seen in one.seen)
        assert [(one.label, one.seed) for one in trained] == [("half", 0), ("half", 1), ("quarter", 0), ("quarter", 1)]
        return {"least": [one.validation for one in trained]}

    found = fitted(tmp_path, check)
    assert not (tmp_path / "runs" / "networks").exists()
    assert len(set(found["least"])) > 1


def test_a_killed_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    def numbers(trained, data):
        return training.by_label(trained, training.errors(data, draws=5))

    whole = fitted(tmp_path / "whole", numbers)
    own, calls = training.Watch.__call__, []

    def dying(self, epoch, nll):
        own(self, epoch, nll)
        calls.append(epoch)
        if epoch == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.Watch, "__call__", dying)
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "killed", numbers)
    monkeypatch.setattr(
        training.Watch, "__call__", lambda self, epoch, nll: (calls.append(epoch), own(self, epoch, nll))
    )
    assert fitted(tmp_path / "killed", numbers) == whole
    # A checkpoint is made every second of ten epochs: the fifth is done again, those before it are not.
    assert calls == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10]


def test_skewness_and_asymmetry_are_those_of_the_means():
    import scipy.stats

    method = Variational(lambda: networks.mlp(30, 10, units=20), "categorical", prior="normal:1")
    with torch.no_grad():
        method.mu.copy_(0.02 * torch.distributions.Gamma(2.0, 1.0).sample(method.mu.shape))
    shape = training.shape_of_means(method)
    weights = torch.cat([method.mu[p.start : p.stop] for p in method.network.places if "bias" not in p.name])
    assert shape["skewness"] == pytest.approx(float(scipy.stats.skew(weights.detach().double().numpy())), rel=1e-6)
    assert shape["asymmetry"] == pytest.approx(1.0)  # everything lies on one side
    assert sum(shape["counts"]) == len(weights)
    with torch.no_grad():
        half = len(method.mu) // 2
        method.mu[half : 2 * half] = -method.mu[:half]
    assert training.shape_of_means(method)["asymmetry"] < 0.5


def test_differences_over_images_average_the_seeds_first():
    import scipy.stats

    generator = torch.Generator().manual_seed(1)
    first, second = (torch.rand(3, 50, generator=generator) < 0.3 for _ in range(2))
    found = over_images(first.int().tolist(), second.int().tolist())
    each = (first.double() - second.double()).mean(0).numpy()
    low, high = scipy.stats.t.interval(0.95, 49, each.mean(), scipy.stats.sem(each))
    assert found["interval"] == pytest.approx([low, high])
    assert "values" not in found


def test_the_sign_test_is_the_exact_one():
    assert sign_test(0, 0) == 1.0
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(4, 1) == pytest.approx(2 * 6 / 32)


def test_a_verdict_follows_its_interval():
    assert words.verdict({"mean": 0.002, "interval": [0.001, 0.003]}).startswith("worse: +0.20 points")
    assert words.verdict({"mean": -0.002, "interval": [-0.003, -0.001]}).startswith("better")
    assert words.verdict({"mean": -0.002, "interval": [-0.005, 0.001]}).startswith("no significant difference")
    assert "one seed" in words.verdict({"mean": 0.1, "values": [0.1]})


def test_trained_networks_are_listed_by_label():
    rows = [Trained(label, seed, None, [], 0.5) for label in "ab" for seed in range(2)]
    found = training.by_label(rows, lambda one: {"twice": 2 * one.seed})
    assert {label: [row["twice"] for row in every] for label, every in found.items()} == {"a": [0, 2], "b": [0, 2]}


def test_widths_that_were_not_trained_are_still_those_they_started_from():
    method = Variational(lambda: networks.mlp(9, 3, units=9), "categorical", prior="normal:1", rho="uniform:-5,-4")
    assert training.widths_kept(method) == pytest.approx(1.0)
    with torch.no_grad():
        method.rho.add_(torch.randn(method.rho.shape, generator=torch.Generator().manual_seed(0)))
    assert training.widths_kept(method) < 0.6
    constant = Variational(lambda: networks.mlp(9, 3, units=9), "categorical", prior="normal:1", rho=-5.0)
    assert training.widths_kept(constant) is None
