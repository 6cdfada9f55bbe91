"""Contextual bandits in Gymnasium's form: `reset` shows a context, `step(act)` returns the reward of that act alone.

    regret of a step = expected reward of the best act - reward that was received

The seed decides the contexts and the luck of every act. Two agents that play the same seed therefore meet the same
contexts and, wherever they choose the same act, the same reward: their regrets can be compared seed by seed.
`reset` and `step` need nothing but numpy. The spaces and `as_gymnasium` need the package gymnasium
(`pip install 'bayesify[bandits]'`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesify.errors import at_least

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Situation:
    """What one step of a bandit offers.

    Args:
        context: what the agent sees, `[features]`.
        rewards: the reward that each act would give, `[acts]`; the agent sees that of its own act alone.
        expected: the expected reward of each act, `[acts]`.

    """

    context: Floats
    rewards: Floats
    expected: Floats


class ContextualBandit:
    """A contextual bandit that ends after `steps` decisions.

    Args:
        situations: a function of a numpy generator that returns the situation of one step.
        acts: number of acts.
        features: length of a context.
        steps: number of decisions after which an episode is truncated.
        name: name of the bandit.

    Attributes:
        total_regret: the regret of the episode so far.

    Raises:
        ValueError: if a number is below 1.

    Examples:
        >>> from bayesify.decisions import wheel_bandit
        >>> bandit = wheel_bandit(steps=3)
        >>> context, info = bandit.reset(seed=0)
        >>> context, reward, terminated, truncated, info = bandit.step(0)
        >>> sorted(info), truncated
        (['best', 'expected_regret', 'regret'], False)

    """

    def __init__(
        self,
        situations: Callable[[np.random.Generator], Situation],
        *,
        acts: int,
        features: int,
        steps: int,
        name: str = "bandit",
    ) -> None:
        self.situations, self.name = situations, name
        self.acts, self.features, self.steps = (
            at_least("acts", acts, 1),
            at_least("features", features, 1),
            at_least("steps", steps, 1),
        )
        self.done: int | None = None
        self.total_regret = 0.0
        self._chance = np.random.default_rng()

    @property
    def observation_space(self) -> Any:
        """Gymnasium's box of all contexts, `[features]` numbers."""
        low = np.full(self.features, -np.inf)
        return _gymnasium().spaces.Box(low, -low, dtype=np.float64)

    @property
    def action_space(self) -> Any:
        """Gymnasium's space of the acts, numbered from 0."""
        return _gymnasium().spaces.Discrete(self.acts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of the contexts and of the luck; None goes on with the chance of the episode before.
            options: not used; Gymnasium passes it.

        Returns:
            The first context `[features]`, and an empty dict.

        """
        if seed is not None:
            self._chance = np.random.default_rng(seed)
        self.done, self.total_regret = 0, 0.0
        self._now = self.situations(self._chance)
        return self._now.context.copy(), {}

    def step(self, act: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Act, and see the next context.

        Args:
            act: the number of the act.

        Returns:
            The next context, the reward, whether the episode is terminated (never), whether it is truncated (after
            `steps`), and a dict with `regret`, `expected_regret` and the `best` act.

        Raises:
            ValueError: if there is no such act, or the episode has not begun or is over.

        """
        if self.done is None:
            raise ValueError("the episode has not begun: call reset() first")
        if self.done >= self.steps:
            raise ValueError(f"the episode is over after {self.steps} steps: call reset()")
        act = _checked_act(act, self.acts)
        now, best = self._now, int(self._now.expected.argmax())
        reward = float(now.rewards[act])
        highest = float(now.expected[best])
        info = {"regret": highest - reward, "expected_regret": highest - float(now.expected[act]), "best": best}
        self.total_regret += info["regret"]
        self.done += 1
        self._now = self.situations(self._chance)
        return self._now.context.copy(), reward, False, self.done >= self.steps, info


def mushroom_bandit(x: Any, poisonous: Any, *, steps: int = 50_000) -> ContextualBandit:
    """The mushroom bandit: eat (act 1: +5; poisonous: -35 or +5 with equal probability) or pass (act 0: 0).

    C. Blundell, J. Cornebise, K. Kavukcuoglu and D. Wierstra, "Weight Uncertainty in Neural Networks", 2015,
    arXiv:1505.05424, section 5.3.

    Args:
        x: features of the mushrooms, `[n, features]`.
        poisonous: whether each is poisonous, `[n]`.
        steps: number of decisions.

    Returns:
        The bandit.

    Raises:
        ValueError: if the number of mushrooms is zero or differs between `x` and `poisonous`, or `x` is not finite.

    Examples:
        >>> from bayesify.decisions import mushroom_bandit
        >>> bandit = mushroom_bandit([[1.0, 0.0], [0.0, 1.0]], [0, 1], steps=5)
        >>> bandit.reset(seed=1)[0].shape, bandit.acts
        ((2,), 2)

    """
    features, labels = np.asarray(x, dtype=np.float64), np.asarray(poisonous)
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("poisonous must be 0 or 1 for each mushroom")
    bad = labels.astype(bool)
    if features.ndim != 2 or len(features) != len(bad) or not len(bad):
        raise ValueError(
            f"x must be [n, features] and poisonous [n], n at least 1; got {features.shape} and {bad.shape}"
        )
    if not np.isfinite(features).all():
        raise ValueError("x must be finite numbers: fill in or remove what is missing")

    def situation(chance: np.random.Generator) -> Situation:
        met, lucky = chance.integers(len(features)), chance.random() < 0.5
        eaten = -35.0 if bad[met] and not lucky else 5.0
        return Situation(features[met], np.array([0.0, eaten]), np.array([0.0, -15.0 if bad[met] else 5.0]))

    return ContextualBandit(situation, acts=2, features=features.shape[1], steps=steps, name="mushroom")


def wheel_bandit(delta: float = 0.95, *, steps: int = 50_000) -> ContextualBandit:
    """The wheel bandit: act 0 is safe; in the outer ring one of four other acts, by the quarter, gives 50 instead of 1.

    C. Riquelme, G. Tucker and J. Snoek, "Deep Bayesian Bandits Showdown", 2018, arXiv:1802.09127. Contexts are uniform
    on the unit disc. Rewards have means 1.2 (act 0), 1.0 (the others) and 50 (the right act beyond radius `delta`), and
    standard deviation 0.01.

    Args:
        delta: the radius of the inner disc, from 0 to below 1; the larger, the rarer is the high reward.
        steps: number of decisions.

    Returns:
        The bandit.

    Raises:
        ValueError: if `delta` is out of range.

    Examples:
        >>> from bayesify.decisions import wheel_bandit
        >>> bandit = wheel_bandit(0.5, steps=10)
        >>> context, _ = bandit.reset(seed=0)
        >>> bool((context**2).sum() <= 1), bandit.acts
        (True, 5)

    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be from 0 to below 1, got {delta}")

    def situation(chance: np.random.Generator) -> Situation:
        radius, angle = np.sqrt(chance.random()), 2 * np.pi * chance.random()
        context = radius * np.array([np.cos(angle), np.sin(angle)])
        expected = np.array([1.2, 1.0, 1.0, 1.0, 1.0])
        if radius > delta:
            # Quarters: both positive, x alone, y alone, none.
            expected[1 + 2 * (context[0] < 0) + (context[1] < 0)] = 50.0
        return Situation(context, expected + 0.01 * chance.standard_normal(5), expected)

    return ContextualBandit(situation, acts=5, features=2, steps=steps, name="wheel")


def linear_bandit(
    acts: int = 8, features: int = 10, noise: float = 1.0, *, steps: int = 10_000, seed: int = 0
) -> ContextualBandit:
    """A bandit whose expected rewards are linear in a normal context, with a normal weight vector for each act.

    Args:
        acts: number of acts.
        features: length of a context.
        noise: standard deviation of the rewards.
        steps: number of decisions.
        seed: of the weight vectors; `reset(seed=)` decides contexts and luck.

    Returns:
        The bandit.

    Raises:
        ValueError: if a number is out of range.

    Examples:
        >>> from bayesify.decisions import linear_bandit
        >>> linear_bandit(3, 4).reset(seed=0)[0].shape
        (4,)

    """
    weights = np.random.default_rng(seed).standard_normal(
        (at_least("acts", acts, 1), at_least("features", features, 1))
    )
    return _of_means(lambda context: weights @ context, acts, features, noise, steps, "linear")


def quadratic_bandit(
    acts: int = 5, features: int = 4, noise: float = 0.5, *, steps: int = 10_000, seed: int = 0
) -> ContextualBandit:
    """A bandit whose expected rewards are quadratic in a normal context, which no linear agent can represent.

    Args:
        acts: number of acts.
        features: length of a context.
        noise: standard deviation of the rewards.
        steps: number of decisions.
        seed: of the quadratic forms; `reset(seed=)` decides contexts and luck.

    Returns:
        The bandit.

    Raises:
        ValueError: if a number is out of range.

    Examples:
        >>> from bayesify.decisions import quadratic_bandit
        >>> quadratic_bandit(3, 4).reset(seed=0)[0].shape
        (4,)

    """
    shape = (at_least("acts", acts, 1), at_least("features", features, 1), features)
    forms = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(features)
    return _of_means(lambda context: (forms @ context) @ context, acts, features, noise, steps, "quadratic")


def table_bandit(contexts: Any, rewards: Any, *, steps: int = 1000) -> ContextualBandit:
    """A bandit from a table: a row at random is shown, and the reward of every act in it is known.

    Labelled data become a bandit this way, with reward 1 for the right class.

    Args:
        contexts: what is seen, `[n, features]`.
        rewards: the reward of each act in each row, `[n, acts]`.
        steps: number of decisions.

    Returns:
        The bandit.

    Raises:
        ValueError: if the tables do not fit together or are not finite.

    Examples:
        >>> from bayesify.decisions import table_bandit
        >>> bandit = table_bandit([[0.0], [1.0]], [[1.0, 0.0], [0.0, 1.0]], steps=4)
        >>> context, _ = bandit.reset(seed=0)
        >>> bandit.step(int(context[0]))[1]
        1.0

    """
    seen, paid = np.asarray(contexts, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    if seen.ndim != 2 or paid.ndim != 2 or len(seen) != len(paid) or not len(seen):
        raise ValueError(f"contexts must be [n, features] and rewards [n, acts]; got {seen.shape} and {paid.shape}")
    if not (np.isfinite(seen).all() and np.isfinite(paid).all()):
        raise ValueError("contexts and rewards must be finite numbers: fill in or remove what is missing")

    def situation(chance: np.random.Generator) -> Situation:
        row = chance.integers(len(seen))
        return Situation(seen[row], paid[row], paid[row])

    return ContextualBandit(situation, acts=paid.shape[1], features=seen.shape[1], steps=steps, name="table")


def as_gymnasium(bandit: ContextualBandit) -> Any:
    """A bandit as a `gymnasium.Env`, for libraries that ask for that class.

    Args:
        bandit: the bandit.

    Returns:
        The environment.

    Raises:
        ImportError: if gymnasium is not installed.

    Examples:
        >>> from bayesify.decisions import as_gymnasium, linear_bandit
        >>> environment = as_gymnasium(linear_bandit(3, 4))
        >>> environment.action_space
        Discrete(3)

    """
    gymnasium = _gymnasium()

    class BanditEnvironment(gymnasium.Env):  # type: ignore[misc, name-defined]
        metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 -- Gymnasium's own form

        def __init__(self) -> None:
            self.bandit = bandit
            self.observation_space, self.action_space = bandit.observation_space, bandit.action_space

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Floats, dict[str, Any]]:
            super().reset(seed=seed)
            return bandit.reset(seed=seed, options=options)

        def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
            return bandit.step(action)

    return BanditEnvironment()


def _of_means(
    means: Callable[[Floats], Floats], acts: int, features: int, noise: float, steps: int, name: str
) -> ContextualBandit:
    """Normal contexts, and normal rewards around the means that a function gives."""
    if not noise >= 0:
        raise ValueError(f"noise must be at least 0, got {noise}")

    def situation(chance: np.random.Generator) -> Situation:
        context = chance.standard_normal(features)
        expected = means(context)
        return Situation(context, expected + noise * chance.standard_normal(acts), expected)

    return ContextualBandit(situation, acts=acts, features=features, steps=steps, name=name)


def _checked_act(act: Any, acts: int) -> int:
    """An act as an integer; numbers of numpy and torch are taken too."""
    try:
        number = None if isinstance(act, bool | str) else int(act)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != act or not 0 <= number < acts:
        raise ValueError(f"act must be a whole number from 0 to {acts - 1}, got {act!r}")
    return number


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise ImportError(
            "the spaces of a bandit need gymnasium: pip install 'bayesify[bandits]'; reset, step and agents do not"
        ) from None
    return gymnasium
