"""Modules that run again in the backward pass give the same gradients, from fewer stored activations."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import bayesify as bf


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(torch.tanh(self.fc(self.norm(x))))


def network(dropout=0.0):
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block(8, dropout) for _ in range(3)))
    return nn.Sequential(nn.Linear(2, 8), blocks, nn.Dropout(dropout), nn.Linear(8, 3))


SETTINGS = {"epochs": 3, "batch_size": 40, "learning_rate": 0.02, "progress": False}
MAKERS = {
    "variational": lambda: bf.Variational(network(), "categorical"),
    "ivon": lambda: bf.IVON(network(), "categorical", hessian_init=1.0),
    "dropout": lambda: bf.MCDropout(network(0.3), "categorical"),
    "ensemble": lambda: bf.Ensemble(network(0.2), "categorical", members=2),
    "swag": lambda: bf.SWAG(network(), "categorical", rank=2, held_draws=2),
}


@pytest.mark.parametrize("more", [{}, {"accumulate": 2, "precision": "bfloat16"}])
@pytest.mark.parametrize("name", MAKERS)
def test_the_result_is_the_same(blobs, name, more):
    kept, again = MAKERS[name](), MAKERS[name]()
    settings = SETTINGS | more | {"draws": 2 if kept.draws_per_step else 1}
    calls = [0, 0]

    def count(number):
        calls[number] += torch.is_grad_enabled()  # the checks of `fit` run without gradients

    for number, method in enumerate((kept, again)):
        block = method.network.template[1][0]
        block.fc.register_forward_hook(lambda *_, number=number: count(number))
    kept.fit(blobs, **settings)
    again.fit(blobs, **settings, recompute=["1.*"])
    assert torch.equal(kept.draw(blobs[0], draws=2), again.draw(blobs[0], draws=2))
    for (label, a), (_, b) in zip(kept.named_buffers(), again.named_buffers(), strict=True):
        assert torch.equal(a, b), label  # running statistics are updated once
    assert calls[1] > 1.3 * calls[0]  # the blocks did run again


def test_fewer_activations_are_kept(blobs):
    def kept_numbers(**settings):
        sizes = []

        def pack(tensor):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            bf.PointEstimate(network(), "categorical").fit(blobs, **SETTINGS | {"epochs": 1}, **settings)
        return sum(sizes)

    # Forward keeps less; what the second run keeps is dropped block by block.
    assert kept_numbers(recompute=["1"]) < 0.6 * kept_numbers()


def test_patterns_are_checked(blobs):
    method = bf.PointEstimate(network(), "categorical")
    with pytest.raises(ValueError, match="names no module"):
        method.fit(blobs, **SETTINGS, recompute=["blocks.*"])
    with pytest.raises(TypeError, match="must be a list of patterns"):
        method.fit(blobs, **SETTINGS, recompute="1.*")
    with pytest.raises(ValueError, match="needs estimator='weight'"):
        bf.Variational(network(), "categorical", estimator="local").fit(blobs, **SETTINGS, recompute=["1.*"])


def test_checkpointing_inside_the_network_is_explained(blobs):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8))
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(torch.utils.checkpoint.checkpoint(self.part, x, use_reentrant=False))

    with pytest.raises(TypeError, match=r"fit\(recompute="):
        bf.Variational(Own(), "categorical").fit(blobs, **SETTINGS)


class OwnCheckpoint(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.last, self.use_reentrant = nn.Linear(2, 8), nn.Linear(8, 3), use_reentrant

    def forward(self, x):
        if self.training:
            return self.last(checkpoint(self.first, x, use_reentrant=self.use_reentrant).relu())
        return self.last(self.first(x).relu())


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("method", [bf.Variational, bf.SGHMC, bf.SWAG])
def test_checkpoints_of_the_network_itself_are_refused(blobs, method, use_reentrant):
    # The second run has no weights: with use_reentrant=True the gradient of `first` would be missing, without a word.
    bnn = method(OwnCheckpoint(use_reentrant), "categorical")
    with pytest.raises(ValueError, match="switch its activation checkpointing off"):
        bnn.loss(*blobs, n_data=len(blobs[1]), step=0)
    with pytest.raises(ValueError, match=r"fit\(recompute="):
        bnn.fit(blobs, epochs=1, progress=False)
    assert torch.utils.checkpoint.checkpoint(torch.sin, torch.ones(1), use_reentrant=False).isfinite()


def test_recompute_must_be_a_list(blobs):
    for wrong in (True, "1.*", 3):
        with pytest.raises(TypeError, match="recompute must be a list of patterns"):
            bf.Variational(network(), "categorical").fit(blobs, epochs=1, recompute=wrong)
