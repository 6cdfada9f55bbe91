"""Simple models beside a network, and scores that a rare class cannot hide behind."""

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

import bayesify as bf
from bayesify import metrics
from bayesify.evaluation.baselines import beaten_by, train_baselines, training_nll, worse_than_constant
from bayesify.evaluation.imbalance import never_predicted


@pytest.fixture(scope="module")
def predictions():
    random = np.random.default_rng(0)
    probs = random.dirichlet((2.0, 1.0, 0.5), 200)
    return probs, random.choice(3, 200, p=[0.8, 0.15, 0.05])


def test_scores_of_classes_are_scikit_learn_s(predictions):
    probs, truth = predictions
    labels = probs.argmax(1)
    np.testing.assert_array_equal(metrics.confusion_matrix(probs, truth), reference.confusion_matrix(truth, labels))
    np.testing.assert_allclose(
        metrics.recall_by_class(probs, truth), reference.recall_score(truth, labels, average=None)
    )
    assert metrics.balanced_accuracy(probs, truth) == pytest.approx(reference.balanced_accuracy_score(truth, labels))
    assert metrics.roc_auc(probs, truth) == pytest.approx(reference.roc_auc_score(truth, probs, multi_class="ovr"))
    assert metrics.base_rate(truth) == np.mean(truth == 0)
    # A class without examples has no recall and no area; it does not spoil those of the others.
    seen = truth < 2
    assert np.isnan(metrics.recall_by_class(probs[seen], truth[seen])[2])
    assert 0 < metrics.balanced_accuracy(probs[seen], truth[seen]) < 1
    assert 0 < metrics.roc_auc(probs[seen], truth[seen]) < 1
    assert np.isnan(metrics.roc_auc(probs[:3], [0, 0, 0]))


def test_a_class_that_is_never_predicted_is_named():
    outputs = torch.tensor([[[3.0, 0.0]]]).expand(1, 20, 2)
    predictive = bf.Predictive(outputs, bf.likelihoods.Categorical(), class_names=("stay", "leave"))
    labels = torch.zeros(20, dtype=torch.int64)
    labels[:3] = 1
    evaluation = bf.evaluation.score(predictive, labels)
    assert evaluation.recall == {"stay": 1.0, "leave": 0.0}
    assert evaluation.confusion == [[17, 0], [3, 0]]
    assert "never predicts 'leave' (3 of 20 examples); the commonest class alone is 85.0%" in never_predicted(
        evaluation
    )
    assert never_predicted(bf.evaluation.score(predictive, torch.zeros(20, dtype=torch.int64))) is None
    assert "recall of leave" in str(evaluation)
    assert "<td>recall of leave</td>" in evaluation._repr_html_()


def test_gradient_boosting_beats_a_constant_network_and_not_the_truth():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=generator)
    y = (x[:, 0] * x[:, 1]).double()
    train, test = (x[:300], y[:300]), (x[300:], y[300:])
    constant, linear, boosting = train_baselines("regression", train, test)
    assert boosting.scores["rmse"] < 0.7 * constant.scores["rmse"]
    assert linear.scores["rmse"] > 0.9 * constant.scores["rmse"]  # a product is not linear
    likelihood = bf.likelihoods.Gaussian(0.5)
    lazy = bf.Predictive(torch.zeros(1, 100, 1), likelihood)
    exact = bf.Predictive(test[1].float().reshape(1, 100, 1), likelihood)
    sentence = beaten_by(lazy, test[1], (constant, linear, boosting))
    assert sentence.startswith("gradient boosting predicts better: RMSE")
    assert f"{boosting.scores['rmse']:.4g} against {float(test[1].square().mean().sqrt()):.4g}" in sentence
    assert beaten_by(exact, test[1], (constant, linear, boosting)) is None


def test_balanced_baselines_look_for_the_rare_class():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 2, generator=generator)
    y = torch.zeros(600, dtype=torch.int64)
    y[:60] = 1
    x[:60] += 1.0
    plain = train_baselines("classification", (x, y), (x, y))[1]
    balanced = train_baselines("classification", (x, y), (x, y), balanced=True)[1]
    assert balanced.scores["balanced_accuracy"] > plain.scores["balanced_accuracy"] + 0.1


def two_classes(count, share):
    """Labels, and predictions that give the true class a probability of `share`."""
    labels = torch.arange(count) % 2
    probs = torch.full((1, count, 2), 1 - share, dtype=torch.float64)
    probs[0, torch.arange(count), labels] = share
    return bf.Predictive(probs.log(), bf.likelihoods.Categorical()), labels


def test_a_network_that_overfitted_is_not_told_to_train_longer():
    generator = torch.Generator().manual_seed(0)
    predictive, labels = two_classes(100, 0.4)
    x = 2.0 * labels[:, None] - 1 + torch.randn(100, 1, generator=generator)
    models = train_baselines("classification", (x, labels), (x, labels))[:2]
    assert "it overfitted (its NLL on training data is 0.01)" in beaten_by(predictive, labels, models, 0.01)
    for nll in (None, 0.9):
        assert "train longer, change the network" in beaten_by(predictive, labels, models, nll)
    # Numbers: the error of the linear model is 0.1, so that a training NLL of -2 is far below its NLL.
    y = x[:, 0].double() + 0.1 * torch.randn(100, generator=generator)
    lazy = bf.Predictive(torch.zeros(1, 100, 1), bf.likelihoods.Gaussian(0.5))
    models = train_baselines("regression", (x, y), (x, y))[:2]
    assert "it overfitted" in beaten_by(lazy, y, models, -2.0)
    assert "train longer" in beaten_by(lazy, y, models, 0.0)


def test_predictions_worse_than_the_best_constant_are_an_alert_beyond_chance():
    assert "worse than a constant prediction: its NLL on 100 test examples is 0.9163" in worse_than_constant(
        *two_classes(100, 0.4)
    )
    assert "it overfitted (its NLL on training data is 0.01)" in worse_than_constant(*two_classes(100, 0.4), 0.01)
    assert "; train longer; or the inputs" in worse_than_constant(*two_classes(100, 0.4), 0.9)
    assert "; it may have overfitted; or the inputs" in worse_than_constant(*two_classes(100, 0.4))
    assert worse_than_constant(*two_classes(100, 0.6)) is None
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(1, 20, 2, generator=generator)  # of 20 examples a guess may be right or wrong
    assert worse_than_constant(bf.Predictive(0.1 * outputs, bf.likelihoods.Categorical()), torch.arange(20) % 2) is None


def test_the_training_nll_is_that_of_the_epoch_that_was_kept(blobs):
    kept = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
    kept.fit(blobs, validation=blobs, keep="best", epochs=3, learning_rate=1e-9, progress=False)
    for record, score in zip(kept.history.records, (0.3, 0.1, 0.2), strict=True):
        record["validation_nll"], record["nll"] = score, 2 * score
    assert training_nll(kept) == 0.2
    weighted = bf.PointEstimate(
        bf.networks.mlp(2, 3, units=8), bf.likelihoods.Categorical(class_weights=[1.0, 2.0, 3.0])
    )
    weighted.fit(blobs, epochs=1, progress=False)
    assert training_nll(weighted) is None
