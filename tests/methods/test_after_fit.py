"""Warnings after a fit: false alarms on good fits and misses on bad ones, counted over six small problems."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_circles, make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.methods.approximation import approximation
from bayesify.training.batches import KeptRows
from bayesify.training.warnings import without_warnings

PROBLEMS = ("moons", "circles", "iris", "digits", "diabetes", "sine")
# The method, and settings that fit every problem well.
METHODS = {
    "variational": (
        lambda *model: bf.Variational(*model, prior="normal:1"),
        {"epochs": 800, "learning_rate": 0.06, "draws": 4},
    ),
    "ivon": (lambda *model: bf.IVON(*model, prior="normal:1"), {"epochs": 200, "learning_rate": 0.2}),
    "point": (lambda *model: bf.PointEstimate(*model, prior="normal:1"), {"epochs": 300, "learning_rate": 0.05}),
    "ensemble": (lambda *model: bf.Ensemble(*model, members=2), {"epochs": 300, "learning_rate": 0.05}),
}
BAD = {
    "rate of 1e-9": {"learning_rate": 1e-9, "epochs": 10},
    "one short epoch": {"learning_rate": 1e-5, "epochs": 1},
    "rate far too high": {"learning_rate": 1000.0, "epochs": 10, "schedule": "constant"},
}


def standardised(x):
    return ((x - x.mean(0)) / (x.std(0) + 1e-9)).astype(np.float32)


def problem(name):
    rng = np.random.default_rng(0)
    if name == "moons":
        x, y = make_moons(300, noise=0.15, random_state=0)
    elif name == "circles":
        x, y = make_circles(300, noise=0.08, factor=0.5, random_state=0)
    elif name == "iris":
        x, y = load_iris(return_X_y=True)
    elif name == "digits":
        x, y = (part[:500] for part in load_digits(return_X_y=True))
    elif name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        y = standardised(y)
    else:
        x = rng.uniform(-3, 3, (200, 1))
        y = (np.sin(x[:, 0]) + 0.1 * rng.normal(size=200)).astype(np.float32)
    return standardised(x), np.asarray(y)


def fitted(name, method, **changes):
    x, y = problem(name)
    classes = y.dtype.kind == "i"
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(x.shape[1], 16), nn.Tanh(), nn.Linear(16, int(y.max()) + 1 if classes else 1))
    make, settings = METHODS[method]
    bnn = make(network, "categorical" if classes else "gaussian:learned")
    settings = {"schedule": "cosine", **settings, **changes}
    with without_warnings():
        bnn.fit((x, y), batch_size=500, **settings, progress=False, compiled=False)
    return bnn


def count_alarms(method, settings):
    """The problems whose fit was warned of, or refused because it diverged."""
    alarms = []
    for name in PROBLEMS:
        try:
            alarms += [name] if fitted(name, method, **settings).warnings else []
        except bf.TrainingError:
            alarms.append(name)
    return alarms


@pytest.mark.slow
@pytest.mark.parametrize("method", ["variational", "point", "ensemble"])
def test_good_fits_give_no_false_alarm(method):
    assert count_alarms(method, {}) == []


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("method", METHODS)
def test_bad_fits_are_never_missed(method, bad):
    assert count_alarms(method, BAD[bad]) == [*PROBLEMS]


def test_labels_without_structure_are_no_better_than_a_constant_on_validation_data():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 5)).astype(np.float32), rng.integers(0, 3, 300)
    point = bf.PointEstimate(nn.Linear(5, 3), "categorical")
    with pytest.warns(bf.BayesifyWarning, match=r"constant prediction: its NLL on validation data is 1\.\d+"):
        point.fit((x[:200], y[:200]), validation=(x[200:], y[200:]), epochs=30, learning_rate=0.05, progress=False)


def test_a_collapsed_mean_field_posterior_is_called_collapsed():
    x, y = make_circles(200, noise=0.1, factor=0.6, random_state=0)
    network = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2))
    bnn = bf.Variational(network, "categorical", prior="normal:1")
    with torch.no_grad():
        # What mean field converges to under a prior that is too wide: the last layer shuts off the others, which
        # return to the prior.
        bnn.mu.zero_()
        bnn.rho.fill_(0.5413)  # softplus: 1
        bnn.rho[-42:] = -5.0
    with pytest.warns(bf.BayesifyWarning, match="the posterior collapsed: layers 0, 2 are at the prior"):
        bnn.fit((x.astype(np.float32), y), epochs=1, learning_rate=1e-6, progress=False, compiled=False)
    by_layer = bnn.kl_by_layer()
    assert by_layer["0"] < 0.01 < by_layer["4"]
    total = sum(by_layer[name] * size for name, size in (("0", 60), ("2", 420), ("4", 42)))
    assert total == pytest.approx(bnn.kl().item(), rel=1e-4)


def test_a_low_elbo_is_a_note_where_predictions_are_good():
    x, y = problem("moons")
    for kl, expected in (("uniform", ["elbo_below_constant"]), ("uniform,temperature=0.01", [])):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 2))
        bnn = bf.Variational(network, "categorical", prior="normal:1")
        with without_warnings():
            bnn.fit((x, y), epochs=150, learning_rate=0.02, kl=kl, progress=False, compiled=False)
        assert bnn.warnings == {}
        # Below a temperature of 1 the ELBO is not the objective, and there is no note either.
        assert [*bnn.checked.notes] == [*expected, "approximation"]
        assert ("is below the" in str(bnn.summary())) == bool(expected)
    assert bnn.final_elbo.value < -300 * np.log(2)


def test_the_numbers_of_the_checks_are_kept_with_the_run(tmp_path):
    x, y = problem("moons")
    bnn = bf.Variational(bf.networks.mlp(2, 2, units=16), "categorical", prior="normal:1")
    with without_warnings():
        bnn.fit((x, y), epochs=5, progress=False, compiled=False, run=tmp_path / "run")
    assert bnn.warnings
    again = bf.load(tmp_path / "run")
    assert again.checked.to_dict() == bnn.checked.to_dict()
    assert again.checked.constant_nll == pytest.approx(np.log(2), abs=1e-6)
    assert again.checked.prior_nll > 0
    result = bf.evaluate(again, (x, y), draws=5)
    assert result.warnings == bnn.warnings
    assert (result.elbo, result.kl) == (bnn.final_elbo.value, bnn.final_elbo.kl)
    for text in bnn.warnings.values():
        assert f"before you trust it: {text}" in str(result)
        assert f"before you trust it: {text}" in str(again.summary())
    assert "NLL after the fit" in again.summary().facts


def test_units_at_the_prior_are_counted_by_layer():
    bnn = bf.Variational(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), "categorical", prior="normal:1")
    with torch.no_grad():
        bnn.mu.zero_()
        bnn.rho.fill_(0.5413)  # softplus: 1, the prior's width
        places = {place.name: place for place in bnn.network.places}
        weight = places["0.weight"]
        bnn.mu[weight.start : weight.start + 2] = 1.0  # the first unit of the first layer has moved
    assert bnn.units_at_the_prior(0.01) == {"0": [3, 4], "2": [2, 2]}


def chains(learning_rate, epochs):
    x, y = (part[::8] for part in problem("iris"))
    sampler = bf.SGLD(nn.Linear(4, 3), "categorical", prior="normal:1", chains=4, samples=50)
    with without_warnings():
        sampler.fit((x, y), epochs=epochs, learning_rate=learning_rate, progress=False)
    return sampler


def test_chains_that_have_not_met_disagree():
    stuck = chains(1e-5, epochs=100)
    assert stuck.history.records[-1]["r_hat"] > 1.2
    # All of them are near their start and equally unsure: that they learned nothing is what is said.
    assert "no_better_than_constant" in stuck.warnings
    sampler = chains(1.0, epochs=600)
    assert "chains_disagree" not in sampler.warnings
    x, _ = problem("iris")
    by_chain = sampler.predictions_by_chain(x[:5])
    assert by_chain.shape == (4, 50, 5, 3)
    direct = sampler.likelihood.probs(sampler.outputs_at(sampler.samples_by_chain[2], torch.tensor(x[:5]), None, None))
    assert torch.allclose(by_chain[2], direct, atol=1e-6)


def test_loaders_are_checked_on_the_examples_that_training_saw():
    x, y = (torch.tensor(part) for part in problem("moons"))

    class Counting(TensorDataset):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return super().__getitem__(index)

    dataset = Counting(x, y)
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(dataset, batch_size=50, shuffle=True, generator=generator)
    torch.manual_seed(0)
    point = bf.PointEstimate(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)), "categorical")
    with pytest.warns(bf.BayesifyWarning, match="a constant prediction"):
        point.fit(loader, epochs=2, learning_rate=1e-9, progress=False)
    # Two epochs, and the first batch before them; nothing is read for the checks.
    assert dataset.reads == 650
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        point.fit(loader, epochs=60, learning_rate=0.03, progress=False)


def test_kept_rows_are_spread_over_what_was_read():
    kept = KeptRows()
    for start in range(0, 30_000, 100):
        rows = torch.arange(start, start + 100)
        kept.add(rows.double()[:, None], rows)
    x, y = kept.rows(1000)
    assert len(y) == 1000
    assert torch.equal(x[:, 0].long(), y)
    # Evenly spread: the mean of n uniform numbers has the error 1 / sqrt(12 n); even spacing is far within it.
    assert abs(float(y.double().mean()) / 30_000 - 0.5) < 0.02
    assert y.min() < 100
    assert y.max() > 29_000


@pytest.mark.parametrize(
    ("likelihood", "seen", "best"),
    [
        ("categorical", torch.tensor([0, 0, 0, 1, 2, 2]), -(3 * np.log(0.5) + np.log(1 / 6) + 2 * np.log(1 / 3)) / 6),
        ("bernoulli", torch.tensor([0, 1, 1, 1]), -(np.log(0.25) + 3 * np.log(0.75)) / 4),
        ("gaussian", torch.tensor([1.0, 3.0]), 0.5 * np.log(2 * np.pi * np.e)),
    ],
)
def test_the_constant_prediction_is_the_entropy_of_the_targets(likelihood, seen, best):
    log_prob = constant_log_prob(bf.likelihoods.parse(likelihood), seen, seen)
    assert -float(log_prob.mean()) == pytest.approx(best)


def test_the_constant_prediction_of_counts_and_of_targets_that_are_all_the_same():
    poisson = bf.likelihoods.Poisson()
    seen = torch.tensor([0.0, 2.0, 4.0])
    expected = torch.distributions.Poisson(2.0).log_prob(seen).double()
    assert torch.allclose(constant_log_prob(poisson, seen, seen), expected)
    ones = torch.ones(5)
    assert constant_log_prob(bf.likelihoods.Gaussian(), ones, ones) is None
    assert constant_log_prob(bf.likelihoods.Categorical(), ones.long(), ones.long()) is None
    # A class that training never saw is improbable, not impossible.
    labels = torch.tensor([0, 1, 1])
    assert constant_log_prob(bf.likelihoods.Categorical(), labels, torch.tensor([2])).isfinite().all()


def test_checks_change_nothing(blobs):
    def trained(checked):
        torch.manual_seed(3)
        bnn = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
        if not checked:
            bnn._examine = lambda *_: None
        with without_warnings():
            bnn.fit(blobs, epochs=3, progress=False)
            bnn.fit(blobs, epochs=3, progress=False)
        return bnn, torch.rand(3)

    (one, after_one), (two, after_two) = trained(checked=True), trained(checked=False)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    assert torch.equal(after_one, after_two)
    assert not one.training


def test_a_fit_that_hmc_could_replace_says_that_it_is_an_approximation(blobs):
    point = bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical")
    point.fit(blobs, epochs=2, progress=False)
    assert "HMC would sample in about 1 s" in point.checked.notes["approximation"]
    assert any("an approximation of the posterior" in note for note in point.summary().notes)
    wide = bf.PointEstimate(bf.networks.mlp(2, 3, units=[3000, 3000]), "categorical")
    assert approximation(wide, 10_000) is None
    annealed = bf.Variational(bf.networks.mlp(2, 3, units=4), "categorical", family="annealed")
    assert approximation(annealed, 60) is None
    assert approximation(bf.SGHMC(bf.networks.mlp(2, 3, units=4), "categorical"), 60) is None
