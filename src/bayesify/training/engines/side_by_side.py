"""Independent networks trained side by side on a CPU, each on one core at a time.

    core 1    aaaa cccc eeee bbbb dddd ...        a ... e: the next steps of each network, on the next free core
    core 2    bbbb dddd aaaa cccc eeee

A step of all networks at once divides every operation among the cores. They wait for each other after each operation,
and the step reads more memory than a cache holds. Side by side, a core makes several steps of one network in a row. The
networks do not wait for one another, so all cores are busy for any number of networks. The numbers equal those of steps
of all networks at once, to rounding.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import parallel
from bayesify.errors import first_line
from bayesify.training.batches import Batch, TensorExamples, take
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.fused import FusedStep, check_capturable, signed
from bayesify.training.engines.updates import UpdateRule, update_rule
from bayesify.training.trainable import declares

logger = logging.getLogger("bayesify")
# By `bayesify bench fleet --units 50` and `100`: all at once took 0.81 of the time of separate trainings with 43,000
# weights, side by side took 0.87 with 90,000. Smaller networks are trained all at once.
_FEWEST_WEIGHTS = 50_000
# Steps of one network that a core makes in a row: the first of them fills the cache for the others.
_IN_A_ROW = 8
# Rows of steps of each network that are submitted before the first of them is done.
_AHEAD = 1

Fetch = Callable[[int, Tensor], Batch]
# Numbers of the examples, number of the step, and the numbers that the update depends on.
_Step = tuple[Tensor, Tensor, Tensor]


class RowStep(FusedStep):
    """The step of one of several networks.

    Args:
        method: the method in training.
        objective: the objective of one network, whose parameters and buffers are given with each call.
        rows: views of each network's parameters, buffers and optimiser state, in the order of `FusedStep.state`.
        rule: the optimiser's update.

    """

    def __init__(self, method: Any, objective: nn.Module, rows: list[list[Tensor]], rule: UpdateRule) -> None:
        self.method, self.objective, self.rows, self.rule = method, objective, rows, rule
        self.names = [name for name, _ in objective.named_parameters()]
        self.buffers = dict(objective.named_buffers())
        self.done, self.state = rule.count(), rows[0]
        self._compiled: dict[Any, Callable[..., Tensor]] = {}

    def step_of(self, network: int, batch: Batch, step: Tensor, numbers: Tensor) -> float:
        """Make one step of one network and return its NLL."""
        leaves, layout = pytree.tree_flatten([batch])
        return float(self.evaluate_on(self.rows[network], layout, leaves, step, numbers))

    def compile_function(self, function: Callable[..., Tensor], example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        return compile_function(function, example, threads=_cores_for(len(self.rows))[1])


class SideBySideSteps:
    """The steps of several networks over data in memory, made side by side; it has the interface of `GraphedSteps`."""

    def __init__(self, fused: RowStep, fetch: Fetch, batch_size: int) -> None:
        self.fused, self.fetch, self.batch_size = fused, fetch, batch_size
        self.networks = range(len(fused.rows))
        self._pool = parallel.pool(*_cores_for(len(fused.rows)))
        self._next: list[_Step] = []
        self._running: deque[list[Future[float]]] = deque()
        self._nll = torch.zeros(len(fused.rows), dtype=torch.float64)

    def begin(self, order: Tensor, numbers: Sequence[Any] | Tensor, step: int, skip: int) -> None:
        """Start an epoch.

        Args:
            order: order of the examples, `[1 or networks, n]`.
            numbers: what each step depends on, `[batches, numbers]` or `[batches, networks, numbers]`.
            step: number of the epoch's first step.
            skip: batches to leave out, where training resumes in the middle of an epoch.

        """
        self.order, self.first_step, self.batch = order, step, skip
        self.whole = min(self.batch_size, order.shape[1])  # the size that the step is compiled for
        self.numbers = torch.as_tensor(numbers, dtype=self.fused.state[0].dtype)
        self._nll.zero_()

    def step(self, size: int) -> None:
        """Make the next step of each network on a batch of this size; NLL times size is added to `nll`."""
        now = torch.tensor(self.first_step + self.batch)
        places = self.order[:, self.batch * self.batch_size :][:, :size]
        self._next.append((places, now, self.numbers[self.batch]))
        if size != self.whole or len(self._next) == _IN_A_ROW:
            self._submit()
        self.fused.done += 1
        self.batch += 1

    @property
    def nll(self) -> Tensor:
        """The NLL of each network summed over the epoch's examples; waits for the steps that are under way."""
        self._submit()
        self._wait(0)
        return self._nll

    def _submit(self) -> None:
        steps, self._next = self._next, []
        whole = [step for step in steps if step[0].shape[1] == self.whole]
        if whole:
            before = self._running[-1] if self._running else [None] * len(self.networks)
            pairs = zip(self.networks, before, strict=True)
            self._running.append([self._pool.submit(self._work, network, whole, last) for network, last in pairs])
            self._wait(_AHEAD)
        rest = steps[len(whole) :]
        if rest:
            # A step that is not compiled uses the one module that all networks share, so it cannot run in parallel.
            self._wait(0)
            self._nll += torch.tensor([self._work(network, rest) for network in self.networks], dtype=torch.float64)

    def _work(self, network: int, steps: list[_Step], earlier: Future[float] | None = None) -> float:
        """Make some steps of one network in a row and return the sum of its NLLs."""
        if earlier is not None:
            earlier.result()
        total = 0.0
        for places, now, numbers in steps:
            rows = places[network % len(places)]
            step_numbers = numbers[network] if numbers.dim() > 1 else numbers
            total += self.fused.step_of(network, self.fetch(network, rows), now, step_numbers) * len(rows)
        return total

    def _wait(self, most: int) -> None:
        """Wait until at most `most` rows of steps are under way."""
        while len(self._running) > most:
            self._nll += torch.tensor([future.result() for future in self._running.popleft()], dtype=torch.float64)


