"""What several processes do in `test_own_draws.py` and `test_prediction_together.py`; errors are results too."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import bayesify as bf

EXPECTS_ERRORS = True


def rank():
    return int(os.environ.get("RANK", "0"))


def size():
    return int(os.environ.get("WORLD_SIZE", "1"))


def data(n=100):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator)
    return x, (x[:, :3] + 0.3 * torch.randn(n, 3, generator=generator)).argmax(1)


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def own(method, given, **settings):
    """Four processes with one draw each, or one process with four draws."""
    plan = {"epochs": 20, "batch_size": 8, "progress": False, "draws": 4 // size(), "distributed": "own-draws"}
    method.fit(given, **plan | settings)
    return {name: value for name, value in method.state_dict().items() if value.numel()}


def copies():
    """All examples are the same, so that every part of a batch is: own draws are then the draws of one process."""
    x, y = data()
    return x[:1].expand(16, -1).clone(), y[:1].expand(16).clone()


def variational_on_copies():
    method = bf.Variational(perceptron(), "categorical", prior="scale-mixture:0.75,1,0.1")
    return own(method, copies(), learning_rate=0.02)


def ivon_on_copies():
    return own(bf.IVON(perceptron(), "categorical"), copies(), learning_rate=0.05)


def line():
    """Targets with unit noise of a line through zero; the mean square of the inputs is 2."""
    x = torch.tensor([1.0, 3.0**0.5]).repeat(32).unsqueeze(1)
    return x, 0.5 * x + torch.randn(64, 1, generator=torch.Generator().manual_seed(1))


def one_weight():
    torch.manual_seed(0)
    return nn.Linear(1, 1, bias=False)


def ivon_curvature():
    """The second derivative of the mean negative log-likelihood is 2, whatever the number of processes."""
    method = bf.IVON(one_weight(), "gaussian:1", hessian_init=1.0)
    return own(method, line(), learning_rate=0.05, batch_size=64, epochs=400, draws=1)


def variational_width():
    """The exact posterior of the one weight under normal:1 and 8 examples has precision 1 + 8 * 2."""
    method = bf.Variational(one_weight(), "gaussian:1", prior="normal:1")
    x, y = line()
    own(method, (x[:8], y[:8]), learning_rate=0.05, schedule="cosine", epochs=500, draws=1)
    exact = (x[:8] * y[:8]).sum() / 17
    return {"std": method.std, "mean": method.mu, "exact mean": exact, "exact std": torch.tensor(17**-0.5)}


def refused_for_point():
    return own(bf.PointEstimate(perceptron(), "categorical"), data(), draws=1)


def refused_mode():
    return own(bf.PointEstimate(perceptron(), "categorical"), data(), distributed="mine")


def refused_bound():
    method = bf.Variational(perceptron(), "categorical", prior="normal:1", bound="importance_weighted")
    return own(method, data(), draws=4, batch_size=100, distributed=True)


def refused_data():
    x, y = data()
    return own(bf.PointEstimate(perceptron(), "categorical"), (x + rank(), y), draws=1, distributed=True)


def refused_settings():
    given = {"draws": 1, "distributed": True, "seed": rank()}
    return own(bf.PointEstimate(perceptron(), "categorical"), data(), **given)


def refused_loader():
    given = TensorDataset(*data())
    loader = DataLoader(given, batch_size=8, sampler=DistributedSampler(given, size(), rank()) if size() > 1 else None)
    return own(bf.PointEstimate(perceptron(), "categorical"), loader, draws=1, distributed=True)


def apart():
    """Opted out: every process trains its own network, with its own seed, and predicts with it."""
    torch.manual_seed(rank())
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    method = bf.Variational(net, "categorical", prior="normal:1")
    method.fit(data(), epochs=2, seed=rank(), progress=False, distributed=False)
    return {"mu": method.mu, "outputs": method.predict(data()[0], draws=3).outputs}


def fitted():
    method = bf.Variational(perceptron(), "categorical", prior="normal:1")
    method.fit(data(), epochs=2, progress=False)
    return method


def predicted():
    method, (x, _) = fitted(), data()
    found = {
        "draws": method.predict(x, draws=7).outputs,
        "moments": method.predict(x, by="moments").outputs,
        "few": method.predict(x[:2], draws=7).outputs,
        "alone": method.predict(x, draws=7, distributed=False).outputs,
    }
    # Every process asks about something else: each gets its own answer.
    other = x[rank() :: size()]
    found["own inputs"] = (
        method.predict(other, draws=7).outputs - method.predict(other, draws=7, distributed=False).outputs
    )
    return found


def evaluated():
    scores = bf.evaluate(fitted(), data(), draws=20).to_dict()
    return {name: torch.tensor(scores[name], dtype=torch.float64) for name in ("accuracy", "nll", "ece")}


def hmc():
    torch.manual_seed(0)
    # In double precision, so that no proposal is accepted by rounding.
    method = bf.HMC(nn.Linear(1, 1, bias=False).double(), "gaussian:1", prior="normal:1", chains=4)
    x, y = line()
    method.fit((x.double(), y.double()), warm_up=50, samples=50, progress=False)
    return {"draws": method.draws_by_chain}
