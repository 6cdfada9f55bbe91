"""Agents for contextual bandits whose posterior is in closed form: linear, and logistic for rewards with two values.

An agent has one model of the reward for each act. From the mean and the standard deviation of the expected reward in a
context, `by` decides:

    thompson    mean + spread * std * a standard normal draw
    ucb         mean + spread * std
    greedy      mean

and takes the act with the largest value; `epsilon` adds acts at random. Because the acts share no weights, a draw of
the reward from its normal is the same as a draw of all weights. `ucb` on a linear model is LinUCB (L. Li, W. Chu,
J. Langford and R. Schapire, "A Contextual-Bandit Approach to Personalized News Article Recommendation", 2010,
arXiv:1003.0146). `spread` below 1 narrows the posterior (O. Chapelle and L. Li, "An Empirical Evaluation of Thompson
Sampling", 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bayesify.decisions.bandit_environments import ContextualBandit
from bayesify.decisions.bandits import Played
from bayesify.errors import at_least, choose

Floats = NDArray[np.float64]
RULES = ("thompson", "ucb", "greedy")


class Agent(Protocol):
    """The protocol of an agent: it acts in a context and learns from the reward of its act."""

    def act(self, context: Floats) -> int:
        """The number of the act that is taken.

        Args:
            context: what is seen, `[features]`.

        """

    def learn(self, context: Floats, act: int, reward: float) -> None:
        """Learn from a reward.

        Args:
            context: what was seen, `[features]`.
            act: the act that was taken.
            reward: what it gave.

        """


def play_bandit(
    agent: Agent,
    bandit: ContextualBandit,
    *,
    seed: int = 0,
    first_by_chance: int = 0,
    progress: Callable[[int, float], None] = lambda _, __: None,
) -> Played:
    """Let an agent play one episode of a bandit.

    Args:
        agent: an agent that has learned nothing yet, or goes on from earlier episodes.
        bandit: the bandit.
        seed: of the contexts, of the luck, and of the acts by chance.
        first_by_chance: number of random acts at the start, the same for all agents with this seed.
        progress: called after each thousand decisions with their number and the regret so far.

    Returns:
        Acts and regret of each step.

    Raises:
        TypeError: if `bandit` is no `ContextualBandit`, such as an environment of Gymnasium.
        ValueError: if a number is out of range.

    Examples:
        >>> from bayesify.decisions import LinearAgent, linear_bandit, play_bandit
        >>> played = play_bandit(LinearAgent(3, 4), linear_bandit(3, 4, steps=200), seed=0)
        >>> played.acts.shape, bool(played.regret[-50:].mean() < played.regret[:50].mean())
        (torch.Size([200]), True)

    """
    first_by_chance = at_least("first_by_chance", first_by_chance, 0)
    if not all(hasattr(bandit, name) for name in ("acts", "steps", "total_regret")):
        raise TypeError(
            f"play_bandit takes a ContextualBandit, got {type(bandit).__name__}: give the bandit that as_gymnasium took"
        )
    acts_of_agent = getattr(agent, "acts", bandit.acts)
    if acts_of_agent != bandit.acts:
        raise ValueError(f"the bandit has {bandit.acts} acts, the agent {acts_of_agent}: give it acts={bandit.acts}")
    # The second word keeps these acts apart from the bandit's own chance.
    first = np.random.default_rng([seed, 1]).integers(bandit.acts, size=first_by_chance)
    acts, regret = torch.zeros(bandit.steps, dtype=torch.int64), torch.zeros(bandit.steps, dtype=torch.float64)
    context, _ = bandit.reset(seed=seed)
    for step in range(bandit.steps):
        act = int(first[step]) if step < first_by_chance else agent.act(context)
        following, reward, _, _, info = bandit.step(act)
        agent.learn(context, act, reward)
        acts[step], regret[step] = act, info["regret"]
        context = following
        if (step + 1) % 1000 == 0:
            progress(step + 1, bandit.total_regret)
    return Played(acts, regret)


def check_reward(act: int, reward: float, acts: int) -> None:
    """Refuse an act that is not there, and a reward that is no finite number."""
    if not (isinstance(act, int | np.integer) and 0 <= act < acts):
        raise ValueError(f"act must be a whole number from 0 to {acts - 1}, got {act!r}")
    if not math.isfinite(reward):
        raise ValueError(f"reward must be a finite number, got {reward!r}")


class _ByRule:
    """The choice of an act from means and standard deviations."""

    def __init__(self, acts: int, features: int, by: str, spread: float, epsilon: float, seed: int) -> None:
        self.acts, self.features = at_least("acts", acts, 1), at_least("features", features, 1)
        self.by = choose("by", by, RULES)
        if not 0 <= epsilon <= 1:
            raise ValueError(f"epsilon must be from 0 to 1, got {epsilon}")
        if not spread >= 0:
            raise ValueError(f"spread must be at least 0, got {spread}")
        self.spread, self.epsilon = spread, epsilon
        self._chance = np.random.default_rng([seed, 2])

    def _reach(self) -> Floats | int:
        """How many standard deviations above its mean each act is judged, or an act by chance.

        The same numbers are drawn whatever the rule is.
        """
        draws, luck, which = self._chance.standard_normal(self.acts), *self._chance.random(2)
        if luck < self.epsilon:
            return int(which * self.acts)
        rules = {"thompson": draws, "ucb": np.ones(self.acts), "greedy": np.zeros(self.acts)}
        return self.spread * rules[self.by]

    def _choose(self, mean: Floats, std: Floats) -> int:
        reach = self._reach()
        return reach if isinstance(reach, int) else int((mean + reach * std).argmax())

    def _seen(self, context: Floats) -> Floats:
        """The context with a constant at its end, for the intercept."""
        context = np.asarray(context, dtype=np.float64)
        if context.shape != (self.features,):
            raise ValueError(f"context must be [{self.features}], got {list(context.shape)}")
        if not np.isfinite(context).all():
            raise ValueError("context must be finite numbers: fill in or remove what is missing")
        return np.append(context, 1.0)


class LinearAgent(_ByRule):
    """Bayesian linear regression of the reward of each act: `thompson`, `ucb` (LinUCB) or `greedy`.

        w ~ N(0, prior^2 I),   reward = w . (context, 1) + N(0, noise^2)

    The posterior is exact; a reward changes it by a rank-one update.

    Args:
        acts: number of acts.
        features: length of a context.
        by: how an act is chosen: `thompson`, `ucb` or `greedy`.
        prior: standard deviation of a weight before data.
        noise: standard deviation of a reward around its mean.
        spread: factor of the posterior's standard deviation.
        epsilon: share of acts at random.
        seed: of the draws.

    Attributes:
        mean: posterior means, `[acts, features + 1]`.
        covariance: posterior covariances, `[acts, features + 1, features + 1]`.

    Raises:
        ValueError: if a number is out of range.

    Examples:
        >>> import numpy
        >>> from bayesify.decisions import LinearAgent
        >>> agent = LinearAgent(2, 1, by="greedy", prior=10.0)
        >>> agent.learn(numpy.ones(1), 1, 5.0)
        >>> agent.act(numpy.ones(1))
        1

    """

    def __init__(
        self,
        acts: int,
        features: int,
        *,
        by: str = "thompson",
        prior: float = 1.0,
        noise: float = 1.0,
        spread: float = 1.0,
        epsilon: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(acts, features, by, spread, epsilon, seed)
        if not (prior > 0 and noise > 0):
            raise ValueError(f"prior and noise must be above 0, got {prior} and {noise}")
        self.noise, self.prior = noise, prior
        self.forget()

    def forget(self) -> None:
        """Go back to the prior."""
        size = self.features + 1
        self.mean = np.zeros((self.acts, size))
        self.covariance = np.tile(self.prior**2 * np.eye(size), (self.acts, 1, 1))

    def act(self, context: Floats) -> int:
        """The act that the rule takes.

        Args:
            context: what is seen, `[features]`; or one row for each act, `[acts, features]`.

        """
        if np.ndim(context) == 2:
            seen = np.stack([self._seen(row) for row in context])
        else:
            seen = np.tile(self._seen(context), (self.acts, 1))
        if len(seen) != self.acts:
            raise ValueError(f"context must have a row for each of {self.acts} acts, got {len(seen)}")
        variance = ((self.covariance @ seen[..., None])[..., 0] * seen).sum(1)
        return self._choose((self.mean * seen).sum(1), np.sqrt(np.maximum(variance, 0.0)))

    def learn(self, context: Floats, act: int, reward: float) -> None:
        """Update the posterior of the act that was taken.

        Args:
            context: what was seen, `[features]`.
            act: the act.
            reward: what it gave.

        """
        check_reward(act, reward, self.acts)
        seen = self._seen(context)
        moved = self.covariance[act] @ seen
        gain = moved / (self.noise**2 + seen @ moved)
        self.mean[act] += gain * (reward - self.mean[act] @ seen)
        self.covariance[act] -= np.outer(gain, moved)

    def learn_all(self, contexts: Floats, act: int, rewards: Floats) -> None:
        """Update the posterior of an act with many rewards at once.

        Args:
            contexts: what was seen, `[n, features]`.
            act: the act.
            rewards: what it gave, `[n]`.

        """
        seen = np.concatenate((contexts, np.ones((len(contexts), 1))), 1)
        before = np.linalg.inv(self.covariance[act])
        self.covariance[act] = np.linalg.inv(before + seen.T @ seen / self.noise**2)
        self.mean[act] = self.covariance[act] @ (before @ self.mean[act] + seen.T @ rewards / self.noise**2)


class LogisticAgent(_ByRule):
    """Bayesian logistic regression for rewards that have two values for each act, such as gain or loss, click or none.

        w ~ N(0, prior^2 I),   P(reward is the higher one) = sigmoid(w . (context, 1))

    The posterior is the normal of T. Jaakkola and M. Jordan, "Bayesian parameter estimation via variational methods",
    2000: a bound of the logistic function that is tight at xi makes the update exact, and xi is set to the root of the
    expected square of the logit. The two values are those that were seen; an act with a single value so far is taken to
    always give it. Rows that come again are stored once, so that a refit costs what the distinct ones cost.

    Args:
        acts: number of acts.
        features: length of a context.
        by: how an act is chosen: `thompson`, `ucb` or `greedy`.
        prior: standard deviation of a weight before data.
        spread: factor of the posterior's standard deviation.
        epsilon: share of acts at random.
        refit_every: decisions between refits of all bounds; early ones come as often as an eighth of the data.
        seed: of the draws.

    Raises:
        ValueError: if a number is out of range, or an act has a third value of the reward.

    Examples:
        >>> import numpy
        >>> from bayesify.decisions import LogisticAgent
        >>> agent = LogisticAgent(2, 1, by="greedy")
        >>> for reward in (1.0, -1.0, -1.0, -1.0):
        ...     agent.learn(numpy.ones(1), 0, reward)
        >>> agent.learn(numpy.ones(1), 1, 0.0)
        >>> agent.act(numpy.ones(1))
        1

    """

    def __init__(
        self,
        acts: int,
        features: int,
        *,
        by: str = "thompson",
        prior: float = 1.0,
        spread: float = 1.0,
        epsilon: float = 0.0,
        refit_every: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__(acts, features, by, spread, epsilon, seed)
        if not prior > 0:
            raise ValueError(f"prior must be above 0, got {prior}")
        refit_every = at_least("refit_every", refit_every, 1)
        self.models = [_Logistic(features + 1, prior, refit_every) for _ in range(acts)]

    def act(self, context: Floats) -> int:
        """The act that the rule takes.

        Args:
            context: what is seen, `[features]`.

        """
        seen = self._seen(context)
        reach = self._reach()
        if isinstance(reach, int):
            return reach
        # The reward rises with the logit: a draw of one is a draw of the other.
        return int(np.argmax([model.reward(seen, far) for model, far in zip(self.models, reach, strict=True)]))

    def learn(self, context: Floats, act: int, reward: float) -> None:
        """Update the model of the act that was taken.

        Args:
            context: what was seen, `[features]`.
            act: the act.
            reward: what it gave.

        Raises:
            ValueError: if it is a third value for this act.

        """
        check_reward(act, reward, self.acts)
        self.models[act].learn(self._seen(context), float(reward))


class _Logistic:
    """The posterior of one act."""

    def __init__(self, size: int, prior: float, refit_every: int) -> None:
        self.prior, self.refit_every = prior, refit_every
        self.values: list[float] = []
        self.rows: dict[bytes, int] = {}
        self.table, self.counts, self.higher = np.zeros((16, size)), np.zeros(16), np.zeros(16)
        self.covariance, self.mean = prior**2 * np.eye(size), np.zeros(size)
        self.shift = np.zeros(size)  # the sum of (outcome - 1/2) times the row
        self.learned, self.refitted = 0, 0

    def reward(self, seen: Floats, far: float) -> float:
        """The expected reward, `far` standard deviations of the logit from its mean."""
        if len(self.values) < 2:
            return self.values[0] if self.values else 0.0
        logit = self.mean @ seen + far * np.sqrt(np.maximum(seen @ self.covariance @ seen, 0.0))
        low, high = self.values
        return float(low + (high - low) / (1 + np.exp(-np.clip(logit, -500, 500))))

    def learn(self, seen: Floats, reward: float) -> None:
        self._know(reward)
        place = self._place(seen)
        self.counts[place] += 1
        self.learned += 1
        if len(self.values) < 2:
            return
        outcome = float(reward == self.values[1])
        self.higher[place] += outcome
        self.shift += (outcome - 0.5) * seen
        moved = self.covariance @ seen
        variance = seen @ moved
        weight = float(_bound(np.sqrt(variance + (self.mean @ seen) ** 2)))
        self.covariance -= np.outer(moved, moved) * (weight / (1 + weight * variance))
        self.mean = self.covariance @ self.shift
        if self.learned - self.refitted >= min(self.refit_every, max(4, self.refitted // 8)):
            self._refit(4)

    def _know(self, reward: float) -> None:
        """Take note of a value that is new."""
        if reward in self.values:
            return
        if len(self.values) == 2:
            raise ValueError(
                f"a LogisticAgent takes two values of the reward for each act, got {reward:g} after {self.values[0]:g} "
                f"and {self.values[1]:g}: use LinearAgent"
            )
        self.values = sorted([*self.values, reward])
        if len(self.values) == 2:
            # All rewards before were the other value.
            used = len(self.rows)
            self.higher[:used] = self.counts[:used] * (reward == self.values[0])
            self.shift = (self.higher[:used] - 0.5 * self.counts[:used]) @ self.table[:used]
            if used:
                self._refit(4)

    def _place(self, seen: Floats) -> int:
        place = self.rows.setdefault(seen.tobytes(), len(self.rows))
        if place == len(self.table):
            self.table = np.concatenate((self.table, np.zeros_like(self.table)))
            self.counts, self.higher = (np.concatenate((one, np.zeros_like(one))) for one in (self.counts, self.higher))
        self.table[place] = seen
        return place

    def _refit(self, rounds: int) -> None:
        """Tighten the bounds of all rows, which the updates one by one leave as they were."""
        used = len(self.rows)
        table, counts = self.table[:used], self.counts[:used]
        for _ in range(rounds):
            variance = np.einsum("nd,nd->n", table @ self.covariance, table)
            weights = counts * _bound(np.sqrt(np.maximum(variance, 0) + (table @ self.mean) ** 2))
            precision = (table * weights[:, None]).T @ table + np.eye(table.shape[1]) / self.prior**2
            self.covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
            self.mean = self.covariance @ self.shift
        self.refitted = self.learned


def _bound(xi: Any) -> Floats:
    """Twice Jaakkola and Jordan's lambda(xi) = tanh(xi / 2) / (4 xi), which is 1 / 4 at 0."""
    xi = np.maximum(xi, 1e-6)
    return np.asarray(np.tanh(xi / 2) / (2 * xi), dtype=np.float64)
