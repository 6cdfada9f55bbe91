"""A method of which each process holds a part while it trains: cut before training, put together after it.

The parameters that have a number for each weight keep their names and become shorter. The prior becomes that of the
part. A method says which of its tensors are cut (`sharded`), and takes up its part in `use_shard`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from bayesify.distributed import Group
from bayesify.distributed.sharding import Shard
from bayesify.functional.sharded_pass import make_shard
from bayesify.methods.memory import available
from bayesify.methods.objective import Learning
from bayesify.priors import WeightPrior

_INITIAL, _PRIOR = "network.initial", "prior."
IN_PARTS = (
    "each process holds a part of the weights while it trains: predict or save after fit, or inside "
    "`with method.whole():` in a callback of every process"
)
# A method is put together on its device if it takes at most this share of the memory that is free there.
_SHARE_OF_MEMORY = 0.5


class Shardable(Learning):
    """What a method needs so that each process can hold a part of it."""

    prior: WeightPrior | None
    # The prior of all weights, in a list, so that torch does not count it as a part of the method.
    _whole_prior: Sequence[WeightPrior] = ()

    def why_not_sharded(self, *, own_draws: bool) -> str | None:
        """Why its weights cannot be divided among processes; None where they can.

        Args:
            own_draws: whether each process is to draw its own weights.

        """
        # A subclass may hold other tensors: it has to name them itself.
        if not vars(type(self)).get("sharded"):
            return "its tensors cannot be divided among processes"
        if getattr(self, "noise_prior", None) is not None:
            return "a noise that is a variable belongs to no process: give it a number"
        return None

    def use_shard(self, shard: Shard | None) -> None:
        """Take up the part of the weights of this process, or all of them again.

        Args:
            shard: the part; None for all.

        """
        self.shard = shard

    def use_prior(self, prior: WeightPrior, pieces: Sequence[tuple[int, int]] | None) -> None:
        """Take the prior of the weights that this process holds.

        Args:
            prior: of all weights.
            pieces: the ranges of the random weights that this process holds; None for all of them.

        """
        self.prior = prior if pieces is None else prior.part(pieces)

    def cut(self, group: Group, device: torch.device | str | None) -> None:
        """Keep only the part of this process, and move it to a device.

        Args:
            group: the processes.
            device: where to train; None is where the method is.

        """
        shard = make_shard(self.network, group)
        for name, kind in self._cut_tensors().items():
            self._replace(name, shard.take(self._tensor(name), kind))
        self._keep_prior()
        self.use_shard(shard)
        self.take_prior()
        if device is not None:
            self.to(device)

    def take_prior(self) -> None:
        """Cut the prior of all weights, which may have been loaded again."""
        for prior in self._whole_prior:
            assert self.shard is not None
            self.use_prior(prior, self.shard.ranges("random"))

    def join(self) -> None:
        """Put the whole method together again, in every process: on its device, or on the CPU where it is too large."""
        shard = self.shard
        if shard is None:
            return
        where = next(self.parameters()).device
        tensors = self._cut_tensors()
        needed = sum(
            math.prod(self._tensor(name).shape[:-1]) * self._tensor(name).element_size() * shard.whole_size
            for name in tensors
        )
        free = available(where)
        fits = where.type == "cpu" or free is None or needed <= _SHARE_OF_MEMORY * free
        for name, kind in tensors.items():
            self._replace(name, shard.join(self._tensor(name), kind, where if fits else "cpu"))
        self._without_shard()
        if not fits:
            self.to("cpu")

    @contextmanager
    def whole(self, *, on_first: bool = False) -> Iterator[None]:
        """Inside this context the method is whole: for a prediction in training, or for a file.

        Args:
            on_first: put it together on the CPU of the first process alone; the others must not use it.

        Yields:
            Nothing.

        """
        shard, parts = self.shard, {name: self._tensor(name).detach() for name in self._cut_tensors()}
        if shard is None:
            yield
            return
        wanted = shard.group.first or not on_first
        for name, kind in self._cut_tensors().items():
            joined = shard.join(parts[name], kind, "cpu" if on_first else None, wanted=wanted)
            if wanted:
                self._replace(name, joined)
        if wanted:
            self._without_shard()
        try:
            yield
        finally:
            for name, part in parts.items():
                self._replace(name, part)
            if self.shard is None:
                self._keep_prior()
            self.use_shard(shard)
            self.take_prior()

    def state_of_parts(self) -> dict[str, Tensor]:
        """The tensors of this process for a checkpoint; those of the prior are of all weights."""
        state: dict[str, Tensor] = self.state_dict()
        for prior in self._whole_prior:
            state |= {f"{_PRIOR}{name}": tensor for name, tensor in prior.state_dict().items()}
        return state

    def load_parts(self, state: dict[str, Tensor]) -> None:
        """Take up the tensors of this process from a checkpoint.

        Args:
            state: as `state_of_parts` gives them; those of the prior may be left out.

        """
        of_prior = {name.removeprefix(_PRIOR): state[name] for name in state if name.startswith(_PRIOR)}
        for prior in self._whole_prior if of_prior else ():
            prior.load_state_dict(of_prior)
            self.take_prior()
        own = {name: tensor for name, tensor in self.state_dict().items() if name.startswith(_PRIOR)}
        self.load_state_dict({**state, **own})

    def _keep_prior(self) -> None:
        self._whole_prior = () if self.prior is None else (self.prior,)

    def _without_shard(self) -> None:
        self.use_shard(None)
        for prior in self._whole_prior:
            self.use_prior(prior.to(self.network.device), None)
        self._whole_prior = ()

    def _cut_tensors(self) -> dict[str, str]:
        # Elsewhere than on a CPU the given weights are not in the memory of the device.
        given = {_INITIAL: "all"} if self.network.device.type == "cpu" else {}
        return {**self.sharded, **given}

    def _tensor(self, name: str) -> Tensor:
        owner, _, leaf = name.rpartition(".")
        tensor: Tensor = getattr(self.get_submodule(owner), leaf)
        return tensor

    def _replace(self, name: str, values: Tensor) -> None:
        tensor = self._tensor(name)
        tensor.grad = None
        tensor.data = values.detach()
