"""Training in parts with a group of one process: what `tests/distributed` does with several, in a second."""

import pytest
import torch
import torch.distributed as dist
from together import why_not
from torch import nn

import bayesify as bf
from bayesify.distributed.group import Group, working_as
from bayesify.distributed.sharding import Shard
from bayesify.functional import sharded_pass

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setattr(sharded_pass, "BUCKET_WEIGHTS", 10)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with working_as(Group(torch.device("cpu"))):
            yield
    finally:
        dist.destroy_process_group()


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 4, generator=generator)
    return x, x[:, :3].argmax(1)


def network():
    torch.manual_seed(0)
    # In double precision: rounding errors move a bias before batch normalisation, which has no effect on the loss.
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()


class Looks(bf.callbacks.Callback):
    """Predicts after every epoch: while it trains, a method is in parts."""

    def on_epoch_end(self, method, record):
        with pytest.raises(ValueError, match="holds a part of the weights"):
            method.predict(data()[0])
        with method.whole():
            assert method.predict(data()[0], draws=2).probs.shape == (40, 3)


METHODS = {
    "point": lambda: bf.PointEstimate(network(), "categorical", prior="normal:1"),
    "variational": lambda: bf.Variational(network(), "categorical", prior="laplace:1"),
    "ivon": lambda: bf.IVON(network(), "categorical", hessian_init=1.0),
    "ensemble": lambda: bf.Ensemble(network(), "categorical", members=2, prior="normal:1"),
    "laplace": lambda: bf.LaplaceApproximation(network(), "categorical", subset="last_layer"),
}


def fit(method, how, **settings):
    settings = {"epochs": 4, "batch_size": 16, "learning_rate": 0.02, "progress": False, "compiled": False} | settings
    method.fit(data(), distributed=how, **settings)
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


@pytest.mark.parametrize("name", METHODS)
def test_a_group_of_one_trains_in_parts_what_one_process_trains(group, name, tmp_path):
    method = METHODS[name]()
    parts = fit(method, "sharded", run=tmp_path / "run", clip_norm=0.5)
    alone = fit(METHODS[name](), how=False, clip_norm=0.5)
    for key, tensor in alone.items():
        assert torch.allclose(parts[key].double(), tensor.double(), rtol=1e-6, atol=1e-8), key
    assert method.shard is None
    assert method.network.initial.shape == (method.network.size,)
    assert (tmp_path / "run" / "checkpoint" / "index.json").exists()
    again = METHODS[name]()
    again.resume(data(), tmp_path / "run", extend=2, progress=False)
    loaded = bf.load(tmp_path / "run", network=network())
    assert loaded.history["epoch"] == [*range(1, 7)]
    for key, tensor in again.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key


@pytest.mark.parametrize("chains", [bf.SGLD, bf.SGHMC])
def test_chains_in_parts_store_the_samples_of_one_process(group, chains):
    def make():
        return chains(network(), "categorical", chains=2, samples=3, bayesian=["3"])

    parts, alone = (fit(make(), how, learning_rate=1e-3) for how in ("sharded", False))
    assert int(alone["count"]) == 3
    for key, tensor in alone.items():
        assert torch.allclose(parts[key].double(), tensor.double(), rtol=1e-6, atol=1e-8), key


def test_a_prior_centred_on_given_weights_is_cut_and_comes_back(group, tmp_path):
    def make():
        return bf.Variational(network(), "categorical", prior={"0.*": "pretrained:0.1", "*": "normal:fan_in"})

    # A bias that starts at its prior has no gradient before batch normalisation: Adam would enlarge rounding errors.
    settings = {"validation": data(), "keep": "best", "run": tmp_path / "run", "optimizer": "sgd:momentum=0.9"}
    parts = fit(make(), "sharded", callbacks=[Looks()], **settings)
    alone = fit(make(), how=False, **settings, overwrite=True)
    assert parts.keys() == alone.keys()
    for key, tensor in alone.items():
        assert torch.allclose(parts[key].double(), tensor.double(), rtol=1e-6, atol=1e-8), key


def test_casts_to_bfloat16_are_those_of_autocast(group):
    parts, alone = (
        fit(bf.Variational(network().float(), "categorical"), how, precision="bfloat16", epochs=1)
        for how in ("sharded", False)
    )
    assert torch.allclose(parts["mu"], alone["mu"], rtol=1e-4, atol=1e-5)


def test_autograd_keeps_no_gathered_weights(group, monkeypatch):
    gathered, gather = [], Shard.gather

    def counted(shard, piece, number):
        found = gather(shard, piece, number)
        gathered.append(number)
        return found

    monkeypatch.setattr(Shard, "gather", counted)
    method, numbers = METHODS["variational"](), []

    class Steps(bf.callbacks.Callback):
        def on_step_end(self, method, step):
            numbers.append(list(gathered))
            gathered.clear()

    fit(method, "sharded", epochs=2, callbacks=[Steps()])
    # Random weights come first: the two linear layers have buckets 0 and 1, the normalisation between them has 2. The
    # backward pass gathers again what it reads; the first layer's weights are not needed for their own gradient.
    assert numbers[-1] == [0, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("make", "settings", "text"),
    [
        (lambda: bf.Variational(network(), "categorical", family="low_rank"), {}, "correlations between the weights"),
        (lambda: bf.SGLD(network(), "categorical"), {"learning_rate": None}, "sgld finds its step size from all"),
        (lambda: bf.LaplaceApproximation(network(), "categorical"), {}, "laplace cannot be sharded: every process"),
        (lambda: bf.IVON(network(), "categorical"), {"recompute": ["0"]}, "recompute= does not work"),
        (METHODS["point"], {"optimizer": "adafactor"}, "depend on more than one weight"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_anything_is_trained(group, make, settings, text):
    method = make()
    with pytest.raises(ValueError, match=text):
        fit(method, "sharded", **settings)
    assert method.shard is None
