"""Conformal sets and intervals cover at the promised rate, with the law that theory gives, and agree with MAPIE."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify.decisions import AdaptiveConformal, adaptive_conformal, conformal_of, conformal_scores


def cloud(examples, seed):
    """Three overlapping clouds."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (examples,), generator=generator)
    centres = torch.tensor([[0.0, 1.0], [1.0, -0.6], [-1.0, -0.6]])
    return centres[y] + torch.randn(examples, 2, generator=generator), y


def curve(examples, seed):
    """A line whose noise grows."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(examples, 1, generator=generator) * 2
    return x, torch.sin(3 * x[:, 0]) + torch.randn(examples, generator=generator) * (0.1 + 0.4 * x[:, 0])


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    point = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
    point.fit(cloud(300, 0), epochs=30, learning_rate=0.02, progress=False, compiled=False)
    return point


@pytest.fixture(scope="module")
def regressor():
    torch.manual_seed(0)
    point = bf.PointEstimate(bf.networks.mlp(1, 2, units=16), "gaussian:heteroscedastic")
    point.fit(curve(500, 0), epochs=40, learning_rate=0.02, progress=False, compiled=False)
    return point


def covered(promise, method, x, y):
    predictive = method.predict(x)
    if promise.kind in {"lac", "aps", "raps"}:
        return promise.sets(predictive)[torch.arange(len(y)), y]
    lower, upper = promise.interval(predictive)
    return (lower <= y) & (y <= upper)


def beta_law(examples, alpha):
    place = math.ceil((examples + 1) * (1 - alpha))
    return stats.beta(place, examples + 1 - place)


@pytest.mark.parametrize("kind", ["lac", "aps", "raps", "split", "cqr"])
def test_coverage_over_repeated_splits_follows_its_beta_law(kind, classifier, regressor):
    alpha, examples, repeats, pool = 0.1, 99, 60 if kind != "cqr" else 40, 1000 if kind != "cqr" else 400
    method, (x, y) = (classifier, cloud(20_000, 1)) if kind in {"lac", "aps", "raps"} else (regressor, curve(20_000, 1))
    generator = torch.Generator().manual_seed(0)
    coverages = []
    for _ in range(repeats):
        rows = torch.randperm(len(y), generator=generator)
        promise = bf.conformal(method, (x[rows[:examples]], y[rows[:examples]]), alpha=alpha, kind=kind)
        rest = rows[examples : examples + pool]
        coverages.append(float(covered(promise, method, x[rest], y[rest]).double().mean()))
    # The share among some inputs adds a binomial error to the law; the sample blurs it a little.
    law = beta_law(examples, alpha).rvs(20_000, random_state=0)
    blurred = np.random.default_rng(0).binomial(pool, law) / pool
    assert stats.ks_2samp(coverages, blurred).pvalue > 1e-3
    # The mean is k / (n + 1) up to four standard errors.
    assert abs(np.mean(coverages) - 0.9) < 4 * np.std(coverages) / math.sqrt(repeats)


def test_each_class_is_covered_where_that_is_promised(classifier):
    """One class is hard: the average promise misses it, the promise for each class does not."""
    x, y = cloud(6000, 1)
    rare = (y != 2) | (torch.arange(len(y)) % 8 == 0)
    x, y = x[rare], y[rare]
    shifted = x + 1.0 * (y == 2)[:, None] * torch.tensor([0.6, 0.8])  # class 2 looks like others
    held, test = slice(0, 2000), slice(2000, None)
    rates = {}
    for each in (False, True):
        promise = bf.conformal(classifier, (shifted[held], y[held]), alpha=0.1, class_conditional=each)
        inside = covered(promise, classifier, shifted[test], y[test])
        rates[each] = float(inside[y[test] == 2].double().mean())
    count = int((y[test] == 2).sum())
    assert rates[False] < 0.85
    assert rates[True] > 0.9 - 4 * math.sqrt(0.09 / count) - 0.03  # 0.03: the law of about 90 calibration examples


def test_thresholds_are_those_of_mapie(classifier, regressor):
    pytest.importorskip("mapie")
    from mapie.classification import SplitConformalClassifier
    from mapie.regression import SplitConformalRegressor
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    class Classifier(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(3)
        fitted_ = True

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return classifier.predict(torch.tensor(X, dtype=torch.float32)).probs.double().numpy()

        def predict(self, X):
            return self.predict_proba(X).argmax(1)

    class Regressor(RegressorMixin, BaseEstimator):
        fitted_ = True

        def fit(self, X, y):
            return self

        def predict(self, X):
            return regressor.predict(torch.tensor(X, dtype=torch.float32)).mean.double().numpy()

    (x, y), (new, _) = cloud(500, 2), cloud(400, 3)
    theirs = SplitConformalClassifier(Classifier(), confidence_level=0.9, conformity_score="lac", prefit=True)
    _, sets = theirs.conformalize(x.numpy(), y.numpy()).predict_set(new.numpy())
    ours = bf.conformal(classifier, (x, y), alpha=0.1, kind="lac")
    assert (ours.sets(classifier.predict(new)).numpy() == sets[:, :, 0]).all()
    assert ours.thresholds[0] == pytest.approx(theirs._mapie_classifier.quantiles_[0])
    # Their random part of a class's own probability comes from a generator: with the same part, the same threshold.
    theirs = SplitConformalClassifier(Classifier(), confidence_level=0.9, conformity_score="aps", prefit=True)
    theirs.conformalize(x.numpy(), y.numpy()).predict_set(new.numpy())
    scores = theirs._mapie_classifier.conformity_scores_.ravel()
    probs = classifier.predict(x).probs.double().numpy()
    whole = np.take_along_axis(conformal_scores.class_scores(probs, "aps", randomised=False), y.numpy()[:, None], 1)[
        :, 0
    ]
    own = np.take_along_axis(probs, y.numpy()[:, None], 1)[:, 0]
    assert ((whole - own - 1e-9 <= scores) & (scores <= whole + 1e-9)).all()
    threshold = conformal_scores.threshold(scores, 0.1)
    assert threshold == pytest.approx(theirs._mapie_classifier.quantiles_[0])
    (x, y), (new, _) = curve(500, 2), curve(400, 3)
    theirs = SplitConformalRegressor(Regressor(), confidence_level=0.9, prefit=True).conformalize(x.numpy(), y.numpy())
    _, bands = theirs.predict_interval(new.numpy())
    lower, upper = bf.conformal(regressor, (x, y), alpha=0.1).interval(regressor.predict(new))
    np.testing.assert_allclose(lower, bands[:, 0, 0], atol=1e-5)
    np.testing.assert_allclose(upper, bands[:, 1, 0], atol=1e-5)


def test_quantile_intervals_and_regularised_scores_are_those_of_mapie(regressor):
    pytest.importorskip("mapie")
    from mapie.conformity_scores.sets.raps import RAPSConformityScore
    from mapie.regression import ConformalizedQuantileRegressor
    from sklearn.base import BaseEstimator, RegressorMixin

    class Regressor(RegressorMixin, BaseEstimator):
        fitted_ = True

        def __init__(self, end=None):
            self.end = end

        def fit(self, X, y):
            return self

        def predict(self, X):
            predictive = regressor.predict(torch.tensor(X, dtype=torch.float32))
            found = predictive.mean if self.end is None else predictive.interval(0.9)[self.end]
            return found.double().numpy()

    (x, y), (new, _) = curve(500, 2), curve(400, 3)
    ends = [Regressor(0), Regressor(1), Regressor()]
    theirs = ConformalizedQuantileRegressor(ends, confidence_level=0.9, prefit=True).conformalize(x.numpy(), y.numpy())
    _, bands = theirs.predict_interval(new.numpy(), symmetric_correction=True)
    lower, upper = bf.conformal(regressor, (x, y), alpha=0.1, kind="cqr").interval(regressor.predict(new))
    np.testing.assert_allclose(lower, bands[:, 0, 0], atol=1e-5)
    np.testing.assert_allclose(upper, bands[:, 1, 0], atol=1e-5)

    # Their RAPS chooses penalty and rank itself: its formula is compared, with both given.
    random = np.random.default_rng(0)
    probs, labels = random.dirichlet(np.ones(6), 300), random.integers(6, size=300)
    sums, places = RAPSConformityScore.get_true_label_cumsum_proba(labels, probs, np.arange(6))
    known = RAPSConformityScore._regularize_conformity_score(np.array([2]), 0.05, sums, places)
    scores = conformal_scores.class_scores(probs, "raps", penalty=0.05, rank=2, randomised=False)
    np.testing.assert_allclose(scores[np.arange(300), labels], known.ravel(), rtol=1e-12)


def test_scores_by_hand():
    probs = np.array([[0.2, 0.5, 0.3]])
    np.testing.assert_allclose(conformal_scores.class_scores(probs, "lac"), [[0.8, 0.5, 0.7]])
    plain = {"randomised": False}
    np.testing.assert_allclose(conformal_scores.class_scores(probs, "aps", **plain), [[1.0, 0.5, 0.8]])
    raps = conformal_scores.class_scores(probs, "raps", penalty=0.1, rank=1, **plain)
    np.testing.assert_allclose(raps, [[1.2, 0.5, 0.9]])
    u = conformal_scores.uniforms(probs, 0)[0]
    aps = conformal_scores.class_scores(probs, "aps")
    np.testing.assert_allclose(aps, [[0.8 + 0.2 * u, 0.5 * u, 0.5 + 0.3 * u]])


def test_the_random_part_is_uniform_and_its_own_for_each_input():
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 4000)
    u = conformal_scores.uniforms(probs, 0)
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(conformal_scores.uniforms(probs[7:9], 0), u[7:9])
    assert not (conformal_scores.uniforms(probs, 1) == u).any()


def test_scaled_intervals_follow_the_noise(regressor):
    promise = bf.conformal(regressor, curve(1000, 1), alpha=0.1, scaled=True)
    lower, upper = promise.interval(regressor.predict(torch.tensor([[0.1], [1.9]])))
    assert (upper - lower)[1] > 2 * (upper - lower)[0]
    x, y = curve(4000, 2)
    inside = covered(promise, regressor, x, y)
    for part in (x[:, 0] < 0.5, x[:, 0] > 1.5):  # near the promise in each part, which plain intervals are not
        assert abs(float(inside[part].double().mean()) - 0.9) < 0.06


def test_jackknife_plus_covers_without_held_out_data(tmp_path):
    torch.manual_seed(0)
    shares = []
    for seed in range(2):
        x, y = curve(120, seed + 10)
        net = bf.networks.mlp(1, 1, units=16)
        ensemble = bf.Ensemble(net, "gaussian:0.3", members=12, bootstrap=True, seed=seed)
        ensemble.fit((x, y), epochs=40, learning_rate=0.02, seed=seed, progress=False, compiled=False)
        promise = bf.conformal(ensemble, (x, y), alpha=0.1, kind="jackknife+")
        new, targets = curve(2000, 99)
        shares.append(float(covered(promise, ensemble, new, targets).double().mean()))
    assert promise.coverage == 0.8
    assert min(shares) > 0.8
    assert 0.84 < np.mean(shares) < 0.97
    loaded = bf.load(ensemble.save(tmp_path / "run"))
    again = conformal_of(loaded).interval(loaded.predict(new[:20]))
    assert torch.equal(torch.stack(again), torch.stack(promise.interval(ensemble.predict(new[:20]))))


def test_jackknife_plus_is_that_of_its_definition():
    """Against a loop over members and examples."""
    torch.manual_seed(0)
    x, y = curve(60, 1)
    ensemble = bf.Ensemble(bf.networks.mlp(1, 1, units=4), "gaussian:0.3", members=12, bootstrap=True)
    ensemble.fit((x, y), epochs=3, progress=False, compiled=False)
    promise = bf.conformal(ensemble, (x, y), alpha=0.2, kind="jackknife+")
    new, _ = curve(5, 2)
    from bayesify.training.resampling import resample

    drawn = resample(0, 12, 60)
    train, test = (ensemble.predict(inputs).outputs[..., 0].double() for inputs in (x, new))
    lower, upper = [], []
    for j in range(5):
        low, high = [], []
        for i in range(60):
            members = [m for m in range(12) if i not in drawn[m].tolist()]
            if not members:
                low.append(-math.inf)
                high.append(math.inf)
                continue
            residual = abs(float(y[i]) - float(train[members, i].mean()))
            low.append(float(test[members, j].mean()) - residual)
            high.append(float(test[members, j].mean()) + residual)
        lower.append(sorted(low)[math.floor(0.2 * 61) - 1])
        upper.append(sorted(high)[math.ceil(0.8 * 61) - 1])
    made = promise.interval(ensemble.predict(new))
    np.testing.assert_allclose(made[0], lower, rtol=1e-5)
    np.testing.assert_allclose(made[1], upper, rtol=1e-5)


def test_members_train_on_their_own_resample():
    """A member never sees what it left out: changing those targets changes nothing in it."""
    from bayesify.decisions.jackknife import left_out

    x, y = curve(80, 1)
    outside = left_out(0, 2, 80)
    assert 0.25 < float(outside.double().mean()) < 0.5  # about 1/e
    weights = []
    for change in (0.0, 100.0):
        torch.manual_seed(0)
        ensemble = bf.Ensemble(bf.networks.mlp(1, 1, units=4), "gaussian:0.3", members=2, bootstrap=True)
        ensemble.fit((x, y + change * outside[0]), epochs=2, progress=False, compiled=False)
        weights.append(ensemble.theta.detach().clone())
    assert torch.equal(weights[0][0], weights[1][0])
    assert not torch.equal(weights[0][1], weights[1][1])


def test_jackknife_plus_needs_its_own_training_data():
    x, y = curve(60, 1)
    plain = bf.Ensemble(bf.networks.mlp(1, 1, units=4), "gaussian:0.3", members=12)
    with pytest.raises(ValueError, match="bootstrap=True"):
        bf.conformal(plain, (x, y), kind="jackknife+")
    ensemble = bf.Ensemble(bf.networks.mlp(1, 1, units=4), "gaussian:0.3", members=2, bootstrap=True)
    ensemble.fit((x, y), epochs=1, progress=False, compiled=False)
    with pytest.raises(ValueError, match="not the training data"):
        bf.conformal(ensemble, (x.flip(0), y.flip(0)), kind="jackknife+")
    with pytest.raises(ValueError, match="left out by no member"):
        bf.conformal(ensemble, (x, y), kind="jackknife+")


@pytest.mark.parametrize("series", ["drifting", "adversarial"])
def test_adaptive_intervals_keep_the_long_run_coverage(series):
    """The bound of the theorem holds for any series, also for one that is made against it."""
    torch.manual_seed(0)
    steps = 1500
    line = bf.PointEstimate(bf.networks.mlp(1, 1, units=2), "gaussian:1")
    predictive = line.predict(torch.zeros(steps, 1))
    growth = (
        torch.linspace(1, 30, steps)
        if series == "drifting"
        else (-1.0) ** torch.arange(steps) * 2.0 ** (torch.arange(steps) // 100)
    )
    targets = predictive.mean + growth * torch.randn(steps)
    made = adaptive_conformal(predictive, targets, alpha=0.1, step=0.05, window=100)
    assert abs(float((~made.covered).double().mean()) - 0.1) <= made.bound + 1e-9
    assert made.bound < 0.02
    inside = (made.lower <= targets) & (targets <= made.upper)
    assert torch.equal(inside, made.covered)


def test_an_interval_needs_a_mean_and_a_deviation():
    adaptive = AdaptiveConformal()
    for mean, std in ((float("nan"), 1.0), (0.0, -1.0), (0.0, float("inf"))):
        with pytest.raises(ValueError, match="mean and std must be finite, std at least 0"):
            adaptive.interval(mean, std)


def test_too_few_examples_are_refused_with_the_number_needed(classifier):
    with pytest.raises(ValueError, match="at least 99 calibration examples, got 98"):
        bf.conformal(classifier, cloud(98, 1), alpha=0.01)
    assert bf.conformal(classifier, cloud(99, 1), alpha=0.01).thresholds[0] < 1.0
    x, y = cloud(60, 1)
    keep = (y != 2) | (torch.arange(60) < 12)
    with pytest.raises(ValueError, match=r"at least 9 .* of each, class 2 has"):
        bf.conformal(classifier, (x[keep], y[keep]), alpha=0.1, class_conditional=True)


@pytest.mark.parametrize(
    "promise",
    [
        bf.conformal,
        lambda bnn, data: bf.calibrate(bnn, data, max_error=0.3),
        bf.recalibrate,
    ],
)
def test_labels_that_are_no_class_are_refused(classifier, promise):
    x, y = cloud(200, 5)
    with pytest.raises(ValueError, match="labels must be from 0 to 2, got 3"):
        promise(classifier, (x, y + 1))


def test_a_kind_that_does_not_fit_is_refused(classifier, regressor):
    with pytest.raises(ValueError, match="split is not for a method that predicts classes"):
        bf.conformal(classifier, cloud(50, 1), kind="split")
    with pytest.raises(ValueError, match="lac is not for a method that predicts numbers"):
        bf.conformal(regressor, curve(50, 1), kind="lac")
    with pytest.raises(ValueError, match=r"unknown kind 'apps'"):
        bf.conformal(classifier, cloud(50, 1), kind="apps")
    with pytest.raises(ValueError, match=r"use interval"):
        bf.conformal(regressor, curve(50, 1)).sets(regressor.predict(torch.zeros(1, 1)))
    with pytest.raises(ValueError, match="penalty must be a finite number of at least 0, got nan"):
        bf.conformal(classifier, cloud(50, 1), kind="raps", penalty=float("nan"))
    x, y = curve(50, 1)
    with pytest.raises(ValueError, match=r"one value per input, 50, got \[50, 2\]"):
        bf.conformal(regressor, (x, y.reshape(-1, 1).repeat(1, 2)))
    with pytest.raises(ValueError, match=r"alpha must be below 0\.5, got 0\.5"):
        bf.conformal(regressor, (x, y), alpha=0.5, kind="jackknife+")


def test_targets_of_which_a_limit_is_known_are_refused():
    torch.manual_seed(0)
    x = torch.rand(60, 1)
    y = (2 * x[:, 0] - 0.3).clamp(min=0.0)
    bnn = bf.PointEstimate(bf.networks.mlp(1, 1, units=4), "censored:0,none")
    bnn.fit((x, y), epochs=1, progress=False)
    said = f"{int((y == 0).sum())} of 60 calibration targets are censored: leave them out"
    for guarantee in (
        lambda: bf.conformal(bnn, (x, y)),
        lambda: bf.calibrate(bnn, (x, y), max_error=0.2, tolerance=1.0),
        lambda: bf.recalibrate(bnn, (x, y)),
    ):
        with pytest.raises(ValueError, match=said):
            guarantee()
    seen = y > 0
    lower, upper = bf.conformal(bnn, (x[seen], y[seen])).interval(bnn.predict(x))
    assert bool((lower < upper).all())


def test_a_promise_travels_with_the_run(classifier, tmp_path):
    promise = bf.conformal(classifier, cloud(200, 1), kind="raps", alpha=0.2)
    loaded = bf.load(classifier.save(tmp_path / "run"))
    assert conformal_of(loaded) == promise
    x, _ = cloud(50, 2)
    assert torch.equal(conformal_of(loaded).sets(loaded.predict(x)), promise.sets(classifier.predict(x)))


def test_covers_takes_targets_in_a_column(classifier, regressor):
    for method, make in ((regressor, curve), (classifier, cloud)):
        promise = bf.conformal(method, make(200, 1), alpha=0.2)
        x, y = make(100, 2)
        by_hand = covered(promise, method, x, y)
        predicted = method.predict(x)
        assert torch.equal(promise.covers(predicted, y.reshape(-1, 1)), by_hand)
        assert torch.equal(promise.covers(predicted, y), by_hand)
        assert 0.6 < float(by_hand.double().mean()) < 0.95
        with pytest.raises(ValueError, match=r"one value per input, 100, got \[99\]"):
            promise.covers(predicted, y[1:])
    with pytest.raises(ValueError, match="labels must be from 0 to 2, got 3 to 5"):
        promise.covers(predicted, y + 3)


@pytest.mark.parametrize(
    "change", [{"thresholds": 1}, {"thresholds": [10**400]}, {"residuals": "x"}, {"rank": 1 << 70}]
)
def test_a_promise_with_fields_of_another_type_is_refused(classifier, change):
    bf.conformal(classifier, cloud(400, 1), alpha=0.1)
    classifier.guarantees["conformal"]["promise"] |= change
    with pytest.raises(bf.RunError, match="a saved guarantee cannot be read"):
        conformal_of(classifier)
    classifier.guarantees.clear()
