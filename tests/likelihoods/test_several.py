"""Several targets with a likelihood each: the sum of their log-likelihoods, by name, through every part of a method."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import bayesify as bf
from bayesify.likelihoods import Categorical, Gaussian, GaussianLogits, Several

PARTS = {"class": "categorical", "box": "gaussian:0.5"}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.kind, self.place = nn.Linear(2, 16), nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return {"box": self.place(hidden), "unused": hidden, "class": self.kind(hidden)}


@pytest.fixture(scope="module")
def data():
    torch.manual_seed(0)
    x = torch.randn(200, 2)
    y = {"class": (x[:, 0] > 0.5).long() + (x[:, 0] > -0.5).long(), "box": x @ torch.tensor([[1.0, 0.5], [0.0, 1.0]])}
    return x, y


def test_the_log_likelihood_is_the_sum_of_the_parts(data):
    torch.manual_seed(0)
    likelihood, net = Several(PARTS, weights={"box": 0.5}), TwoHeads()
    targets = likelihood.prepare(data[1])
    result = net(data[0])
    outputs = likelihood.join(result).unsqueeze(0)
    likelihood.check_outputs(outputs[0], targets)
    of_class = Categorical().log_prob(result["class"].unsqueeze(0), data[1]["class"])
    of_box = Gaussian(0.5).log_prob(result["box"].unsqueeze(0), data[1]["box"])
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), of_class + 0.5 * of_box)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), of_class + of_box)
    assert torch.equal(likelihood.prepare(targets), targets)
    again = bf.likelihoods.from_spec(likelihood.spec())
    assert again.spec() == likelihood.spec()
    assert "pseudo-likelihood" in likelihood.remark


METHODS = {
    "point": lambda parts: bf.PointEstimate(TwoHeads(), parts),
    "variational": lambda parts: bf.Variational(TwoHeads(), parts, prior="normal:1"),
    "ensemble": lambda parts: bf.Ensemble(TwoHeads, parts, members=2),
    "mc-dropout": lambda parts: bf.MCDropout(TwoHeads(), parts, p=0.05),
    "ivon": lambda parts: bf.IVON(TwoHeads(), parts, hessian_init=1.0),
    "swag": lambda parts: bf.SWAG(TwoHeads(), parts),
    "sghmc": lambda parts: bf.SGHMC(TwoHeads(), parts, samples=10, chains=1),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_learn_both_and_load_again(name, data, tmp_path):
    torch.manual_seed(0)
    x, y = data
    method = METHODS[name](PARTS)
    method.fit((x, y), epochs=30, batch_size=25, learning_rate=0.01, progress=False, run=tmp_path / "run")
    answer = method.predict(x, draws=10)
    assert float((answer["class"].labels == y["class"]).double().mean()) > 0.8
    assert bf.metrics.rmse(answer["box"].mean, y["box"]) < 0.6
    assert answer["box"].interval(0.9)[0].shape == (200, 2)
    assert answer.log_prob(y).shape == (200,)
    again = bf.load(tmp_path / "run", network=TwoHeads())
    assert torch.equal(again.predict(x, draws=10)["class"].probs, answer["class"].probs)


def test_data_sets_validation_and_noisy_parts_work(data):
    torch.manual_seed(0)
    x, y = data
    rows = [(x[i], {name: values[i] for name, values in y.items()}) for i in range(60)]
    parts = {"class": GaussianLogits(samples=20, classes=3), "box": "gaussian:learned"}

    class Wider(TwoHeads):
        def __init__(self):
            super().__init__()
            self.kind = nn.Linear(16, 6)

    method = bf.Variational(Wider(), parts, prior="normal:1")
    history = method.fit(
        DataLoader(rows, batch_size=20), epochs=3, learning_rate=0.01, validation=(x, y), progress=False
    )
    assert history["validation_nll"][-1] < history["validation_nll"][0]
    assert method.predict(x[:5], draws=3)["class"].probs.shape == (5, 3)


def test_what_does_not_fit_is_refused_in_one_line(data):
    x, y = data
    with pytest.raises(ValueError, match="'box' is missing"):
        bf.PointEstimate(TwoHeads(), PARTS).fit((x, {"class": y["class"]}), progress=False)
    with pytest.raises(TypeError, match="dict of likelihoods"):
        bf.PointEstimate(nn.Linear(2, 3), "categorical").fit((x, y), progress=False)
    with pytest.raises((TypeError, ValueError), match="must return a dict"):
        bf.PointEstimate(nn.Linear(2, 3), PARTS).fit((x, y), progress=False)
    with pytest.raises(ValueError, match="target 'class'"):
        bf.PointEstimate(TwoHeads(), PARTS).fit((x, {**y, "class": y["class"] + 5}), progress=False)
    with pytest.raises(ValueError, match="laplace needs"):
        bf.LaplaceApproximation(TwoHeads(), PARTS)
    with pytest.raises(ValueError, match="has a prior"):
        Several({"a": "gaussian:half-cauchy(1)"})
    fitted = bf.PointEstimate(TwoHeads(), PARTS)
    fitted.fit((x, y), epochs=1, progress=False)
    with pytest.raises(AttributeError, match="pick one"):
        _ = fitted.predict(x).mean
    with pytest.raises(ValueError, match="one at a time"):
        bf.evaluate(fitted, (x, y))
    with pytest.raises(ValueError, match="target"):
        fitted.predict(x)["boxes"]
