"""Checks for unknown inputs: far inputs are refused, known ones accepted at the coverage, saved with the run."""

import pytest
import torch
from scipy.spatial.distance import mahalanobis
from torch import nn

import bayesify as bf
from bayesify.decisions.unknown import SCORES
from bayesify.errors import RunError


@pytest.fixture(scope="module")
def blobs():
    torch.manual_seed(0)
    y = torch.randint(3, (600,))
    centres = torch.tensor([[4.0, 0.0], [-2.0, 3.5], [-2.0, -3.5]])
    return centres[y] + 0.7 * torch.randn(600, 2), y


@pytest.fixture(scope="module")
def bnn(blobs):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
    method = bf.Variational(net, "categorical", prior="normal:1")
    method.fit(blobs, epochs=30, learning_rate=0.01, progress=False)
    return method


@pytest.mark.parametrize("by", SCORES)
def test_every_score_accepts_the_promised_share_of_training_inputs(by, bnn, blobs):
    check = bf.UnknownInputs(bnn, blobs[0], by, coverage=0.9, draws=20)
    assert float(check.accept(blobs[0]).double().mean()) == pytest.approx(0.9, abs=0.06)
    assert check.score(blobs[0][:7]).shape == (7,)


@pytest.mark.parametrize("layer", ["input", "last"])
@pytest.mark.parametrize("by", ["knn", "mahalanobis", "entropy", "mutual_information", "confidence"])
def test_the_middle_between_the_classes_is_less_known_than_they_are(by, layer, bnn, blobs):
    check = bf.UnknownInputs(bnn, blobs[0], by, layer=layer, draws=50)
    middle = 0.3 * torch.randn(50, 2)
    assert bf.metrics.auroc(check.score(blobs[0]), check.score(middle)) > 0.9


def test_knn_sees_inputs_that_are_far_where_the_network_is_sure(blobs, bnn):
    far = torch.tensor([[60.0, 0.0]])
    assert float(bnn.predict(far, draws=20).confidence) > 0.9
    for by in ("knn", "mahalanobis"):
        assert not bool(bf.UnknownInputs(bnn, blobs[0], by, draws=20).accept(far))


def test_nearest_neighbours_are_those_of_brute_force(bnn, blobs):
    torch.manual_seed(1)
    new, known = torch.randn(5, 2).double(), blobs[0].double()
    expected = (new.unsqueeze(1) - known).norm(dim=-1).sort(1).values[:, 2]
    check = bf.UnknownInputs(bnn, blobs[0], "knn", neighbours=3)
    assert check.layer == "input"
    torch.testing.assert_close(check.score(new), expected, atol=1e-6, rtol=0.0)


def test_mahalanobis_distances_are_those_of_scipy(bnn, blobs):
    """To the nearest mean of a predicted class, under the covariance around the means and the ridge of 0.1%."""
    known = blobs[0].double()
    labels = bnn.predict(blobs[0], draws=50).labels
    means = torch.stack([known[labels == label].mean(0) for label in range(3)])
    covariance = torch.cov((known - means[labels]).T, correction=0)
    precision = torch.linalg.inv(covariance + 1e-3 * covariance.diagonal().mean() * torch.eye(2)).numpy()
    torch.manual_seed(1)
    new = torch.randn(5, 2).double()
    expected = [min(mahalanobis(x, mean, precision) for mean in means) for x in new]
    found = bf.UnknownInputs(bnn, blobs[0], "mahalanobis", draws=50).score(new)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_scores_of_predictions_are_their_definitions(bnn, blobs):
    x = blobs[0][:9]
    p = bnn.predict(x, draws=30)
    probs = p.outputs.double().softmax(-1)  # [draws, n, classes]
    mean = probs.mean(0)
    label = mean.argmax(-1)
    entropy = -(mean * mean.log()).sum(-1)
    own = probs[:, torch.arange(9), label]
    expected = {
        "entropy": entropy,
        "mutual_information": entropy + (probs * probs.log()).sum(-1).mean(0),
        "confidence": 1 - mean.amax(-1),
        "energy": -p.outputs.double().exp().sum(-1).log().mean(0),
        "spread": own.std(0, correction=0),
    }
    for by, score in expected.items():
        found = bf.UnknownInputs(bnn, blobs[0], by, draws=30).score(x)
        torch.testing.assert_close(found, score, rtol=1e-3, atol=1e-6, msg=by)


