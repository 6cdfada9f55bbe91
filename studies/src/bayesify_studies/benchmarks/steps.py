"""Training steps as functions of nothing, so that they can take turns: plain, Bayesian, and replayed from a graph.

The plain step is what a PyTorch user writes: zero_grad, cross-entropy, backward, fused Adam. Ours is what `fit` runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesify import networks
from bayesify.likelihoods import Categorical
from bayesify.methods.method import Method
from bayesify.methods.point import PointEstimate
from bayesify.methods.variational.variational import Variational
from bayesify.training.batches import TensorExamples
from bayesify.training.engines.fused import fused_step
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.side_by_side import SideBySideSteps, members_side_by_side
from bayesify.training.engines.single import graphed_steps
from bayesify.training.loop import Plan

INPUTS, CLASSES = 784, 10
# Of MNIST: it sets the weight of the KL and nothing of the work.
N_DATA = 60_000
MIXTURE = "scale-mixture:0.75,1,0.000335"
RATE = 1e-3
_EPOCHS = 1000

Step = Callable[[], Any]


def images(count: int, device: str = "cpu", seed: int = 0) -> tuple[Tensor, Tensor]:
    """Grey levels of the size of MNIST and labels; a step takes as long whatever they show."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, INPUTS, generator=generator)
    return x.to(device), torch.randint(0, CLASSES, (count,), generator=generator).to(device)


def perceptron(units: int) -> nn.Sequential:
    """784 inputs, two hidden layers, ten classes."""
    torch.manual_seed(0)
    return networks.mlp(INPUTS, CLASSES, units=units)


def variational(units: int, prior: str = MIXTURE, estimator: str = "weight") -> Variational:
    """A perceptron made Bayesian."""
    return Variational(perceptron(units), Categorical(), prior=prior, estimator=estimator)


def point(units: int) -> PointEstimate:
    """The same perceptron by maximum likelihood, by the same means as ours."""
    return PointEstimate(perceptron(units), Categorical())


def plain_step(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    """One step of maximum likelihood as a PyTorch user writes it."""
    network = network.to(x.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(network(x), y))
        optimizer.step()

    return step


def training_step(
    method: Method, x: Tensor, y: Tensor, *, draws: int = 1, optimizer: str = "adam", compiled: bool = True
) -> tuple[Step, str]:
    """One step of a method as `fit` makes it, and the path that it takes: `compiled` or `plain`."""
    run, path = _stepper(method, x, y, draws, optimizer, compiled)
    batches, share = [(x, y)] * method.members, x.shape[0] / N_DATA
    return (lambda: run(batches, share)), path


def training_epoch(method: Method, x: Tensor, y: Tensor, batch_size: int, *, compiled: bool = True) -> Step:
    """An epoch of a method as `fit` makes it: its order, its batches fetched one by one, its steps."""
    examples, numbers = TensorExamples(x, y), itertools.count()
    if compiled:
        made, batches = prepared(method, x[:batch_size], y[:batch_size])
        apart = members_side_by_side(method, made, examples, batch_size, batches)
        if apart is not None:
            return Epochs(apart, examples, batch_size, method.members).epoch
    run, _ = _stepper(method, x[:batch_size], y[:batch_size], 1, "adam", compiled)

    def epoch() -> None:
        for batches in examples.batches(batch_size, 0, next(numbers), method.members):
            run(batches, batches[0][1].shape[0] / examples.n_data)

    return epoch


def _stepper(
    method: Method, x: Tensor, y: Tensor, draws: int, optimizer: str, compiled: bool
) -> tuple[Callable[[list[Any], float], None], str]:
    made, batches = prepared(method, x, y, draws, optimizer)
    fused = fused_step(method, made, draws, batches) if compiled else None
    numbers = itertools.count()

    def run(batches: list[Any], share: float) -> None:
        if fused is not None:
            fused(batches, next(numbers), share, RATE)
            return
        made.zero_grad(set_to_none=True)
        objective = method.backward(batches, step=next(numbers), share=share, draws=draws)
        made.step()
        method.absorb(objective)

    return run, "plain" if fused is None else "compiled"


def prepared(
    method: Method, x: Tensor, y: Tensor, draws: int = 1, optimizer: str = "adam"
) -> tuple[torch.optim.Optimizer, list[tuple[Any, Tensor]]]:
    """A method that is ready for its first step: its optimiser and one batch for each member."""
    method.to(x.device)
    plan = Plan(epochs=_EPOCHS, batch_size=x.shape[0], draws=draws, optimizer=optimizer)
    method._begin(plan, TensorExamples(x, y))  # noqa: SLF001 -- these steps are made without the training loop
    method.train()
    return method.make_optimizer(optimizer, RATE), [(x, y)] * method.members


class Epochs:
    """Epochs of one method whose steps are replays of one captured graph, or handed out to the cores of a CPU."""

    def __init__(
        self, graphed: GraphedSteps | SideBySideSteps, examples: TensorExamples, batch_size: int, members: int = 1
    ) -> None:
        self.graphed, self.fused, self.members = graphed, graphed.fused, members
        self.examples, self.batch_size = examples, batch_size
        self.batches = examples.count_batches(batch_size)
        self._epoch = 0
        self._done = self.batches

    @classmethod
    def of(
        cls, method: Method, x: Tensor, y: Tensor, batch_size: int, draws: int = 1, optimizer: str = "adam"
    ) -> Epochs:
        """Those of a method on a GPU, on data that is already there."""
        made, batches = prepared(method, x[:batch_size], y[:batch_size], draws, optimizer)
        examples = TensorExamples(x, y)
        graphed = graphed_steps(method, made, draws, examples, batch_size, batches)
        if graphed is None:
            raise ValueError(f"the step of {method.name} is not fused here, and only a fused step can be captured")
        return cls(graphed, examples, batch_size, method.members)

    def step(self) -> None:
        """The next step of an epoch without its last, smaller batch; a new epoch is set up where one ends."""
        whole = self.examples.n_data // self.batch_size
        if self._done >= whole:
            self.begin()
        self.graphed.step(self.batch_size)
        if self._done == 0 and isinstance(self.graphed, GraphedSteps) and not self.graphed.replays(self.batch_size):
            raise ValueError("the step could not be captured, and only replays are to be timed")
        self._done += 1

    def epoch(self) -> Tensor:
        """A whole epoch, its smaller last batch included; its summed NLL, for which all steps have to be done."""
        self.begin()
        for number in range(self.batches):
            self.graphed.step(min(self.batch_size, self.examples.n_data - number * self.batch_size))
        self._done = self.batches
        return self.graphed.nll

    def begin(self) -> None:
        """Set the next epoch up."""
        share = self.batch_size / self.examples.n_data
        table = [self.fused.numbers(share, RATE, ahead=number) for number in range(self.batches)]
        order = self.examples.orders(0, self._epoch, self.members, self.examples.y.device)
        self.graphed.begin(order, table, self._epoch * self.batches, 0)
        self._epoch += 1
        self._done = 0
