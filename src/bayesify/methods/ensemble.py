"""A deep ensemble: several networks from different starts and in different orders (Lakshminarayanan et al. 2017).

Members are trained together, one step each, on batches of their own order; each minimises the point estimate's loss. A
draw is a member, so a prediction has at most as many draws as there are members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify.errors import at_least
from bayesify.functional import initialisation
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.methods.storage import check_room
from bayesify.training.examples import Batch


class Ensemble(Method):
    """Independently trained networks as draws.

    Args:
        members: how many.
        start: `fresh` by default, so that members differ; `given` starts all from the given weights.

    """

    name: ClassVar[str] = "ensemble"
    capturable: ClassVar[bool] = True
    independent_members: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        members: int = 5,
        prior: PriorLike | None = None,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "fresh",
        seed: int = 0,
    ) -> None:
        self_members = at_least("members", members, 1)
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        self.members = self_members
        check_room(self.name, members, self.network.size, self.network.dtype, "have fewer of them")
        starts = [initialisation.start_weights(self.network, start, seed, member) for member in range(members)]
        self.theta = nn.Parameter(torch.stack(starts))
        kept = self.network.kept()
        for name in self.network.buffer_names:
            tensor = kept[name]
            self.register_buffer(_slot(name), tensor.expand(members, *tensor.shape).clone())

    def settings(self) -> dict[str, Any]:
        return {"members": self.members}

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        return self.objective_of(range(self.members), batches, step=step, share=share)

    def objective_of(
        self, members: Sequence[int | Tensor], batches: list[Batch], *, step: int, share: float
    ) -> Objective:
        """The sum over some members, with a batch for each; `theta` and the buffers have just their rows."""
        x = pytree.tree_map(lambda *leaves: torch.stack(leaves), *[batch[0] for batch in batches])
        outputs, buffers = self._member_outputs(members, x, step)
        pairs = zip(outputs.split(1), members, batches, strict=True)
        losses = [self._nll(own, y, step, network=member) for own, member, (_, y) in pairs]
        nll, penalty = torch.stack(losses).sum(), self._penalty(step, 1)
        return Objective(nll + share / batches[0][1].shape[0] * penalty, nll, penalty, buffers)

    def absorb(self, objective: Objective) -> None:
        for name, values in objective.buffers.items():
            self.get_buffer(_slot(name)).copy_(values)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        return self.theta.detach()[list(draws)]

    @property
    def member_buffers(self) -> list[str]:
        """The names of the buffers that have a row for each member."""
        return [_slot(name) for name in self.network.buffer_names]

    @property
    def mean_weights(self) -> Tensor:
        raise ValueError('an ensemble has no mean weights that mean anything: use by="draws"')

    @property
    def held(self) -> int | None:
        return self.members

    def _member_outputs(self, members: Sequence[int | Tensor], x: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        one = pytree.tree_map_only(Tensor, lambda t: t[0], x)
        keys = [self._training_dropout(one, step, 1, member) for member in members]
        dropout = None if keys[0] is None else torch.cat([k for k in keys if k is not None])
        kept = self._member_buffers(range(len(members)))
        return self.network.outputs(self._member_weights(), x, train=True, dropout=dropout, each=True, kept=kept)

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self.prior is None:
            return self.theta.new_zeros(())
        return -self.prior.log_density(self.theta[:, : self.network.random_size]).sum()

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The pass of one member, the step's turn."""
        member = step % self.members
        kept = self._member_buffers([member])
        dropout = self._training_dropout(x, step, 1, member)
        one = pytree.tree_map_only(Tensor, lambda t: t.unsqueeze(0), x)
        return self.network.outputs(
            self._member_weights()[member : member + 1], one, train=True, dropout=dropout, each=True, kept=kept
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
        held = {name: self.get_buffer(_slot(name))[list(members)] for name in self.network.buffer_names}
        return held or None


def _slot(name: str) -> str:
    return "members_" + name.replace(".", "/")
