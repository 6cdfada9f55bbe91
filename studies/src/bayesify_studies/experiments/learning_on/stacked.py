"""Many perceptrons trained side by side: every tensor has one leading axis of networks.

    plain        mean cross-entropy, plus (theta - centre)^2 precision / 2 / N where there is a prior
    variational  mean cross-entropy with local noise (Kingma et al., 2015, arXiv:1506.02557), plus KL / N

The objective is that of `PointEstimate` and of `Variational(estimator="local")`; the networks are too small for a GPU
to be busy with one. Every network has its own seed, its own order of examples, and may have its own numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Layers = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """Examples of one task for every network: rows of the images, the order of the pixels, and the outputs to use."""

    rows: Tensor  # [networks, examples], rows of the images
    order: Tensor  # [networks, pixels]
    outputs: slice

    def batch(self, images: Tensor, labels: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels `[networks, batch, pixels]` and labels `[networks, batch]` of some places of `rows`."""
        rows = self.rows.gather(1, places)
        return images[rows.unsqueeze(-1), self.order.unsqueeze(1)], labels[rows] - (self.outputs.start or 0)


@dataclass(frozen=True)
class Plan:
    """How to train: the rate falls to zero along a cosine."""

    epochs: int
    batch_size: int
    rate: Tensor  # [networks, 1]


class Shape:
    """Where the weights of each layer lie in the flat vector `[networks, P]` of all weights."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.total = sum((inputs + 1) * outputs for inputs, outputs in self._pairs())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return zip(self.sizes[:-1], self.sizes[1:], strict=True)

    def layers(self, flat: Tensor) -> Layers:
        """Weights `[networks, inputs, outputs]` and biases `[networks, 1, outputs]` of each layer, as views."""
        found, start = [], 0
        for inputs, outputs in self._pairs():
            weight = flat[:, start : start + inputs * outputs].view(-1, inputs, outputs)
            start += inputs * outputs
            found.append((weight, flat[:, start : start + outputs].unsqueeze(1)))
            start += outputs
        return found

    def flat(self, tensors: list[Tensor]) -> Tensor:
        """Weights and biases in the order of `layers`, as one vector for each network."""
        return torch.cat([tensor.flatten(1) for tensor in tensors], 1)

    def start(self, seeds: range | list[int], device: str) -> Tensor:
        """Weights as torch's linear layers begin, one set for each seed."""
        return torch.stack([self._one_start(seed) for seed in seeds]).to(device)

    def _one_start(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        parts = [
            (2 * torch.rand((inputs + 1) * outputs, generator=generator) - 1) / math.sqrt(inputs)
            for inputs, outputs in self._pairs()
        ]
        return torch.cat(parts)

    def mask(self, outputs: slice, device: str) -> Tensor:
        """One where a weight matters to these outputs of the last layer, `[P]`: other heads are left alone."""
        flat = torch.ones(1, self.total, device=device)
        for tensor in self.layers(flat)[-1]:
            kept = torch.zeros_like(tensor)
            kept[..., outputs] = 1
            tensor.copy_(kept)
        return flat[0]


def forward(layers: Layers, x: Tensor) -> Tensor:
    """The outputs of every network, `[networks, batch, outputs]`."""
    for number, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias, x, weight)
        x = x if number + 1 == len(layers) else x.relu()
    return x


def local_forward(means: Layers, variances: Layers, x: Tensor) -> Tensor:
    """The same with the noise of the weights added to the outputs of each layer, for each example separately."""
    for number, ((weight, bias), (weight_variance, bias_variance)) in enumerate(zip(means, variances, strict=True)):
        mean = torch.baddbmm(bias, x, weight)
        variance = torch.baddbmm(bias_variance, x.square(), weight_variance)
        x = mean + variance.sqrt() * torch.randn_like(mean)
        x = x if number + 1 == len(means) else x.relu()
    return x


def nll_of(outputs: Tensor, labels: Tensor, chosen: slice) -> Tensor:
    """The mean cross-entropy of every network, `[networks]`."""
    logits = outputs[..., chosen]
    losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return losses.view(labels.shape).mean(1)


class Adam:
    """Adam on one flat tensor whose rows have their own rates."""

    def __init__(self, like: Tensor) -> None:
        self.first, self.second, self.steps = torch.zeros_like(like), torch.zeros_like(like), 0

    def step(self, values: Tensor, gradient: Tensor, rate: Tensor) -> None:
        self.steps += 1
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        wide = (self.second / (1 - 0.999**self.steps)).sqrt_().add_(1e-8)
        values.sub_((self.first / wide).mul_(rate / (1 - 0.9**self.steps)))


