"""The prior of a pretrained network: a normal centred on the weights that the network had when the method was made.

    p(w_i) = N(w_i; g_i, scale^2),    g the given weights

Under N(0, 1), weights that were trained elsewhere may lie where the prior has little density, and variational
inference then pays for them in nats. Centred on them, the KL counts only what fine-tuning changes. The prior depends on
the data that the network was trained on. If these are the data of the fine-tuning too, they count twice, and the result
is not the posterior of a model.

A method stores the given weights with its tensors, so a run loads without the original network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from bayesify.errors import nearest
from bayesify.priors.densities import Normal
from bayesify.priors.prior import Number, Scale


@dataclass(frozen=True)
class Pretrained(Normal):
    """A normal prior centred on the given weights g of a network: `p(w_i) = N(w_i; g_i, scale^2)`.

    The means are the weights that the network has when a method is made of it, which needs `start="given"`; or tensors
    that you give. They are saved with the method. As text: `pretrained:0.03`.

    Args:
        scale: a positive number, `"fan_in"` for 1 / sqrt(fan-in) of each tensor, or a hyperprior.
        means: tensors by name, such as the `state_dict()` of another network, to centre the prior on these. It must
            have every tensor that has this prior; others are not read. None is the weights of the network itself.

    Raises:
        TypeError: `means` is no mapping from names to tensors.

    Examples:
        >>> tuned = bf.Variational(net, "categorical", prior=bf.priors.Pretrained(0.03))
        >>> given = tuned.network.initial
        >>> tuned.prior.log_density(given) > tuned.prior.log_density(given + 0.01)
        tensor(True)
        >>> tuned.prior.describe("1.weight")
        'pretrained:0.03 (centred on the given weights)'
        >>> before = {name: 0 * tensor for name, tensor in net.state_dict().items()}
        >>> shrunk = bf.Variational(net, "categorical", prior=bf.priors.Pretrained(0.03, means=before))
        >>> float(shrunk.prior.means().abs().max())
        0.0

    """

    name = "pretrained"

    scale: Scale = 0.03
    mean: float = field(default=0.0, init=False, repr=False)
    means: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False, metadata={"text": False})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.means is None:
            return
        tensors = isinstance(self.means, Mapping) and all(isinstance(value, Tensor) for value in self.means.values())
        if not tensors:
            kind = type(self.means).__name__
            raise TypeError(f"means must be tensors by name, such as another.state_dict(), got {kind}")
        # A copy: the network that they came from may train on.
        kept = {name: value.detach().clone() for name, value in self.means.items()}
        object.__setattr__(self, "means", kept)  # a frozen dataclass allows no other way

    def centre(self, name: str, shape: Sequence[int], given: Tensor | None) -> Tensor:
        """The means of one tensor.

        Args:
            name: of the tensor in the network.
            shape: of the tensor.
            given: its weights in the network, flat; None where the network is not known.

        Returns:
            A flat tensor.

        Raises:
            ValueError: the means have no such tensor, or one of another shape; or there is nothing to centre it on.

        """
        if self.means is None:
            if given is None:
                raise ValueError(f"{self.text} is centred on the weights of a network: pass given=network.initial")
            return given.detach()
        found = self.means.get(name)
        if found is None:
            raise ValueError(f"means has no tensor {name!r}{nearest(name, self.means)}")
        if tuple(found.shape) != tuple(shape):
            raise ValueError(f"means of {name!r} must have shape {list(shape)}, got {list(found.shape)}")
        flat = found.reshape(-1)
        return flat if given is None else flat.to(given)

    def _or_defaults(self, scale: Number | None, mean: Number | None) -> tuple[Number, Number]:
        if mean is None:
            raise ValueError(f"{self.text} is centred on the weights of a network: pass the mean")
        return super()._or_defaults(scale, mean)
