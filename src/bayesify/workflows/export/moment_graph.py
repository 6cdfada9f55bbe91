"""Moments instead of draws: means and variances propagated through a mean-field network, as one part of a graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from bayesify.methods import Method
from bayesify.methods.prediction import independent_std
from bayesify.methods.variational.estimators.moments import contrast_of, stand_ins
from bayesify.methods.variational.estimators.moments.propagation import Propagation
from bayesify.workflows.export.one_draw import Draws, OneDraw


class MomentOutputs(nn.Module):
    """`forward(inputs)`: outputs `[64, batch, ...]` that have the moments of the network's, and known inputs.

    Args:
        method: a method whose random weights are independent and Gaussian.
        before: prepares raw inputs; None where inputs are as the network takes them.
        structure: how the list of input tensors becomes inputs of the network.
        x: a batch of inputs as the network takes them.

    Raises:
        ValueError: the method has no such weights.

    """

    def __init__(self, method: Method, before: nn.Module | None, structure: Any, x: Any) -> None:
        super().__init__()
        std = independent_std(method)
        self._one = [OneDraw(method.network, Draws(1, {}, {}), before, structure)]
        self.register_buffer("mean", method.mean_weights.detach().cpu().clone())
        self.register_buffer("std", std.detach().cpu().clone())

        def outputs(mean: Tensor, std: Tensor, x: Any) -> Tensor:
            return stand_ins(Propagation(method.network, mean, std, train=False)(x, contrast_of(method.likelihood)))

        # The propagation has a backward pass inside, which is written out here: `torch.export` cannot trace one.
        written_out = make_fx(outputs, tracing_mode="symbolic")
        self.propagate = written_out(self.get_buffer("mean"), self.get_buffer("std"), x)

    def forward(self, leaves: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, known = self._one[0].inputs(leaves)
        return self.propagate(self.get_buffer("mean"), self.get_buffer("std"), x), known
