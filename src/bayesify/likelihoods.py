"""How outputs become a distribution over targets: `log p(y | outputs)`, one number per draw and example.

Outputs carry a draws axis in front, `[draws, batch, ...]`; a target's own dimensions (pixels, tokens) are
summed, so that `log_prob` is `[draws, batch]` and a mean over the batch is a mean over examples.
`GaussianLogits` puts a normal distribution on the logits themselves, `z ~ N(mean, softplus(raw)^2)` and
`p(y) = E_z[softmax(z)_y]` (A. Kendall and Y. Gal, What uncertainties do we need in Bayesian deep learning
for computer vision?, 2017).
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bayesify import noise as pure_noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LARGEST_BLOCK = 1 << 24


class Likelihood(nn.Module, ABC):
    """The contract: validate targets, check a network against them, and give `log p(y | outputs)`."""

    kind: ClassVar[Literal["classification", "regression"]]
    name: ClassVar[str]

    @abstractmethod
    def width(self, targets: Tensor) -> int:
        """How many outputs the network must have for these (prepared) targets."""

    @abstractmethod
    def prepare(self, targets: Any) -> Tensor:
        """Targets as this likelihood reads them (int64 labels, floating numbers), or a ValueError."""

    @abstractmethod
    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise a ValueError unless the network's own outputs `[batch, ...]` fit the prepared targets."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """What training maximises, `[draws, batch]`: from outputs `[draws, batch, ...]` and prepared targets."""

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """What scores use: `log p(y)` itself, without class weights or bounds, `[draws, batch]`."""
        return self.log_prob(outputs, targets, keys)

    def spec(self) -> dict[str, Any]:
        """Everything that the constructor needs, as plain JSON; `from_spec` is the way back."""
        return {"name": self.name, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        given = (f"{key}={value!r}" for key, value in self._settings().items() if value is not None)
        return f"{type(self).__name__}({', '.join(given)})"


class Classification(Likelihood):
    """A distribution over classes for each example (or each of its positions); the class axis is last."""

    kind = "classification"

    @abstractmethod
    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """Logarithms of the class probabilities of each draw, `[draws, batch, *dims, classes]`."""

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """Class probabilities of each draw, `[draws, batch, *dims, classes]`."""
        return self.log_probs(outputs, keys).exp()

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        log_probs, labels = _aligned(self.log_probs(outputs, keys), targets, trailing=1)
        chosen = log_probs.gather(-1, labels.long().expand(log_probs.shape[:-1]).unsqueeze(-1))
        return chosen.squeeze(-1).sum(-1)


class Regression(Likelihood):
    """A distribution over numbers, `[draws, batch]`, or `[draws, batch, *dims]` for several per example."""

    kind = "regression"
    discrete: ClassVar[bool] = False
    parameters_per_target: int = 1

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """The expected target of each draw."""

    @abstractmethod
    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance of the target around that mean."""

    @abstractmethod
    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The chance of a target at most `values` (shaped like one draw's mean) under each draw."""

    def width(self, targets: Tensor) -> int:
        return self.parameters_per_target * (targets.shape[1] if targets.ndim > 1 else 1)

    def prepare(self, targets: Any) -> Tensor:
        numbers = _tensor(targets)
        if not numbers.is_floating_point() or numbers.dtype in {torch.float16, torch.bfloat16}:
            numbers = numbers.to(torch.get_default_dtype())
        if not bool(torch.isfinite(numbers).all()):
            raise ValueError(f"targets hold {_not_finite(numbers)}; remove or fill those examples")
        return numbers

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        _check_rows(outputs, targets)
        _check_dims(self, outputs, targets, self.parameters_per_target)


class _Labels(Classification):
    """What `Categorical` and `GaussianLogits` share: integer labels, and outputs with a class axis."""

    parameters_per_class: ClassVar[int] = 1

    def __init__(self, classes: int | None, class_dim: int) -> None:
        super().__init__()
        if classes is not None and classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if class_dim == 0:
            raise ValueError(
                "class_dim must not be 0, which is the batch; the classes usually lie on 1 or -1"
            )
        self.classes, self.class_dim = classes, class_dim

    def width(self, targets: Tensor) -> int:
        return self.parameters_per_class * (self.classes or int(targets.max()) + 1)

    def prepare(self, targets: Any) -> Tensor:
        labels = _tensor(targets)
        if labels.is_floating_point() or labels.is_complex():
            raise ValueError(
                f"{type(self).__name__} needs integer labels from 0, got {labels.dtype}; convert them"
            )
        labels = labels.long()
        if int(labels.min()) < 0:
            raise ValueError(f"labels must be integers from 0, got {int(labels.min())}")
        if self.classes is not None and int(labels.max()) >= self.classes:
            raise ValueError(f"labels must be below classes={self.classes}, got {int(labels.max())}")
        return labels

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        _check_rows(outputs, targets)
        if not -outputs.ndim < self.class_dim < outputs.ndim:
            shape = _shape(outputs.shape[1:])
            raise ValueError(
                f"{type(self).__name__} looks for classes on axis {self.class_dim}, the network gives {shape}"
            )
        given, needed = outputs.shape[self.class_dim], self.width(targets)
        exact = self.classes is not None
        if given < needed or (exact and given != needed) or given % self.parameters_per_class:
            problem = f"needs {needed} outputs for these targets, the network gives {given}"
            raise ValueError(f"{type(self).__name__} {problem}")
        dims = outputs.movedim(self.class_dim, -1).shape[1:-1]
        if _without_ones(dims) != _without_ones(targets.shape[1:]):
            problem = f"needs a label for each of {_shape(dims)}, the targets are {_shape(targets.shape[1:])}"
            raise ValueError(f"{type(self).__name__} {problem}")

    def _class_axis_last(self, outputs: Tensor) -> Tensor:
        return _real(outputs).movedim(self.class_dim + 1 if self.class_dim > 0 else self.class_dim, -1)


class Categorical(_Labels):
    """One of several classes: `p(y) = softmax(outputs)_y`.

    `class_dim` is the class axis of the network's own outputs (1, or -1 for `[batch, tokens, classes]`).
    `class_weights` multiply an example's log-likelihood by the weight of its class, which makes it a
    pseudo-likelihood; predictions and scores (`probs`, `log_density`) stay those of the plain softmax.
    `classes` fixes how many there are; otherwise the largest label decides, and more outputs are welcome.
    """

    name = "categorical"
    class_weights: Tensor | None

    def __init__(
        self,
        class_weights: Sequence[float] | Tensor | None = None,
        class_dim: int = 1,
        classes: int | None = None,
    ) -> None:
        weights = (
            None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.get_default_dtype())
        )
        if weights is not None:
            if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(torch.isfinite(weights).all()):
                raise ValueError(
                    f"class_weights must be one non-negative number per class, got {weights.tolist()}"
                )
            if classes is not None and classes != len(weights):
                raise ValueError(f"class_weights must hold classes={classes} numbers, got {len(weights)}")
            classes = len(weights)
        super().__init__(classes, class_dim)
        self.register_buffer("class_weights", weights, persistent=False)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        return functional.log_softmax(self._class_axis_last(outputs), -1)

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        return functional.softmax(self._class_axis_last(outputs), -1)

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        logits, labels = _aligned(self._class_axis_last(outputs), targets, trailing=1)
        weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        flat = labels.expand(logits.shape[:-1]).reshape(-1)
        loss = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), flat, weight=weights, reduction="none"
        )
        return -loss.view(logits.shape[:-1]).sum(-1)

    def _settings(self) -> dict[str, Any]:
        weights = None if self.class_weights is None else self.class_weights.tolist()
        return {"class_weights": weights, "class_dim": self.class_dim, "classes": self.classes}


