"""Modules that run again in the backward pass give the same gradients, from fewer stored activations."""

import threading

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


@pytest.mark.parametrize("recompute", [["0", "1", "2"], ["1"]])
def test_dropout_in_attention_has_the_same_masks_again(recompute):
    def fitted(**settings):
        torch.manual_seed(0)
        layers = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True) for _ in range(3)]
        method = bf.PointEstimate(nn.Sequential(*layers, nn.Flatten(), nn.Linear(40, 3)), "categorical")
        data = torch.randn(24, 5, 8, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 3
        method.fit(data, epochs=2, batch_size=12, learning_rate=0.01, compiled=False, progress=False, **settings)
        return method.theta

    assert torch.equal(fitted(recompute=recompute), fitted())


class RunsAgain(torch.autograd.Function):
    """Checkpointing without torch's function."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        ctx.module = module
        return module(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            return torch.autograd.grad(ctx.module(x), x, gradient)[0], None


def test_checkpointing_by_other_means_is_explained(blobs):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.part, self.head = nn.Linear(2, 2), nn.Linear(2, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(RunsAgain.apply(self.first(x), self.part))

    with pytest.raises(TypeError, match=r"fit\(recompute="):
        bf.Variational(Own(), "categorical").fit(blobs, **SETTINGS)


class OwnCheckpoints(nn.Module):
    """Checkpoints of its own, one inside the other, around dropout and batch normalisation."""

    def __init__(self, use_reentrant=None):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.blocks, self.last = (
            nn.Linear(2, 8),
            nn.ModuleList(Block(8, 0.3) for _ in range(3)),
            nn.Linear(8, 3),
        )
        self.use_reentrant = use_reentrant

    def forward(self, x):
        x = self.first(x)
        if self.use_reentrant is None or not self.training:
            return self.last(self.two(self.blocks[0](x)))
        x = checkpoint(self.blocks[0], x, use_reentrant=self.use_reentrant)
        return self.last(checkpoint(self.two, x, use_reentrant=self.use_reentrant))

    def two(self, x):
        if self.use_reentrant is None or not self.training:
            return self.blocks[2](self.blocks[1](x))
        return self.blocks[2](checkpoint(self.blocks[1], x, use_reentrant=self.use_reentrant))


OWN_MAKERS = {
    "variational": lambda net: bf.Variational(net, "categorical"),
    "sghmc": lambda net: bf.SGHMC(net, "categorical", samples=2, chains=1),
    "dropout": lambda net: bf.MCDropout(net, "categorical"),
    "ensemble": lambda net: bf.Ensemble(net, "categorical", members=2),
}


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("name", OWN_MAKERS)
def test_checkpoints_of_the_network_itself_give_the_same_gradients(blobs, name, use_reentrant):
    # The second run comes when the network no longer has the drawn weights; reentrant, it would lose their gradients.
    own = torch.utils.checkpoint.CheckpointFunction
    gradients = []
    for net in (OwnCheckpoints(), OwnCheckpoints(use_reentrant)):
        method = OWN_MAKERS[name](net).train()
        method.loss(*blobs, n_data=len(blobs[1]), step=0).backward()
        gradients.append([parameter.grad for parameter in method.parameters()])
        statistics = method.network.kept()["blocks.1.norm.running_mean"].clone()
        gradients[-1].append(statistics)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert torch.utils.checkpoint.CheckpointFunction is own


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2, "precision": "bfloat16"}, {"recompute": ["blocks.*"]}])
def test_fit_takes_a_network_with_checkpoints(blobs, settings):
    fitted = []
    for net in (OwnCheckpoints(), OwnCheckpoints(use_reentrant=False)):
        method = bf.Variational(net, "categorical")
        method.fit(blobs, **SETTINGS, **settings, compiled=None if net.use_reentrant is None else True)
        fitted.append(method)
    assert torch.equal(fitted[0].mu, fitted[1].mu)
    assert fitted[1].plan.compiled is False


def test_the_backward_pass_may_run_in_another_thread(blobs):
    # As on a GPU, where autograd has threads of its own: the part of the batch decides the masks there too.
    gradients = []
    for net in (OwnCheckpoints(), OwnCheckpoints(use_reentrant=False)):
        method = bf.MCDropout(net, "categorical").train()
        with bf.noise.part_of_batch(20, 40, 96):
            loss = method.loss(blobs[0][20:60], blobs[1][20:60], n_data=96, step=0)
            thread = threading.Thread(target=loss.backward)
            thread.start()
            thread.join()
        gradients.append(method.theta.grad)
    assert torch.equal(*gradients)


def test_checkpoints_keep_fewer_activations(blobs):
    def kept(use_reentrant):
        sizes = []

        def pack(tensor):
            sizes.append(tensor.numel())
            return tensor

        method = bf.PointEstimate(OwnCheckpoints(use_reentrant), "categorical").train()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            method.loss(*blobs, n_data=len(blobs[1]), step=0)
        return sum(sizes)

    assert kept(False) < 0.5 * kept(None)


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_checkpoints_need_drawn_weights(blobs, estimator):
    method = bf.Variational(OwnCheckpoints(use_reentrant=False), "categorical", estimator=estimator)
    with pytest.raises(ValueError, match="need estimator='weight'"):
        method.loss(*blobs, n_data=len(blobs[1]), step=0)


def test_recompute_must_be_a_list(blobs):
    for wrong in (True, "1.*", 3):
        with pytest.raises(TypeError, match="recompute must be a list of patterns"):
            bf.Variational(network(), "categorical").fit(blobs, epochs=1, recompute=wrong)
