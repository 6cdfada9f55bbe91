"""The protocol of what training needs from a method, so that training never imports a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.distributed.sharding import Shard
    from bayesify.functional.network import Network
    from bayesify.likelihoods import Likelihood
    from bayesify.predictive import Predictive
    from bayesify.training.batches import Batch
    from bayesify.training.optimisation import OptimizerFactory


@dataclass
class Objective:
    """The loss of one step, its two parts, and the buffers after the pass.

    Args:
        loss: what is differentiated: `nll + share / B * kl`.
        nll: the mean negative log-likelihood of the batch.
        kl: the prior's part: the KL, or minus the log prior density for point methods.
        buffers: running statistics after the pass, `[draws, *shape]` by name.

    """

    loss: Tensor
    nll: Tensor
    kl: Tensor
    buffers: dict[str, Tensor] = field(default_factory=dict)


class Trainable(Protocol):
    """A module with an objective: what the training loop and its engines need from a method."""

    network: Network
    likelihood: Likelihood
    members: int
    seed: int
    plan: Any
    # When training has to end, by `time.perf_counter()`; None lets it follow its plan to the end.
    deadline: float | None
    # Whether the update of this training can be compiled with the gradients.
    fusible: bool
    # Buffers that a step neither reads nor changes, by name.
    outside_steps: Sequence[str]
    # The part of this process in a sharded training, and the parameters and buffers that are cut, by name.
    shard: Shard | None
    sharded: ClassVar[Mapping[str, str]]

    @property
    def name(self) -> str: ...
    @property
    def has_elbo(self) -> bool: ...
    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective: ...
    def captured(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective: ...
    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective: ...
    def note_batches(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> None: ...
    def note_objective(self, objective: Objective) -> None: ...
    def absorb(self, objective: Objective) -> None: ...
    def update_statistics(self, objective: Objective) -> None: ...
    def made_step(self, step: int) -> None: ...
    def lower_rate(self, factor: float) -> None: ...
    def clip_gradients(self, largest: float) -> None: ...
    def weight_parameters(self) -> list[tuple[nn.Parameter, int]]: ...
    def kl(self, step: int | None = None, draws: int = 1) -> Tensor: ...
    def whole(self, *, on_first: bool = False) -> AbstractContextManager[None]: ...
    def state_of_parts(self) -> dict[str, Tensor]: ...
    def load_parts(self, state: dict[str, Tensor]) -> None: ...
    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float) -> Optimizer: ...
    def predict(self, x: Any, *, draws: int, seed: int) -> Predictive: ...
    @property
    def inputs_at_once(self) -> int: ...
    # Every nn.Module has these.
    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...
    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: Any) -> Any: ...
    def train(self, mode: bool = True) -> Any: ...
    def eval(self) -> Any: ...


def declares(method: object, attribute: str) -> bool:
    """Whether the class of a method sets an attribute to True itself; a subclass may change the step."""
    return bool(vars(type(method)).get(attribute, False))


def shared_parameters(method: Trainable) -> list[nn.Parameter]:
    """The parameters that every process holds as a whole."""
    cut = set() if method.shard is None else set(method.sharded)
    return [parameter for name, parameter in method.named_parameters() if name not in cut]