class Bernoulli(Classification):
    """Yes or no, once or for each of several questions: `p(1) = sigmoid(output)`; two classes come out."""

    name = "bernoulli"

    def width(self, targets: Tensor) -> int:
        return targets.shape[1] if targets.ndim > 1 else 1

    def prepare(self, targets: Any) -> Tensor:
        answers = _tensor(targets)
        if answers.is_complex() or not bool(((answers == 0) | (answers == 1)).all()):
            raise ValueError(
                f"Bernoulli needs targets of 0 and 1, got {_first_other_than_zero_and_one(answers)}"
            )
        return answers.long()

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        _check_rows(outputs, targets)
        _check_dims(self, outputs, targets, 1)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        logits = _one_number(_real(outputs))
        return functional.logsigmoid(torch.stack((-logits, logits), -1))

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        logits = _one_number(_real(outputs))
        return torch.sigmoid(torch.stack((-logits, logits), -1))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        logits, answers = _aligned(_real(outputs), targets)
        return functional.logsigmoid(torch.where(answers == 1, logits, -logits)).sum(-1)


class GaussianLogits(_Labels):
    """Classes whose logits are themselves uncertain, each input with its own spread (Kendall and Gal, 2017).

    The class axis holds the means of the logits, then as many raw standard deviations (through softplus).
    Training uses `samples` draws of the logits `z`: `"log_expected"` is `log E_z[softmax(z)_y]`, the
    log-likelihood of the model, and `"expected"` is `E_z[log softmax(z)_y]`, a lower bound of it. In
    `log_prob` the noise belongs to the draw and the position in the batch; in `probs` and `log_density` all
    inputs of a draw share it, so that an answer does not depend on its neighbours. `keys` are one per draw,
    from `noise.keys(seed, Stream.LOGITS, ...)`; without them, those of seed 0 are used.
    """

    name = "gaussian-logits"
    parameters_per_class = 2

    def __init__(
        self,
        objective: Literal["log_expected", "expected"] = "log_expected",
        samples: int = 1000,
        class_dim: int = 1,
        classes: int | None = None,
    ) -> None:
        super().__init__(classes, class_dim)
        if objective not in {"log_expected", "expected"}:
            raise unknown("objective", objective, ("log_expected", "expected"))
        if samples < 1 or samples != int(samples):
            raise ValueError(f"samples must be a whole number of at least 1, got {samples}")
        self.objective, self.samples = objective, samples

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        labels = targets.reshape(-1)
        if len(labels) != mean.shape[1]:
            raise ValueError(f"targets {list(targets.shape)} do not fit outputs {list(outputs.shape)}")
        keys = _logit_keys(keys, outputs)
        blocks = _blocks(mean.shape[1], mean.shape[0] * self.samples * mean.shape[2])
        terms = []
        for block in blocks:
            pieces = (mean[:, block], std[:, block], labels[block], keys, block.start)
            if len(blocks) > 1 and torch.is_grad_enabled():
                # One block of sampled logits in memory at a time, also for the gradient.
                terms.append(
                    checkpoint(self._objective, *pieces, use_reentrant=False, preserve_rng_state=False)
                )
            else:
                terms.append(self._objective(*pieces))
        return torch.cat(terms, 1).view(*dims[:2], -1).sum(-1)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        classes = mean.shape[2]
        shared = pure_noise.normal(_logit_keys(keys, outputs), classes * self.samples).to(mean.dtype)
        shared = shared.view(len(mean), 1, classes, self.samples)
        means = []
        for block in _blocks(mean.shape[1], mean.shape[0] * self.samples * classes):
            logits = torch.addcmul(mean[:, block, :, None], std[:, block, :, None], shared)
            means.append(functional.log_softmax(logits, -2).logsumexp(-1) - math.log(self.samples))
        return torch.cat(means, 1).view(*dims, classes) if means else mean.view(*dims, classes)

    def _objective(self, mean: Tensor, std: Tensor, labels: Tensor, keys: Tensor, first: int) -> Tensor:
        draws, positions, classes = mean.shape
        per_position = self.samples * classes
        if (first + positions) * per_position >= 1 << 31:
            raise ValueError(
                f"samples={self.samples} is too many for a batch of this size; lower one of them"
            )
        noise = pure_noise.normal(keys, positions * per_position, first * per_position).to(mean.dtype)
        noise = noise.view(draws, positions, self.samples, classes)
        logits = torch.addcmul(mean.unsqueeze(2), std.unsqueeze(2), noise)
        chosen = logits.gather(-1, labels.view(1, -1, 1, 1).expand(draws, -1, self.samples, 1)).squeeze(-1)
        log_likelihood = chosen - logits.logsumexp(-1)
        if self.objective == "expected":
            return log_likelihood.mean(-1)
        return log_likelihood.logsumexp(-1) - math.log(self.samples)

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        both = self._class_axis_last(outputs)
        if both.shape[-1] % 2:
            raise ValueError(f"GaussianLogits needs 2 outputs per class, the network gives {both.shape[-1]}")
        mean, raw = both.flatten(1, -2).chunk(2, -1)
        return mean, functional.softplus(raw), tuple(both.shape[:-1])

    def _settings(self) -> dict[str, Any]:
        settings = {"objective": self.objective, "samples": self.samples}
        return {**settings, "class_dim": self.class_dim, "classes": self.classes}


