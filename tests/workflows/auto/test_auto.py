"""Auto from Python: the choice, the model that it makes, the methods that it hands back, and its mistakes."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods.auto_table import TAILS, Problem, choose, sampling_plan
from bayesify.training.batches import TensorExamples
from bayesify.training.warnings import without_warnings
from bayesify.workflows.auto.model import can_be_sampled, network_for, one_noise_for_all, settled_likelihood
from bayesify.workflows.auto.time_limit import TooLittleTimeError, sampling_within, training_within

HMC = choose(Problem("regression", rows=100, inputs=2))
ENSEMBLE = choose(Problem("regression", rows=10_000, inputs=9))


@pytest.fixture
def plane():
    torch.manual_seed(0)
    x = torch.randn(80, 2)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def small():
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))


def test_fit_returns_an_ordinary_method_that_learned_and_auto_stands_for_it(plane, tmp_path, capsys):
    auto = bf.Auto(small, "categorical")
    method = auto.fit(plane, warm_up=60, samples=30, max_leapfrogs=30)
    assert type(method) is bf.HMC
    assert method is auto.method
    assert auto.reason == method.chosen
    assert capsys.readouterr().err.strip() == auto.reason
    # Products of two inputs: guessing has one half, and 80 examples bring a network of five units above 0.8.
    assert auto.evaluate(plane).accuracy > 0.8
    assert torch.equal(auto.predict(plane[0]).probs, method.predict(plane[0]).probs)
    assert auto.summary().rows
    loaded = bf.load(auto.save(tmp_path / "run"), network=small())
    assert loaded.chosen == auto.reason
    assert torch.equal(loaded.predict(plane[0]).probs, method.predict(plane[0]).probs)


def test_it_is_the_method_that_it_names(plane):
    auto = bf.Auto(small, "categorical", seed=3)
    plan = {"warm_up": 20, "samples": 10, "max_leapfrogs": 10}
    chosen = auto.fit(plane, progress=False, **plan)
    same = bf.HMC(small, "categorical", chains=auto.choice.settings["chains"], seed=3)
    same.fit(plane, seed=3, progress=False, **plan)
    assert torch.equal(chosen.predict(plane[0]).probs, same.predict(plane[0]).probs)


def test_a_table_in_any_units_is_predicted_in_its_units():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 3))
    y = 2 * x[:, 0] - x[:, 1] + 0.3 * generator.normal(size=300)
    raw = x * [1000.0, 1e-3, 1.0] + [5e4, 0.0, -3.0]
    auto = bf.Auto(likelihood="gaussian")
    bnn = auto.fit((raw[:200], 50 + 10 * y[:200]), progress=False, samples=60, warm_up=80, max_leapfrogs=20)
    assert type(bnn) is bf.HMC
    prediction = bnn.predict(torch.tensor(raw[200:], dtype=torch.float32), draws=200)
    error = (prediction.mean.numpy() - 50 - 10 * y[200:]) / 10
    # The noise is 0.3; 200 examples of a linear function leave little more.
    assert np.sqrt((error**2).mean()) < 0.42
    assert prediction.std.numpy().mean() / 10 == pytest.approx(0.3, abs=0.15)


def test_settings_of_fit_restrict_the_choice(plane):
    auto = bf.Auto(small, "categorical")
    method = auto.fit(plane, epochs=3, progress=False)
    assert type(method) is bf.Ensemble
    assert len(method.history) == 3
    assert "epochs is no setting of HMC" in auto.reason


@pytest.mark.parametrize(
    ("settings", "optimizer", "rate"),
    [
        ({"family": "full_rank"}, "natural", 1.0),
        ({"family": "full_rank", "learning_rate": 0.02}, "adam", 0.02),
        ({"family": "low_rank", "rank": 2}, "adam", 0.01),
        ({"bound": "importance_weighted", "draws": 2}, "adam", 0.01),
    ],
)
def test_settings_of_correlated_posteriors_are_trained_as_their_method_does(plane, settings, optimizer, rate):
    with without_warnings():
        method = bf.Auto(small, "categorical").fit(plane, epochs=2, progress=False, **settings)
    assert (method.name, method.plan.optimizer, method.plan.learning_rate) == ("variational", optimizer, rate)


def test_networks_that_cannot_be_sampled_are_trained(plane):
    with_dropout = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    auto = bf.Auto(with_dropout, "categorical")
    assert type(auto.fit(plane, epochs=2, progress=False)) is bf.Ensemble
    dataset = torch.utils.data.TensorDataset(*plane)
    loader = torch.utils.data.DataLoader(dataset, batch_size=20)
    assert type(bf.Auto(small, "categorical").fit(loader, epochs=2, progress=False)) is bf.Ensemble


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_a_large_table_stops_early_on_rows_that_it_sets_aside(monkeypatch):
    monkeypatch.setattr("bayesify.methods.auto_table.SPEED", 1.0)
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    auto = bf.Auto(likelihood="gaussian")
    method = auto.fit((x, x[:, 0] + torch.randn(400)), progress=False, epochs=60, learning_rate=0.02)
    assert type(method) is bf.Ensemble
    # Heavy tails: one row far away does not decide the NLL.
    assert type(method.likelihood) is bf.likelihoods.StudentT
    assert (method.likelihood.noise, method.likelihood.df) == ("heteroscedastic", TAILS)
    scores = method.history["validation_nll"]
    assert len(scores) == len(method.history)
    assert min(scores) < scores[-1] + 1e-9
    assert method.plan.keep == "best"


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_the_rows_that_decide_when_to_stop_scale_the_intervals_of_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr("bayesify.methods.auto_table.SPEED", 1.0)
    torch.manual_seed(0)
    x, new = torch.randn(2400, 2), torch.randn(2000, 2)
    y = x[:, 0] + torch.randn(2400)
    auto = bf.Auto(likelihood="gaussian")
    method = auto.fit((x, y), progress=False, epochs=4, run=tmp_path / "run")
    assert method.recalibration.name == "variance"
    assert bf.load(tmp_path / "run").recalibration == method.recalibration
    low, high = method.predict(new).interval(0.9)
    targets = new[:, 0] + torch.randn(2000)
    # 240 rows fix a scale to 4.6%, which moves the share by 1.8 points; three times that.
    assert float(((targets >= low) & (targets <= high)).double().mean()) == pytest.approx(0.9, abs=0.055)
    labels = (x[:, 0] > 0).long()
    assert bf.Auto(likelihood="categorical").fit((x, labels), progress=False, epochs=1).recalibration is None
    # Too few rows are left alone.
    assert auto.fit((x[:600], y[:600]), progress=False, epochs=1).recalibration is None


def test_sampling_gets_the_plan_that_the_time_allows_or_none(plane):
    method, examples = bf.HMC(small, "categorical", chains=16), TensorExamples(*plane)
    assert sampling_within(method, examples, 1e6) == sampling_plan(1e9, few_chains=False)
    with pytest.raises(TooLittleTimeError, match="are too few to sample"):
        sampling_within(method, examples, 1e-6)


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_training_gets_the_epochs_and_members_that_the_time_allows(plane):
    def make(members):
        return bf.Ensemble(small, "categorical", members=members)

    def within(seconds):
        return training_within(make, TensorExamples(*plane), {"batch_size": 40}, seconds, 3, 20, None)

    assert within(1e6) == {"epochs": 20, "members": 3}
    with pytest.raises(TooLittleTimeError, match="an epoch of one network takes about"):
        within(1e-6)


def test_where_sampling_is_too_slow_in_fact_the_next_row_is_taken(plane, monkeypatch):
    def too_slow(*_):
        raise TooLittleTimeError("too slow")

    monkeypatch.setattr("bayesify.workflows.auto.auto.sampling_within", too_slow)
    monkeypatch.setattr("bayesify.workflows.auto.auto.enough_epochs", lambda *_: 2)
    auto = bf.Auto(small, "categorical", time=600)
    assert type(auto.fit(plane, progress=False)) is bf.Ensemble


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_the_time_allowed_is_that_of_one_fit(plane):
    class Watch(bf.callbacks.Callback):
        def on_fit_start(self, method, plan):
            deadlines.append(method.deadline)

    deadlines = []
    settings = {"epochs": 2, "progress": False, "callbacks": [Watch()]}
    method = bf.Auto(small, "categorical", time=600).fit(plane, **settings)
    method.fit(plane, **settings)
    assert deadlines[0] is not None
    assert deadlines[1] is None


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_training_ends_at_its_deadline(plane):
    method = bf.PointEstimate(small, "categorical")
    method.deadline = 0.0
    history = method.fit(plane, epochs=50, progress=False)
    assert len(history) == 1
    assert history.stopped == "the time allowed is over"


@pytest.mark.parametrize(
    ("given", "choice", "outputs", "noise"),
    [
        ("gaussian", HMC, None, "half-cauchy(2)"),
        ("gaussian", ENSEMBLE, None, "heteroscedastic"),
        ("gaussian", ENSEMBLE, 1, "learned"),
        ("gaussian", ENSEMBLE, 2, "heteroscedastic"),
        ("gaussian:learned", HMC, 1, "half-cauchy(2)"),
        ("gaussian:0.5", HMC, 1, 0.5),
    ],
)
def test_a_likelihood_takes_its_noise_from_the_choice_and_its_units_from_the_targets(given, choice, outputs, noise):
    likelihood = settled_likelihood(given, choice, torch.tensor([8.0, 12.0]), outputs)
    spec = likelihood.spec()
    assert spec["noise"] == noise
    assert (spec["location"], spec["scale"]) == (10.0, 2.0)


def test_other_noises_take_their_units_from_the_targets_too_and_are_trained_where_they_cannot_be_sampled():
    likelihood = settled_likelihood("student-t:4", ENSEMBLE, torch.tensor([8.0, 12.0]))
    assert (likelihood.location, likelihood.scale, likelihood.df) == (10.0, 2.0, 4)
    for text in ("quantile", "mixture:3"):
        scaled = settled_likelihood(text, ENSEMBLE, torch.tensor([8.0, 12.0]))
        assert (scaled.location, scaled.scale) == (10.0, 2.0)
    given = settled_likelihood("student-t:4,learned,1,5,3", ENSEMBLE, torch.tensor([8.0, 12.0]))
    assert (given.location, given.scale) == (5, 3)
    # A learned noise that has no prior cannot be sampled; a given one can.
    assert not can_be_sampled(bf.likelihoods.StudentT())
    assert can_be_sampled(bf.likelihoods.StudentT(noise=1.0))
    assert can_be_sampled(bf.likelihoods.Gaussian("learned"))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator)
    auto = bf.Auto(likelihood="student-t:4")
    with without_warnings():
        method = auto.fit((x, 100 + 20 * x[:, 0]), epochs=2, progress=False)
    assert type(method) is bf.Ensemble
    assert "targets_unscaled" not in method.warnings


def test_a_row_with_heavy_tails_gives_a_student_t_where_the_noise_is_left_open():
    choice = replace(ENSEMBLE, tails=5.0)
    targets = torch.tensor([8.0, 12.0])
    found = settled_likelihood("gaussian", choice, targets)
    assert found.spec() == bf.likelihoods.StudentT(5.0, "heteroscedastic", location=10.0, scale=2.0).spec()
    # Noise that the user names stays normal, and a network with one output has a constant one.
    assert type(settled_likelihood("gaussian:heteroscedastic", choice, targets)) is bf.likelihoods.Gaussian
    assert type(settled_likelihood("gaussian", choice, targets, 1)) is bf.likelihoods.Gaussian


def test_a_likelihood_object_is_kept():
    own = bf.likelihoods.Gaussian(0.5, location=1.0)
    assert settled_likelihood(own, HMC, torch.tensor([8.0, 12.0])).spec() == own.spec()


def test_priors_of_the_table_name_the_layers_of_the_network():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=generator), torch.arange(40) % 3
    plan = {"warm_up": 20, "samples": 2, "max_leapfrogs": 10}
    method = bf.Auto(likelihood="categorical").fit((x, y), progress=False, **plan)
    priors = {row.name: row.prior.partition(" ")[0] for row in method.summary().rows if row.name.endswith("weight")}
    assert list(priors.values()) == ["normal:1", "normal:fan_in", "normal:3"]


def test_the_network_for_a_table_standardises_and_a_constant_column_changes_nothing():
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    network = network_for(x, 1, {"units": (4,), "activation": "tanh"})()
    assert torch.equal(network[:2](x), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    assert bf.networks.build(network.spec).spec == network.spec


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bf.Auto(small), "likelihood is needed"),
        (lambda: bf.Auto(small, "categorical", time=0), "time must be a finite number above 0"),
        (
            lambda: bf.Auto(likelihood="categorical").fit((torch.zeros(9, 2, 2), torch.zeros(9).long())),
            "shape \\[9, 2, 2\\]",
        ),
        (lambda: bf.Auto(small, "categorical").predict(torch.zeros(1, 2)), "nothing is fitted yet"),
        (
            lambda: bf.Auto(small, "categorical").fit(
                (torch.zeros(9, 2), torch.zeros(9).long()), structure="full", p=0.1
            ),
            "no method takes all of p and structure",
        ),
    ],
)
def test_a_mistake_is_named_in_one_line(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        ("catgorical", "did you mean 'categorical'"),
        (3, "likelihood must be one of bayesify.likelihoods, got int"),
        (bf.likelihoods.Categorical, r"write Categorical\(\)"),
    ],
)
def test_a_wrong_likelihood_is_named_before_any_data(likelihood, words):
    with pytest.raises((ValueError, TypeError), match=words):
        bf.Auto(small, likelihood)


def test_targets_in_unlike_units_do_not_share_a_noise():
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(200, 2, generator=generator) for _ in range(2))
    y = (x + 0.3 * noise) * torch.tensor([100.0, 1.0])
    with without_warnings():
        method = bf.Auto(likelihood="gaussian").fit((x, y), epochs=200, progress=False)
    predicted = method.predict(x)
    rmse = (predicted.mean - y).square().mean(0).sqrt()
    # A noise of 30 and one of 0.3; a sampled noise was 19 for both, and the second target a constant (1.09).
    assert torch.all(rmse < torch.tensor([40.0, 0.4]))
    assert torch.all(predicted.std.mean(0) < torch.tensor([45.0, 0.45]))
    assert one_noise_for_all("gaussian:learned", y)
    assert not one_noise_for_all("gaussian:learned", x)
    assert not one_noise_for_all("gaussian:0.5", y)
    assert settled_likelihood("gaussian", HMC, y).noise == "heteroscedastic"  # where HMC's settings ask for it


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.size, self.side = nn.Linear(2, 1), nn.Linear(2, 2)

    def forward(self, x):
        return {"size": self.size(x), "side": self.side(x)}


def test_several_targets_are_trained_and_the_reason_is_that_they_cannot_be_sampled(plane):
    x, y = plane
    auto = bf.Auto(TwoHeads, {"size": "gaussian:learned", "side": "categorical"})
    with without_warnings():
        fitted = auto.fit((x, {"size": x[:, :1], "side": y}), epochs=2, progress=False)
    assert (fitted.name, fitted.predict(x)["side"].probs.shape) == ("ensemble", (80, 2))
    assert "HMC cannot sample this network, likelihood or targets" in auto.reason
    with pytest.raises(ValueError, match="several targets need a network that returns a dict"):
        bf.Auto(likelihood={"size": "gaussian", "side": "categorical"})


def test_the_reason_says_what_rules_out_sampling():
    problem = Problem("regression", rows=200, inputs=3, weights=30)
    assert choose(problem).method == "hmc"
    assert "sampling takes too long" in choose(replace(problem, too_slow=True)).reason
    assert "HMC cannot sample this network, " in choose(replace(problem, can_sample=False)).reason
    assert "HMC needs all data in memory" in choose(replace(problem, in_memory=False)).reason


def test_a_setting_of_a_network_is_no_setting_of_the_choice():
    x, y = torch.randn(40, 2), torch.randn(40)
    with pytest.raises(TypeError, match=r"units is a setting of a network: give one, such as bf.Auto\("):
        bf.Auto(likelihood="gaussian").fit((x, y), units=(10,), progress=False)


def test_tables_of_few_inputs_have_a_prior_that_allows_jumps():
    assert choose(Problem("regression", rows=400, inputs=1)).prior.startswith("FIRST=normal:4;")
    assert choose(Problem("regression", rows=400, inputs=4)).prior.startswith("FIRST=normal:1;")
    assert choose(Problem("classification", rows=400, inputs=2, outputs=2)).prior.startswith("FIRST=normal:1;")


def test_a_prior_that_the_rows_for_tables_do_not_take_still_has_a_network():
    choice = choose(Problem("regression", rows=60, inputs=3, can_sample=False), ["prior"])
    assert choice.method == "laplace"
    assert choice.network["units"]
    x = torch.randn(60, 3)
    unlike = torch.stack([x[:, 0], 100 * x[:, 1]], 1)  # no single noise suits both, so HMC does not take them
    with without_warnings():
        method = bf.Auto(likelihood="gaussian:learned", prior="normal:2").fit((x, unlike), epochs=3, progress=False)
    assert (method.name, method.prior.spec()) == ("laplace", "normal:2")


def test_inputs_of_a_wrong_shape_are_named_with_their_own_shape():
    x = torch.randn(60, 3, 4)
    with pytest.raises(ValueError, match=r"\[rows, columns\], got shape \[60, 3, 4\]: give a network"):
        bf.Auto(likelihood="gaussian").fit((x, x[:, 0, 0]))
    with pytest.raises(ValueError, match=r"got shape \[60\]: one column is x\[:, None\]$"):
        bf.Auto(likelihood="gaussian").fit((x[:, 0, 0], x[:, 0, 0]))


def test_classes_that_never_occur_are_named_before_training():
    x = torch.randn(60, 3)
    plan = {"warm_up": 20, "samples": 5, "max_leapfrogs": 5, "progress": False}
    for labels, words in (
        (torch.arange(60) % 2 + 1, "class 0 never occurs: labels count from 0, and the largest makes 3 classes"),
        (5 * (torch.arange(60) % 2) + 2, "6 classes never occur, the first is 0: .* makes 8 classes"),
    ):
        with pytest.warns(bf.BayesifyWarning, match=words):
            bf.Auto(likelihood="categorical").fit((x, labels), **plan)
    for likelihood, labels in (
        ("categorical", torch.arange(60) % 3),
        (bf.likelihoods.Categorical(classes=3), labels % 2),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            bf.Auto(likelihood=likelihood).fit((x, labels), **plan)
        assert not any("occur" in str(one.message) for one in said)
