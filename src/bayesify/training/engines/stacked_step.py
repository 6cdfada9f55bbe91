"""The fused step of stacked networks: all at once by `vmap`, or side by side on the cores of a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from bayesify.errors import choose
from bayesify.priors.stacked_priors import VaryingPrior
from bayesify.training.batches import Batch, TensorExamples
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.side_by_side import RowStep, SideBySideSteps, row_of, worth_side_by_side
from bayesify.training.engines.stacked import Stack
from bayesify.training.engines.staged_graphs import StagedSteps
from bayesify.training.engines.staged_step import PRECISIONS, Stages, can_be_staged, products
from bayesify.training.engines.updates import update_rule


class StackedStep(FusedStep):
    """The fused step of stacked networks; `numbers` has one row for each network."""

    def __init__(self, stack: Stack, optimizer: torch.optim.Optimizer, draws: int, precision: str = "float32") -> None:
        self.method, self.draws, self.stack = stack.methods[0], draws, stack
        self.objective: nn.Module = _OneObjective(self.method, stack.family, draws)
        self.names = [f"method.{name}" for name in stack.names]
        self.buffers: dict[str, Tensor] = {}
        self._compiled: dict[Any, Callable[..., Tensor]] = {}
        self.bind(optimizer)
        self.precision = choose("precision", precision, PRECISIONS)
        together = not stack.own_data and stack.family is not None
        self.stages = Stages(self, precision) if together and can_be_staged(self) else None
        if self.stages is None and precision == "bfloat16":
            raise ValueError("bfloat16 needs plain chains with the weight estimator: use precision float32 or tf32")

    def bind(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the state from the optimiser, as it is now."""
        self.rule = update_rule(optimizer)
        self.done = self.rule.count()
        self.state = [
            *(parameter.detach() for parameter in self.stack.parameters),
            *(tensor for slots in self.rule.state for tensor in slots),
        ]

    def numbers(self, share: Any, rate: Any, ahead: int = 0) -> tuple[Any, ...]:
        """One row for each network, with the same share and rate: an example for the compiler."""
        return (super().numbers(share, rate, ahead),) * len(self.stack)

    def evaluate(self, layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor) -> Tensor:
        if self.stages is None:
            # Compiled code calls the library's products, which read the precision when they are called.
            with products(self.precision):
                return super().evaluate(layout, leaves, step, numbers)
        return self.stages(self.state, step, numbers, leaves)

    def compile(self, batches: list[Batch], *, kernels_only: bool = False) -> None:
        if self.stages is None:
            super().compile(batches)
            return
        where, leaves = self.state[0].device, pytree.tree_leaves(batches)
        numbers = torch.tensor(self.numbers(1.0, 1e-3), dtype=self.state[0].dtype, device=where)
        self.method.train()
        now = torch.tensor(1, device=where)
        with torch.cuda.device_of(self.state[0]):  # kernels are launched on the current device
            self.stages.compile(self.state, now, numbers, leaves, kernels_only=kernels_only)

    def faster(self, examples: TensorExamples, batch_size: int) -> GraphedSteps | SideBySideSteps | None:
        """Compile the step; return what makes the steps of an epoch, or None where Python makes them one by one."""
        parallel_steps = self.side_by_side(examples, batch_size)
        if parallel_steps is not None:
            return parallel_steps
        self.compile([examples.fetch(torch.arange(min(batch_size, examples.n_data)))])
        return self.graphed(examples, batch_size) if self.state[0].device.type == "cuda" else None

    def graphed(self, examples: TensorExamples, batch_size: int) -> GraphedSteps:
        """Replays of the step, on a GPU."""
        if self.stages is None:
            return GraphedSteps(self, examples, batch_size, 1, (len(self.stack),))
        return StagedSteps(self, self.stages, examples, batch_size)

    def side_by_side(self, examples: TensorExamples, batch_size: int) -> SideBySideSteps | None:
        """Compiled steps that run side by side on the cores of a CPU, where that is faster; otherwise None."""
        stack, where = self.stack, self.state[0].device
        if self.precision != "float32" or not worth_side_by_side(self.method.network.size, len(stack), where):
            return None
        objective = _OneNetwork(self.method, stack.family, self.draws, stack.numbers[0])
        count = len(self.names)
        rows = [
            row_of(
                objective,
                (tensor[k] for tensor in self.state[:count]),
                {"seed": stack.seeds[k], "numbers": stack.numbers[k]},
                (tensor[k] for tensor in self.state[count:]),
            )
            for k in range(len(stack))
        ]

        def fetch(network: int, places: Tensor) -> Batch:
            at = (places, network) if stack.own_data else (places,)
            batch: Batch = pytree.tree_map_only(Tensor, lambda tensor: tensor[at], (examples.x, examples.y))
            return batch

        step = RowStep(self.method, objective, rows, self.rule)
        self.method.train()
        step.compile([fetch(0, torch.arange(min(batch_size, examples.n_data)))])
        return SideBySideSteps(step, fetch, batch_size)

    def run(self, layout: Any, *tensors: Tensor) -> Tensor:
        known, count = len(self.state), len(self.names)
        state, (step, numbers, *leaves) = tensors[:known], tensors[known:]
        batches = pytree.tree_unflatten(leaves, layout)
        share, *rates = numbers.unbind(-1)
        parameters = [tensor.detach().requires_grad_() for tensor in state[:count]]
        rest = iter(state[count:])

        def losses(
            tensors: list[Tensor], seed: Tensor, prior: Tensor, weight: Tensor, batches: list[Batch]
        ) -> tuple[Tensor, Tensor]:
            parameters = dict(zip(self.names, tensors, strict=True))
            loss_and_nll: tuple[Tensor, Tensor] = functional_call(
                self.objective, parameters, (batches, step, weight, seed, prior)
            )
            return loss_and_nll

        with torch.enable_grad():
            axes = (0, 0, 0, 0, 1 if self.stack.own_data else None)
            loss, nll = vmap(losses, axes)(parameters, self.stack.seeds, self.stack.numbers, share, batches)
            gradients = torch.autograd.grad(loss.sum(), parameters)
        with torch.no_grad():
            for parameter, gradient, slots in zip(state, gradients, self.rule.state, strict=False):
                optimizer_state = [next(rest) for _ in slots]
                wide = [rate.view(-1, *[1] * (parameter.dim() - 1)) for rate in rates]
                self.rule.apply(parameter, gradient, optimizer_state, wide)
        return nll.detach()


