"""The objective of a training step, and what a training loop of one's own calls.

    loss = mean negative log-likelihood of the batch + share / B * penalty

for a batch of B examples. The penalty is the KL over all weights (minus the log prior density, for point methods). The
shares of an epoch's batches sum to one, times any temperature.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.distributed.sharding import Shard
from bayesify.errors import at_least
from bayesify.functional.sharded_pass import sharded_outputs
from bayesify.methods.checks import check_indices, shapes_of
from bayesify.methods.prediction import Prediction
from bayesify.training.batches import Batch, to_device
from bayesify.training.trainable import Objective
from bayesify.training.users_data import as_inputs
from bayesify.training.warnings import warn

__all__ = ["Learning", "Objective"]


class Learning(Prediction):
    """A module with an objective: what `fit` and a training loop of one's own need of a method."""

    members: int = 1
    seed: int
    _passes: int
    # Whether training alone gives no posterior: in a loop of one's own, `finish` has to follow.
    needs_finish: ClassVar[bool] = False
    # The parameters that hold a number for each weight, by name: for `all` weights, or for the `random` ones.
    holds_weights: ClassVar[Mapping[str, str]] = MappingProxyType({})
    # Whether the update of this training can be compiled with the gradients.
    fusible: bool = True
    # Buffers that a training step neither reads nor changes, by name.
    outside_steps: Sequence[str] = ()
    # The parameters and buffers with a number for each weight in their last axis, by name: for `all` weights or for the
    # `random` ones. Each process can hold a part of them. A class that names none cannot be sharded.
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({})
    # The part of this process in a sharded training; None where this process holds all weights.
    shard: Shard | None = None
    # Whether a loop of one's own has trained it since the last `fit` or `finish`.
    unfinished: bool = False
    # The step of the last loss in a loop of one's own, and the version of the weights that it saw.
    _last_loss: tuple[int, int] = (-1, -1)
    _warned_of_step: bool = False
    # The number of examples that the last loss of a loop of one's own was told.
    _last_data: int | None = None
    # What `loop_optimizer` was told: the number of examples, and the temperature of the KL.
    _loop_data: int | None = None
    _loop_temperature: float = 1.0
    # The shapes of the network's output for one example, by the shapes of inputs, with a number in its precision.
    _tried: dict[str, tuple[Tensor, torch.Size]]

    # What a method must define.

    @abstractmethod
    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The loss of one training step: `nll + share / B * penalty`.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """

    def captured(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective that a compiled step differentiates: `step` and `share` are tensors there.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        return self.objective(batches, step=step, share=share, draws=draws)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective of a step, with its gradients in `.grad` of the parameters.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        objective = self.objective(batches, step=step, share=share, draws=draws)
        torch.autograd.backward(objective.loss)
        return objective

    def note_batches(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> None:
        """Told the whole batch of a step, where this process has computed the gradient of its part alone.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step.
            share: the part of the penalty that the batch carries.
            draws: weight draws to average over.

        """

    def note_objective(self, objective: Objective) -> None:
        """Told the objective of a step over all processes, before the optimiser moves.

        Args:
            objective: with the loss of the whole batch.

        """

    @abstractmethod
    def _penalty(self, step: int, draws: int) -> Tensor:
        """The KL for the draws of a step, or minus the log prior density."""

    @abstractmethod
    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs `[draws, batch, ...]` of a step's training passes, and each draw's buffers."""

    # What users call in a training loop of their own.

    def forward(self, x: Any) -> Tensor:
        """Run the network once at drawn weights, differentiably: `method(x)`.

        Each call uses the next draw of the training noise. With `kl()`, which belongs to the same draw, this is all
        that a training loop of one's own needs:

            loss = F.cross_entropy(method(x), y) + method.kl() / n_data

        An ensemble (and chains) runs its members in turn. For predictions use `predict`, which averages over draws.

        Args:
            x: a batch of inputs, as the network takes them.

        Returns:
            The outputs of the network, `[batch, ...]`.

        Examples:
            >>> first, second = bnn(x), bnn(x)
            >>> first.shape, torch.equal(first, second)
            (torch.Size([60, 3]), False)

        """
        self._passes += 1
        return self._training_outputs(x, step=self._passes, draws=1)[0][0]

    def kl(self, step: int | None = None, draws: int = 1) -> Tensor:
        """KL(posterior || prior) over all weights, in nats; for point methods, minus the log prior density.

        The loss of a batch is its mean negative log-likelihood plus this number divided by the number of training
        examples: the KL belongs to the whole data set, not to a batch.

        Args:
            step: the training step whose draws to use where the KL has no closed form. None is the last call of
                `method(x)`.
            draws: weight draws to average over, where the KL has no closed form.

        Returns:
            A scalar that can be differentiated.

        Examples:
            >>> bool(bnn.kl() > 0)
            True

        """
        step = self._passes if step is None else step
        penalty = self._penalty(step, draws)
        return penalty if self.shard is None else self.shard.total(penalty)

    def loss(
        self, x: Any, y: Tensor, n_data: int, step: int, draws: int = 1, part: tuple[int, int] | None = None
    ) -> Tensor:
        """The loss of one batch, for a training loop of one's own: mean negative log-likelihood + KL / n_data.

        It is the loss that `fit` minimises with `kl="uniform"`. Call `backward()` on it and step any torch optimiser
        over `method.parameters()`, or the one of `loop_optimizer`, which SGLD, SGHMC and IVON need. After the loop,
        `finish(data)` computes what a posterior needs besides training (SWAG, Laplace, SGLD, SGHMC). In training mode
        (`method.train()`) it also updates running statistics.

        With gradient accumulation divide the loss by the number of parts, and give all parts of a step the same
        `step`: the KL is then counted once. `part` tells the noise of dropout and of the estimators `local` and
        `flipout`, which differs between examples, where these examples stand in the batch of the step.

        Args:
            x: inputs of the batch.
            y: targets of the batch.
            n_data: the number of examples in the whole training set.
            step: the number of the step. It decides the noise: count it up, once per step of the optimiser.
            draws: weight draws to average over.
            part: with gradient accumulation, how many examples of the step come before these, and how many the step
                has: `(32, 64)`. None is a whole batch.

        Returns:
            A scalar that can be differentiated.

        Raises:
            ValueError: the targets do not fit the likelihood, `n_data` is below the size of the batch or another than
                `loop_optimizer` was given, or the part does not fit.

        Examples:
            >>> method = bf.Variational(net, "categorical", prior="normal:1")
            >>> optimizer = torch.optim.Adam(method.parameters(), lr=0.05)
            >>> losses = []
            >>> for step in range(30):
            ...     loss = method.loss(x, y, n_data=len(x), step=step)
            ...     optimizer.zero_grad()
            ...     loss.backward()
            ...     optimizer.step()
            ...     losses.append(loss.item())
            >>> losses[-1] < losses[0]
            True

        """
        n_data = at_least("n_data", n_data, 1)
        step = at_least("step", step, 0)
        device = next(self.parameters()).device
        x = to_device(as_inputs(x, self.network.dtype), device)
        y = self.likelihood.prepare(y).to(device)
        if y.shape[0] > n_data:
            raise ValueError(
                f"n_data must be the number of examples in the whole training set, the batch alone has {y.shape[0]}, "
                f"got {n_data}"
            )
        if self._loop_data not in (None, n_data):
            raise ValueError(f"n_data must be that of loop_optimizer, {self._loop_data}, got {n_data}")
        self._check_batch(x, y)
        self._note(step)
        self._check_counting(step)
        share = y.shape[0] / n_data * self._loop_temperature
        with _place(part, y.shape[0]):
            objective = self._loop_objective([(x, y)] * self.members, step, share, draws)
        if self.training:
            self._last_data, self.unfinished = n_data, self.unfinished or self.needs_finish
            self.update_statistics(objective)
        return objective.loss

    def absorb(self, objective: Objective) -> None:
        """What follows an optimiser step: here the update of running statistics.

        Args:
            objective: what `objective` or `backward` returned for the step.

        """
        self.update_statistics(objective)

    def made_step(self, step: int) -> None:
        """What follows a compiled step, which updates running statistics itself: here nothing.

        Args:
            step: the number of the step.

        """

    def lower_rate(self, factor: float) -> None:
        """Change a learning rate that the method keeps for itself, after a rollback: here there is none.

        Args:
            factor: of the rate.

        """

    def update_statistics(self, objective: Objective) -> None:
        """Update running statistics after a pass: their mean over the draws of the step.

        Args:
            objective: what `objective` or `backward` returned for the pass.

        """
        if not objective.buffers:
            return
        kept, means = self.network.kept(), {}
        for name, values in objective.buffers.items():
            several = values.is_floating_point() and values.shape[0] > 1
            means[name] = values.double().mean(0) if several else values[0]
        torch._foreach_copy_([kept[name] for name in means], list(means.values()))

    def clip_gradients(self, largest: float) -> None:
        """Scale the gradients of a step down where their norm over all parameters is larger.

        Args:
            largest: the norm.

        """
        self._clip(list(self.parameters()), largest)

    def weight_parameters(self) -> list[tuple[nn.Parameter, int]]:
        """The parameters with a number for each weight in their last axis, and for how many weights.

        Returns:
            Pairs; none where learning rates by layer make no sense.

        """
        sizes = {"all": self.network.size, "random": self.network.random_size}
        return [(self.get_parameter(name), sizes[which]) for name, which in self.holds_weights.items()]

    def _clip(self, parameters: list[nn.Parameter], largest: float) -> Tensor:
        """Scale the gradients of some parameters down to a norm; return the norm that they had."""
        if self.shard is None:
            return torch.nn.utils.clip_grad_norm_(parameters, largest)
        norm = torch.sqrt(sharded_squares(self, parameters))
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
        return norm

    @property
    def _random_size(self) -> int:
        """The number of random weights that this process holds."""
        return self.network.random_size if self.shard is None else self.shard.random_size

    def _run(self, theta: Tensor, x: Any, dropout: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Training passes at weights `[draws, P]`, of which this process may hold a part."""
        if self.shard is None:
            return self.network.outputs(theta, x, train=True, dropout=dropout)
        rows = [row.unsqueeze(0) for row in theta.unbind()]
        return sharded_outputs(self.network, self.shard, rows, x, dropout=dropout, keys=None)

    def _run_own(
        self, mean: Tensor, width: Tensor, keys: Tensor, x: Any, dropout: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Training passes at this process's own draws, from the parts `[n]` of means and widths."""
        assert self.shard is not None
        rows = torch.stack((mean, torch.cat((width, torch.zeros_like(mean[width.shape[0] :])))))
        return sharded_outputs(self.network, self.shard, [rows] * keys.shape[0], x, dropout=dropout, keys=keys)

    @property
    def _own_draws(self) -> bool:
        """Whether this process holds a part of the weights and draws its own."""
        return self.shard is not None and self.shard.group.own_draws

    def _note(self, step: int) -> None:
        """Remember the number of the step, where the update rule or `absorb` needs it."""

    def _check_batch(self, x: Any, y: Tensor) -> None:
        """Refuse what the network cannot take, and targets that do not fit its outputs.

        The network runs once for each new shape of inputs: batches of texts may differ in length, for example.
        """
        shapes = str(shapes_of(x))
        x, new = self._by_name(x), shapes not in self._tried
        if new:
            output = self._try(x)
            self._tried[shapes] = output.new_zeros(()), output.shape[1:]
        check_indices(self.network, x, wait=new)
        number, shape = self._tried[shapes]
        self.likelihood.check_outputs(number.expand(y.shape[0], *shape), y.to(number.device))

    def _check_counting(self, step: int) -> None:
        """Warn once if the optimiser has moved the weights since the last loss, and `step` has not moved."""
        if not torch.is_grad_enabled():
            return
        version = next(self.parameters())._version
        last_step, last_version = self._last_loss
        if step == last_step and version != last_version and not self._warned_of_step:
            self._warned_of_step = True
            warn(
                f"loss was called with step={step} before and after an update of the weights: both have the same "
                "noise; count step up, once per step of the optimiser"
            )
        self._last_loss = step, version

    def _loop_objective(self, batches: list[Batch], step: int, share: float, draws: int) -> Objective:
        """The objective of a step in a loop of one's own."""
        return self.objective(batches, step=step, share=share, draws=draws)

    # What objectives are made of.

    def _nll(
        self, outputs: Tensor, y: Tensor, step: int, network: int | Tensor = 0, log_noise: Tensor | None = None
    ) -> Tensor:
        """Mean over draws and batch of the negative log-likelihood; `log_noise [draws]` where the noise has a prior."""
        return -self._log_prob(outputs, y, step, network, log_noise).mean()

    def _log_prob(
        self, outputs: Tensor, y: Tensor, step: int, network: int | Tensor = 0, log_noise: Tensor | None = None
    ) -> Tensor:
        """The log-likelihood of a step's outputs, `[draws, batch]`."""
        if log_noise is not None:
            return self._likelihood_at(log_noise).log_prob(outputs, y)
        keys = None
        if self.likelihood.noisy:
            draws = range(outputs.shape[0])
            keys = noise.keys(self.seed, noise.Stream.LOGITS, network, step + 1, draws, outputs.device)
        return self.likelihood.log_prob(outputs, y, keys)

    def _training_dropout(self, x: Any, step: int, draws: int, network: int | Tensor = 0) -> Tensor | None:
        sites = self.network.traced(x).dropout_sites
        if sites is not None and not sites:
            return None
        device = self.network.device
        return noise.keys(self.seed, noise.Stream.DROPOUT, network, step + 1, range(draws), device)


def sharded_squares(method: Learning, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The sum of the squares of gradients, over the parts of all processes; what all of them hold counts once."""
    assert method.shard is not None
    parts = {id(method.get_parameter(name)) for name in method.sharded if name in dict(method.named_parameters())}
    with torch.no_grad():
        zero = method.network.initial.new_zeros(())
        squares = {True: zero, False: zero}
        for parameter in parameters:
            if parameter.grad is not None:
                kind = id(parameter) in parts
                squares[kind] = squares[kind] + parameter.grad.square().sum()
        return method.shard.total(squares[True]) + squares[False]


def _place(part: tuple[int, int] | None, rows: int) -> AbstractContextManager[None]:
    """The noise of a batch, or of the part of one that a user's loop names."""
    if part is None:
        return nullcontext()
    try:
        first, total = (int(number) for number in part)
    except (TypeError, ValueError):
        raise ValueError(
            f"part must be two numbers, the examples before these and those of the step, got {part!r}"
        ) from None
    if not 0 <= first <= total - rows:
        raise ValueError(
            f"part must be the examples of the step before these and those of the whole step: {rows} examples do not "
            f"fit in {part!r}"
        )
    return noise.part_of_batch(first, rows, total)
