"""The means and variances after each type of layer, from those of its inputs.

A layer `y = sum_i w_i x_i + b` of independent weights `(m_w, v_w)` and inputs `(m_x, v_x)` has (Frey and Hinton 1999)

    mean = op(m_x, m_w, m_b)        variance = op(v_x, m_w^2) + op(m_x^2 + v_x, v_w, v_b)

three products, or two where the inputs are known exactly. The second term comes from the weights of the layer. Types
are matched exactly: a subclass may do something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.functional.layer_chain import ELEMENTWISE
from bayesify.methods.variational.estimators.layers import REGISTRY
from bayesify.methods.variational.estimators.moments import pooling
from bayesify.methods.variational.estimators.moments.gaussians import Gaussians, integrated, rectified, squashed


@dataclass
class Tensors:
    """One layer's tensors by name: their values (the posterior's means) and, of the random ones, variances."""

    values: dict[str, Tensor] = field(default_factory=dict)
    variances: dict[str, Tensor] = field(default_factory=dict)


Rule = Callable[[Any, Gaussians, Tensors, bool], Gaussians]
RULES: dict[type[nn.Module], Rule] = {}


def refusal(layer: Any, train: bool) -> str | None:
    """Why the settings of a layer of known type are not covered, or None."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (train or layer.running_mean is None):
        return "which normalises by the batch"
    return pooling.refusal(layer)


def _weighted(layer: Any, x: Gaussians, tensors: Tensors, train: bool) -> Gaussians:
    kind = REGISTRY[type(layer)]
    weight, bias = tensors.values["weight"], tensors.values.get("bias")
    weight_variance, bias_variance = tensors.variances.get("weight"), tensors.variances.get("bias")
    mean = kind.apply(layer, x.mean, weight, bias)
    fresh = None
    if weight_variance is not None:
        inner = x.mean if train else x.mean.detach()
        squares = inner * inner if x.variance is None else torch.addcmul(x.variance, inner, inner)
        fresh = kind.apply(layer, squares, weight_variance, bias_variance)
    elif bias_variance is not None:
        shape = [1] * mean.dim()
        shape[kind.feature_axis] = -1
        fresh = bias_variance.view(shape).expand_as(mean)
    if x.variance is None:
        return Gaussians(mean, fresh, fresh=fresh)
    inherited = kind.apply(layer, x.variance, weight.square(), None)
    return Gaussians(mean, inherited if fresh is None else inherited + fresh, fresh=fresh)


def _elementwise(layer: Any, x: Gaussians, _: Tensors, train: bool) -> Gaussians:
    function = (lambda z: layer(z.clone())) if getattr(layer, "inplace", False) else layer
    if x.variance is None:
        return Gaussians(function(x.mean))
    if isinstance(layer, nn.Identity):
        return x
    mean = x.mean if train else x.mean.detach()
    if isinstance(layer, nn.ReLU):
        result = rectified(mean, x.variance)
    elif isinstance(layer, nn.LeakyReLU):
        result = rectified(mean, x.variance, layer.negative_slope)
    elif isinstance(layer, nn.Tanh):
        result = squashed(mean, x.variance)
    else:
        result = integrated(function, mean, x.variance)
    if train or not x.mean.requires_grad:
        return result
    # The value as it is, with the mean slope as its derivative: a backward pass then costs one product.
    assert result.slope is not None
    sloped: Callable[..., Tensor] = _Sloped.apply
    return Gaussians(sloped(x.mean, result.mean, result.slope), result.variance)


class _Sloped(torch.autograd.Function):
    """A value that passes the gradient on to another tensor by a given slope."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None


def _normalised(layer: Any, x: Gaussians, tensors: Tensors, _: bool) -> Gaussians:
    """Batch normalisation in evaluation: an affine map of each feature."""
    shape = (1, -1, *[1] * (x.mean.dim() - 2))
    values = {name: tensor.view(shape) for name, tensor in tensors.values.items() if tensor.dim() == 1}
    variances = {name: tensor.view(shape) for name, tensor in tensors.variances.items()}
    scale = (values["running_var"] + layer.eps).rsqrt()
    mean = (x.mean - values["running_mean"]) * scale
    terms = [] if x.variance is None else [x.variance * scale.square()]
    if "weight" in variances:
        squares = mean.square() + sum(terms)
        terms = [term * values["weight"].square() for term in terms] + [squares * variances["weight"]]
    elif "weight" in values:
        terms = [term * values["weight"].square() for term in terms]
    if "bias" in variances:
        terms.append(variances["bias"].expand_as(mean))
    if "weight" in values:
        mean = mean * values["weight"] + values["bias"]
    return Gaussians(mean, torch.stack(terms).sum(0) if terms else None)


def _dropped(layer: Any, x: Gaussians, _: Tensors, train: bool) -> Gaussians:
    """Dropout in training: a factor 0 or 1 / (1 - p), one more source of variance (Wang and Manning 2013)."""
    if not train or layer.p == 0.0:
        return x
    squares = x.mean.square() if x.variance is None else x.mean.square() + x.variance
    more = squares * (layer.p / (1.0 - layer.p))
    return Gaussians(x.mean.clone(), more if x.variance is None else x.variance + more)


def _moved(layer: Any, x: Gaussians, _: Tensors, __: bool) -> Gaussians:
    return x.each(layer)


def _pooled(layer: Any, x: Gaussians, _: Tensors, __: bool) -> Gaussians:
    return pooling.pooled(layer, x)


RULES |= dict.fromkeys((kind for kind, how in REGISTRY.items() if not how.looks_up), _weighted)
RULES |= dict.fromkeys(ELEMENTWISE, _elementwise)
RULES |= dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _normalised)
RULES |= dict.fromkeys((nn.Flatten, nn.Unflatten), _moved)
RULES |= dict.fromkeys(pooling.TYPES, _pooled)
RULES |= {nn.Dropout: _dropped}
