"""Every warning of a fit, and that what it tells people to do makes it go away."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import make_circles, make_moons
from torch import nn

import bayesify as bf
from bayesify.training.warnings import without_warnings


def moons(n=300):
    x, y = make_moons(n, noise=0.15, random_state=0)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def sine(n=200):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=n)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def net(inputs=2, outputs=2, units=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, units), nn.Tanh(), nn.Linear(units, outputs))


def warned(method, data, **settings):
    """The kinds of warnings of a fit."""
    with without_warnings():
        method.fit(data, progress=False, compiled=False, batch_size=500, **settings)
    return set(method.warnings)


def test_no_better_than_constant_is_cured_by_a_higher_rate():
    data = moons()
    assert warned(bf.PointEstimate(net(), "categorical"), data, epochs=20, learning_rate=1e-9) == {
        "no_better_than_constant"
    }
    assert warned(bf.PointEstimate(net(), "categorical"), data, epochs=200, learning_rate=0.05) == set()


def test_worse_than_neighbours_is_cured_by_longer_training():
    data = moons()
    short = bf.PointEstimate(net(), "categorical")
    assert warned(short, data, epochs=15, learning_rate=0.02) == {"worse_than_neighbours"}
    text = short.warnings["worse_than_neighbours"]
    assert "nearest training examples" in text
    assert "train longer" in text
    assert short.checked.neighbours < short.checked.score - 0.1
    assert warned(bf.PointEstimate(net(), "categorical"), data, epochs=300, learning_rate=0.05) == set()


def test_worse_than_neighbours_by_the_error_of_numbers_whatever_the_noise():
    data = sine()
    # The noise is five times the true one: NLLs would say little about the fit.
    for epochs, expected in ((60, {"worse_than_neighbours"}), (400, set())):
        point = bf.PointEstimate(net(1, 1), "gaussian:0.5")
        assert warned(point, data, epochs=epochs, learning_rate=0.02) == expected


def test_a_fit_of_99_percent_of_a_curve_without_noise_is_worse_than_a_kernel_regression_until_trained_longer():
    x = torch.linspace(-2, 2, 200)[:, None]
    y = torch.sin(2 * x[:, 0])
    short = bf.PointEstimate(net(1, 1), "gaussian:0.1")
    assert warned(short, (x, y), epochs=150, learning_rate=0.02) == {"worse_than_neighbours"}
    assert 1 - (short.checked.score / float(y.std())) ** 2 > 0.98
    assert "a kernel regression" in short.warnings["worse_than_neighbours"]
    assert short.checked.neighbours < 1e-4
    long = bf.PointEstimate(net(1, 1), "gaussian:0.1")
    # The noise that was given is now more than ten times the error.
    assert warned(long, (x, y), epochs=800, learning_rate=0.05, schedule="cosine") == {"noise_too_large"}


def test_a_rate_that_explodes_is_cured_by_a_lower_one():
    x, y = sine()
    exploded = bf.PointEstimate(net(1, 1), "gaussian:0.1")
    assert warned(exploded, (x, y), epochs=10, learning_rate=1e5) == {"blew_up"}
    assert "learning_rate is 100000, the default is 0.01: lower it" in exploded.warnings["blew_up"]
    assert warned(bf.PointEstimate(net(1, 1), "gaussian:0.1"), (x, y), epochs=400, learning_rate=0.02) == set()


def test_a_rise_on_the_way_to_a_good_fit_is_no_failure():
    point = bf.PointEstimate(net(1, 1), "gaussian:0.1")
    x, y = sine()
    # The rate falls from far too high to a good one.
    assert (
        warned(point, (x, y), epochs=600, learning_rate=1.0, schedule=lambda done: 1 if done < 0.01 else 0.02) == set()
    )
    assert max(point.history["nll"]) > 10 * point.history["nll"][0]


def test_training_that_is_not_finite_is_an_error_that_the_method_remembers():
    x, y = sine()
    point = bf.PointEstimate(net(1, 1), "gaussian:0.1")
    with pytest.raises(bf.TrainingError, match="lower learning_rate"):
        warned(point, (x, y), epochs=10, learning_rate=1e30, optimizer="sgd")
    assert "lower learning_rate" in point.warnings["diverged"]
    assert warned(bf.PointEstimate(net(1, 1), "gaussian:0.1"), (x, y), epochs=400, learning_rate=0.02) == set()


def test_a_posterior_that_never_moved_is_cured_by_a_higher_rate():
    data = moons()
    frozen = bf.Variational(net(), "categorical", prior="normal:1")
    assert "kl_frozen" in warned(frozen, data, epochs=30, learning_rate=1e-4)
    assert "raise the learning rate" in frozen.warnings["kl_frozen"]
    moved = bf.Variational(net(), "categorical", prior="normal:1", estimator="local")
    assert warned(moved, data, epochs=400, learning_rate=0.05, schedule="cosine") == set()


def test_collapse_is_cured_by_laplace_and_by_an_ensemble():
    x, y = make_circles(100, noise=0.3, factor=0.6, random_state=0)
    data = torch.tensor(x, dtype=torch.float32), torch.tensor(y)

    def deep():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2))

    bnn = bf.Variational(deep(), "categorical", prior="normal:1", estimator="local")
    assert warned(bnn, data, epochs=300, learning_rate=0.05, schedule="cosine") == {"collapsed"}
    assert "use LaplaceApproximation, Ensemble" in bnn.warnings["collapsed"]
    assert bnn.checked.units_at_the_prior["2"] == [20, 20]
    for other in (bf.LaplaceApproximation(deep(), "categorical"), bf.Ensemble(deep(), "categorical", members=2)):
        assert warned(other, data, epochs=300, learning_rate=0.03, schedule="cosine") == set()


def test_few_snapshots_are_cured_by_taking_more():
    data = moons()
    swag = bf.SWAG(net(), "categorical")
    assert "few_snapshots" in warned(swag, data, epochs=2, learning_rate=0.05)
    assert warned(bf.SWAG(net(), "categorical"), data, epochs=300, learning_rate=0.05) == set()
    assert "few_snapshots" not in warned(bf.SWAG(net(), "categorical", every=1), data, epochs=10, learning_rate=0.05)


def test_a_plan_without_a_snapshot_is_refused_before_training():
    swag = bf.SWAG(net(), "categorical", every=1000)
    with pytest.raises(ValueError, match="no snapshot in 2 steps"):
        warned(swag, moons(), epochs=2)


def test_unscaled_targets_are_cured_by_location_and_scale():
    x, y = sine()
    y = 5000 + 1000 * y
    found = warned(bf.PointEstimate(net(1, 1), "gaussian:learned"), (x, y), epochs=300, learning_rate=0.02)
    assert "targets_unscaled" in found
    likelihood = bf.likelihoods.Gaussian("learned", location=float(y.mean()), scale=float(y.std()))
    assert warned(bf.PointEstimate(net(1, 1), likelihood), (x, y), epochs=400, learning_rate=0.02) == set()


@pytest.mark.parametrize(
    "activation, outputs, likelihood", [(nn.Softmax(1), 2, "categorical"), (nn.Sigmoid(), 1, "bernoulli")]
)
def test_a_network_that_ends_in_probabilities_is_cured_by_removing_them(activation, outputs, likelihood):
    data = moons()
    ended = bf.PointEstimate(nn.Sequential(net(outputs=outputs), activation), likelihood)
    assert "ends_in_probabilities" in warned(ended, data, epochs=200, learning_rate=0.05)
    assert warned(bf.PointEstimate(net(outputs=outputs), likelihood), data, epochs=200, learning_rate=0.05) == set()


def test_logarithms_of_probabilities_are_logits_too():
    assert (
        warned(
            bf.PointEstimate(nn.Sequential(net(), nn.LogSoftmax(1)), "categorical"),
            moons(),
            epochs=200,
            learning_rate=0.05,
        )
        == set()
    )


def test_warnings_before_training_are_given_once_and_kept():
    x, y = sine()
    point = bf.PointEstimate(net(1, 1), "gaussian:learned")
    with pytest.warns(bf.BayesifyWarning) as told:
        point.fit((x, 5000 + 1000 * y), epochs=2, progress=False)
    texts = [str(one.message) for one in told]
    assert sum("unit scale" in text for text in texts) == 1
    assert "give Gaussian(" in point.warnings["targets_unscaled"]
    heavy = bf.PointEstimate(net(1, 1), "student-t:5")
    with without_warnings():
        heavy.fit((x, 5000 + 1000 * y), epochs=1, progress=False)
    assert "give StudentT(" in heavy.warnings["targets_unscaled"]


def test_chains_that_disagree_are_cured_by_sampling_longer():
    data = sine()
    short = bf.HMC(net(1, 1), "gaussian:0.1", prior="normal:1", chains=4)
    with without_warnings():
        short.fit(data, warm_up=20, samples=20, max_leapfrogs=3, progress=False)
    assert "chains_disagree" in short.warnings
    assert "more warm_up= and samples=" in short.warnings["chains_disagree"]
    assert all("learning rate" not in text for text in short.warnings.values())  # it has none
    long = bf.HMC(net(1, 1), "gaussian:0.1", prior="normal:1", chains=4)
    with without_warnings():
        long.fit(data, warm_up=200, samples=200, max_leapfrogs=50, progress=False)
    assert long.warnings == {}
    assert long.history["r_hat"][-1] < short.history["r_hat"][-1]
    assert "at most" in long.summary().facts["R-hat of predictions"]


def test_a_sampler_that_learned_nothing_is_told_to_sample_longer():
    sampler = bf.HMC(net(), "categorical", prior="normal:1", chains=2)
    with without_warnings():
        sampler.fit(moons(), warm_up=20, samples=2, max_leapfrogs=1, progress=False)
    texts = [sampler.warnings.get(kind, "") for kind in ("no_better_than_constant", "worse_than_neighbours")]
    assert any("sample longer, with more warm_up= and samples=" in text for text in texts)


def test_an_improper_prior_is_said_once_kept_with_the_method_and_cured_by_a_proper_one():
    x, y = sine(60)
    with pytest.warns(bf.BayesifyWarning, match="may be improper too"):
        flat = bf.HMC(nn.Linear(1, 1), "gaussian:flat", prior="flat", chains=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        flat.fit((x, y), warm_up=60, samples=60, progress=False)
    assert not [one for one in told if "improper" in str(one.message)]
    assert "a proper prior such as normal:10" in flat.warnings["improper_prior"]
    proper = bf.HMC(nn.Linear(1, 1), "gaussian:flat", prior="normal:10", chains=2)
    with without_warnings():
        proper.fit((x, y), warm_up=60, samples=60, progress=False)
    assert "improper_prior" not in proper.warnings


def test_widths_that_stay_those_of_a_prior_around_trained_weights_are_no_alarm():
    x, y = moons()
    trained = net()
    adam = torch.optim.Adam(trained.parameters(), lr=0.05)
    for _ in range(200):
        adam.zero_grad()
        nn.functional.cross_entropy(trained(x), y).backward()
        adam.step()
    tuned = bf.Variational(trained, "categorical", prior="pretrained:0.03")
    assert warned(tuned, (x, y), epochs=20, learning_rate=0.01) == set()


def test_the_cure_of_a_fit_with_a_time_limit_is_more_time():
    short = bf.Auto(net(), "categorical", time=0.2)
    with without_warnings():
        method = short.fit(moons(), progress=False, epochs=1)
    assert method.warnings
    assert all("allow more time" in text for text in method.warnings.values())


def test_after_early_stopping_the_cure_is_no_longer_training():
    data = moons()
    stopped = bf.PointEstimate(net(), "categorical")
    stopped.deadline = 1e12  # there was time left
    noise = (data[0], torch.randint(0, 2, (len(data[1]),)))
    kinds = warned(stopped, data, epochs=400, learning_rate=0.002, validation=noise, patience=1, keep="best")
    assert stopped.history.stopped_early
    assert kinds
    for text in stopped.warnings.values():
        assert "more time" not in text
        assert "train longer" not in text
        assert "change the learning rate" in text


def test_more_time_is_no_cure_of_a_training_that_was_not_shortened():
    whole = bf.PointEstimate(net(), "categorical")
    whole.deadline = 1e12
    assert warned(whole, moons(), epochs=2000, learning_rate=1e-9) == {"no_better_than_constant"}
    assert "more time" not in whole.warnings["no_better_than_constant"]


def test_the_cure_of_a_loop_of_one_s_own_is_not_that_of_a_sampler():
    x, y = moons()
    point = bf.PointEstimate(net(), "categorical")
    optimizer = torch.optim.SGD(point.parameters(), lr=1e-6)
    for step in range(3):
        optimizer.zero_grad()
        point.loss(x, y, n_data=len(x), step=step).backward()
        optimizer.step()
    with without_warnings():
        point.finish((x, y))
    text = point.warnings["no_better_than_constant"]
    assert "train longer, change the learning rate" in text
    assert "sample" not in text


@pytest.mark.parametrize(
    "settings, cure",
    [
        ({"learning_rate": 10.0}, "learning_rate is 10, the default is 0.01: lower it"),
        ({"learning_rate": 1.0, "schedule": "cosine"}, "learning_rate is 1, the default is 0.01: lower it"),
        ({"learning_rate": 1e-9}, "learning_rate is 1e-09, the default is 0.01: raise it"),
        ({"learning_rate": 1e-9, "optimizer": "sgd"}, "10 times higher or lower"),  # whose rates are others
        ({"learning_rate": 1e-3, "epochs": 1}, "10 times higher or lower"),  # the default of large networks
    ],
)
def test_a_rate_far_from_the_default_is_named(settings, cure):
    point = bf.PointEstimate(net(), "categorical")
    rng = np.random.default_rng(0)
    data = moons()[0], torch.tensor(rng.integers(0, 2, 300))
    warned(point, data, **{"epochs": 5, **settings})
    assert cure in " ".join(point.warnings.values())


def test_labels_without_structure_are_told_to_be_checked_and_a_large_gap_is_overfitting():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(120, 10)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 2, 120))
    point = bf.PointEstimate(net(10, 2, 50), "categorical")
    warned(point, (x[:60], y[:60]), validation=(x[60:], y[60:]), epochs=200, learning_rate=0.02)
    text = point.warnings["no_better_than_constant"]
    assert text.startswith("worse than a constant prediction: its NLL on validation data is")
    assert "; it overfitted (its NLL on training data is" in text
    assert "(validation=, patience= and keep='best')" in text
    assert "train longer" not in text
    assert "check the labels and the order of the rows" in text
    few = bf.PointEstimate(net(10, 2), "categorical")
    warned(few, (x[:60], y[:60]), validation=(x[60:], y[60:]), epochs=2, learning_rate=0.001)
    assert "overfitted" not in few.warnings["no_better_than_constant"]
    assert "check the labels and the order of the rows" in few.warnings["no_better_than_constant"]


def test_a_large_loss_that_only_falls_has_not_blown_up():
    x, y = sine()
    point = bf.PointEstimate(net(1, 1), "gaussian:learned")
    found = warned(point, (x, 1500 + 700 * y), epochs=30, learning_rate=0.01)
    assert max(point.history["nll"]) > 1000 * point.checked.constant_nll
    assert "targets_unscaled" in found
    assert "blew_up" not in found


def test_targets_that_are_all_the_same_are_not_compared_with_neighbours():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(60, 3)), dtype=torch.float32)
    assert warned(bf.PointEstimate(net(3, 1), "gaussian:learned"), (x, torch.ones(60)), epochs=30) == set()
    assert warned(bf.PointEstimate(net(3, 2), "categorical"), (x, torch.ones(60).long()), epochs=1) == set()


def test_one_example_is_cured_by_another():
    x, y = moons(8)
    assert warned(bf.PointEstimate(net(), "categorical"), (x[:1], y[:1]), epochs=2) == {"single_example"}
    assert "single_example" not in warned(bf.PointEstimate(net(), "categorical"), (x[:2], y[:2]), epochs=2)
