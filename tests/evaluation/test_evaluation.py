"""The record of an evaluation against scikit-learn, scipy and hand-computed cases."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

import bayesify as bf
from bayesify.evaluation import Evaluation, score
from bayesify.likelihoods import Bernoulli, Categorical, Gaussian, GaussianLogits, Poisson
from bayesify.predictive import Predictive


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def known():
    return Predictive(random(5, 40, 3, scale=2.0), Categorical())


@pytest.fixture
def labels():
    return torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(1))


def test_classification_matches_scikit_learn(known, labels):
    result = score(known, labels)
    probs, right = known.probs.numpy(), (known.labels == labels).numpy()
    assert (result.kind, result.examples, result.draws) == ("classification", 40, 5)
    assert result.accuracy == right.mean()
    assert result.error == pytest.approx(1 - right.mean())
    assert result.nll == pytest.approx(log_loss(labels, probs))
    assert result.brier == pytest.approx(np.square(probs - np.eye(3)[labels]).sum(1).mean())
    assert result.entropy == pytest.approx(stats.entropy(probs, axis=1).mean())
    assert result.aleatoric + result.epistemic == pytest.approx(result.entropy)
    surest = np.argsort(-probs.max(1))[:36]
    assert result.accuracy_at_90 == pytest.approx(right[surest].mean())
    risks = np.cumsum(~right[np.argsort(-probs.max(1))]) / np.arange(1, 41)
    assert result.aurc == pytest.approx(risks.mean())
    assert result.ranked_by == "confidence"
    assert result.auroc is result.rmse is result.crps is result.auroc_by is None


def test_unknown_inputs_are_positive_and_told_by_entropy_unless_asked(known, labels):
    unknown = Predictive(random(5, 30, 3, seed=2, scale=0.7), Categorical())
    result = score(known, labels, ood=unknown)
    truth = np.repeat([0, 1], [40, 30])
    entropy = np.concatenate((known.entropy, unknown.entropy))
    confidence = np.concatenate((known.confidence, unknown.confidence))
    assert result.auroc == pytest.approx(roc_auc_score(truth, entropy)) == result.auroc_by["entropy"]
    assert result.auroc > 0.6
    assert result.aupr == pytest.approx(average_precision_score(truth, entropy))
    assert result.auroc_by["confidence"] == pytest.approx(roc_auc_score(truth, -confidence))
    assert set(result.auroc_by) == {"confidence", "entropy", "aleatoric", "epistemic", "expected_error"}
    by_epistemic = score(known, labels, ood=unknown, score="epistemic")
    assert by_epistemic.auroc == result.auroc_by["epistemic"]
    assert by_epistemic.unknown_by == by_epistemic.ranked_by == "epistemic"
    assert by_epistemic.aurc != result.aurc
    assert score(known, labels, ood=unknown, score="std").auroc_by.keys() - result.auroc_by.keys() == {"std"}


def test_regression_matches_scipy():
    outputs, targets = random(4, 20, 1, scale=2.0), random(20, seed=1)
    result = score(Predictive(outputs, Gaussian(0.8)), targets, ood=Predictive(9 * outputs, Gaussian(0.8)))
    mean = outputs[..., 0].mean(0)
    density = stats.norm.pdf(targets, outputs[..., 0], 0.8).mean(0)
    assert result.nll == pytest.approx(-np.log(density).mean())
    assert result.rmse == pytest.approx((mean - targets).square().mean().sqrt().item())
    assert result.mae == pytest.approx((mean - targets).abs().mean().item())
    assert result.aleatoric == pytest.approx(0.64)
    assert result.epistemic == pytest.approx(outputs[..., 0].var(0, correction=0).mean().item())
    # The energy form by simulation; four standard errors, taken as if all inputs erred together.
    generator = np.random.default_rng(0)
    samples = generator.normal(outputs[..., 0].numpy(), 0.8, (4000, 4, 20)).reshape(-1, 20)
    distances = np.abs(samples - targets.numpy())
    pairs = np.abs(np.subtract(*np.split(generator.permutation(samples), 2)))
    error = distances.std(0).mean() / math.sqrt(16_000) + 0.5 * pairs.std(0).mean() / math.sqrt(8_000)
    assert result.crps == pytest.approx(distances.mean() - 0.5 * pairs.mean(), abs=4 * error)
    assert result.unknown_by == result.ranked_by == "variance"
    assert result.auroc > 0.8
    assert result.accuracy is result.entropy is result.accuracy_at_90 is None


def test_intervals_of_a_true_model_cover_at_their_level():
    # Targets drawn from the predictive itself: binomial(4000, 0.95), four standard errors are 0.0138.
    generator = np.random.default_rng(0)
    means = generator.normal(0, 2, (3, 4000))
    targets = generator.normal(means[generator.integers(0, 3, 4000), np.arange(4000)], 0.5)
    result = score(Predictive(torch.tensor(means)[..., None], Gaussian(0.5)), targets)
    assert result.coverage_95 == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


@pytest.mark.parametrize(("draws", "known", "unknown"), [(1, 40, 300), (10, 1001, 3), (10, 1, 7), (7, 64, 65)])
def test_noise_that_is_the_same_everywhere_tells_nothing_apart(draws, known, unknown):
    noise = Gaussian(1.0946495)
    parts = [Predictive(random(draws, n, 1, seed=n).float(), noise) for n in (known, unknown)]
    result = score(parts[0], random(known), ood=parts[1])
    assert result.auroc_by["aleatoric"] == 0.5
    assert result.auroc_by["variance"] == result.auroc_by["epistemic"]
    assert draws > 1 or result.auroc == 0.5


def test_counts_and_column_targets():
    outputs, targets = random(4, 20, 1), np.arange(20) % 5
    flat, column = (score(Predictive(outputs, Poisson()), y) for y in (targets, targets[:, None]))
    assert flat == column
    chance = stats.poisson.pmf(targets, outputs[..., 0].exp()).mean(0)
    assert flat.nll == pytest.approx(-np.log(chance).mean())
    counts = np.arange(200)
    cdf = stats.poisson.cdf(counts, outputs.exp()).mean(0)
    assert flat.crps == pytest.approx(np.square(cdf - (targets[:, None] <= counts)).sum(1).mean(), abs=1e-7)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets"),
    [
        (Categorical(), (1, 1, 1), [0]),
        (Categorical(), (1, 1, 3), [2]),
        (Categorical(), (3, 4, 2, 5), np.zeros((4, 5), dtype=int)),
        (Bernoulli(), (3, 4, 1), [0, 1, 1, 0]),
        (Bernoulli(), (3, 4, 2), [[0, 1]] * 4),
        (GaussianLogits(samples=10), (3, 4, 6), [0, 1, 2, 0]),
        (Gaussian("heteroscedastic"), (3, 4, 4), np.ones((4, 2))),
        (Gaussian("learned"), (1, 1, 1), [0.5]),
        (Poisson(), (3, 4), [0, 1, 2, 3]),
    ],
)
def test_every_kind_of_target_gives_finite_json_and_a_table(likelihood, outputs, targets):
    p = Predictive(random(*outputs), likelihood)
    result = score(p, targets, ood=p)
    again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert Evaluation(**again) == result
    assert result.auroc == pytest.approx(0.5)
    lines = str(result).splitlines()
    assert lines[0].split() == ["kind", p.kind]
    assert len({len(line) for line in lines}) == 1
    assert not any("None" in line for line in lines)
    assert p.outputs.shape[1] == result.examples


def test_perfect_and_hopeless_classifiers():
    outputs = 50.0 * torch.eye(3)[None]
    perfect = score(Predictive(outputs, Categorical()), [0, 1, 2])
    assert (perfect.accuracy, perfect.aurc, perfect.e_aurc, perfect.augrc, perfect.accuracy_at_90) == (
        1,
        0,
        0,
        0,
        1,
    )
    assert perfect.nll == pytest.approx(0.0, abs=1e-12)
    hopeless = score(Predictive(outputs, Categorical()), [1, 2, 0])
    assert (hopeless.accuracy, hopeless.error, hopeless.aurc, hopeless.accuracy_at_90) == (0, 1, 1, 0)
    assert hopeless.nll == pytest.approx(50.0)  # the probability itself would have been rounded to 2e-22
    assert hopeless.brier == pytest.approx(2.0)
    assert hopeless.ece == pytest.approx(1.0)


@pytest.fixture(scope="module")
def fitted():
    x = random(200, 2)
    method = bf.PointEstimate(torch.nn.Linear(2, 2).double(), Categorical())
    method.fit((x, (x[:, 0] > 0).long()), epochs=3, batch_size=50, learning_rate=0.1, progress=False)
    return method, x


def test_evaluate_is_the_score_of_what_the_method_predicts(fitted):
    method, x = fitted
    y, other = (x[:, 0] > 0).long(), 0.01 * random(30, 2, seed=4)
    expected = score(method.predict(x), y, method.predict(other)).with_checks(method)
    assert expected.warnings == method.warnings
    dataset = torch.utils.data.TensorDataset(x, y)
    for data in ((x, y), (x.numpy(), y.numpy()), dataset, torch.utils.data.DataLoader(dataset, batch_size=64)):
        for ood in (other, other.numpy()):
            assert bf.evaluate(method, data, ood=ood) == expected
    assert expected.unknown_by == "entropy"
    by_confidence = bf.evaluate(method, (x, y), ood=other, score="confidence")
    assert (by_confidence.unknown_by, by_confidence.auroc) == ("confidence", expected.auroc_by["confidence"])
    assert bf.evaluate(method, (x, y)).auroc is None
    with pytest.raises(ValueError, match="did you mean 'entropy'"):
        bf.evaluate(method, (x, y), ood=other, score="Entropi")


def test_scores_of_standardised_training_are_in_the_units_of_the_targets():
    # A straight line in kilograms: a network of order one answers in the hundreds.
    x = random(400, 1)
    y = 500 + 80 * x[:, 0] + 8 * random(400, seed=1)
    likelihood = Gaussian("learned", location=y.mean().item(), scale=y.std().item())
    method = bf.PointEstimate(torch.nn.Linear(1, 1).double(), likelihood)
    method.fit((x, y), epochs=60, batch_size=100, learning_rate=0.05, progress=False)
    result = bf.evaluate(method, (x, y))
    # Noise of 8 known from 400 examples to 3.5% a standard error; four of them.
    assert result.rmse == pytest.approx(8.0, rel=0.15)
    assert math.sqrt(result.aleatoric) == pytest.approx(8.0, rel=0.15)
    assert result.nll == pytest.approx(math.log(8.0) + 0.5 * math.log(2 * math.pi * math.e), abs=0.15)
    assert result.crps == pytest.approx(8.0 / math.sqrt(math.pi), rel=0.15)
    assert result.coverage_95 == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 400))


def test_mistakes_are_named(known, labels):
    broken = known.outputs.clone()
    broken[2, 5:7, 0] = math.nan
    with pytest.raises(ValueError, match="predictive holds NaN in 2 of its outputs, in 1 of 5 draws"):
        score(Predictive(broken, Categorical()), labels)
    with pytest.raises(ValueError, match="ood holds NaN"):
        score(known, labels, ood=Predictive(broken, Categorical()))
    with pytest.raises(ValueError, match="ood has no inputs"):
        score(known, labels, ood=known[0:0])
    with pytest.raises(ValueError, match="ood must be a classification predictive"):
        score(known, labels, ood=Predictive(torch.zeros(1, 2), Gaussian()))
    with pytest.raises(ValueError, match="one row per input, 40, got 39"):
        score(known, labels[1:])
    with pytest.raises(ValueError, match="from 0 to 2, got 7"):
        score(known, labels + 5)
    with pytest.raises(ValueError, match="did you mean 'confidence'"):
        score(known, labels, score="confidense")


def test_scores_of_targets_far_from_zero_are_those_of_the_same_targets_near_it():
    generator = torch.Generator().manual_seed(8)
    outputs, y = torch.randn(20, 200, 1, generator=generator), torch.randn(200, generator=generator).double()
    near = score(Predictive(outputs, Gaussian(0.8)), y)
    far = score(Predictive(outputs, Gaussian(0.8, location=1.7e9)), 1.7e9 + y)
    for name in ("rmse", "mae", "crps", "coverage_95", "nll", "aurc", "epistemic"):
        assert getattr(far, name) == pytest.approx(getattr(near, name), rel=1e-6), name
