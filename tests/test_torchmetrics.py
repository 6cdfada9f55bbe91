"""The torchmetrics of this package: the same numbers as the functions, in any batches and over processes."""

import importlib
import sys

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.evaluation import score

torchmetrics = pytest.importorskip(
    "torchmetrics", reason="torchmetrics is missing: pip install 'bayesify[torchmetrics]'"
)
from bayesify import torchmetrics as ours  # noqa: E402

CLASSIFIER = {"nll": ours.NLL, "brier": ours.Brier, "ece": ours.ECE}
REGRESSOR = {"nll": ours.NLL, "crps": ours.CRPS, "coverage_95": ours.IntervalCoverage}


@pytest.fixture(scope="module")
def classes():
    """Uncertain predictions of three classes, and their labels."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(8, 50, 3, generator=generator)
    return bf.Predictive(outputs, bf.likelihoods.Categorical()), torch.randint(3, (50,), generator=generator)


@pytest.fixture(scope="module")
def numbers():
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(8, 50, 1, generator=generator)
    return bf.Predictive(outputs, bf.likelihoods.Gaussian(0.7)), torch.randn(50, 1, generator=generator)


def in_batches(metric, prediction, targets, sizes=(7, 20, 1, 22)):
    start = 0
    for size in sizes:
        metric.update(prediction[start : start + size], targets[start : start + size])
        start += size
    return metric


@pytest.mark.parametrize("name", CLASSIFIER)
def test_classes_have_the_scores_of_evaluate(name, classes):
    prediction, labels = classes
    expected = getattr(score(prediction, labels), name)
    metric = in_batches(CLASSIFIER[name](), prediction, labels)
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-6)
    metric.reset()
    metric.update(prediction.probs, labels)  # of any model
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", REGRESSOR)
def test_numbers_have_the_scores_of_evaluate(name, numbers):
    prediction, targets = numbers
    metric = in_batches(REGRESSOR[name](), prediction, targets)
    assert float(metric.compute()) == pytest.approx(getattr(score(prediction, targets), name), abs=1e-6)


def test_pairs_of_tensors_are_taken_too(numbers):
    prediction, targets = numbers
    metric = ours.IntervalCoverage()
    metric.update(prediction.interval(0.95), targets)
    assert float(metric.compute()) == pytest.approx(score(prediction, targets).coverage_95)
    metric = ours.CRPS()
    metric.update((prediction.mean, prediction.std), targets)
    assert float(metric.compute()) == pytest.approx(
        bf.metrics.crps(prediction.mean[None], prediction.std[None], targets), abs=1e-9
    )


def test_ece_is_that_of_torchmetrics_itself(classes):
    prediction, labels = classes
    theirs = torchmetrics.classification.MulticlassCalibrationError(num_classes=3, n_bins=10)
    theirs.update(prediction.probs, labels)
    assert float(in_batches(ours.ECE(bins=10), prediction, labels).compute()) == pytest.approx(
        float(theirs.compute()), abs=1e-6
    )


def test_auroc_by_any_uncertainty(classes):
    prediction, labels = classes
    wrong = prediction.labels != labels
    for by in ("entropy", "epistemic", "confidence"):
        metric = in_batches(ours.UncertaintyAUROC(by), prediction, wrong)
        certainty = prediction.certainty(by)
        assert float(metric.compute()) == pytest.approx(bf.metrics.auroc(-certainty[~wrong], -certainty[wrong]))
    metric = ours.UncertaintyAUROC()
    metric.update(prediction.entropy, torch.zeros(50, dtype=torch.bool))
    assert torch.isnan(metric.compute())


def test_labels_that_are_ignored_do_not_count(classes):
    prediction, labels = classes
    ignored = labels.clone()
    ignored[10:] = -100
    for kind in (ours.Brier, ours.ECE):
        metric, alone = kind(), kind()
        metric.update(prediction, ignored)
        alone.update(prediction[:10], labels[:10])
        assert float(metric.compute()) == pytest.approx(float(alone.compute()))


def test_collections_keep_them_apart(classes):
    prediction, labels = classes
    scores = torchmetrics.MetricCollection({name: kind() for name, kind in CLASSIFIER.items()})
    # Perfect predictions first: all sums are zero, and no state may be shared for that.
    scores.update(torch.eye(3), torch.arange(3))
    scores.update(prediction, labels)
    for name, kind in CLASSIFIER.items():
        alone = kind()
        alone.update(torch.eye(3), torch.arange(3))
        alone.update(prediction, labels)
        assert float(scores.compute()[name]) == pytest.approx(float(alone.compute()))


def test_a_step_returns_its_own_score_and_keeps_the_total(classes):
    prediction, labels = classes
    metric = ours.NLL()
    first = metric(prediction[:20], labels[:20])
    assert float(first) == pytest.approx(-float(prediction[:20].log_prob(labels[:20]).mean()))
    metric(prediction[20:], labels[20:])
    assert float(metric.compute()) == pytest.approx(-float(prediction.log_prob(labels).mean()))


def gathering(other):
    """What a sync between two processes calls for each state: the states of both, in the same order."""
    states = [getattr(other, name) for name in other._reductions]
    rest = iter([torch.cat(state) if isinstance(state, list) else state for state in states])
    return lambda value, group=None: [value, next(rest)]


@pytest.mark.parametrize("kind", [*CLASSIFIER.values(), ours.UncertaintyAUROC])
def test_two_processes_give_the_score_of_all_examples(kind, classes):
    prediction, labels = classes
    if kind is ours.UncertaintyAUROC:
        labels = prediction.labels != labels
    whole, second = kind(), kind()
    whole.update(prediction, labels)
    in_batches(second, prediction[13:], labels[13:], (20, 17))
    first = kind(dist_sync_fn=gathering(second), distributed_available_fn=lambda: True)
    first.update(prediction[:13], labels[:13])
    assert float(first.compute()) == pytest.approx(float(whole.compute()), abs=1e-6)


def test_mistakes_are_one_line(classes, numbers):
    prediction, labels = classes
    with pytest.raises(ValueError, match="CRPS is for predicted numbers, this prediction is of classification"):
        ours.CRPS().update(prediction, labels)
    with pytest.raises(ValueError, match="one row per input, 50, got 3"):
        ours.CRPS().update(numbers[0], torch.zeros(3, 1))
    with pytest.raises(ValueError, match="labels must be from 0 to 2, got 5"):
        ours.ECE().update(prediction, torch.full((50,), 5))
    with pytest.raises(ValueError, match="integers from 0 to 2, got 5 to 5"):
        ours.NLL().update(prediction.probs, torch.full((50,), 5))
    with pytest.raises(TypeError, match="or a pair of lower and upper ends, got Tensor"):
        ours.IntervalCoverage().update(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="one flag for each input, 50, got 4"):
        ours.UncertaintyAUROC().update(prediction, torch.zeros(4))
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 95"):
        ours.IntervalCoverage(95)
    with pytest.raises(ValueError, match="must hold True and False"):
        ours.UncertaintyAUROC().update(prediction, labels)


def test_a_fitted_network_is_scored_batch_by_batch(blobs):
    torch.manual_seed(0)
    bnn = bf.Variational(nn.Linear(2, 3), "categorical")
    bnn.fit(blobs, epochs=2, progress=False)
    metric = ours.NLL()
    for x, y in zip(blobs[0].split(40), blobs[1].split(40), strict=True):
        metric.update(bnn.predict(x), y)
    assert float(metric.compute()) == pytest.approx(bf.evaluate(bnn, blobs).nll, abs=1e-6)


def test_without_the_library_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "bayesify.torchmetrics")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bayesify\[torchmetrics\]'"):
        importlib.import_module("bayesify.torchmetrics")
