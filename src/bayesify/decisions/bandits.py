"""Contextual bandits: choose an act, see the reward of that act alone, learn from the latest interactions, repeat.

A network predicts the reward of each act in a context. Thompson sampling draws one set of weights for each decision and
takes the act that is best under it, so an act is tried as often as it is likely to be the best (Thompson, "On the
Likelihood that One Unknown Probability Exceeds Another in View of the Evidence of Two Samples", 1933). An ensemble uses
a member at random (Osband, Blundell, Pritzel and Van Roy, "Deep Exploration via Bootstrapped DQN", 2016,
arXiv:1602.04621). A point estimate has one draw only, which makes the rule greedy; `epsilon` adds random acts. After
each decision the network takes a few steps on minibatches of the latest interactions, as in section 5.3 of Blundell,
Cornebise, Kavukcuoglu and Wierstra, "Weight Uncertainty in Neural Networks", 2015, arXiv:1505.05424.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import TrainingError, at_least, choose, first_line
from bayesify.methods import Method
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.fused import FusedStep, fused_step
from bayesify.training.engines.updates import update_rule
from bayesify.training.optimisation import make_optimizer
from bayesify.training.trainable import declares

logger = logging.getLogger("bayesify")
_CHUNK = 512  # noise is made for this many decisions at once


class Bandit(Protocol):
    """The protocol of a contextual bandit: a context for each step, and the reward of each act in it.

    Attributes:
        acts: number of acts.

    """

    acts: int

    def context(self, step: int) -> Tensor:
        """What is seen before acting.

        Args:
            step: number of the decision, counted from zero.

        Returns:
            Features `[features]`.

        """

    def inputs(self, context: Tensor) -> Tensor:
        """Inputs of the network for each act in a context.

        Args:
            context: features `[features]`.

        Returns:
            Inputs `[acts, inputs]`.

        """

    def reward(self, step: int, act: int) -> float:
        """The reward of an act.

        Args:
            step: number of the decision, counted from zero.
            act: number of the act.

        """

    def best(self, step: int) -> float:
        """The expected reward of the best act, from which regret is computed.

        Args:
            step: number of the decision, counted from zero.

        """


class Mushrooms:
    """The mushroom bandit: eat (act 1) or pass (act 0).

    Eating an edible mushroom gives +5, eating a poisonous one -35 or +5 with equal probability, passing gives 0.

    Args:
        x: features of the mushrooms, `[n, features]`.
        poisonous: whether each is poisonous, `[n]`.
        steps: number of decisions to prepare.
        seed: seed of the mushrooms and of the rewards.
        shown: whether the features are part of the inputs of `both` acts or of `eating` alone; with `eating`, passing
            has the same input for all mushrooms.

    Raises:
        ValueError: for an unknown `shown`.

    Examples:
        >>> from bayesify.decisions import Mushrooms
        >>> bandit = Mushrooms(torch.eye(2), torch.tensor([0, 1]), steps=100)
        >>> bandit.inputs(bandit.context(0)).shape
        torch.Size([2, 4])
        >>> sorted({bandit.reward(step, act) for step in range(100) for act in range(2)})
        [-35.0, 0.0, 5.0]

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, "Weight Uncertainty in Neural Networks", 2015, arXiv:1505.05424.

    """

    acts = 2

    def __init__(self, x: Tensor, poisonous: Tensor, steps: int, seed: int = 0, shown: str = "both") -> None:
        self.shown = choose("shown", shown, ("both", "eating"))
        met, odds = noise.keys(seed, noise.Stream.TARGETS, network=1, draws=range(2))
        self.x = x
        self.met = (noise.uniform(met, steps).double() * len(x)).long().clamp(max=len(x) - 1)
        self.poisonous = poisonous.bool()[self.met].tolist()
        self.lucky = (noise.uniform(odds, steps) < 0.5).tolist()

    def context(self, step: int) -> Tensor:
        """Features of the mushroom at a step.

        Args:
            step: number of the decision, counted from zero.

        Returns:
            Features `[features]`.

        """
        return self.x[self.met[step]]

    def inputs(self, context: Tensor) -> Tensor:
        """The features, and the act as one of two indicators.

        Args:
            context: features `[features]`.

        Returns:
            Inputs `[2, features + 2]`.

        """
        beside = torch.zeros_like(context) if self.shown == "eating" else context
        return torch.cat((torch.stack((beside, context)), torch.eye(2)), 1)

    def reward(self, step: int, act: int) -> float:
        """The reward of eating or passing.

        Args:
            step: number of the decision, counted from zero.
            act: 1 to eat, 0 to pass.

        """
        if act == 0:
            return 0.0
        return -35.0 if self.poisonous[step] and not self.lucky[step] else 5.0

    def best(self, step: int) -> float:
        """The expected reward of the best act: 5 for an edible mushroom, 0 for a poisonous one.

        Args:
            step: number of the decision, counted from zero.

        """
        return 0.0 if self.poisonous[step] else 5.0


@dataclass(frozen=True)
class Played:
    """The acts and the regret of a game.

    Args:
        acts: the act of each step, `[steps]`.
        regret: expected reward of the best act minus the reward received, `[steps]`.

    """

    acts: Tensor
    regret: Tensor

    @property
    def cumulative(self) -> Tensor:
        """Cumulative regret, `[steps]`."""
        return self.regret.cumsum(0)


def play(
    method: Method,
    bandit: Bandit,
    *,
    steps: int,
    epsilon: float = 0.0,
    first_by_chance: int = 0,
    draws: int = 1,
    memory: int = 4096,
    batch_size: int = 64,
    updates: int | Callable[[int], int] = 64,
    learning_rate: float | Callable[[int], float] = 1e-3,
    optimizer: str = "adam",
    training_draws: int = 1,
    prior_weight: float | Callable[[int], float] = 1.0,
    seed: int = 0,
    compiled: bool = True,
    progress: Callable[[int, float], None] = lambda _, __: None,
) -> Played:
    """Play a contextual bandit with a method, which learns from the rewards.

    Args:
        method: an untrained method whose network takes `bandit.inputs` and predicts one number, the reward.
        bandit: the bandit.
        steps: number of decisions.
        epsilon: share of decisions that are random.
        first_by_chance: number of random decisions at the start. A network that has seen one bad reward and nothing
            else may never try that act again.
        draws: weight draws for each decision, whose predictions are averaged; 1 is Thompson sampling.
        memory: number of latest interactions that the network learns from.
        batch_size: examples in a minibatch, drawn from the memory with replacement.
        updates: minibatches after each decision: a number, or a function of the number of decisions.
        learning_rate: of the mean loss over a minibatch: a number, or a function of the number of decisions.
        optimizer: as in `fit`.
        training_draws: weight draws for each minibatch.
        prior_weight: weight of the prior, a number or a function of the number of decisions. With 1 the network learns
            the posterior. Less at the start lets it learn from few rewards.
        seed: seed of decisions and minibatches.
        compiled: compile the step, where that works.
        progress: called after each thousand decisions with their number and the regret so far.

    Returns:
        Acts and regret of each step.

    Raises:
        ValueError: if a number is out of its range.
        TrainingError: if the network stops being finite.

    Examples:
        >>> from bayesify.decisions import Mushrooms, play
        >>> bandit = Mushrooms(torch.eye(2), torch.tensor([0, 1]), steps=40)
        >>> method = bf.Variational(bf.networks.mlp(4, 1, units=4), "gaussian", prior="normal:1", seed=0)
        >>> played = play(method, bandit, steps=40, updates=2, first_by_chance=10, compiled=False)
        >>> played.acts.shape, played.cumulative.shape
        (torch.Size([40]), torch.Size([40]))

    """
    steps = at_least("steps", steps, 1)
    first_by_chance = at_least("first_by_chance", first_by_chance, 0)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must be from 0 to 1, got {epsilon}")
    first = bandit.inputs(bandit.context(0))
    kept_x = torch.zeros(memory, first.shape[1])
    kept_y = torch.zeros(memory)
    learn = _Learner(method, (kept_x, kept_y), batch_size, optimizer, training_draws, seed, compiled)
    predicted = _Rewards(method, first, draws, seed, compiled)
    regret, acts = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, dtype=torch.int64)
    chance: Tensor = torch.zeros(0)
    total = 0.0
    for step in range(steps):
        if step % _CHUNK == 0:
            key = noise.keys(seed, noise.Stream.TARGETS, network=2, step=step // _CHUNK)
            chance = noise.uniform(key, 2 * _CHUNK)[0].view(_CHUNK, 2)
        inputs = bandit.inputs(bandit.context(step))
        luck, which = chance[step % _CHUNK].tolist()
        if luck < epsilon or step < first_by_chance:
            act = min(int(which * bandit.acts), bandit.acts - 1)
        else:
            act = int(predicted.at(inputs, step).argmax())
        reward = bandit.reward(step, act)
        kept_x[step % memory], kept_y[step % memory] = inputs[act], reward
        acts[step], regret[step] = act, bandit.best(step) - reward
        total += float(regret[step])
        rate = learning_rate(step + 1) if callable(learning_rate) else learning_rate
        weight = prior_weight(step + 1) if callable(prior_weight) else prior_weight
        learn(min(step + 1, memory), updates(step + 1) if callable(updates) else updates, rate, weight)
        if (step + 1) % 1000 == 0:
            progress(step + 1, total)
    method.eval()
    return Played(acts, regret)


class _Rewards(nn.Module):
    """The mean reward of each act under new draws of the weights, `[acts]`, compiled where that works."""

    def __init__(self, method: Method, inputs: Tensor, draws: int, seed: int, compiled: bool) -> None:
        super().__init__()
        self.method: Any = method
        self.draws, self.seed = draws, seed
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        self.names, self.state = list(tensors), [tensor.detach() for tensor in tensors.values()]
        self.compiled: Callable[..., Tensor] | None = None
        if compiled and declares(method, "capturable"):
            try:
                example = (*self.state, inputs, torch.tensor(self._coordinates(0)))
                self.compiled = compile_function(self._flat, example)
            except Exception as problem:  # noqa: BLE001 -- no compiler: the plain path works
                logger.warning("decisions are not compiled (%s): the plain path is used", first_line(problem)[:160])

    def at(self, inputs: Tensor, step: int) -> Tensor:
        """The predicted rewards for one decision."""
        with torch.no_grad():
            if self.compiled is None:
                return self.forward(inputs, self._coordinates(step))
            return self.compiled(*self.state, inputs, torch.tensor(self._coordinates(step)))

    def forward(self, inputs: Tensor, coordinates: int | Tensor) -> Tensor:
        stored = self.method.held
        draws = range(self.draws if stored is None else stored)
        theta, dropout = self.method.weights(draws, coordinates), self.method.dropout_keys(draws, coordinates)
        outputs = self.method.network.outputs(theta, inputs, dropout=dropout, fixed_mask=True)[0]
        if stored is not None and self.draws < stored:
            # Only some of the stored draws, at random: all of them at every step would make the agent greedy.
            key = noise.keys(coordinates, noise.Stream.PREDICTION, device=theta.device)[0]
            outputs = outputs[noise.permutation(key, stored)[: self.draws]]
        mean: Tensor = outputs.mean(0)
        return mean.reshape(len(inputs), -1)[:, 0]

    def _coordinates(self, step: int) -> int:
        """The seed in the lower 32 bits and the decision above them: one number, a tensor for compiled code."""
        return (self.seed & 0xFFFFFFFF) + ((step + 1) << 32)

    def _flat(self, *tensors: Tensor) -> Tensor:
        known = len(self.names)
        rewards: Tensor = functional_call(self, dict(zip(self.names, tensors[:known], strict=True)), tensors[known:])
        return rewards


class _Learner:
    """Training on minibatches of the memory, one fused step each."""

    def __init__(
        self,
        method: Method,
        memory: tuple[Tensor, Tensor],
        batch_size: int,
        optimizer: str,
        draws: int,
        seed: int,
        compiled: bool,
    ) -> None:
        self.memory, self.batch_size, self.seed = memory, batch_size, seed
        batch = (memory[0][:batch_size], memory[1][:batch_size])
        method.seed = seed
        method.train()
        method.network.traced(batch[0][:2])
        made = make_optimizer(optimizer, method.parameters(), 1e-3)
        fused = fused_step(method, made, draws, [batch]) if compiled else None
        self.step = fused or FusedStep(method, update_rule(made), draws)
        self.layout = pytree.tree_flatten([batch])[1]
        self.method = method

    def __call__(self, known: int, updates: int, rate: float, prior_weight: float) -> None:
        """Make `updates` steps on the first `known` interactions of the memory."""
        if not updates:
            return
        x, y = self.memory
        done = self.step.done
        keys = noise.keys(self.seed, noise.Stream.SHUFFLE, step=done)
        rows = (noise.uniform(keys, updates * self.batch_size)[0] * known).long().clamp(max=known - 1)
        share = prior_weight * self.batch_size / known
        numbers = torch.tensor([self.step.numbers(share, rate, ahead) for ahead in range(updates)])
        steps = torch.arange(done, done + updates)
        xs, ys = x[rows].split(self.batch_size), y[rows].split(self.batch_size)
        for at in range(updates):
            nll = self.step.evaluate(self.layout, [xs[at], ys[at]], steps[at], numbers[at])
        self.step.done += updates
        if not torch.isfinite(nll):
            raise TrainingError("the bandit's network diverged: its loss is not finite; lower learning_rate")
