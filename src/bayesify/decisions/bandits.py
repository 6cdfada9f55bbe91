"""Contextual bandits: act, see the reward of that act alone, learn from the latest interactions, go on.

A network gives the reward of each act in a context. One draw of the weights for each decision, and the act that is best
under it, is Thompson sampling (W. Thompson 1933): an act is tried as often as it may be the best one; of an ensemble, a
member at random (I. Osband et al. 2016). A point estimate has one draw only: with it the same rule is greedy, and
`epsilon` makes it try an act at random now and then. After each decision the network takes a few steps on minibatches
of the latest interactions, as in C. Blundell et al. (2015, 5.3).
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
    """What is played: contexts by number, and what each act in them brings."""

    acts: int

    def context(self, step: int) -> Tensor:
        """What is seen before acting, `[features]`."""

    def inputs(self, context: Tensor) -> Tensor:
        """What the network is asked for each act, `[acts, inputs]`."""

    def reward(self, step: int, act: int) -> float:
        """What an act brings."""

    def best(self, step: int) -> float:
        """The expected reward of the best act, which regret is counted from."""


class Mushrooms:
    """Eat (act 1) or pass (act 0): edible +5, poisonous -35 or +5 at even odds, passing 0.

    Args:
        x: features of the mushrooms, `[n, features]`.
        poisonous: which are, `[n]`.
        steps: how many interactions to prepare.
        seed: of the mushrooms met and of the odds.
        shown: the features stand beside `both` acts, or beside `eating` alone, where passing is one and the same input
            for all mushrooms.

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
        """The features of the mushroom that is met."""
        return self.x[self.met[step]]

    def inputs(self, context: Tensor) -> Tensor:
        """Each act as one of two, beside the features."""
        beside = torch.zeros_like(context) if self.shown == "eating" else context
        return torch.cat((torch.stack((beside, context)), torch.eye(2)), 1)

    def reward(self, step: int, act: int) -> float:
        """What eating or passing brings."""
        if act == 0:
            return 0.0
        return -35.0 if self.poisonous[step] and not self.lucky[step] else 5.0

    def best(self, step: int) -> float:
        """Five for an edible one, nothing for a poisonous one."""
        return 0.0 if self.poisonous[step] else 5.0


@dataclass(frozen=True)
class Played:
    """What was done at each step, and what it cost beside the best act: `acts [steps]`, `regret [steps]`."""

    acts: Tensor
    regret: Tensor

    @property
    def cumulative(self) -> Tensor:
        """Regret summed up to each step."""
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
    """Play and learn.

    Args:
        method: whose network takes `bandit.inputs` and gives one number, the reward; not trained before.
        bandit: what is played.
        steps: decisions.
        epsilon: the share of decisions left to chance.
        first_by_chance: how many of the first decisions are left to chance, all of them: a network that has seen
            one bad reward and nothing else may never try that act again.
        draws: of the weights for each decision, whose answers are averaged; one is Thompson sampling.
        memory: how many of the latest interactions are learned from.
        batch_size: of a minibatch; drawn from the memory with replacement.
        updates: minibatches after each decision: a number, or a function of the decisions made.
        learning_rate: of the mean loss over a minibatch: a number, or a function of the decisions made.
        optimizer: as in `fit`.
        training_draws: of the weights for each minibatch.
        prior_weight: how often the prior counts, a number or a function of the decisions made: once is the posterior;
            less at first lets a network learn from the few rewards that it has.
        seed: of decisions and minibatches.
        compiled: compile the step, where that works.
        progress: called after each thousand decisions with their number and the regret so far.

    """
    at_least("steps", steps, 1)
    at_least("first_by_chance", first_by_chance, 0)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must be from 0 to 1, got {epsilon}")
    first = bandit.inputs(bandit.context(0))
    kept_x = torch.zeros(memory, first.shape[1])
    kept_y = torch.zeros(memory)
    learn = _Learner(method, (kept_x, kept_y), batch_size, optimizer, training_draws, seed, compiled)
    answers = _Answers(method, first, draws, seed, compiled)
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
            act = int(answers.of(inputs, step).argmax())
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


class _Answers(nn.Module):
    """The mean reward of each act under fresh draws of the weights, `[acts]`, compiled where that works."""

    def __init__(self, method: Method, inputs: Tensor, draws: int, seed: int, compiled: bool) -> None:
        super().__init__()
        self.method: Any = method
        self.draws, self.seed = draws, seed
        given = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        self.names, self.state = list(given), [tensor.detach() for tensor in given.values()]
        self.compiled: Callable[..., Tensor] | None = None
        if compiled and declares(method, "capturable"):
            try:
                example = (*self.state, inputs, torch.tensor(self._coordinates(0)))
                self.compiled = compile_function(self._flat, example)
            except Exception as problem:  # noqa: BLE001 -- no compiler: the plain path is there
                logger.warning("decisions are not compiled (%s): the plain path is used", first_line(problem)[:160])

    def of(self, inputs: Tensor, step: int) -> Tensor:
        """Those of one decision."""
        with torch.no_grad():
            if self.compiled is None:
                return self.forward(inputs, self._coordinates(step))
            return self.compiled(*self.state, inputs, torch.tensor(self._coordinates(step)))

    def forward(self, inputs: Tensor, coordinates: int | Tensor) -> Tensor:
        held = self.method.held
        draws = range(self.draws if held is None else held)
        theta, dropout = self.method.weights(draws, coordinates), self.method.dropout_keys(draws, coordinates)
        outputs = self.method.network.outputs(theta, inputs, dropout=dropout, fixed_mask=True)[0]
        if held is not None and self.draws < held:
            # Those that are asked: all of them, every time, would be a greedy agent with a better mean.
            key = noise.keys(coordinates, noise.Stream.PREDICTION, device=theta.device)[0]
            outputs = outputs[noise.permutation(key, held)[: self.draws]]
        mean: Tensor = outputs.mean(0)
        return mean.reshape(len(inputs), -1)[:, 0]

    def _coordinates(self, step: int) -> int:
        """The game's seed, and above its 32 bits the decision: as a tensor, a number that compiled draws can read."""
        return (self.seed & 0xFFFFFFFF) + ((step + 1) << 32)

    def _flat(self, *tensors: Tensor) -> Tensor:
        known = len(self.names)
        found: Tensor = functional_call(self, dict(zip(self.names, tensors[:known], strict=True)), tensors[known:])
        return found


class _Learner:
    """Minibatches of what is remembered, one fused step each."""

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
        """Some steps on the interactions that are known; the prior counts `prior_weight` times for all of them."""
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
            raise TrainingError("the network of a bandit stopped being finite: lower its learning rate")
