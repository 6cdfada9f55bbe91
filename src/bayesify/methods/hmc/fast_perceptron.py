"""The gradient of a perceptron's log-likelihood for many sets of weights at once, by batched matrix products.

For layers a_l = W_l h_(l-1) + b_l, h_l = f(a_l), and the gradient e of the log-likelihood with respect to the outputs,

    dW_l = e_l h_(l-1)',    db_l = sum over examples of e_l,    e_(l-1) = (W_l' e_l) * f'(a_(l-1)).

Examples are the last axis, so that elementwise operations run along memory. Nothing is recorded for autograd: small
networks spend more time on launching operations than on arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.functional.network import Network
from bayesify.likelihoods import Categorical, Gaussian, Likelihood, LogNormal
from bayesify.networks import Standardise

Derivative = Callable[[Tensor, Tensor], Tensor]
_aten = torch.ops.aten
# The activations whose derivative is known from their value.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Derivative]] = {
    nn.Tanh: (torch.tanh, _aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, _aten.sigmoid_backward),
    nn.ReLU: (torch.relu, lambda e, h: _aten.threshold_backward(e, h, 0)),
}


@dataclass(frozen=True)
class _Dense:
    weight: str
    bias: str | None
    activation: type[nn.Module] | None


class Perceptron:
    """A chain of dense layers on fixed data.

    Args:
        network: of which `layers` were found by `dense_layers`.
        layers: the dense layers in order.
        likelihood: of the targets.
        x: inputs, `[examples, ...]`.
        y: targets.

    """

    def __init__(self, network: Network, layers: list[_Dense], likelihood: Likelihood, x: Tensor, y: Tensor) -> None:
        self.network, self.layers = network, layers
        self.inputs = _standardised(network, x.flatten(1))
        self.transposed = self.inputs.T.contiguous()
        self.towards = _slope(likelihood, y)
        self.likelihood, self.targets = likelihood, y

    @classmethod
    def of(cls, network: Network, likelihood: Likelihood, x: Any, y: Tensor) -> Perceptron | None:
        """The perceptron that a network is, or None."""
        layers = dense_layers(network)
        if layers is None or not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 2:
            return None
        if x.dim() > 2 and not (network.chain and isinstance(network.chain[0][1], nn.Flatten)):
            return None  # dense layers over the last of several axes are not one perceptron
        if x.dtype != network.dtype or any(place.dtype != network.dtype for place in network.places):
            return None
        return cls(network, layers, likelihood, x, y)

    def gradient(self, theta: Tensor, log_noise: Tensor | None = None) -> Tensor:
        """Of the log-likelihood with respect to weights `theta [chains, P]`.

        Where the noise has a prior, `log_noise [chains]` are its logarithms, and their slopes are the last column.
        """
        return self._backward(theta, self._forward(theta), log_noise)

    def value_and_gradient(self, theta: Tensor, log_noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The log-likelihood of all data, `[chains]`, and its gradient, as `gradient` gives it."""
        values = self._forward(theta)
        likelihood = self.likelihood
        if log_noise is not None:
            assert isinstance(likelihood, Gaussian)
            likelihood = likelihood.with_noise(log_noise)
        value = likelihood.log_prob(values[-1].mT, self.targets).sum(-1)
        return value, self._backward(theta, values, log_noise)

    def _forward(self, theta: Tensor) -> list[Tensor]:
        """What each layer gives for all examples, `[chains, width, examples]`."""
        chains, tensors = theta.shape[0], self.network.unflatten(theta)
        values: list[Tensor] = []
        value: Tensor | None = None
        for layer in self.layers:
            weight, bias = tensors[layer.weight], None if layer.bias is None else tensors[layer.bias].unsqueeze(-1)
            if value is None:
                value = torch.mm(weight.flatten(0, 1), self.transposed).view(chains, weight.shape[1], -1)
                value = value if bias is None else value + bias
            else:
                value = torch.bmm(weight, value) if bias is None else torch.baddbmm(bias, weight, value)
            if layer.activation is not None:
                value = ACTIVATIONS[layer.activation][0](value)
            values.append(value)
        return values

    def _backward(self, theta: Tensor, values: list[Tensor], log_noise: Tensor | None) -> Tensor:
        chains, tensors, value = theta.shape[0], self.network.unflatten(theta), values[-1]
        if log_noise is None:
            error, noise_slope = self.towards(value), None
        else:
            error, noise_slope = self._towards_noise(value, log_noise)
        gradients: dict[str, Tensor] = {}
        for number in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[number]
            if layer.activation is not None:
                error = ACTIVATIONS[layer.activation][1](error, values[number])
            if layer.bias is not None:
                gradients[layer.bias] = error.sum(-1)
            if number == 0:
                flat = torch.mm(error.reshape(-1, error.shape[-1]), self.inputs)
                gradients[layer.weight] = flat.view(chains, -1)
            else:
                gradients[layer.weight] = torch.bmm(error, values[number - 1].mT).flatten(1)
                error = torch.bmm(tensors[layer.weight].mT, error)
        columns = [gradients[place.name] for place in self.network.places]
        return torch.cat(columns if noise_slope is None else [*columns, noise_slope.unsqueeze(-1)], -1)

    def _towards_noise(self, outputs: Tensor, log_noise: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes of the log-likelihood with respect to outputs `[chains, width, examples]` and `log sigma [chains]`.

        With residuals r they are `scale * r / sigma^2`, and the sum over the targets of `r^2 / sigma^2 - 1`.
        """
        likelihood, y = self.likelihood, self.targets
        assert isinstance(likelihood, Gaussian)
        several = isinstance(likelihood.location, list) or isinstance(likelihood.scale, list)
        if type(likelihood) not in {Gaussian, LogNormal} or y.dim() > 2 or several:
            with torch.enable_grad():
                leaves = outputs.mT.detach().requires_grad_(), log_noise.detach().requires_grad_()
                total = likelihood.with_noise(leaves[1]).log_prob(leaves[0], y).sum()
                slope, noise_slope = torch.autograd.grad(total, leaves)
            return slope.mT, noise_slope
        if isinstance(likelihood, LogNormal):
            likelihood, y = likelihood.of_logs, y.log()  # the Jacobian has no slope
        location, scale = likelihood.location, likelihood.scale
        assert not isinstance(location, list)
        assert not isinstance(scale, list)
        centred = (y - location).reshape(y.shape[0], -1).T.to(outputs.dtype)
        standard = (centred - scale * outputs) * torch.exp(-log_noise).view(-1, 1, 1)
        error = standard * (scale * torch.exp(-log_noise)).view(-1, 1, 1)
        return error, standard.square().sum((1, 2)) - centred.numel()


def dense_layers(network: Network) -> list[_Dense] | None:
    """The layers of a chain of dense layers with known activations between them, or None where it is something else."""
    if network.chain is None or network.output is not None:
        return None
    layers: list[_Dense] = []
    for name, module in network.chain:
        kind = type(module)
        if kind is nn.Linear:
            layers.append(_Dense(f"{name}weight", f"{name}bias" if module.bias is not None else None, None))
        elif kind in ACTIVATIONS and layers and layers[-1].activation is None:
            layers[-1] = _Dense(layers[-1].weight, layers[-1].bias, kind)
        elif kind in {nn.Flatten, Standardise} and not layers:
            continue
        elif kind is not nn.Identity:
            return None
    return layers or None


def _standardised(network: Network, x: Tensor) -> Tensor:
    """The inputs as they reach the first dense layer."""
    for _, module in network.chain or ():
        x = module(x) if type(module) is Standardise else x
    return x


def _slope(likelihood: Likelihood, y: Tensor) -> Callable[[Tensor], Tensor]:
    """The gradient of the log-likelihood with respect to outputs `[chains, width, examples]`."""
    if type(likelihood) is LogNormal:
        return _slope(likelihood.of_logs, y.log())  # the Jacobian has no slope
    plain = type(likelihood) is Categorical and not y.is_floating_point() and likelihood.weights_of(y) is None
    if plain and y.dim() == 1:

        def of_labels(outputs: Tensor) -> Tensor:
            rows = torch.arange(outputs.shape[1], device=outputs.device).unsqueeze(-1)
            return (y == rows).to(outputs.dtype) - torch.softmax(outputs, 1)

        return of_labels
    if type(likelihood) is Gaussian and isinstance(likelihood.noise, int | float) and y.dim() <= 2:
        location, scale, std = likelihood.location, likelihood.scale, float(likelihood.noise)
        if isinstance(location, float) and isinstance(scale, float):
            centred = (y - location).reshape(y.shape[0], -1).T

            def of_numbers(outputs: Tensor) -> Tensor:
                return (centred.to(outputs.dtype) - scale * outputs) * (scale / std**2)

            return of_numbers
    if type(likelihood) is Gaussian and likelihood.noise == "heteroscedastic" and y.dim() <= 2:
        centre, spread = likelihood.location, likelihood.scale
        if isinstance(centre, float) and isinstance(spread, float):
            standardised: Tensor = ((y - centre) / spread).reshape(y.shape[0], -1).T
            return lambda outputs: _heteroscedastic_slope(outputs, standardised.to(outputs.dtype))

    def of_anything(outputs: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = outputs.mT.detach().requires_grad_()
            (slope,) = torch.autograd.grad(likelihood.log_prob(leaf, y).sum(), leaf)
        return slope.mT

    return of_anything


def _heteroscedastic_slope(outputs: Tensor, standardised: Tensor) -> Tensor:
    """The slopes with respect to means m and raw widths r, where the noise is s = softplus(r) and z = (y - m) / s.

    They are `z / s` and `(z^2 - 1) sigmoid(r) / s`.
    """
    mean, raw = outputs.chunk(2, 1)
    # Below -80 softplus underflows; no posterior has a noise of e^-80 standard deviations of its targets.
    raw = raw.clamp(min=-80.0)
    precision = torch.nn.functional.softplus(raw).reciprocal()
    residual = (standardised - mean) * precision
    return torch.cat((residual * precision, (residual.square() - 1) * torch.sigmoid(raw) * precision), 1)