def test_an_ensemble_has_the_features_of_each_member(blobs):
    torch.manual_seed(0)
    ensemble = bf.Ensemble(lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), "categorical", members=3)
    ensemble.fit(blobs, epochs=5, learning_rate=0.02, progress=False)
    check = bf.UnknownInputs(ensemble, blobs[0], layer="last")
    assert check._tensors["known"].shape == (3, 600, 8)
    assert float(check.accept(blobs[0]).double().mean()) > 0.97


def test_a_saved_check_gives_the_same_scores_and_goes_when_the_run_is_trained_again(bnn, blobs, tmp_path):
    run = tmp_path / "run"
    bnn.save(run)
    for by in ("knn", "mahalanobis", "entropy"):
        check = bf.UnknownInputs(bnn, blobs[0], by, layer="last", draws=10)
        check.save(run)
        network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
        again = bf.UnknownInputs.load(run, bf.load(run, network=network))
        assert again.threshold == check.threshold
        torch.testing.assert_close(again.score(blobs[0][:20]), check.score(blobs[0][:20]))
    other = bf.PointEstimate(nn.Linear(2, 3), "categorical")
    other.fit(blobs, epochs=1, progress=False, run=run, overwrite=True)
    with pytest.raises(RunError, match="no check for unknown inputs"):
        bf.UnknownInputs.load(run, other)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"by": "nearest"}, "score of unknown inputs"),
        ({"coverage": 1.0}, "between 0 and 1"),
        ({"layer": "head"}, "layer"),
        ({"neighbours": 700}, "more than 701 training inputs"),
        ({"draws": 0}, "draws must be an integer of at least 1"),  # which `load` would call a damaged check
        ({"coverage": "99%"}, "between 0 and 1, got '99%'"),
    ],
)
def test_what_cannot_be_is_refused(settings, message, bnn, blobs):
    with pytest.raises(ValueError, match=message):
        bf.UnknownInputs(bnn, blobs[0], **settings)


def test_training_inputs_that_the_network_does_not_take_are_refused(bnn, blobs):
    x, y = blobs
    for wrong in (torch.cat((x, x), 1), (x, y)):
        with pytest.raises(ValueError, match=r"the network was trained on \[n, 2\]"):
            bf.UnknownInputs(bnn, wrong)


def test_one_input_without_a_batch_is_refused(bnn, blobs):
    check = bf.UnknownInputs(bnn, blobs[0])
    with pytest.raises(ValueError, match=r"inputs must be \[n, ...\], got \[2\]: one input alone is x\[None\]"):
        check.accept(blobs[0][0])


def test_numbers_have_spread_but_no_entropy(blobs):
    torch.manual_seed(0)
    method = bf.Variational(nn.Linear(2, 1), "gaussian:1", prior="normal:1")
    method.fit((blobs[0], blobs[0].sum(1)), epochs=2, progress=False)
    far = 100 * torch.ones(1, 2)
    assert not bool(bf.UnknownInputs(method, blobs[0], "spread").accept(far))
    with pytest.raises(ValueError, match="entropy is for classes"):
        bf.UnknownInputs(method, blobs[0], "entropy")


@pytest.mark.parametrize("by", ["mutual_information", "spread"])
def test_a_plain_network_has_no_draws_that_could_disagree(by, blobs):
    plain = bf.PointEstimate(nn.Linear(2, 3), "categorical")
    plain.fit(blobs, epochs=1, progress=False)
    with pytest.raises(ValueError, match=r"there is one draw here.*use knn, mahalanobis or entropy"):
        bf.UnknownInputs(plain, blobs[0], by)
