"""Where the class axis is, labels that are not there, soft labels, balanced weights, several tags."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import bayesify as bf
from bayesify.likelihoods import Categorical, GaussianLogits, MultiLabel


@pytest.mark.parametrize("shape, axis", [((2, 7, 5), -1), ((2, 5, 7), 1), ((2, 5, 3, 4), 1), ((2, 3, 4, 5), -1)])
def test_the_class_axis_is_the_one_that_leaves_the_shape_of_the_labels(shape, axis):
    likelihood, outputs = Categorical(), torch.randn(3, *shape)
    dims = (7,) if len(shape) == 3 else (3, 4)
    labels = likelihood.prepare(torch.randint(5, (2, *dims)))
    likelihood.check_outputs(outputs[0], labels)
    assert likelihood.class_dim == axis
    assert likelihood.spec()["class_dim"] == axis
    expected = Categorical(class_dim=axis).log_prob(outputs, labels)
    torch.testing.assert_close(likelihood.log_prob(outputs, labels), expected)
    assert likelihood.probs(outputs).shape == (3, 2, *dims, 5)


def test_where_both_axes_fit_class_dim_is_asked_for():
    with pytest.raises(ValueError, match="class_dim"):
        Categorical().check_outputs(torch.zeros(2, 4, 4), torch.zeros(2, 4).long())
    with pytest.raises(ValueError, match="class_dim"):
        Categorical().probs(torch.zeros(1, 2, 4, 3))


@pytest.mark.parametrize("likelihood", [Categorical(), GaussianLogits(samples=20)], ids=["categorical", "logits"])
def test_ignored_labels_add_nothing(likelihood):
    torch.manual_seed(0)
    outputs = torch.randn(2, 3, 6, 8)
    labels = torch.randint(4, (3, 6))
    there = torch.rand(3, 6) < 0.6
    likelihood.class_dim = -1
    expected = []
    for row in range(3):
        kept = outputs[:, row : row + 1][:, :, there[row]]
        expected.append(likelihood.log_density(kept, labels[row : row + 1, there[row]]))
    found = likelihood.log_density(outputs, likelihood.prepare(torch.where(there, labels, -100)))
    torch.testing.assert_close(found, torch.cat(expected, 1))


def test_a_class_axis_is_a_number():
    with pytest.raises(TypeError, match="class_dim must be an axis such as 1 or -1, or None, got 'last'"):
        Categorical(class_dim="last")


def test_only_ignore_index_may_be_negative():
    with pytest.raises(ValueError, match="got -1"):
        Categorical().prepare([0, -1, 2])
    assert Categorical(ignore_index=-1).prepare([0, -1, 2]).tolist() == [0, -1, 2]
    with pytest.raises(ValueError, match="ignore_index must be below 0"):
        Categorical(ignore_index=255)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, tokens):
        return self.head(self.table(tokens))


METHODS = {
    "variational": lambda net: bf.Variational(net, "categorical", prior="normal:1"),
    "ivon": lambda net: bf.IVON(net, "categorical"),
    "ensemble": lambda net: bf.Ensemble(net, "categorical", members=2),
    "laplace": lambda net: bf.LaplaceApproximation(net, "categorical", subset="last_layer", structure="diagonal"),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_tagger_with_padding_trains_scores_and_loads(name, tmp_path):
    torch.manual_seed(0)
    tokens = torch.randint(1, 10, (64, 7))
    lengths = torch.randint(2, 8, (64, 1))
    padding = torch.arange(7) >= lengths
    labels = torch.where(padding, -100, tokens % 3)
    method = METHODS[name](Tagger())
    method.fit((tokens, labels), epochs=40, batch_size=16, learning_rate=0.05, progress=False, run=tmp_path / "run")
    result = bf.evaluate(method, (tokens, labels), draws=10)
    wrong = torch.where(padding, 0, labels)  # as if padding had the label 0
    assert result.accuracy > 0.95
    assert bf.evaluate(method, (tokens, wrong), draws=10).accuracy < result.accuracy
    again = bf.load(tmp_path / "run", network=Tagger())
    assert again.likelihood.class_dim == -1
    assert torch.equal(again.predict(tokens, draws=5).probs, method.predict(tokens, draws=5).probs)


def test_curvature_of_laplace_leaves_out_ignored_labels():
    torch.manual_seed(0)
    x, y = torch.randn(40, 2), torch.randint(3, (40,))
    there = torch.arange(40) < 25
    net = nn.Linear(2, 3)

    def precision(inputs, labels):
        method = bf.LaplaceApproximation(net, Categorical(classes=3), structure="diagonal", start="given")
        method.fit((inputs, labels), epochs=1, learning_rate=1e-12, progress=False)
        return method.std

    torch.testing.assert_close(precision(x, torch.where(there, y, -100)), precision(x[there], y[there]))


def test_soft_labels_are_expected_log_probabilities():
    torch.manual_seed(0)
    outputs, soft = torch.randn(2, 5, 4), torch.rand(5, 4).softmax(-1)
    likelihood = Categorical()
    targets = likelihood.prepare(soft)
    expected = (soft * functional.log_softmax(outputs, -1)).sum(-1)
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), expected)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), expected)
    hard = torch.tensor([0, 1, 3, 2, 1])
    one_hot = functional.one_hot(hard, 4).double()
    torch.testing.assert_close(
        likelihood.log_prob(outputs.double(), likelihood.prepare(one_hot)), likelihood.log_prob(outputs.double(), hard)
    )
    # Probabilities of the classes on axis 1, as of pixels, move last; preparing twice changes nothing.
    images = torch.rand(2, 3, 4, 4).softmax(1)
    moved = likelihood.prepare(images)
    torch.testing.assert_close(moved, images.movedim(1, -1))
    assert torch.equal(likelihood.prepare(moved), moved)


@pytest.mark.parametrize("targets", [[0.5, 1.0], [[0.5, 0.6]], [[1.5, -0.5]]])
def test_floats_that_are_no_probabilities_are_refused(targets):
    with pytest.raises(ValueError, match="integer labels"):
        Categorical().prepare(targets)


def test_soft_labels_train_to_their_probabilities():
    torch.manual_seed(0)
    x = torch.eye(2).repeat(100, 1)
    soft = torch.tensor([[0.9, 0.1], [0.3, 0.7]]).repeat(100, 1)
    method = bf.PointEstimate(nn.Linear(2, 2), "categorical")
    method.fit((x, soft), epochs=200, learning_rate=0.05, progress=False)
    torch.testing.assert_close(method.predict(x[:2]).probs, soft[:2], atol=0.01, rtol=0.0)
    assert bf.evaluate(method, (x, soft)).accuracy == 1.0


def test_balanced_weights_are_those_of_scikit_learn_and_help_the_rare_class(tmp_path):
    from sklearn.utils.class_weight import compute_class_weight

    torch.manual_seed(0)
    y = (torch.rand(600) < 0.07).long()
    x = (torch.randn(600) + 1.5 * y).unsqueeze(1)
    recalls = {}
    for text in ("categorical", "categorical:balanced"):
        torch.manual_seed(0)
        method = bf.PointEstimate(nn.Linear(1, 2), text)
        method.fit((x, y), epochs=20, batch_size=100, learning_rate=0.1, progress=False, run=tmp_path / text)
        recalls[text] = float((method.predict(x).labels[y == 1] == 1).double().mean())
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=y.numpy())
    torch.testing.assert_close(method.likelihood.class_weights.double(), torch.from_numpy(expected))
    assert recalls["categorical"] < 0.4
    assert recalls["categorical:balanced"] > 0.6
    again = bf.load(tmp_path / "categorical:balanced", network=nn.Linear(1, 2))
    again.resume((x, y), tmp_path / "categorical:balanced", extend=1, progress=False)
    assert again.likelihood.spec()["class_weights"] == "balanced"
    with pytest.raises(ValueError, match="come from the training data"):
        bf.PointEstimate(nn.Linear(1, 2), "categorical:balanced").loss(x, y, n_data=600, step=0)
    with pytest.raises(ValueError, match="'balanced', got 'even'"):
        Categorical("even")


def test_tags_are_independent_and_need_a_column_each():
    torch.manual_seed(0)
    x = torch.randn(300, 2)
    tags = (x > 0).long()
    method = bf.PointEstimate(nn.Linear(2, 2), "multi-label")
    method.fit((x, tags), epochs=60, learning_rate=0.1, progress=False)
    assert float((method.predict(x).labels == tags).double().mean()) > 0.97
    with pytest.raises(ValueError, match="one column of 0 and 1 per tag"):
        MultiLabel().prepare([0, 1])