def worth_side_by_side(weights: int, networks: int, device: torch.device) -> bool:
    """Whether there are several cores, several networks, and enough work in each of their steps."""
    return min(_cores_for(networks)[0], parallel.workers_for(device)) > 1 and weights >= _FEWEST_WEIGHTS


def members_side_by_side(
    method: Any, optimizer: torch.optim.Optimizer, examples: TensorExamples, batch_size: int, batches: list[Batch]
) -> SideBySideSteps | None:
    """The steps of an ensemble side by side, where its members share nothing and can be compiled; otherwise None.

    Args:
        method: the ensemble in training.
        optimizer: its optimiser.
        examples: the data, in memory.
        batch_size: examples per step.
        batches: one batch for each member, to compile for.

    Returns:
        The steps, or None (with a logged reason where the compiler failed).

    """
    device = examples.y.device
    if not declares(method, "independent_members") or not worth_side_by_side(
        method.network.size, method.members, device
    ):
        return None
    if [name for name, _ in method.named_parameters()] != ["theta"]:
        return None  # parameters of the likelihood are shared by all members
    try:
        check_capturable(method, optimizer, batches)
        rule, objective = update_rule(optimizer), MemberObjective(method)
        step = RowStep(
            method, objective, [member_row(objective, rule, slice(m, m + 1)) for m in range(method.members)], rule
        )
        step.compile(batches[:1])
    except Exception as problem:  # noqa: BLE001 -- no compiler or a layer that cannot be captured: other engines work
        logger.info("members are not trained side by side (%s)", first_line(problem)[:160])
        return None
    return SideBySideSteps(step, lambda _, places: (take(examples.x, places), examples.y[places]), batch_size)


class MemberObjective(nn.Module):
    """The objective of one member: parameters and buffers have that member's row alone."""

    seed: Tensor
    member: Tensor

    def __init__(self, method: Any) -> None:
        super().__init__()
        self.method: Any = method
        where = next(method.parameters()).device
        self.register_buffer("seed", torch.tensor(signed(method.seed), device=where))
        self.register_buffer("member", torch.zeros((), dtype=torch.int32, device=where))

    def forward(self, batches: list[Batch], step: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        seed, self.method.seed = self.method.seed, self.seed
        try:
            objective = self.method.objective_of([self.member], batches, step=step, share=share)
        finally:
            self.method.seed = seed
        self.method.absorb(objective)
        return objective.loss, objective.nll


def row_of(
    objective: nn.Module, parameters: Iterable[Tensor], buffers: Mapping[str, Tensor], slots: Iterable[Tensor]
) -> list[Tensor]:
    """One network's state in the order of `FusedStep.state`; buffers that are not given are the objective's."""
    return [*parameters, *(buffers.get(name, buffer) for name, buffer in objective.named_buffers()), *slots]


def member_row(objective: MemberObjective, rule: UpdateRule, row: slice) -> list[Tensor]:
    """The state of the members in a slice, in the order of `FusedStep.state`."""
    method = objective.method
    buffers = {f"method.{name}": method.get_buffer(name)[row] for name in method.member_buffers}
    number = method.numbers[row.start or 0]
    buffers["member"] = torch.tensor(number, dtype=torch.int32, device=objective.member.device)
    return row_of(
        objective,
        (parameter.detach()[row] for parameter in objective.parameters()),
        buffers,
        (tensor[row] for state in rule.state for tensor in state),
    )


def _cores_for(networks: int) -> tuple[int, int]:
    """How many networks are trained at once, and how many threads each has."""
    workers = min(networks, parallel.workers_for(torch.device("cpu")))
    return workers, torch.get_num_threads() // workers
