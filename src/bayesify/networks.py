"""Perceptrons and small convolutional networks that a run folder can rebuild.

Every network is a plain `nn.Sequential` with a `spec`, a dictionary for JSON from which `build` makes it again. Its
weights are initialised by PyTorch; most methods initialise them again when training starts. The presets of `cnn` are

    lenet    conv6 5x5, pool, conv16 5x5, pool, dense120, dense84; relu  (LeCun et al. 1998, with max pooling)
    study-c  conv8, conv8, pool, conv16, conv16, pool, dense100, dense100; all 3x3, relu
    study-e  conv32 5x5, pool, conv32 5x5, pool, dense64; tanh
"""

from __future__ import annotations

import copy
import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.errors import choose

Spec = dict[str, Any]


def mlp(
    inputs: int,
    outputs: int,
    units: int | Sequence[int] = 400,
    layers: int = 2,
    activation: str = "relu",
    dropout: float = 0.0,
    location: Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
) -> nn.Sequential:
    """A multilayer perceptron, `[batch, ...]` -> `[batch, outputs]`.

    Args:
        inputs: number of values in one input, which is flattened first.
        outputs: number of outputs.
        units: width of every hidden layer, or a list with the width of each.
        layers: number of hidden layers, ignored where `units` is a list; 0 gives a linear model.
        activation: "relu", "tanh", "gelu", "silu", "elu" or "softplus".
        dropout: dropout probability before every weight layer but the first.
        location: of each input, which is subtracted first; with `scale`, for inputs in their own units.
        scale: of each input, which divides it.

    Returns:
        The network, with its `spec`.

    Raises:
        TypeError, ValueError: a size is not a whole number of at least 1, or a name is unknown.

    Examples:
        >>> network = bf.networks.mlp(2, 3, units=[8, 8])
        >>> network(torch.zeros(5, 2)).shape
        torch.Size([5, 3])

    """
    inputs = _whole("inputs", inputs, at_least=1)
    outputs = _whole("outputs", outputs, at_least=1)
    if isinstance(units, Sequence) and not isinstance(units, str):
        widths = [_whole("units", width, at_least=1) for width in units]
    else:
        widths = [_whole("units", units, at_least=1)] * _whole("layers", layers, at_least=0)
    between = _ACTIVATIONS[choose("activation", activation, _ACTIVATIONS)]
    scaling = _scaling(inputs, location, scale)
    modules = [nn.Flatten(1), *scaling, *_dense(inputs, widths, outputs, between)]
    spec = {
        "type": "mlp",
        "inputs": inputs,
        "outputs": outputs,
        "units": widths,
        "activation": activation,
        "dropout": _probability("dropout", dropout),
    }
    if scaling:
        spec |= {"location": list(scaling[0].location), "scale": list(scaling[0].scale)}
    return _sequential(modules, spec)


class Standardise(nn.Module):
    """Inputs in their own units, standardised by fixed numbers: `(x - location) / scale`.

    The numbers belong to the architecture, not to the weights: no method trains them or has a prior for them.

    Args:
        location: of each input.
        scale: of each input.

    Examples:
        >>> bf.networks.Standardise([10.0, 0.0], [2.0, 1.0])(torch.tensor([[14.0, 3.0]]))
        tensor([[2., 3.]])

    """

    def __init__(self, location: Sequence[float], scale: Sequence[float]) -> None:
        super().__init__()
        self.location, self.scale = tuple(map(float, location)), tuple(map(float, scale))
        if len(self.location) != len(self.scale):
            raise ValueError(
                f"location and scale must have the same length, got {len(self.location)} and {len(self.scale)}"
            )
        if not all(math.isfinite(value) for value in self.location):
            raise ValueError("location must be finite numbers")
        if not all(0 < value < math.inf for value in self.scale):
            raise ValueError("scale must be finite numbers above 0")

    def forward(self, x: Tensor) -> Tensor:
        """The standardised inputs.

        Args:
            x: inputs, `[batch, inputs]`.

        Returns:
            A tensor of the same shape.

        """
        location, scale = (
            torch.tensor(values, dtype=x.dtype, device=x.device) for values in (self.location, self.scale)
        )
        return (x - location) / scale

    def extra_repr(self) -> str:
        """The number of inputs."""
        return f"inputs={len(self.location)}"


