"""Networks of ours by spec: perceptrons and small convolutional networks that a run folder can rebuild.

Every network is a plain `nn.Sequential` whose `spec`, a dictionary that JSON can hold, builds it again. Its
weights start as PyTorch draws them; a method that starts afresh draws its own. The presets of `cnn` are

    lenet    conv6 5x5, pool, conv16 5x5, pool, dense120, dense84; relu  (LeCun et al. 1998, with max pooling)
    study-c  conv8, conv8, pool, conv16, conv16, pool, dense100, dense100; all 3x3, relu
    study-e  conv32 5x5, pool, conv32 5x5, pool, dense64; tanh
"""

from __future__ import annotations

import copy
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from bayesify.errors import choose

Spec = dict[str, Any]


def mlp(
    inputs: int,
    outputs: int,
    units: int | Sequence[int] = 400,
    layers: int = 2,
    activation: str = "relu",
    dropout: float = 0.0,
) -> nn.Sequential:
    """A perceptron, `[batch, ...]` -> `[batch, outputs]`, that flattens each input to `inputs` numbers.

    `units` is the width of each of the `layers` hidden layers, or a list with one width per hidden layer,
    which then also says how many there are. With none it is a linear model.
    """
    inputs = _whole("inputs", inputs, at_least=1)
    outputs = _whole("outputs", outputs, at_least=1)
    if isinstance(units, Sequence) and not isinstance(units, str):
        widths = [_whole("units", width, at_least=1) for width in units]
    else:
        widths = [_whole("units", units, at_least=1)] * _whole("layers", layers, at_least=0)
    between = _ACTIVATIONS[choose("activation", activation, _ACTIVATIONS)]
    modules = [nn.Flatten(1), *_dense(inputs, widths, outputs, between)]
    spec = {
        "type": "mlp",
        "inputs": inputs,
        "outputs": outputs,
        "units": widths,
        "activation": activation,
        "dropout": _probability("dropout", dropout),
    }
    return _sequential(modules, spec)


def cnn(
    input_shape: Sequence[int],
    outputs: int,
    preset: str = "lenet",
    activation: str | None = None,
    dropout: float = 0.0,
) -> nn.Sequential:
    """A convolutional network, `[batch, channels, height, width]` -> `[batch, outputs]`.

    `input_shape` is (channels, height, width); `preset` is `lenet`, `study-c` or `study-e`, whose own
    activation is used unless `activation` names another.
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
    """The network that `spec` describes: `{"type": "mlp" | "cnn", ...}` with that function's arguments."""
    if not isinstance(spec, Mapping):
        raise TypeError(f"a network spec is a mapping such as {{'type': 'mlp', ...}}, got {type(spec).__name__}")
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
    """The spec that rebuilds `module` if it is a network of ours, else None."""
    spec = getattr(module, "spec", None)
    return copy.deepcopy(spec) if isinstance(spec, dict) else None


def count_weights(module: nn.Module) -> int:
    """How many numbers the module's parameters hold, biases included and shared ones counted once."""
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
        """What is left of an image's side after the last pooling; below 1 when the image is too small."""
        for stage in self.stages:
            for convolution in stage:
                side += 2 * convolution.padding - convolution.kernel + 1
            side //= 2
        return side


_PRESETS: dict[str, _Layout] = {
    # The padding of the first layer gives 28x28 images the 32x32 that LeNet-5 was drawn for.
    "lenet": _Layout(((_Convolution(6, 5, 2),), (_Convolution(16, 5, 0),)), (120, 84), "relu"),
    # The padding keeps the size: only so do 3x32x32 images and 9 classes make the study's 117,805 weights.
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


def _dense(inputs: int, widths: Sequence[int], outputs: int, between: Callable[[], nn.Module]) -> Iterator[nn.Module]:
    for width in widths:
        yield nn.Linear(inputs, width)
        yield between()
        inputs = width
    yield nn.Linear(inputs, outputs)


def _sequential(modules: Sequence[nn.Module], spec: Spec) -> nn.Sequential:
    """The chain, with dropout before every weight layer but the first, carrying its spec."""
    chain: list[nn.Module] = []
    seen_weights = False
    for module in modules:
        has_weights = isinstance(module, nn.Linear | nn.Conv2d)
        if has_weights and seen_weights and spec["dropout"] > 0:
            chain.append(nn.Dropout(spec["dropout"]))
        chain.append(module)
        seen_weights = seen_weights or has_weights
    network = nn.Sequential(*chain)
    # An attribute of a plain nn.Sequential: a subclass would not be recognised as a chain to batch by hand.
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
        raise TypeError(f"{name} must be a number from 0 up to, but not including, 1, got {value!r}")
    probability = float(value)
    if not 0 <= probability < 1:
        raise ValueError(f"{name} must be from 0 up to, but not including, 1, got {value}")
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
