"""Agents for contextual bandits that learn with networks: any method of the library, and neural-linear.

Both keep all interactions and train again when the data have grown by the factor `grow` since the last training: a
method is fitted anew, the network of neural-linear goes on from its weights.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bayesify.decisions.bandit_agents import LinearAgent, check_reward
from bayesify.errors import BayesifyWarning, at_least
from bayesify.methods import Method

Floats = NDArray[np.float64]


class _Memory:
    """All interactions: inputs `[context, act as an indicator]` and rewards."""

    def __init__(self, acts: int, features: int, grow: float, first: int) -> None:
        self.acts, self.features = at_least("acts", acts, 1), at_least("features", features, 1)
        if not grow > 1:
            raise ValueError(f"grow must be above 1, got {grow}")
        self.grow, self.next = grow, at_least("first", first, 1)
        self.x, self.y, self.used = torch.zeros(64, features + acts), torch.zeros(64), 0

    def inputs(self, context: Floats) -> Tensor:
        """Inputs of all acts in a context, `[acts, features + acts]`."""
        seen = torch.as_tensor(np.asarray(context), dtype=torch.float32)
        if seen.shape != (self.features,):
            raise ValueError(f"context must be [{self.features}], got {list(seen.shape)}")
        if not bool(torch.isfinite(seen).all()):
            raise ValueError("context must be finite numbers: fill in or remove what is missing")
        return torch.cat((seen.expand(self.acts, -1), torch.eye(self.acts)), 1)

    def add(self, inputs: Tensor, reward: float) -> bool:
        """Store an interaction; whether it is time to train again."""
        if self.used == len(self.y):
            self.x, self.y = (
                torch.cat((self.x, torch.zeros_like(self.x))),
                torch.cat((self.y, torch.zeros_like(self.y))),
            )
        self.x[self.used], self.y[self.used] = inputs, reward
        self.used += 1
        if self.used < self.next:
            return False
        self.next = max(self.used + 1, math.ceil(self.used * self.grow))
        return True

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        return self.x[: self.used], self.y[: self.used]


class MethodAgent:
    """Thompson sampling with any method: one draw of the posterior for each decision.

    The network takes the context and the act as an indicator, `[features + acts]`, and predicts one number, the reward.

    Args:
        make: a function that returns an untrained method, whose likelihood is that of a number.
        acts: number of acts.
        features: length of a context.
        draws: draws for each decision, whose predictions are averaged; 1 is Thompson sampling, many are greedy.
        epsilon: share of acts at random.
        grow: the method is fitted anew when the data have grown by this factor.
        first: interactions before the first fit; acts are random until then.
        seed: of the draws.
        fit: settings of `fit`.

    Raises:
        ValueError: if a number is out of range.

    Examples:
        >>> from bayesify.decisions import MethodAgent, linear_bandit, play_bandit
        >>> make = lambda: bf.LaplaceApproximation(bf.networks.mlp(5, 1, units=8), "gaussian:1", prior="normal:1")
        >>> agent = MethodAgent(make, 2, 3, epochs=20, learning_rate=0.05)
        >>> play_bandit(agent, linear_bandit(2, 3, steps=40), seed=0).acts.shape
        torch.Size([40])

    """

    def __init__(
        self,
        make: Callable[[], Method],
        acts: int,
        features: int,
        *,
        draws: int = 1,
        epsilon: float = 0.0,
        grow: float = 1.5,
        first: int = 16,
        seed: int = 0,
        **fit: Any,
    ) -> None:
        if not 0 <= epsilon <= 1:
            raise ValueError(f"epsilon must be from 0 to 1, got {epsilon}")
        self.make, self.epsilon, self.seed = make, epsilon, seed
        self.draws = at_least("draws", draws, 1)
        self.memory = _Memory(acts, features, grow, first)
        self.settings = {"progress": False, "seed": seed} | fit
        self.method: Method | None = None
        self._decided = 0
        self._chance = np.random.default_rng([seed, 3])

    def act(self, context: Floats) -> int:
        """The best act under one draw.

        Args:
            context: what is seen, `[features]`.

        """
        luck, which, member = self._chance.random(3)
        inputs = self.memory.inputs(context)
        if self.method is None or luck < self.epsilon:
            return int(which * self.memory.acts)
        self._decided += 1
        held = self.method.held
        draws = self.draws if held is None else held
        outputs = self.method.predict(inputs, draws=draws, seed=self.seed + self._decided).outputs[..., 0]
        if held is not None and self.draws < held:
            start = int(member * held)
            outputs = outputs[[(start + one) % held for one in range(self.draws)]]
        return int(outputs.mean(0).argmax())

    def learn(self, context: Floats, act: int, reward: float) -> None:
        """Store a reward, and fit anew where the data have grown enough.

        Args:
            context: what was seen, `[features]`.
            act: the act that was taken.
            reward: what it gave.

        """
        check_reward(act, reward, self.memory.acts)
        if self.memory.add(self.memory.inputs(context)[act], reward):
            self.method = self.make()
            with warnings.catch_warnings():
                # Warnings about a fit to a few rewards would come with every one of many fits.
                warnings.simplefilter("ignore", BayesifyWarning)
                self.method.fit(self.memory.data, **self.settings)


class NeuralLinearAgent:
    """Neural-linear: exact Bayesian linear regression on the last hidden layer of a trained network, for each act.

    C. Riquelme, G. Tucker and J. Snoek, "Deep Bayesian Bandits Showdown", 2018, arXiv:1802.09127.

    Args:
        network: an `nn.Sequential` that ends in a linear layer with one output; it takes `[features + acts]` numbers.
        acts: number of acts.
        features: length of a context.
        by: how an act is chosen: `thompson`, `ucb` or `greedy`.
        prior: standard deviation of a weight of the last layer before data.
        noise: standard deviation of a reward around its mean.
        spread: factor of the posterior's standard deviation.
        epsilon: share of acts at random.
        grow: the network is trained again when the data have grown by this factor.
        first: interactions before the first training.
        updates: minibatches of a training.
        batch_size: examples of a minibatch.
        learning_rate: of Adam.
        seed: of the draws and of the minibatches.

    Raises:
        TypeError: if the network is not such a sequence.
        ValueError: if a number is out of range.

    Examples:
        >>> from bayesify.decisions import NeuralLinearAgent, play_bandit, quadratic_bandit
        >>> agent = NeuralLinearAgent(bf.networks.mlp(4, 1, units=8), 2, 2, updates=20)
        >>> play_bandit(agent, quadratic_bandit(2, 2, steps=40), seed=0).acts.shape
        torch.Size([40])

    """

    def __init__(
        self,
        network: nn.Sequential,
        acts: int,
        features: int,
        *,
        by: str = "thompson",
        prior: float = 1.0,
        noise: float = 1.0,
        spread: float = 1.0,
        epsilon: float = 0.0,
        grow: float = 1.2,
        first: int = 16,
        updates: int = 400,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        if not (isinstance(network, nn.Sequential) and isinstance(network[-1], nn.Linear)):
            raise TypeError(
                "NeuralLinearAgent takes an nn.Sequential that ends in an nn.Linear, as bf.networks.mlp makes"
            )
        self.network = copy.deepcopy(network).float().train()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=learning_rate)
        self.memory = _Memory(acts, features, grow, first)
        self.updates, self.batch_size = at_least("updates", updates, 1), at_least("batch_size", batch_size, 1)
        self.linear = LinearAgent(
            acts, network[-1].in_features, by=by, prior=prior, noise=noise, spread=spread, epsilon=epsilon, seed=seed
        )
        self._chance = np.random.default_rng([seed, 4])

    def act(self, context: Floats) -> int:
        """The act that the rule takes on the features of the network.

        Args:
            context: what is seen, `[features]`.

        """
        return self.linear.act(self._features(self.memory.inputs(context)))

    def learn(self, context: Floats, act: int, reward: float) -> None:
        """Update the last layer; train the network again where the data have grown enough.

        Args:
            context: what was seen, `[features]`.
            act: the act that was taken.
            reward: what it gave.

        """
        check_reward(act, reward, self.memory.acts)
        inputs = self.memory.inputs(context)[act]
        if self.memory.add(inputs, reward):
            self._train()
        else:
            self.linear.learn(self._features(inputs[None])[0], act, reward)

    def _features(self, inputs: Tensor) -> Floats:
        with torch.no_grad():
            hidden: Floats = self.network[:-1](inputs).double().numpy()
        return hidden

    def _train(self) -> None:
        """Minibatches on all interactions, then the last layer's posterior anew on the new features."""
        x, y = self.memory.data
        for _ in range(self.updates):
            rows = torch.from_numpy(self._chance.integers(len(y), size=self.batch_size))
            loss = (self.network(x[rows])[:, 0] - y[rows]).square().mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
        acts, features, rewards = x[:, self.memory.features :].argmax(1).numpy(), self._features(x), y.double().numpy()
        self.linear.forget()
        for act in range(self.memory.acts):
            self.linear.learn_all(features[acts == act], act, rewards[acts == act])
