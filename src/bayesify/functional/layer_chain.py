"""Plain chains of known layers, evaluated at many draws at once by batched products.

A chain is an `nn.Sequential` (nested ones count) of the layers listed here. All draws share the inputs of the first
product, so its weights are stacked into one tall matrix. Later products are batched over draws. Convolutions run as one
grouped convolution with the draws as groups. Types are matched exactly, because a subclass may compute something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesify.networks import Standardise

ELEMENTWISE = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Identity,
)
POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d)
IN_PLACE: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.ReLU: torch.relu_,
    nn.Tanh: torch.tanh_,
    nn.Sigmoid: torch.sigmoid_,
}
Chain = list[tuple[str, nn.Module]]


def plan(module: nn.Module) -> Chain | None:
    """The layers of a plain chain in order, by name; None where the module is not a plain chain."""
    links: Chain = []
    seen: set[int] = set()
    if not _collect(module, "", links, seen):
        return None
    return links


def run(chain: Chain | None, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    """Outputs `[draws, batch, ...]` for weights `[draws, *shape]` and inputs `[batch, ...]` that all draws share."""
    assert chain is not None
    draws = next(iter(tensors.values())).shape[0]
    if draws == 1:
        return _run_once(chain, tensors, x).unsqueeze(0)
    shared = True
    for name, layer in chain:
        if type(layer) is nn.Linear:
            x = _linear(x, tensors[f"{name}weight"], tensors.get(f"{name}bias"), shared)
            shared = False
        elif type(layer) is nn.Conv2d:
            x = _convolution(layer, x, tensors[f"{name}weight"], tensors.get(f"{name}bias"), shared)
            shared = False
        elif type(layer) is nn.Flatten:
            x = x.flatten(1 if shared else 2)
        elif type(layer) in POOLING and not shared:
            pooled = layer(x.flatten(0, 1))
            x = pooled.reshape(*x.shape[:2], *pooled.shape[1:])
        else:
            x = layer(x)
    return x.expand(draws, *x.shape) if shared else x


def _run_once(chain: Chain, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    owned = False
    for name, layer in chain:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            # Squeezed, not indexed: the gradient of indexing copies the tensor.
            weight, bias = tensors[f"{name}weight"].squeeze(0), tensors.get(f"{name}bias")
            bias = None if bias is None else bias.squeeze(0)
            x = layer._conv_forward(x, weight, bias) if isinstance(layer, nn.Conv2d) else F.linear(x, weight, bias)
            owned = not torch.is_grad_enabled()
        elif owned and type(layer) in IN_PLACE:
            # No other code and no gradient uses the output of the last layer, so it is overwritten.
            x = IN_PLACE[type(layer)](x)
        else:
            x = layer(x)
    return x


def _collect(module: nn.Module, prefix: str, links: Chain, seen: set[int]) -> bool:
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or "forward" in vars(module):
        return False
    if type(module) is nn.Sequential:
        # Not `named_children`, which lists a module that is used twice only once.
        children = [(name, child) for name, child in module._modules.items() if child is not None]
        return all(_collect(child, f"{prefix}{name}.", links, seen) for name, child in children)
    known = type(module) in {nn.Linear, Standardise, *ELEMENTWISE}
    known |= type(module) in POOLING and not getattr(module, "return_indices", False)
    known |= type(module) is nn.Conv2d and module.padding_mode == "zeros"
    known |= type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim == -1
    for parameter in module.parameters():
        # A layer that is used twice, or has tied or frozen weights, needs the general path.
        known &= parameter.requires_grad and id(parameter) not in seen
        seen.add(id(parameter))
    links.append((prefix, module))
    return known


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, shared: bool) -> Tensor:
    draws, width = weight.shape[:2]
    if shared and x.dim() == 2:
        y = F.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
        return y.view(x.shape[0], draws, width).transpose(0, 1)
    rows = x.expand(draws, *x.shape) if shared else x
    flat = rows.flatten(1, -2).mT
    # The weights come first, so that their gradient has their layout and needs no transposition.
    product = torch.bmm(weight, flat) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, flat)
    return product.mT.view(*rows.shape[:-1], width)


def _convolution(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None, shared: bool) -> Tensor:
    draws = weight.shape[0]
    settings: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    flat_bias = None if bias is None else bias.flatten()
    if shared and layer.groups == 1:
        y = F.conv2d(x, weight.flatten(0, 1), flat_bias, **settings)
    else:
        rows = x.expand(draws, *x.shape) if shared else x
        stacked = rows.transpose(0, 1).flatten(1, 2)
        y = F.conv2d(stacked, weight.flatten(0, 1), flat_bias, groups=draws * layer.groups, **settings)
    return torch.unflatten(y, 1, (draws, -1)).transpose(0, 1)