def train(
    task: Task,
    plan: Plan,
    step: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    values: tuple[Tensor, ...],
    data: tuple[Tensor, Tensor],
    mask: Tensor | None,
) -> None:
    """Change `values` in place; `step` returns their gradients for a batch."""
    optimizers = [Adam(one) for one in values]
    networks, examples = task.rows.shape
    batches = -(-examples // plan.batch_size)
    for epoch in range(plan.epochs):
        orders = torch.rand(networks, examples, device=task.rows.device).argsort(1)
        for number, places in enumerate(orders.split(plan.batch_size, 1)):
            done = (epoch * batches + number) / (plan.epochs * batches)
            gradients = step(*task.batch(*data, places))
            rate = plan.rate * (0.5 * (1 + math.cos(math.pi * done)))
            for one, gradient, optimizer in zip(values, gradients, optimizers, strict=True):
                optimizer.step(one, gradient if mask is None else gradient * mask, rate)


def fit_plain(
    theta: Tensor,
    prior: tuple[Tensor, Tensor] | None,
    task: Task,
    plan: Plan,
    shape: Shape,
    data: tuple[Tensor, Tensor],
    mask: Tensor | None = None,
) -> None:
    """Train plain networks in place; `prior` is a centre and a precision for each weight."""
    examples = task.rows.shape[1]

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        gradient = _gradients(shape, (theta,), lambda layers: nll_of(forward(layers, x), y, task.outputs))[0]
        if prior is not None:
            gradient += (theta - prior[0]) * prior[1] / examples
        return (gradient,)

    train(task, plan, step, (theta,), data, mask)


def fit_variational(
    posterior: tuple[Tensor, Tensor],
    prior: tuple[Tensor, Tensor],
    task: Task,
    plan: Plan,
    shape: Shape,
    data: tuple[Tensor, Tensor],
    mask: Tensor | None = None,
) -> None:
    """Train means and widths (before softplus) in place; `prior` is a mean and a standard deviation for each weight."""
    mu, rho = posterior
    centre, precision = prior[0], prior[1].square().reciprocal()
    examples = task.rows.shape[1]

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        deviation = functional.softplus(rho)
        for_mean, for_variance = _gradients(
            shape,
            (mu, deviation.square()),
            lambda means, variances: nll_of(local_forward(means, variances, x), y, task.outputs),
        )
        # The gradient of KL(N(mu, deviation^2) || N(centre, 1 / precision)).
        for_mean += (mu - centre) * precision / examples
        for_deviation = 2 * deviation * for_variance + (deviation * precision - 1 / deviation) / examples
        return for_mean, for_deviation * torch.sigmoid(rho)

    train(task, plan, step, posterior, data, mask)


def _gradients(shape: Shape, values: tuple[Tensor, ...], losses: Callable[..., Tensor]) -> list[Tensor]:
    """Gradients of the sum of all networks' losses: each network has only its own."""
    leaves = [[tuple(t.detach().requires_grad_() for t in pair) for pair in shape.layers(one)] for one in values]
    single: list[Any] = [tensor for layers in leaves for pair in layers for tensor in pair]
    found = torch.autograd.grad(losses(*leaves).sum(), single)
    count = len(single) // len(values)
    return [shape.flat(list(found[k * count : (k + 1) * count])) for k in range(len(values))]


@torch.no_grad()
def fisher(theta: Tensor, task: Task, shape: Shape, data: tuple[Tensor, Tensor], examples: int = 5000) -> Tensor:
    """The diagonal of the Fisher information of one example, labels drawn from the predictions, `[networks, P]`."""
    networks, held = task.rows.shape
    places = torch.rand(networks, held, device=theta.device).argsort(1)[:, :examples]
    total = torch.zeros_like(theta)
    for part in places.split(1000, 1):
        x, _ = task.batch(*data, part)
        given, outputs = _traced(shape.layers(theta), x)
        with torch.enable_grad():
            log_probs = outputs[-1][..., task.outputs].log_softmax(-1)
            drawn = torch.multinomial(log_probs.detach().exp().flatten(0, 1), 1).view(*part.shape, 1)
            slopes = torch.autograd.grad(log_probs.gather(-1, drawn).sum(), outputs)
        squares: list[Tensor] = []
        for one, slope in zip(given, slopes, strict=True):
            # The gradient of an example is an outer product: so is its square.
            squares += [one.square().mT @ slope.square(), slope.square().sum(1, keepdim=True)]
        total += shape.flat(squares)
    return total / places.shape[1]


def _traced(layers: Layers, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs and the outputs of every layer."""
    given, outputs = [], []
    with torch.enable_grad():
        for number, (weight, bias) in enumerate(layers):
            given.append(x.detach())
            out = torch.baddbmm(bias, x, weight)
            out = out.requires_grad_() if number == 0 else out
            outputs.append(out)
            x = out.relu()
    return given, outputs


@torch.no_grad()
def accuracies(
    draw: Callable[[int], Tensor], draws: int, task: Task, shape: Shape, data: tuple[Tensor, Tensor]
) -> list[float]:
    """The accuracy of every network; `draw` gives the weights of one draw, and probabilities are averaged."""
    networks, examples = task.rows.shape
    right = torch.zeros(networks, dtype=torch.float64, device=task.rows.device)
    weights = [shape.layers(draw(number)) for number in range(draws)]
    for places in torch.arange(examples, device=task.rows.device).expand(networks, -1).split(2000, 1):
        x, y = task.batch(*data, places)
        probs = sum(forward(layers, x)[..., task.outputs].softmax(-1) for layers in weights)
        assert isinstance(probs, Tensor)
        right += (probs.argmax(-1) == y).double().sum(1)
    return (right / examples).tolist()
