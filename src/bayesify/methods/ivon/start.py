"""Where IVON starts where nothing else is said: its estimate of the Hessian, and its warm-up.

Networks of up to `LARGE` weights start with narrow widths, sigma = `WIDTH`, and the mean follows Adam for the first
half of the steps. With wide widths, or with Newton steps from the start, the noise of the weights drowns the function
before it is learned: sets of 100 to 10,000 rows ended at a constant prediction (docs/methods/ivon.md).

Larger networks, and linear models, start from

    h_0 = the larger of  the mean diagonal of the generalised Gauss-Newton matrix (Martens 2020)
                    and  the smallest h whose noise raises the NLL by at most `HARM` nats per example

and at 1 at least, without a warm-up: on MNIST (784-400-400-10, 10,000 images, 6 epochs, a rate of 0.2, one seed) the
validation NLL was then 0.19, against 0.27 for what is found; ResNet-18 on CIFAR-10 does not train with what is found.
A linear model has one optimum, which noise cannot hide. From a narrow start its widths would still be too narrow at the
end: with 100 rows, 0.36 to 0.49 of the optimum after 500 steps and 0.84 to 0.90 after 2,000.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.functional.inputs import count
from bayesify.methods.laplace.curvature import check_likelihood, root
from bayesify.training.batches import Examples, take, to_device

if TYPE_CHECKING:
    from bayesify.functional.network import Network
    from bayesify.methods.ivon.ivon import IVON

EXAMPLES = 32
# The nats per example that noise may cost at the start. The curvature of a regression grows as its noise is learned, by
# about one over its variance, so that less noise of the weights is harmless there.
HARM, HARM_OF_LEARNED_NOISE = 0.2, 0.01
LARGE, LEAST_OF_LARGE = 100_000, 1.0
# Of small networks: the standard deviation of the weights at the start, and the share of steps that follow Adam.
WIDTH, WARM_UP = 0.003, 0.5
_PAIRS, _STEPS_PER_DECADE = 8, 3
_LARGEST = 1e4


def first_warm_up(network: Network) -> float:
    """The share of the steps that follow Adam first, where none is given.

    Args:
        network: the network.

    """
    return 0.0 if starts_wide(network) else WARM_UP


def first_hessian(method: IVON, examples: Examples, effective_data: float) -> float:
    """Where the Hessian estimate starts; for large networks and linear models from a few examples.

    Args:
        method: the method at its start.
        examples: its training data.
        effective_data: N over the temperature.

    Returns:
        The curvature.

    """
    if not starts_wide(method.network):
        return 1 / (effective_data * WIDTH**2)
    x, y = examples.sample(EXAMPLES) or examples.first()
    rows = min(EXAMPLES, count(x))
    x, y = to_device(take(x, slice(rows)), method.mean.device), y[:rows].to(method.mean.device)
    lowest = min(max(_curvature(method, x, y), LEAST_OF_LARGE), _LARGEST)
    steps = math.ceil(_STEPS_PER_DECADE * math.log10(_LARGEST / lowest))
    fixed = method.likelihood.kind == "classification" or isinstance(getattr(method.likelihood, "noise", None), float)
    at_mean, harm = _nll(method, x, y, None), HARM if fixed else HARM_OF_LEARNED_NOISE
    for step in range(steps):
        hessian = lowest * 10 ** (step / _STEPS_PER_DECADE)
        if _nll(method, x, y, torch.rsqrt(effective_data * hessian + method.prior_precision)) <= at_mean + harm:
            return hessian
    return _LARGEST


def starts_wide(network: Network) -> bool:
    """Whether a network is large, or one linear layer whose weights are all random.

    Args:
        network: the network.

    """
    layers = {place.name.rpartition(".")[0] for place in network.places}
    linear = len(layers) == 1 and isinstance(network.template.get_submodule(*layers), nn.Linear)
    return network.random_size > LARGE or (linear and network.random_size == network.size)


def _curvature(method: IVON, x: Any, y: Tensor) -> float:
    """The mean diagonal of the Gauss-Newton matrix, from one vector of random signs for each example.

    With L = S S' the curvature of the likelihood, the squares of J' S r have the diagonal of J' L J as expectation.
    Likelihoods without a known root have the squared gradients at their targets instead.
    """
    size, total = method.network.random_size, 0.0
    try:
        check_likelihood(method.name, method.likelihood)
        known = method.noise_prior is None
    except ValueError:
        known = False
    keys = noise.keys(method.seed, noise.Stream.INITIAL, network=3, draws=range(len(y)), device=y.device)
    for number in range(len(y)):
        one, target = take(x, slice(number, number + 1)), y[number : number + 1]
        with torch.enable_grad():
            theta = method.mean.detach().clone().requires_grad_()
            if known:
                outputs = method.network.call(method.network.unflatten(theta), one)[0].flatten(1)
                shaped = method.network.call(method.network.unflatten(theta.detach()), one)[0]
                columns = root(method.likelihood, shaped.detach(), target)[0]
                signs = noise.normal(keys[number : number + 1], columns.shape[0])[0].sign().to(columns)
                (gradient,) = torch.autograd.grad(outputs[0] @ (signs @ columns).to(outputs), theta)
            else:
                (gradient,) = torch.autograd.grad(_loss(method, theta.unsqueeze(0), one, target), theta)
        total += float(gradient[:size].double().square().mean())
    return total / len(y) if math.isfinite(total) else 1.0


@torch.no_grad()
def _nll(method: IVON, x: Any, y: Tensor, std: Tensor | None) -> float:
    """The mean NLL at the mean weights, or under draws of a width."""
    theta, size = method.mean.detach().unsqueeze(0), method.network.random_size
    if std is not None:
        keys = noise.keys(method.seed, noise.Stream.INITIAL, network=2, draws=range(_PAIRS), device=theta.device)
        moved = torch.zeros_like(theta).repeat(_PAIRS, 1)
        moved[:, :size] = std * noise.normal(keys, size).to(theta.dtype)
        # Each draw and its mirror image: what is linear in the noise cancels, and the curvature is left.
        theta = torch.cat((theta + moved, theta - moved))
    value = float(_loss(method, theta, x, y))
    return value if math.isfinite(value) else math.inf


def _loss(method: IVON, theta: Tensor, x: Any, y: Tensor) -> Tensor:
    outputs = method.network.outputs(theta, x)[0]
    keys = noise.keys(method.seed, noise.Stream.LOGITS, draws=range(len(theta)), device=theta.device)
    return -method.likelihood_of(range(len(theta)), 0, "mean").log_prob(outputs, y, keys).mean()
