"""The layer types that lower-variance estimators support, and the check that a layer can use them.

Types are matched exactly: a subclass may do something else in its `forward`. An estimator needs the operation of a type
as a function of (input, weight, bias), and the axis of its features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from bayesify.functional.network import Network
    from bayesify.functional.tracing import LayerUse, Trace

Operation = Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class LayerType:
    """How to run one type of layer with given tensors.

    Args:
        apply: the layer's operation, `(layer, input, weight, bias) -> output`, linear in the weight.
        feature_axis: where input and output features are (-1 or 1).
        spatial: how many position axes the layer has; the input then has `spatial + 2` axes.
        looks_up: the input is an index, not a number to multiply with (embeddings).

    """

    apply: Operation
    feature_axis: int = -1
    spatial: int | None = None
    looks_up: bool = False


@dataclass(frozen=True)
class StochasticLayer:
    """A layer that an estimator can serve, with what the estimator needs of it."""

    name: str
    layer: nn.Module
    kind: LayerType
    batch_axis: int
    number: int
    exact_local: bool


REGISTRY: dict[type[nn.Module], LayerType] = {}


def register(module_type: type[nn.Module], kind: LayerType) -> None:
    """Add a layer type to those that the estimators support.

    Args:
        module_type: the class of the layer; subclasses are not included.
        kind: how to run such a layer with given tensors.

    """
    REGISTRY[module_type] = kind


def why_not(network: Network, name: str, trace: Trace) -> str | None:
    """The reason why a layer's weights must be drawn (estimator `weight`), or None where another estimator works."""
    layer = network.template.get_submodule(name)
    kind = REGISTRY.get(type(layer))
    random = {place.name for place in network.places if place.random}
    weight = f"{name}.weight" if name else "weight"
    if kind is None:
        return f"{type(layer).__name__} has no lower-variance estimator"
    if trace.problem is not None:
        return f"the network could not be traced: {trace.problem}"
    use = trace.layers.get(name)
    if weight not in random or use is None:
        return "its weight is not random"
    if use.calls != 1:
        return f"its forward ran {use.calls} times in one pass"
    if use.takes_more:
        return "its forward takes more than its input"
    if use.read_elsewhere:
        return "something else reads its tensors"
    return _shape_reason(layer, kind, use)


def stochastic_layers(network: Network, trace: Trace) -> list[StochasticLayer]:
    """The layers of a network for which a lower-variance estimator works."""
    layers = []
    for number, (name, use) in enumerate(trace.layers.items()):
        if why_not(network, name, trace) is None:
            layer = network.template.get_submodule(name)
            exact = type(layer) is nn.Linear and use.input_dims == 2
            layers.append(StochasticLayer(name, layer, REGISTRY[type(layer)], use.batch_axis or 0, number, exact))
    return layers


def _shape_reason(layer: nn.Module, kind: LayerType, use: LayerUse) -> str | None:
    if use.batch_axis is None:
        return "no axis of its input is the batch alone"
    if kind.spatial is not None and use.input_dims != kind.spatial + 2:
        return f"its input has {use.input_dims} axes, {kind.spatial + 2} are expected"
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.sparse or layer.scale_grad_by_freq):
        return "max_norm, sparse and scale_grad_by_freq change the look-up"
    return None


def _linear(_: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight, bias)


def _convolution(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # The layer's own method takes the tensors as arguments and knows its padding mode.
    return layer._conv_forward(x, weight, bias)  # type: ignore[no-any-return]


def _transposed(spatial: int) -> Operation:
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]

    def apply(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return function(
            x, weight, bias, layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
        )

    return apply


def _embedding(layer: Any, x: Tensor, weight: Tensor, _: Tensor | None) -> Tensor:
    return F.embedding(x, weight, layer.padding_idx)


register(nn.Linear, LayerType(_linear))
for _spatial, (_plain, _transpose) in enumerate(
    ((nn.Conv1d, nn.ConvTranspose1d), (nn.Conv2d, nn.ConvTranspose2d), (nn.Conv3d, nn.ConvTranspose3d)), start=1
):
    register(_plain, LayerType(_convolution, feature_axis=1, spatial=_spatial))
    register(_transpose, LayerType(_transposed(_spatial), feature_axis=1, spatial=_spatial))
register(nn.Embedding, LayerType(_embedding, looks_up=True))