def cnn(
    input_shape: Sequence[int],
    outputs: int,
    preset: str = "lenet",
    activation: str | None = None,
    dropout: float = 0.0,
) -> nn.Sequential:
    """A convolutional network, `[batch, channels, height, width]` -> `[batch, outputs]`.

    Args:
        input_shape: (channels, height, width) of one image.
        outputs: number of outputs.
        preset: "lenet", "study-c" or "study-e".
        activation: "relu", "tanh", "gelu", "silu", "elu" or "softplus"; by default that of the preset.
        dropout: dropout probability before every weight layer but the first.

    Returns:
        The network, with its `spec`.

    Raises:
        TypeError, ValueError: a size is not a whole number, a name is unknown, or the images are too small.

    Examples:
        >>> network = bf.networks.cnn((1, 28, 28), 10)
        >>> network(torch.zeros(2, 1, 28, 28)).shape, bf.networks.count_weights(network)
        (torch.Size([2, 10]), 61706)

    Reference:
        Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to document recognition", 1998.

    """
    layout = _PRESETS[choose("preset", preset, _PRESETS)]
    activation = layout.activation if activation is None else activation
    between = _ACTIVATIONS[choose("activation", activation, _ACTIVATIONS)]
    channels, height, width = _image(input_shape)
    outputs = _whole("outputs", outputs, at_least=1)
    _big_enough(preset, layout, height, width)
    modules: list[nn.Module] = []
    features = channels
    for stage in layout.stages:
        for convolution in stage:
            modules += [
                nn.Conv2d(features, convolution.channels, convolution.kernel, padding=convolution.padding),
                between(),
            ]
            features = convolution.channels
        modules.append(nn.MaxPool2d(2))
    flat = features * layout.size_after(height) * layout.size_after(width)
    modules += [nn.Flatten(1), *_dense(flat, layout.dense, outputs, between)]
    spec = {
        "type": "cnn",
        "input_shape": [channels, height, width],
        "outputs": outputs,
        "preset": preset,
        "activation": activation,
        "dropout": _probability("dropout", dropout),
    }
    return _sequential(modules, spec)


def build(spec: Mapping[str, Any]) -> nn.Sequential:
    """Build the network that a spec describes.

    Args:
        spec: `{"type": "mlp", ...}` or `{"type": "cnn", ...}` with the arguments of that function.

    Returns:
        A new network.

    Raises:
        TypeError: the spec is not a mapping.
        ValueError: the type or an argument is unknown or missing.

    Examples:
        >>> bf.networks.build({"type": "mlp", "inputs": 2, "outputs": 1, "layers": 0})
        Sequential(
          (0): Flatten(start_dim=1, end_dim=-1)
          (1): Linear(in_features=2, out_features=1, bias=True)
        )

    """
    if not isinstance(spec, Mapping):
        raise TypeError(f"a network spec must be a mapping such as {{'type': 'mlp', ...}}, got {type(spec).__name__}")
    if "type" not in spec:
        raise ValueError(f"a network spec needs a type: {' or '.join(_KINDS)}")
    kind = choose("network type", spec["type"], _KINDS)
    settings = {name: value for name, value in spec.items() if name != "type"}
    known = inspect.signature(_KINDS[kind]).parameters
    for name in settings:
        choose(f"setting of a {kind} spec", name, known)
    missing = [name for name, setting in known.items() if setting.default is setting.empty and name not in settings]
    if missing:
        raise ValueError(f"a {kind} spec needs {' and '.join(missing)}, got only {', '.join(sorted(spec))}")
    return _KINDS[kind](**settings)


def spec_of(module: nn.Module) -> Spec | None:
    """The spec from which `build` makes a network again.

    Args:
        module: any module.

    Returns:
        A copy of the spec of a network made by `mlp`, `cnn` or `build`; None for any other module.

    Examples:
        >>> bf.networks.spec_of(bf.networks.mlp(2, 1, units=8))
        {'type': 'mlp', 'inputs': 2, 'outputs': 1, 'units': [8, 8], 'activation': 'relu', 'dropout': 0.0}

    """
    spec = getattr(module, "spec", None)
    return copy.deepcopy(spec) if isinstance(spec, dict) else None