class _OneObjective(nn.Module):
    """The objective of one network, whose seed and prior are arguments: what `vmap` maps over the stack."""

    def __init__(self, method: Any, family: Any, draws: int) -> None:
        super().__init__()
        self.method: Any = method
        self.family, self.draws = family, draws

    def forward(
        self, batches: list[Batch], step: Tensor, share: Tensor, seed: Tensor, numbers: Tensor
    ) -> tuple[Tensor, Tensor]:
        method = self.method
        kept = method.seed, method.prior
        method.seed = seed
        if self.family is not None:
            method.prior = VaryingPrior(self.family, numbers)
        try:
            objective = method.objective(batches, step=step, share=share, draws=self.draws)
        finally:
            method.seed, method.prior = kept
        return objective.loss, objective.nll


class _OneNetwork(nn.Module):
    """The objective of one network, whose seed and prior are buffers: what a core of a CPU runs."""

    seed: Tensor
    numbers: Tensor

    def __init__(self, method: Any, family: Any, draws: int, numbers: Tensor) -> None:
        super().__init__()
        self.objective = _OneObjective(method, family, draws)
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("numbers", numbers)

    def forward(self, batches: list[Batch], step: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        loss_and_nll: tuple[Tensor, Tensor] = self.objective(batches, step, share, self.seed, self.numbers)
        return loss_and_nll
