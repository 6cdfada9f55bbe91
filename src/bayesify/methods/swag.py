"""SWAG: a Gaussian fitted to the weights that an optimiser visits around a minimum (Maddox et al. 2019).

From snapshots w_1 ... w_n of the last part of training it keeps their running mean m, their running variance s^2 and
the last K deviations D_i = w_i - m_i from the running mean. The variance is computed in centred form, which rounding
cannot make negative (the paper subtracts the squared mean from the second moment). A draw is

    w = m + s * z1 / sqrt(2) + D z2 / sqrt(2 (K - 1)),    z1 ~ N(0, I_P), z2 ~ N(0, I_K)

so its covariance is half the diagonal one and half the low-rank one. From `begin` on the learning rate is constant, at
the value that its schedule has reached: with a falling rate the spread of the snapshots would show how fast the rate
falls, not how wide the minimum is. A network with running statistics needs new ones for every draw: a fixed number of
draws is then stored with theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesify import noise
from bayesify.distributed import active
from bayesify.errors import TrainingError, at_least
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.point import PointEstimate
from bayesify.methods.sample_collection import check_whole_plan
from bayesify.methods.stored_samples import check_room, shuffled
from bayesify.training.batches import Batch, Examples, to_device
from bayesify.training.loop import Plan
from bayesify.training.optimisation import OptimizerFactory
from bayesify.training.warnings import few_snapshots

# Examples per pass of the running statistics, where no plan says how many.
_BATCH = 128


class SWAG(PointEstimate):
    """SWAG (stochastic weight averaging, Gaussian): a Gaussian posterior from the path of the optimiser.

        w = m + s * z1 / sqrt(2) + D z2 / sqrt(2 (K - 1)),    z1 ~ N(0, I_P), z2 ~ N(0, I_K)

    with m and s^2 the mean and variance of snapshots of the weights, and D the last K deviations from their mean. The
    learning rate is constant from `begin` on.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        rank: the number of deviations that are kept, K.
        begin: the share of the steps after which snapshots are taken.
        every: steps between snapshots; None takes one at the end of each epoch.
        held_draws: the number of draws stored with their running statistics, where the network has such.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            None is maximum likelihood; a prior makes training maximum a posteriori.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these. The others stay at the mean of the snapshots.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: `rank`, `begin`, `every` or `held_draws` is out of range, or the deviations do not fit in memory.

    References:
        W. Maddox, T. Garipov, P. Izmailov, D. Vetrov and A. G. Wilson, "A Simple Baseline for Bayesian Uncertainty in
        Deep Learning", 2019, arXiv:1902.02476.

    Examples:
        >>> swag = bf.SWAG(net, "categorical", rank=10)
        >>> history = swag.fit((x, y), epochs=40, optimizer="sgd", learning_rate=0.1, progress=False)
        >>> swag.facts()["snapshots"]
        '20 taken, 10 deviations kept'
        >>> swag.predict(x, draws=30).outputs.shape  # [draws, batch, classes]
        torch.Size([30, 60, 3])

    """

    name: ClassVar[str] = "swag"
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"theta": "all", "average": "all", "variance": "random", "deviations": "random"}
    )
    noise_kind: ClassVar[str | None] = None
    estimator: ClassVar[str] = "weight"
    needs_finish: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        rank: int = 20,
        begin: float = 0.5,
        every: int | None = None,
        held_draws: int = 30,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        rank = at_least("rank", rank, 2)
        held_draws = at_least("held_draws", held_draws, 1)
        if every is not None:
            every = at_least("every", every, 1)
        if not 0 <= begin < 1:
            raise ValueError(f"begin must be a share of the steps from 0 and below 1, got {begin!r}")
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        self.rank, self.begin, self.every, self.held_draws = rank, float(begin), every, held_draws
        size = self.network.random_size
        check_room(self.name, rank, size, self.network.dtype, "lower rank=")
        self.average: Tensor
        self.variance: Tensor
        self.deviations: Tensor
        self.count: Tensor
        self.rate: Tensor
        self.concluded: Tensor
        self.register_buffer("average", torch.zeros_like(self.theta.detach()))
        self.register_buffer("variance", self.theta.new_zeros(size))
        self.register_buffer("deviations", self.theta.new_zeros(rank, size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("rate", torch.zeros((), dtype=torch.float64))
        self.register_buffer("concluded", torch.zeros((), dtype=torch.bool))
        for name, tensor in self.network.kept().items():
            if name in self.network.buffer_names:
                self.register_buffer(_slot(name), tensor.new_zeros(held_draws, *tensor.shape))
        self._steps: int | None = None
        self._rate: float | None = None
        self._batches, self._step, self._looked_back = 1, 0, False

    def settings(self) -> dict[str, Any]:
        """The rank, when snapshots are taken, and the number of stored draws."""
        return {"rank": self.rank, "begin": self.begin, "every": self.every, "held_draws": self.held_draws}

    def facts(self) -> dict[str, str]:
        """What a summary adds: the number of snapshots and of deviations."""
        return {"snapshots": f"{int(self.count):,} taken, {self._columns:,} deviations kept"}

    @property
    def held(self) -> int | None:
        """None: the Gaussian gives any number of draws; `held_draws` for networks with running statistics."""
        if int(self.count) == 0:
            return 1
        return self.held_draws if bool(self.concluded) else None

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Sets of weights drawn from the Gaussian; the current weights before there are snapshots.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        if int(self.count) == 0:
            return super().weights(draws, seed)
        if bool(self.concluded):
            draws, seed = shuffled(self.held_draws, draws, seed, self.theta.device).tolist(), self.seed
        return self._draws(draws, seed)

    @property
    def mean_weights(self) -> Tensor:
        """The mean of the snapshots, `[P]`; the current weights before there are any."""
        return self.average if int(self.count) else super().mean_weights

    @property
    def covariance(self) -> Tensor:
        """The covariance of the draws, `[R, R]`: for small networks."""
        low_rank = self.deviations[: self._columns]
        shared = low_rank.T @ low_rank / (2 * (self._columns - 1)) if self._columns > 1 else 0.0
        return torch.diag(self.variance) / 2 + shared

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective of a point estimate, with its gradients; it also notes the number of the step.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        self._note(step)
        return super().backward(batches, step=step, share=share, draws=draws)

    def _note(self, step: int) -> None:
        self._step = step

    def collect(self) -> None:
        """Take a snapshot of the weights, in a training loop of one's own with an optimiser of one's own.

        Take some 20 of them, after the learning rate has become constant: one at the end of each epoch, or more often.
        `loop_optimizer` takes them by itself, as `fit` does.

        Examples:
            >>> swag = bf.SWAG(net, "categorical", rank=5)
            >>> optimizer = torch.optim.SGD(swag.parameters(), lr=0.1)
            >>> for step in range(40):
            ...     optimizer.zero_grad()
            ...     swag.loss(x, y, n_data=len(x), step=step).backward()
            ...     optimizer.step()
            ...     if step >= 20:
            ...         swag.collect()
            >>> swag.finish((x, y)).facts()["snapshots"]
            '20 taken, 5 deviations kept'

        """
        if self._steps is not None:
            raise ValueError("loop_optimizer takes the snapshots by itself: leave out collect()")
        self.unfinished = True
        self._take()

    def _before_finish(self, examples: Examples) -> None:
        if int(self.count) < 2:
            raise ValueError(
                f"swag needs at least 2 snapshots of the weights, it has {int(self.count)}: call collect() after steps "
                "of your loop, or make the optimiser with loop_optimizer(...)"
            )

    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        """The optimiser, with a learning rate that is constant while snapshots are taken.

        Args:
            optimizer: its name, a name with options such as `sgd:momentum=0.9`, or a function
                `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch.

        Returns:
            A torch optimiser over the method's parameters.

        """
        made = super().make_optimizer(optimizer, learning_rate)
        made.register_step_pre_hook(self._hold_rate)
        return made

    def absorb(self, objective: Objective) -> None:
        """Update running statistics, and take a snapshot where one is due.

        Args:
            objective: what `objective` or `backward` returned for the step.

        """
        super().absorb(objective)
        if self._steps is None:
            return
        if not self._looked_back:
            # Snapshots of an earlier fit, or of a shorter plan, lie before the first step that counts now.
            self._looked_back = True
            if self._step <= self._first:
                self._forget()
        interval = self._batches if self.every is None else self.every
        if self._step >= self._first and (self._step + 1) % interval == 0:
            self._take()

    def _begin(self, plan: Plan, examples: Examples) -> None:
        check_whole_plan(self.name, "snapshots", plan)
        if plan.ema is not None:
            raise ValueError("swag averages snapshots of the weights itself: leave out ema=")
        self._check_snapshots(plan, examples.count_batches(plan.batch_size))
        super()._begin(plan, examples)
        self._batches = examples.count_batches(plan.batch_size)
        self._steps, self._rate, self._looked_back = plan.epochs * self._batches, None, False
        self.concluded.zero_()
        self.rate.zero_()

    def _check_snapshots(self, plan: Plan, batches: int) -> None:
        """Refuse a plan without a snapshot, before training."""
        steps, interval = plan.epochs * batches, batches if self.every is None else self.every
        last = steps // interval * interval - 1
        if last < round(self.begin * steps):
            raise ValueError(
                f"swag would take no snapshot in {steps:,} steps with begin={self.begin:g} and every={interval:,}: "
                "train for more epochs, or lower begin= or every="
            )

    def own_checks(self, x: Any) -> dict[str, str | None]:
        """Whether there are enough snapshots for a spread.

        Args:
            x: not used.

        """
        return {"few_snapshots": few_snapshots(int(self.count))}

    def lacking(self) -> str | None:
        """Snapshots, before the first is taken."""
        return None if int(self.count) else "snapshots"

    def _end(self) -> None:
        self._steps = None

    @property
    def _first(self) -> int:
        assert self._steps is not None
        return round(self.begin * self._steps)

    @property
    def _columns(self) -> int:
        return min(int(self.count), self.rank)

    def lower_rate(self, factor: float) -> None:
        """Lower the constant rate of the snapshots, after a rollback.

        Args:
            factor: of the rate.

        """
        self.rate.mul_(factor)
        self._rate = None

    def _hold_rate(self, optimizer: Optimizer, *_: Any) -> None:
        if self._steps is None or self._step < self._first:
            self.rate.zero_()
            return
        if self._rate is None:
            if float(self.rate) == 0:
                self.rate.fill_(optimizer.param_groups[0]["lr"])
            self._rate = float(self.rate)
        for group in optimizer.param_groups:
            group["lr"] = self._rate

    @torch.no_grad()
    def _take(self) -> None:
        """Add a snapshot (Welford 1962): numerically safe where weights are large and their spread is small."""
        number, size = int(self.count) + 1, self._random_size
        before = self.theta - self.average
        self.average += before / number
        after = (self.theta - self.average)[:size]
        self.variance += (before[:size] * after - self.variance) / number
        self.deviations[(number - 1) % self.rank] = after
        self.count += 1

    def _forget(self) -> None:
        for tensor in (self.average, self.variance, self.deviations, self.count):
            tensor.zero_()

    def _draws(self, draws: Sequence[int], seed: int) -> Tensor:
        keys = noise.keys(seed, noise.Stream.SWAG, draws=draws, device=self.theta.device)
        size, columns = self.network.random_size, self._columns
        z = noise.normal(keys, size).to(self.theta.dtype)
        theta = self.average.expand(len(draws), -1).clone()
        theta[:, :size] += math.sqrt(0.5) * self.variance.sqrt() * z
        if columns > 1:
            z = noise.normal(noise.fold(keys, 1), columns).to(self.theta.dtype) / math.sqrt(2 * (columns - 1))
            for row, coefficients in zip(theta, z, strict=True):
                # One product per draw: the rounding of a product of several draws depends on their number.
                row[:size] += coefficients @ self.deviations[:columns]
        return theta

    @torch.no_grad()
    def _conclude(self, examples: Examples) -> None:
        """Compute the running statistics of each stored draw, and of the mean, on the training data."""
        if not bool(torch.isfinite(self.variance).all()):
            self._forget()
            raise TrainingError(
                "the spread of swag's snapshots is not finite: lower learning_rate; predict(by='mean') is the point "
                "estimate"
            )
        first = to_device(examples.first()[0], self.theta.device)
        if int(self.count) == 0 or not self.network.traced(first).updates_buffers:
            return
        group = active()
        first, rows = (0, self.held_draws) if group is None else group.slice(self.held_draws)
        held = [self.get_buffer(_slot(name)) for name in self.network.buffer_names]
        for tensor in held:
            tensor.zero_()
        for draw in range(first, first + rows):
            for name, values in self._statistics(self._draws([draw], self.seed)[0], examples).items():
                self.get_buffer(_slot(name))[draw] = values
        if group is not None:
            # Each process has computed the statistics of its draws, and has zeros for the others.
            group.sum(held)
        buffers = self.network.kept()
        for name, values in self._statistics(self.average, examples).items():
            buffers[name].copy_(values)
        self.concluded.fill_(True)

    def _statistics(self, theta: Tensor, examples: Examples) -> dict[str, Tensor]:
        batch_size = _BATCH if self.plan is None else self.plan.batch_size
        tensors, seen = self.network.unflatten(theta), 0
        kept = {name: tensor.clone() for name, tensor in self.network.kept().items()}
        with _cumulative(self.network.template, kept) as weigh:
            for x, y in examples.in_order(batch_size):
                seen += y.shape[0]
                weigh(y.shape[0] / seen)
                kept |= self.network.call(tensors, to_device(x, theta.device), train=True, kept=kept)[1]
        return {name: kept[name] for name in self.network.buffer_names}

    def draw_buffers(self, draws: Sequence[int], seed: int = 0) -> dict[str, Tensor] | None:
        """Buffers of some draws, where each draw has its own (running statistics of a normalisation layer).

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.

        Returns:
            Tensors `[draws, *shape]` by name, or None where all draws share the network's buffers.

        """
        if not bool(self.concluded):
            return None
        rows = shuffled(self.held_draws, draws, seed, self.theta.device)
        return {name: self.get_buffer(_slot(name))[rows] for name in self.network.buffer_names}


@contextmanager
def _cumulative(template: nn.Module, kept: dict[str, Tensor]) -> Iterator[Callable[[float], None]]:
    """Reset normalisation layers and let them average over batches: call it with each batch's share of the examples.

    Other layers with statistics continue from their current values.
    """
    layers = {
        name: layer
        for name, layer in template.named_modules()
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats
    }
    before = {name: layer.momentum for name, layer in layers.items()}
    for name in layers:
        for leaf, value in (("running_mean", 0.0), ("running_var", 1.0), ("num_batches_tracked", 0)):
            kept[f"{name}.{leaf}" if name else leaf].fill_(value)

    def weigh(share: float) -> None:
        for layer in layers.values():
            layer.momentum = share

    try:
        yield weigh
    finally:
        for name, layer in layers.items():
            layer.momentum = before[name]


def _slot(name: str) -> str:
    return "held_" + name.replace(".", "/")
