"""Promised errors are kept at the promised rate, and promises that the data cannot support are refused."""

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify.decisions import refusal_of, sequential_tests


def broken(error_at, examples, max_error, risk, repeats, seed=0):
    """Of how many calibration sets the promise is broken, and the mean coverage where one is made.

    Certainties are uniform, and a prediction of certainty c is wrong with probability `error_at(c)`.
    """
    generator = np.random.default_rng(seed)
    grid = (np.arange(200_000) + 0.5) / 200_000
    # Error of accepting everything above each point of the grid.
    above = np.cumsum(error_at(grid)[::-1])[::-1] / np.arange(len(grid), 0, -1)
    count, coverages = 0, []
    for _ in range(repeats):
        certainty = generator.random(examples)
        wrong = generator.random(examples) < error_at(certainty)
        found = sequential_tests.loosest(certainty, wrong, max_error, risk)
        if found is None:
            continue
        left_out = np.sort(certainty)[::-1][found.count] if found.count < examples else 0.0
        count += above[min(int(left_out * len(grid)), len(grid) - 1)] > max_error
        coverages.append(found.count / examples)
    return count, np.mean(coverages) if coverages else 0.0


POPULATIONS = {
    "falls": lambda c: 0.4 * (1 - c) ** 2,
    "just above the bound everywhere": lambda c: np.full_like(c, 0.0502),
    "jumps at the bound": lambda c: np.where(c > 0.3, 0.0499, 0.5),
    "confident and wrong": lambda c: np.where(c > 0.95, 0.2, 0.03),
    "a few are easy": lambda c: np.where(c > 0.94, 0.01, 0.6),
}


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("examples", [300, 1200])
def test_a_promise_is_broken_no_more_often_than_promised(name, examples):
    repeats, risk = 600, 0.05
    count, _ = broken(POPULATIONS[name], examples, 0.05, risk, repeats)
    # One chance in a thousand that a valid procedure fails here.
    assert count <= stats.binom.ppf(0.999, repeats, risk)


def test_the_promise_is_not_empty():
    _, coverage = broken(POPULATIONS["falls"], 4000, 0.05, 0.05, 50)
    # The best threshold accepts a share of sqrt(3 * 0.05 / 0.4) = 0.61.
    assert 0.5 < coverage < 0.62


def test_a_small_easy_part_of_a_hard_problem_is_accepted():
    """Most predictions are wrong, also among the most certain eighth; only the most certain 6% are good."""
    count, coverage = broken(POPULATIONS["a few are easy"], 6000, 0.05, 0.05, 200)
    assert 0.04 < coverage < 0.07
    assert count <= stats.binom.ppf(0.999, 200, 0.05)


def test_the_number_needed_counts_a_small_easy_part():
    generator = np.random.default_rng(0)
    certainty = generator.random(2400)
    wrong = generator.random(2400) < POPULATIONS["a few are easy"](certainty)
    assert sequential_tests.loosest(certainty, wrong, 0.05, 0.05) is None
    needed = sequential_tests.examples_needed(certainty, wrong, 0.05, 0.05)
    assert 2400 < needed < 15_000
    _, coverage = broken(POPULATIONS["a few are easy"], needed, 0.05, 0.05, 50)
    assert coverage > 0.03


def test_without_the_order_of_tests_the_promise_would_break():
    """The test has the power to see a wrong procedure: taking the loosest threshold that passes on its own."""
    generator = np.random.default_rng(0)
    wrong_sets = 0
    for _ in range(300):
        certainty, wrong = generator.random(2000), generator.random(2000) < 0.0502
        counts, errors = sequential_tests.candidates(certainty, wrong)
        passed = stats.binom.cdf(errors, counts, 0.05) <= 0.05
        wrong_sets += bool(passed[60:].any())
    assert wrong_sets > 2 * stats.binom.ppf(0.999, 300, 0.05)


def test_smallest_sample_is_exact():
    needed = sequential_tests.smallest_sample(0.01, 0.05)
    assert needed == 299
    assert 0.99**needed <= 0.05 < 0.99 ** (needed - 1)


def test_equal_certainties_are_accepted_together():
    certainty = np.array([0.9, 0.9, 0.8, 0.8, 0.8, 0.1])
    counts, errors = sequential_tests.candidates(certainty, np.array([0, 1, 0, 0, 1, 1], bool))
    assert counts.tolist() == [2, 5, 6]
    assert errors.tolist() == [1, 2, 3]