class Gaussian(Regression):
    """A number (or several) with normal noise: `y ~ N(output, noise^2)`; `noise` is a standard deviation.

    `noise="learned"` makes it one positive parameter, `exp(log_noise)`, that starts at `initial`;
    `noise="heteroscedastic"` gives every input its own: the second half of the outputs, through softplus.
    """

    name = "gaussian"
    log_noise: nn.Parameter | None

    def __init__(
        self, noise: float | Literal["learned", "heteroscedastic"] = 1.0, initial: float = 1.0
    ) -> None:
        super().__init__()
        if isinstance(noise, str):
            if noise not in {"learned", "heteroscedastic"}:
                raise unknown("noise", noise, ("learned", "heteroscedastic"), "or a number")
        elif not 0 < noise < math.inf:
            raise ValueError(f"noise must be a standard deviation above 0, got {noise}")
        if not 0 < initial < math.inf:
            raise ValueError(f"initial must be a standard deviation above 0, got {initial}")
        self.noise, self.initial = noise, initial
        self.parameters_per_target = 2 if noise == "heteroscedastic" else 1
        learned = nn.Parameter(torch.tensor(math.log(initial))) if noise == "learned" else None
        self.register_parameter("log_noise", learned)

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, log_std = self._moments(outputs)
        mean, numbers = _aligned(mean, targets)
        log_std = log_std.reshape(mean.shape) if log_std.ndim else log_std
        residual = (numbers.to(mean.dtype) - mean) * torch.exp(-log_std)
        return (-0.5 * residual.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        return _one_number(self._moments(outputs)[0])

    def noise_variance(self, outputs: Tensor) -> Tensor:
        mean, log_std = self._moments(outputs)
        return _one_number(torch.exp(2 * log_std).expand_as(mean))

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        chance: Tensor = torch.special.ndtr(
            (values - self.mean(outputs)) / self.noise_variance(outputs).sqrt()
        )
        return chance

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means, and the logarithms of their standard deviations: as many, or one for all of them."""
        outputs = _real(outputs)
        if self.noise == "heteroscedastic":
            if outputs.ndim < 3 or outputs.shape[2] % 2:
                raise ValueError(
                    f"heteroscedastic noise needs 2 outputs per target, got {list(outputs.shape[2:])}"
                )
            mean, raw = outputs.chunk(2, 2)
            return mean, _log_softplus(raw)
        if self.log_noise is not None:
            return outputs, self.log_noise.to(outputs.dtype)
        return outputs, torch.tensor(math.log(float(self.noise)), dtype=outputs.dtype, device=outputs.device)

    def _settings(self) -> dict[str, Any]:
        return {"noise": self.noise, **({"initial": self.initial} if self.noise == "learned" else {})}


class Poisson(Regression):
    """Counts: outputs are the logarithms of rates, `log p(y) = y * output - exp(output) - log y!`."""

    name = "poisson"
    discrete = True

    def prepare(self, targets: Any) -> Tensor:
        counts = super().prepare(targets)
        wrong = counts[(counts < 0) | (counts != counts.floor())]
        if len(wrong):
            raise ValueError(f"Poisson needs whole numbers from 0, got {wrong[0].item():g}")
        return counts

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        log_rate, counts = _aligned(_real(outputs), targets)
        counts = counts.to(log_rate.dtype)
        return (counts * log_rate - log_rate.exp() - torch.lgamma(counts + 1)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        return _one_number(_real(outputs).exp())

    def noise_variance(self, outputs: Tensor) -> Tensor:
        return self.mean(outputs)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        counts = values.floor()
        chance = torch.special.gammaincc(counts.clamp(min=0) + 1, self.mean(outputs))
        return torch.where(counts >= 0, chance, 0.0)


def from_spec(spec: Mapping[str, Any]) -> Likelihood:
    """The likelihood that `spec()` described."""
    settings = dict(spec)
    name = settings.pop("name", None)
    if name not in _BY_NAME:
        raise unknown("likelihood", name, _BY_NAME)
    try:
        return _BY_NAME[name](**settings)
    except TypeError as error:
        raise ValueError(f"likelihood {name} cannot be made from {settings}: {error}") from error


def parse(text: str) -> Likelihood:
    """The likelihood that a text names: `categorical`, `gaussian:learned`, `gaussian-logits:expected,100`."""
    name, _, rest = text.strip().lower().replace("_", "-").partition(":")
    if name not in _BY_NAME:
        raise unknown("likelihood", name, _BY_NAME)
    words = [word.strip() for word in rest.split(",")] if rest else []
    options = _TEXT_OPTIONS[name]
    if len(words) > len(options):
        allowed = ", ".join(options) or "no options"
        raise ValueError(f"likelihood {name} takes {allowed}, got {rest!r}")
    return from_spec(
        {"name": name, **{option: _value(word) for option, word in zip(options, words, strict=False)}}
    )


def unknown(what: str, given: object, known: Iterable[str], more: str = "") -> ValueError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = list(known)
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    choices = ", ".join(names) + (f", {more}" if more else "")
    return ValueError(f"{what} must be one of {choices}, got {given!r}{hint}")


_BY_NAME: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Categorical, Bernoulli, Gaussian, Poisson, GaussianLogits)
}
_TEXT_OPTIONS: dict[str, tuple[str, ...]] = {
    "categorical": ("classes",),
    "bernoulli": (),
    "gaussian": ("noise", "initial"),
    "poisson": (),
    "gaussian-logits": ("objective", "samples"),
}


def _value(word: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word.replace("-", "_")


def _aligned(outputs: Tensor, targets: Tensor, trailing: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs `[draws, batch, size, ...]` and targets `[batch, size]`: paired up, never broadcast."""
    draws, batch, *dims = outputs.shape
    kept = dims[len(dims) - trailing :]
    size = math.prod(dims[: len(dims) - trailing])
    if targets.shape[0] != batch or targets.numel() != batch * size:
        raise ValueError(
            f"targets {list(targets.shape)} do not fit outputs {[draws, batch, *dims]} (draws come first)"
        )
    return outputs.reshape(draws, batch, size, *kept), targets.reshape(batch, size)


def _real(outputs: Tensor) -> Tensor:
    """Half precision is for networks: a log-likelihood in it would be rounded to nothing."""
    return outputs.float() if outputs.dtype in {torch.float16, torch.bfloat16} else outputs


def _one_number(values: Tensor) -> Tensor:
    return values.squeeze(-1) if values.ndim == 3 and values.shape[-1] == 1 else values


def _log_softplus(x: Tensor) -> Tensor:
    """`log(softplus(x))`; far below zero softplus is `exp(x)` and would underflow, so its series is used."""
    low = x < -15.0
    inside = functional.softplus(torch.where(low, 0.0, x)).log()
    below = torch.where(low, x, -15.0)
    return torch.where(low, below - 0.5 * below.exp(), inside)


def _logit_keys(keys: Tensor | None, outputs: Tensor) -> Tensor:
    if keys is None:
        keys = pure_noise.keys(0, pure_noise.Stream.LOGITS, draws=range(len(outputs)))
    if keys.shape != (len(outputs), 2):
        raise ValueError(f"keys must be one row of 2 per draw, {[len(outputs), 2]}, got {list(keys.shape)}")
    return keys.to(outputs.device)


def _blocks(positions: int, size_of_each: int) -> list[slice]:
    step = max(1, _LARGEST_BLOCK // max(1, size_of_each))
    return [slice(first, min(first + step, positions)) for first in range(0, positions, step)]


def _tensor(targets: Any) -> Tensor:
    if isinstance(targets, Tensor):
        tensor = targets.detach()
    else:
        array = np.asarray(targets)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"targets must be numbers, got {array.dtype.name}; turn names into numbers first"
            )
        tensor = torch.tensor(array)
    if tensor.ndim == 0:
        raise ValueError("targets must have one entry per example, got a single number")
    if tensor.numel() == 0:
        raise ValueError(f"targets are empty, got shape {list(tensor.shape)}")
    return tensor


def _not_finite(numbers: Tensor) -> str:
    nan, infinite = int(torch.isnan(numbers).sum()), int(torch.isinf(numbers).sum())
    return " and ".join(f"{count} {what}" for count, what in ((nan, "NaN"), (infinite, "infinite")) if count)


def _first_other_than_zero_and_one(answers: Tensor) -> str:
    return str(answers[(answers != 0) & (answers != 1)][0].item())


def _check_rows(outputs: Tensor, targets: Tensor) -> None:
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"the network must return a tensor, got {type(outputs).__name__}; pick one with output="
        )
    if not outputs.is_floating_point():
        raise ValueError(f"the network must return floating numbers, got {outputs.dtype}")
    if outputs.ndim == 0 or len(outputs) != len(targets):
        rows = "a single number" if outputs.ndim == 0 else f"{len(outputs)} rows"
        raise ValueError(
            f"the network must return one row per example, got {rows} for {len(targets)} examples"
        )


def _check_dims(likelihood: Likelihood, outputs: Tensor, targets: Tensor, parameters: int) -> None:
    wanted, given = list(targets.shape[1:]) or [1], list(outputs.shape[1:]) or [1]
    wanted[0] *= parameters
    if len(wanted) == len(given) == 1 and wanted != given:
        problem = f"needs {wanted[0]} outputs for these targets, the network gives {given[0]}"
        raise ValueError(f"{type(likelihood).__name__} {problem}")
    if _without_ones(wanted) != _without_ones(given) or (parameters > 1 and wanted[0] != given[0]):
        problem = f"needs {_shape(wanted)} for these targets, the network gives {_shape(given)}"
        raise ValueError(f"{type(likelihood).__name__} {problem}")


def _without_ones(shape: Iterable[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _shape(dims: Iterable[int]) -> str:
    return f"[{', '.join(['batch', *map(str, dims)])}]"
