"""A deep ensemble: several networks from different starts and orders of batches (Lakshminarayanan et al. 2017).

Members are trained together, one step each; each has another order of batches and minimises the loss of a point
estimate. A draw is a member, so a prediction has at most as many draws as there are members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify.errors import at_least
from bayesify.functional import initialisation
from bayesify.functional.sharded_pass import sharded_outputs
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import Method, NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.point import noise_penalty, start_log_noise
from bayesify.methods.stored_samples import check_room
from bayesify.training import data_identity
from bayesify.training.batches import Batch, Examples, IndexedExamples, TensorExamples
from bayesify.training.engines.fused import signed
from bayesify.training.plan import Plan
from bayesify.training.resampling import ResampledExamples


class Ensemble(Method):
    """A deep ensemble: independently trained networks, each of them one draw.

        p(y | x) = 1/M sum over members m of p(y | f(x; w_m))

    Each member minimises the loss of a point estimate, from another start and with another order of batches.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        members: the number of networks, M.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            None is maximum likelihood; a prior makes it maximum a posteriori.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these. Here they are the weights that have the prior.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`. `fresh` by default, so that members differ; `given` starts all of them
            from the same weights.
        bootstrap: train each member on its own resample of the data, drawn with replacement. `bayesify.conformal` can
            then make intervals without held-out data (`jackknife+`). The data must be in memory.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: `members` is below 1, or the members do not fit in memory.

    References:
        B. Lakshminarayanan, A. Pritzel and C. Blundell, "Simple and Scalable Predictive Uncertainty Estimation using
        Deep Ensembles", 2017, arXiv:1612.01474.

    Examples:
        >>> ensemble = bf.Ensemble(net, "categorical", members=3)
        >>> history = ensemble.fit((x, y), epochs=30, learning_rate=0.05, progress=False)
        >>> predictive = ensemble.predict(x)
        >>> predictive.outputs.shape  # [members, batch, classes]
        torch.Size([3, 60, 3])
        >>> bool(predictive.epistemic.max() > 0)  # the members disagree somewhere
        True

    """

    name: ClassVar[str] = "ensemble"
    holds_weights: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all"})
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all"})
    capturable: ClassVar[bool] = True
    independent_members: ClassVar[bool] = True
    noise_kind: ClassVar[str | None] = "learned"
    first_member: int = 0

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        members: int = 5,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "fresh",
        bootstrap: bool = False,
        seed: int = 0,
    ) -> None:
        members = at_least("members", members, 1)
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        self.members = members
        self.bootstrap = bootstrap
        if bootstrap:
            # Number of examples, seed of the resamples and digest of the data of the fit; zeros before it.
            self.register_buffer("resampled", torch.zeros(3, dtype=torch.int64))
        check_room(self.name, members, self.network.size, self.network.dtype, "have fewer of them")
        starts = [initialisation.start_weights(self.network, start, seed, member) for member in range(members)]
        self.theta = nn.Parameter(torch.stack(starts))
        self.log_noise: nn.Parameter | None
        self.register_parameter("log_noise", start_log_noise(self.likelihood, self.theta, members))
        kept = self.network.kept()
        for name in self.network.buffer_names:
            tensor = kept[name]
            self.register_buffer(_slot(name), tensor.expand(members, *tensor.shape).clone())

    def settings(self) -> dict[str, Any]:
        """The number of members, and whether each has its own resample of the data."""
        return {"members": self.members} | ({"bootstrap": True} if self.bootstrap else {})

    def keep_members(self, numbers: range) -> None:
        """Keep some of the members, before training: each is trained as it would be among all, to rounding.

        Args:
            numbers: of the members to keep, one after the other.

        """
        rows = slice(numbers.start, numbers.stop)
        self.theta = nn.Parameter(self.theta.detach()[rows].clone())
        if self.log_noise is not None:
            self.log_noise = nn.Parameter(self.log_noise.detach()[rows].clone())
        for name in self.member_buffers:
            self.register_buffer(name, self.get_buffer(name)[rows].clone())
        self.members, self.first_member = len(numbers), self.first_member + numbers.start

    @property
    def numbers(self) -> range:
        """The numbers of the members, which decide their starts, orders and masks."""
        return range(self.first_member, self.first_member + self.members)

    def check_training_data(self, x: Any, y: Tensor) -> int:
        """The seed of the resamples, after a check that this is the data of the fit.

        Args:
            x: inputs of the training data, in its order.
            y: its targets.

        Returns:
            The seed: `training.resampling.resample` makes the resamples from it.

        Raises:
            ValueError: the ensemble has no resamples, is not fitted, or was fitted on other data.

        """
        if not self.bootstrap:
            raise ValueError("this ensemble has no resamples: make it with bootstrap=True")
        examples, seed, digest = self.get_buffer("resampled").tolist()
        if examples == 0:
            raise ValueError("this ensemble is not fitted yet")
        if (examples, digest) != _identity(TensorExamples(x, y)):
            raise ValueError(
                f"this is not the training data of the ensemble: it was fitted on {examples:,} examples, and needs the "
                f"same ones in the same order, got {len(y):,}"
            )
        return int(seed)

    def _read(
        self, data: Any, validation: Any, n_data: int | None, device: torch.device | str | None
    ) -> tuple[Examples, Examples | None]:
        examples, checks = super()._read(data, validation, n_data, device)
        if self.bootstrap:
            if not isinstance(examples, TensorExamples):
                raise ValueError("bootstrap=True needs the data in memory, as (x, y): a loader gives its own batches")
            examples = ResampledExamples(examples.x, examples.y)
        if self.first_member:
            if not isinstance(examples, IndexedExamples):
                raise ValueError("members are trained apart on data in memory: a loader gives its own batches")
            examples.first_member = self.first_member
        return examples, checks

    def _begin(self, plan: Plan, examples: Examples) -> None:
        super()._begin(plan, examples)
        if isinstance(examples, ResampledExamples):
            resampled = self.get_buffer("resampled")
            count, digest = _identity(examples)
            known = resampled.tolist()
            if known[0] and (known[0], known[2]) != (count, digest):
                raise ValueError("this bootstrapped ensemble was fitted on other data: make a new one for this data")
            # A second fit on the same data keeps the resamples: members must never see what they left out.
            examples.resample_seed = known[1] if known[0] else signed(plan.seed)
            resampled.copy_(torch.tensor([count, examples.resample_seed, digest]))

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The sum of the members' losses, each on its batch.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        return self.objective_of(self.numbers, batches, step=step, share=share)

    def objective_of(
        self, members: Sequence[int | Tensor], batches: list[Batch], *, step: int, share: float
    ) -> Objective:
        """The sum of the losses of some members, while `theta` and the buffers hold the rows of these members only.

        Args:
            members: the numbers of the members.
            batches: one batch `(x, y)` for each of them.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that a batch carries.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        x = pytree.tree_map(lambda *leaves: torch.stack(leaves), *[batch[0] for batch in batches])
        outputs, buffers = self._member_outputs(members, x, step)
        noises = [None] * len(batches) if self.log_noise is None else self.log_noise.split(1)
        pairs = zip(outputs.split(1), members, batches, noises, strict=True)
        losses = [
            self._nll(output, y, step, network=member, log_noise=noise) for output, member, (_, y), noise in pairs
        ]
        nll, penalty = torch.stack(losses).sum(), self._penalty(step, 1)
        return Objective(nll + share / batches[0][1].shape[0] * penalty, nll, penalty, buffers)

    def update_statistics(self, objective: Objective) -> None:
        """Store the running statistics of each member.

        Args:
            objective: what `objective` or `backward` returned for the pass.

        """
        for name, values in objective.buffers.items():
            self.get_buffer(_slot(name)).copy_(values)

    @torch.no_grad()
    def clip_gradients(self, largest: float) -> None:
        """Scale the gradient of each member down where its norm is larger: members do not depend on each other.

        Args:
            largest: the norm.

        """
        own = [p for p in (self.theta, self.log_noise) if p is not None and p.grad is not None]
        rows = [parameter.grad.view(self.members, -1) for parameter in own if parameter.grad is not None]
        norms = torch.cat(rows, 1).norm(dim=1)
        if self.shard is not None:
            norms = self.shard.total(norms.square()).sqrt()
        factors = (largest / (norms + 1e-6)).clamp(max=1.0)
        for row in rows:
            row.mul_(factors[:, None])
        shared = [p for p in self.parameters() if all(p is not mine for mine in own)]
        torch.nn.utils.clip_grad_norm_(shared, largest)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """The weights of members, by their numbers.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        return self.theta.detach()[list(draws)]

    def log_noise_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Tensor:
        """The logarithm of the noise of members, where it has a prior: the mode of each.

        Args:
            draws: the numbers of the members.
            seed: not used.
            by: not used.

        Returns:
            Logarithms `[draws]`.

        """
        assert self.log_noise is not None
        return self.log_noise.detach()[list(draws)]

    @property
    def member_buffers(self) -> list[str]:
        """The names of the buffers that have a row for each member."""
        return [_slot(name) for name in self.network.buffer_names]

    @property
    def mean_weights(self) -> Tensor:
        """Refused: the mean of members from different modes is in none of them."""
        raise ValueError('an ensemble has no meaningful mean weights: use by="draws"')

    @property
    def held(self) -> int | None:
        """The number of members."""
        return self.members

    def _member_outputs(self, members: Sequence[int | Tensor], x: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        first = pytree.tree_map_only(Tensor, lambda t: t[0], x)
        keys = [self._training_dropout(first, step, 1, member) for member in members]
        dropout = None if keys[0] is None else torch.cat([k for k in keys if k is not None])
        kept, theta = self._member_buffers(range(len(members))), self._member_weights()
        if self.shard is not None:
            rows = [row.unsqueeze(0) for row in theta.unbind()]
            return sharded_outputs(self.network, self.shard, rows, x, dropout=dropout, keys=None, each=True, kept=kept)
        return self.network.outputs(theta, x, train=True, dropout=dropout, each=True, kept=kept)

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self.prior is None:
            penalty = self.theta.new_zeros(())
        else:
            penalty = -self.prior.log_density(self.theta[:, : self._random_size]).sum()
        return penalty if self.log_noise is None else penalty + noise_penalty(self.noise_prior, self.log_noise)

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The pass of one member; steps go through the members in turn."""
        member = step % self.members
        kept = self._member_buffers([member])
        dropout = self._training_dropout(x, step, 1, member)
        batch = pytree.tree_map_only(Tensor, lambda t: t.unsqueeze(0), x)
        return self.network.outputs(
            self._member_weights()[member : member + 1], batch, train=True, dropout=dropout, each=True, kept=kept
        )

    def draw_buffers(self, draws: Sequence[int], seed: int = 0) -> dict[str, Tensor] | None:
        """Buffers of some draws, where each draw has its own (running statistics of a normalisation layer).

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.

        Returns:
            Tensors `[draws, *shape]` by name, or None where all draws share the network's buffers.

        """
        return self._member_buffers(draws)

    def _member_weights(self) -> Tensor:
        return self.theta

    def _member_buffers(self, members: Sequence[int]) -> dict[str, Tensor] | None:
        buffers = {name: self.get_buffer(_slot(name))[list(members)] for name in self.network.buffer_names}
        return buffers or None


def _identity(examples: TensorExamples) -> tuple[int, int]:
    """The number of examples and a digest of their values that fits in 63 bits."""
    mark = data_identity.mark(examples)
    return int(mark["examples"]), int(mark["digest"], 16) >> 1


def _slot(name: str) -> str:
    return "members_" + name.replace(".", "/")