def cloud(examples, seed):
    """Two overlapping clouds."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (examples,), generator=generator)
    return torch.randn(examples, 2, generator=generator) + 2.2 * y[:, None], y


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    ensemble = bf.Ensemble(bf.networks.mlp(2, 2, units=8), "categorical", members=3)
    ensemble.fit(cloud(400, 0), epochs=30, learning_rate=0.02, progress=False, compiled=False)
    return ensemble


def test_accepted_predictions_have_at_most_the_promised_error(classifier):
    refusal = bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    x, y = cloud(20_000, 2)
    predictive = classifier.predict(x)
    accepted = refusal.accept(predictive)
    wrong = refusal.wrong(predictive, y)[accepted]
    assert wrong.double().mean() <= 0.02
    assert abs(float(accepted.double().mean()) - refusal.coverage) < 0.05
    assert (predictive.labels != y).double().mean() > 0.03  # without refusing, it would be broken


def test_a_promise_travels_with_the_run(classifier, tmp_path):
    refusal = bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    bf.calibrate(classifier, cloud(2000, 1), max_error=0.04)
    loaded = bf.load(classifier.save(tmp_path / "run"))
    again = refusal_of(loaded, max_error=0.03)
    assert again == refusal
    x, _ = cloud(100, 3)
    assert torch.equal(again.accept(loaded.predict(x)), refusal.accept(classifier.predict(x)))
    assert refusal_of(loaded).max_error == 0.04
    with pytest.raises(ValueError, match=r"was not guaranteed for this run, only 0\.02, 0\.04"):
        refusal_of(loaded, max_error=0.001)


def test_a_guarantee_is_about_one_recalibration(classifier, tmp_path):
    """A temperature moves every confidence: the old threshold would accept other inputs."""
    refusal = bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    x, _ = cloud(50, 2)
    other = bf.load(classifier.save(tmp_path / "run"))
    assert torch.equal(refusal_of(other).accept(other.predict(x)), refusal.accept(classifier.predict(x)))
    bf.recalibrate(other, cloud(500, 3))
    with pytest.raises(ValueError, match="another recalibration: calibrate again"):
        refusal.accept(other.predict(x))
    again = bf.calibrate(other, cloud(2000, 4), max_error=0.02)
    assert again.accept(bf.load(other.save(tmp_path / "again")).predict(x)).any()
    classifier.guarantees.clear()


def test_a_guarantee_of_an_earlier_version_is_read(classifier):
    """It does not say which recalibration it was made with."""
    bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    del classifier.guarantees["refusal"]["promises"][-1]["provenance"]["recalibration"]
    assert refusal_of(classifier).accept(classifier.predict(cloud(50, 2)[0])).any()
    classifier.guarantees.clear()


def test_inputs_in_place_of_predictions_are_refused(classifier):
    refusal = bf.calibrate(classifier, cloud(2000, 1), max_error=np.float32(0.02))
    with pytest.raises(TypeError, match=r"give predictions, bnn.predict\(x, ...\), not inputs: got Tensor"):
        refusal.accept(cloud(50, 2)[0])
    classifier.guarantees.clear()


def test_training_further_ends_the_promise(classifier, tmp_path):
    bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    other = bf.load(classifier.save(tmp_path / "run"))
    other.fit(cloud(100, 5), epochs=1, progress=False, compiled=False)
    assert other.guarantees == {}
    other.save(tmp_path / "run")
    assert not (tmp_path / "run" / "guarantees.json").exists()


def test_a_changed_file_is_noticed(classifier, tmp_path):
    bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    run = classifier.save(tmp_path / "run")
    file = run / "guarantees.json"
    file.write_text(file.read_text().replace('"max_error": 0.02', '"max_error": 0.001'))
    with pytest.raises(bf.RunError, match="does not have its checksum"):
        bf.load(run)


def test_other_weights_are_noticed(classifier, tmp_path):
    bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    run = classifier.save(tmp_path / "run")
    other = bf.load(run)
    with torch.no_grad():
        other.theta[0, 0] += 1.0
    other.guarantees = {}
    other.save(tmp_path / "other")
    (run / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(bf.RunError, match="for other weights"):
        bf.load(run)


def test_other_draws_are_refused():
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 2, units=8), "categorical", prior="normal:1")
    bnn.fit(cloud(200, 0), epochs=60, learning_rate=0.05, progress=False, compiled=False)
    refusal = bf.calibrate(bnn, cloud(800, 1), max_error=0.1, draws=20, seed=3)
    x, _ = cloud(5, 2)
    assert refusal.accept(bnn.predict(x, draws=20, seed=3)).shape == (5,)
    with pytest.raises(ValueError, match="20 draws, got 100"):
        refusal.accept(bnn.predict(x))
    with pytest.raises(ValueError, match="seed 3"):
        refusal.accept(bnn.predict(x, draws=20))
    # As many outputs as `by="moments"` has: the number of draws alone does not tell them apart.
    moments = bnn.predict(x, by="moments")
    same_number = bf.calibrate(bnn, cloud(800, 1), max_error=0.1, draws=moments.draws)
    for other in (moments, moments[:2], moments.with_outputs(moments.outputs.double())):
        with pytest.raises(
            ValueError, match=r'by="draws", got by="moments": predict with by="draws", draws=64, seed=0'
        ):
            same_number.accept(other)


def test_too_few_examples_are_refused_with_the_number_needed(classifier):
    with pytest.raises(ValueError, match="at least 2,995 calibration examples, got 100"):
        bf.calibrate(classifier, cloud(100, 1), max_error=0.001)
    with pytest.raises(ValueError, match=r"about [\d,]+ would be needed"):
        bf.calibrate(classifier, cloud(310, 4), max_error=0.01)


def test_an_estimator_of_scikit_learn_is_told_where_its_method_is(classifier):
    estimator = bf.sklearn.BayesianClassifier()
    estimator.method_ = classifier
    x, y = cloud(100, 1)
    steps = (bf.calibrate, bf.conformal, bf.recalibrate, bf.ask, bf.UnknownInputs)
    for step in steps:
        data = x if step in steps[3:] else (x, y)
        with pytest.raises(
            TypeError, match=r"^the first argument must be a fitted method, got .*: give its method_, and"
        ):
            step(estimator, data)
        with pytest.raises(TypeError, match=r"fitted method, got NoneType$"):
            step(None, data)


def test_labels_that_are_none_are_refused(classifier):
    x, y = cloud(300, 1)
    holes = torch.where(torch.arange(300) < 5, -100, y)
    for step in (bf.calibrate, bf.conformal, bf.recalibrate):
        with pytest.raises(ValueError, match=r"^5 of 300 calibration examples have no label \(-100\): leave them out$"):
            step(classifier, (x, holes))
        with pytest.raises(ValueError, match="got class probabilities: give the true class of each"):
            step(classifier, (x, torch.eye(2)[y]))
        with pytest.raises(ValueError, match="got 7"):
            step(classifier, (x, y + 6))


@pytest.mark.parametrize(
    ("bound", "examples", "ranks"),
    [(0.1, 200, range(10, 110, 20)), (0.05, 1000, range(5, 480, 25)), (0.02, 400, [30, 60])],
)
def test_the_number_that_would_be_needed_is_enough(bound, examples, ranks):
    """Errors among the most certain half: the whole sample errs rarely, and the first test fails all the same."""

    def found(count):
        """With as many examples, and errors at the same shares of the ranks."""
        places = np.linspace(0, 1, round(len(ranks) * count / examples))
        wrong = np.zeros(count, bool)
        wrong[(np.interp(places, np.linspace(0, 1, len(ranks)), ranks) * count / examples).astype(int)] = True
        certainty = np.linspace(1, 0.5, count)
        needed = sequential_tests.examples_needed(certainty, wrong, bound, 0.05)
        return sequential_tests.loosest(certainty, wrong, bound, 0.05), needed

    accepted, needed = found(examples)
    assert accepted is None
    assert examples < needed < 10 * examples
    assert found(needed)[0] is not None


def test_an_error_that_cannot_be_met_is_refused():
    torch.manual_seed(0)
    x = torch.randn(2000, 2)
    y = torch.randint(0, 2, (2000,))
    point = bf.PointEstimate(bf.networks.mlp(2, 2, units=4), "categorical")
    words = r"cannot be met by refusing: [\d,]+ of 2,000 predictions are wrong, \d+ of the most certain 62 among them"
    with pytest.raises(ValueError, match=words):
        bf.calibrate(point, (x, y), max_error=0.05)


def test_numbers_are_wrong_beyond_a_tolerance():
    torch.manual_seed(0)
    x = torch.rand(6000, 1) * 2
    y = x[:, 0] + torch.randn(6000) * x[:, 0] * 0.3
    net = bf.networks.mlp(1, 2, units=16)
    point = bf.PointEstimate(net, "gaussian:heteroscedastic")
    point.fit((x[:2000], y[:2000]), epochs=40, learning_rate=0.01, progress=False, compiled=False)
    refusal = bf.calibrate(point, (x[2000:4000], y[2000:4000]), max_error=0.05, tolerance=0.5)
    predictive = point.predict(x[4000:])
    accepted = refusal.accept(predictive)
    assert 0.3 < float(accepted.double().mean()) < 1.0
    assert "(std <= " in refusal.certificate.promise
    everything = bf.calibrate(point, (x[2000:4000], y[2000:4000]), max_error=0.5, tolerance=0.5)
    assert everything.accept(predictive).all()
    assert "(all are accepted)" in everything.certificate.promise
    assert refusal.wrong(predictive, y[4000:])[accepted].double().mean() < 0.05
    with pytest.raises(ValueError, match="give tolerance="):
        bf.calibrate(point, (x[2000:4000], y[2000:4000]))


@pytest.mark.parametrize(("name", "value"), [("max_error", 0), ("max_error", 1.0), ("confidence", 95)])
def test_shares_are_between_0_and_1(classifier, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number between 0 and 1"):
        bf.calibrate(classifier, cloud(400, 1), **{name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": "0.5"},
        {"max_error": None},
        {"coverage": float("nan")},
        {"provenance": {}},
        {"accepted": True},
        {"accepted": 10**30},
        {"max_error": 10**400},
        {"extra": 1},
    ],
)
def test_a_promise_with_fields_of_another_type_is_refused(classifier, change):
    bf.calibrate(classifier, cloud(2000, 1), max_error=0.02)
    classifier.guarantees["refusal"]["promises"][-1] |= change
    with pytest.raises(bf.RunError, match="a saved guarantee cannot be read"):
        refusal_of(classifier)
    classifier.guarantees.clear()