def count_weights(module: nn.Module) -> int:
    """Number of parameters of a module, biases included; shared parameters count once.

    Args:
        module: any module.

    Returns:
        The number.

    Examples:
        >>> bf.networks.count_weights(torch.nn.Linear(2, 3))
        9

    """
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True)
class _Convolution:
    channels: int
    kernel: int
    padding: int


@dataclass(frozen=True)
class _Layout:
    """Stages of convolutions, each stage ending in a 2x2 max pooling, then hidden dense layers."""

    stages: tuple[tuple[_Convolution, ...], ...]
    dense: tuple[int, ...]
    activation: str

    def size_after(self, side: int) -> int:
        """The side of the feature maps after the last pooling; below 1 when the image is too small."""
        for stage in self.stages:
            for convolution in stage:
                side += 2 * convolution.padding - convolution.kernel + 1
            side //= 2
        return side


_PRESETS: dict[str, _Layout] = {
    # LeNet-5 takes 32x32 images: the padding of the first layer makes 28x28 images that large.
    "lenet": _Layout(((_Convolution(6, 5, 2),), (_Convolution(16, 5, 0),)), (120, 84), "relu"),
    # The padding keeps the size: 3x32x32 images and 9 classes then need the study's 117,805 weights.
    "study-c": _Layout(((_Convolution(8, 3, 1),) * 2, (_Convolution(16, 3, 1),) * 2), (100, 100), "relu"),
    "study-e": _Layout(((_Convolution(32, 5, 0),), (_Convolution(32, 5, 0),)), (64,), "tanh"),
}

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
}

_KINDS: dict[str, Callable[..., nn.Sequential]] = {"mlp": mlp, "cnn": cnn}


def _scaling(inputs: int, location: Sequence[float] | None, scale: Sequence[float] | None) -> list[Standardise]:
    """The layer that standardises the inputs, where their location and scale are given."""
    if location is None and scale is None:
        return []
    given = {"location": location, "scale": scale}
    for name, values in given.items():
        if values is None or len(values) != inputs:
            count = "none" if values is None else str(len(values))
            raise ValueError(f"{name} must have one number for each of {inputs} inputs, got {count}")
    assert location is not None
    assert scale is not None
    return [Standardise(location, scale)]


def _dense(inputs: int, widths: Sequence[int], outputs: int, between: Callable[[], nn.Module]) -> Iterator[nn.Module]:
    for width in widths:
        yield nn.Linear(inputs, width)
        yield between()
        inputs = width
    yield nn.Linear(inputs, outputs)


def _sequential(modules: Sequence[nn.Module], spec: Spec) -> nn.Sequential:
    """An `nn.Sequential` with its spec, and with dropout before every weight layer but the first."""
    chain: list[nn.Module] = []
    seen_weights = False
    for module in modules:
        has_weights = isinstance(module, nn.Linear | nn.Conv2d)
        if has_weights and seen_weights and spec["dropout"] > 0:
            chain.append(nn.Dropout(spec["dropout"]))
        chain.append(module)
        seen_weights = seen_weights or has_weights
    network = nn.Sequential(*chain)
    # Not a subclass: only a plain nn.Sequential is recognised as a chain, which can be batched without vmap.
    vars(network)["spec"] = spec
    return network


def _whole(name: str, value: Any, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return int(value)


def _probability(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number of at least 0 and below 1, got {value!r}")
    probability = float(value)
    if not 0 <= probability < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
    return probability


def _image(input_shape: Any) -> tuple[int, int, int]:
    if not isinstance(input_shape, Sequence) or isinstance(input_shape, str) or len(input_shape) != 3:
        raise ValueError(f"input_shape must be (channels, height, width), got {input_shape!r}")
    channels, height, width = (_whole("input_shape", size, at_least=1) for size in input_shape)
    return channels, height, width


def _big_enough(preset: str, layout: _Layout, height: int, width: int) -> None:
    if min(layout.size_after(height), layout.size_after(width)) >= 1:
        return
    smallest = next(side for side in range(1, 1000) if layout.size_after(side) >= 1)
    raise ValueError(
        f"preset {preset!r} needs images of at least {smallest}x{smallest}, got {height}x{width}: "
        "use larger images, a smaller preset or an mlp"
    )
