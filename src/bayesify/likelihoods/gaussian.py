"""Numbers with normal noise, in the units of the targets: `y ~ N(location + scale * f, std^2)` for an output `f`.

A network works best on standardised numbers. `location` and `scale` (the mean and the standard deviation of the
training targets) convert between these and the original units: targets and predictions are both in original units.

A noise with a prior is one more unknown. The likelihood stores only the prior. A method holds the posterior of
`log std`, and `with_noise` gives the likelihood of its draws.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesify.errors import nearest, positive
from bayesify.likelihoods.noise_prior import EXAMPLES, NoisePrior, read_noise_prior
from bayesify.likelihoods.regression import Regression
from bayesify.likelihoods.shapes import aligned, one_number, real
from bayesify.priors import Flat, Hyperprior, Prior

PerTarget = float | Sequence[float] | Tensor


class Gaussian(Regression):
    """A number (or several) with normal noise: `y ~ N(location + scale * output, std^2)`.

    Args:
        noise: the standard deviation in the units of the targets (`std = noise`, whatever the scale); or `"learned"`,
            one positive parameter in standardised units (`std = scale * exp(log_noise)`); or `"heteroscedastic"`, one
            for every input, from the second half of the outputs (`std = scale * softplus(raw)`; D. Nix and A. Weigend,
            "Estimating the mean and variance of the target probability distribution", 1994); or a prior of the standard
            deviation, in the units of the targets: `HalfCauchy`, `HalfNormal`, `InverseGamma` (on the variance or the
            scale), `Flat` (flat on `std > 0`), or their text, such as `"half-cauchy(2.5)"` and `"flat"`.
        initial: the start value of a noise that is learned or has a prior, in standardised units; 1 is the standard
            deviation of the targets. HMC ignores it: its chains start around the spread of the targets.
        location: the target at an output of 0, a number or one per target (the axis after the batch).
        scale: the change of the target per unit of output, likewise; above 0.

    Example:
        >>> likelihood = bf.likelihoods.Gaussian(noise=2.0, location=10.0, scale=5.0)
        >>> outputs = torch.tensor([[[1.0]]])
        >>> likelihood.mean(outputs), likelihood.noise_variance(outputs)
        (tensor([[15.]]), tensor([[4.]]))
        >>> bf.likelihoods.Gaussian(noise=bf.priors.HalfCauchy(2.5))
        Gaussian(noise='half-cauchy(2.5)', initial=1.0)

    """

    name = "gaussian"
    text_options = ("noise", "initial", "location", "scale")
    from_data = ("location", "scale")
    log_noise: nn.Parameter | None
    # The log noise of each draw, `[draws]`, where the noise has a prior and `with_noise` was called.
    drawn_log_noise: Tensor | None = None
    _location: Tensor | None
    _scale: Tensor | None

    def __init__(
        self,
        noise: float | str | Hyperprior | Flat = 1.0,
        initial: float = 1.0,
        location: PerTarget = 0.0,
        scale: PerTarget = 1.0,
    ) -> None:
        super().__init__()
        self.noise_prior: NoisePrior | None = read_noise_prior(noise)
        if self.noise_prior is not None:
            noise = self.noise_prior.density
        elif isinstance(noise, str):
            known = ("learned", "heteroscedastic")
            if noise not in known:
                raise ValueError(
                    f"noise must be a number, {', '.join(known)} or a prior such as {EXAMPLES[0]}, "
                    f"got {noise!r}{nearest(noise, (*known, *EXAMPLES))}"
                )
        elif isinstance(noise, Prior):
            raise ValueError(f"noise is above 0, {noise.text} is a prior of weights: use one such as {EXAMPLES[0]}")
        elif not 0 < cast("float", noise) < math.inf:
            raise ValueError(f"noise must be a standard deviation above 0, got {noise}")
        if not 0 < initial < math.inf:
            raise ValueError(f"initial must be a standard deviation above 0, got {initial}")
        self.noise, self.initial = noise, initial
        self.location, self.scale = _as_numbers("location", location), _as_numbers("scale", scale)
        _check_scale(self.location, self.scale)
        self.parameters_per_target = 2 if noise == "heteroscedastic" else 1
        learned = nn.Parameter(torch.tensor(math.log(initial))) if noise == "learned" else None
        self.register_parameter("log_noise", learned)
        # One number stays a Python number; several are a buffer, which moves with the module to its device.
        for name, values in (("_location", self.location), ("_scale", self.scale)):
            self.register_buffer(name, torch.tensor(values) if isinstance(values, list) else None, persistent=False)

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the outputs fit the targets, `location` and `scale`.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit.

        """
        super().check_outputs(outputs, targets)
        self._means(outputs[None])

    @property
    def start_log_noise(self) -> float:
        """Where the logarithm of a noise with a prior starts: `log(initial * scale)`, the mean over the targets."""
        scales = self.scale if isinstance(self.scale, list) else [self.scale]
        return math.log(self.initial) + sum(math.log(scale) for scale in scales) / len(scales)

    def with_noise(self, log_noise: Tensor) -> Gaussian:
        """The likelihood of draws of a noise that has a prior.

        Args:
            log_noise: `log std` of each draw, `[draws]`, in the units of the targets.

        Returns:
            A likelihood for outputs of the same draws, `[draws, batch, ...]`.

        Raises:
            ValueError: if the noise has no prior.

        Example:
            >>> likelihood = bf.likelihoods.Gaussian("flat").with_noise(torch.tensor([0.0, 1.0]))
            >>> likelihood.noise_variance(torch.zeros(2, 3, 1))[:, 0]
            tensor([1.0000, 7.3891])

        """
        if self.noise_prior is None:
            raise ValueError(f"the noise of {self!r} has no prior: it has no draws")
        likelihood = copy.copy(self)
        # Past torch, which would register a parameter of the method as one of the likelihood too.
        vars(likelihood)["drawn_log_noise"] = log_noise
        return likelihood

    def of_draws(self, draws: Tensor | slice) -> Gaussian:
        """The likelihood of some of the draws: those of its noise, where each draw has one.

        Args:
            draws: numbers of draws, a mask or a slice.

        Returns:
            A likelihood for the outputs of these draws.

        """
        drawn = self.drawn_log_noise
        if drawn is None or len(drawn) == 1:
            return self
        return self.with_noise(drawn[draws.to(drawn.device) if isinstance(draws, Tensor) else draws])

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """`-((y - mean) / std)^2 / 2 - log(std) - log(2 pi) / 2`, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        location, deviation, log_std = self._moments(outputs)
        shape = deviation.shape
        deviation, numbers = aligned(deviation, targets)
        # The location is subtracted in the precision of the targets, before they are rounded to that of the outputs.
        centred = (numbers.reshape(shape[1:]) - location).to(deviation.dtype).reshape(numbers.shape)
        log_std = log_std.expand(shape).reshape(deviation.shape) if log_std.ndim else log_std
        residual = (centred - deviation) * torch.exp(-log_std)
        return (-0.5 * residual.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """The mean `location + scale * output` of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        location, deviation, _, _ = self._means(outputs)
        return one_number(location + deviation)

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance `std^2` of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        _, deviation, log_std = self._moments(outputs)
        return one_number(torch.exp(2 * log_std).expand_as(deviation))

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a target at most `values`, `Phi((values - mean) / std)`.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        probability: Tensor = torch.special.ndtr((values - self.mean(outputs)) / self.noise_variance(outputs).sqrt())
        return probability

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The quantiles `mean + std * Phi^-1(levels)`.

        Args:
            outputs: `[draws, batch, ...]`.
            levels: probabilities strictly between 0 and 1, shaped like the mean of one draw or of all draws.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        value: Tensor = self.mean(outputs) + self.noise_variance(outputs).sqrt() * torch.special.ndtri(levels)
        return value

    def scale_over_std(self, outputs: Tensor) -> Tensor:
        """`scale / std`: its square is the curvature of `-log p` in the outputs, for noise that is not heteroscedastic.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            A tensor that broadcasts against the outputs.

        """
        _, _, log_std = self._moments(outputs)
        return self._per_target_values("scale", outputs) * (-log_std).exp()

    def _means(self, outputs: Tensor) -> tuple[Tensor | float, Tensor, Tensor | float, Tensor | None]:
        """Location, deviations of the means from it, scale, and the raw widths of heteroscedastic noise."""
        outputs = real(outputs)
        raw = None
        if self.noise == "heteroscedastic":
            if outputs.ndim < 3 or outputs.shape[2] % 2:
                raise ValueError(f"heteroscedastic noise needs 2 outputs per target, got {list(outputs.shape[2:])}")
            outputs, raw = outputs.chunk(2, 2)
        location, scale = self._per_target_values("location", outputs), self._per_target_values("scale", outputs)
        return location, outputs * scale, scale, raw

    def _moments(self, outputs: Tensor) -> tuple[Tensor | float, Tensor, Tensor]:
        """Location, deviations of the means from it, and log standard deviations; the last may need broadcasting."""
        location, deviation, scale, raw = self._means(outputs)
        if self.noise_prior is not None:
            return location, deviation, self._drawn_log_std(deviation)
        if raw is not None:
            log_std = _log_softplus(raw)
        elif self.log_noise is not None:
            log_std = self.log_noise.to(deviation.dtype)
        else:
            return location, deviation, deviation.new_full((), math.log(float(cast("float", self.noise))))
        log_scale = scale.log() if isinstance(scale, Tensor) else math.log(scale)
        return location, deviation, log_std + log_scale

    def _drawn_log_std(self, deviation: Tensor) -> Tensor:
        """The log noise of each draw, shaped to broadcast against deviations `[draws, batch, ...]`."""
        drawn = self.drawn_log_noise
        if drawn is None:
            raise ValueError(f"the noise of {self!r} is unknown: give its draws, likelihood.with_noise(log_noise)")
        if len(drawn) not in {1, len(deviation)}:
            raise ValueError(f"the noise has {len(drawn)} draws, the outputs have {len(deviation)}")
        return drawn.to(deviation).view(-1, *[1] * (deviation.ndim - 1))

    def _per_target_values(self, name: str, outputs: Tensor) -> Tensor | float:
        """`location` or `scale`, shaped to broadcast against the means of one draw, `[batch, targets, ...]`."""
        values: Tensor | None = getattr(self, f"_{name}")
        if values is None:
            return float(getattr(self, name))
        targets = outputs.shape[2] if outputs.ndim > 2 else 1
        if len(values) != targets:
            raise ValueError(f"{name} must be a number or one per target, {targets}, got {len(values)}")
        return values.to(outputs.dtype).view(-1, *[1] * (outputs.ndim - 3))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        move: Callable[..., object] = super()._apply  # torch leaves it untyped
        move(fn, recurse)
        # A network cast to half precision must not round the units of the targets.
        for name in ("_location", "_scale"):
            moved: Tensor | None = getattr(self, name)
            if moved is not None:
                setattr(self, name, torch.tensor(getattr(self, name[1:]), device=moved.device))
        return self

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, without those that do not matter or are the default."""
        settings: dict[str, Any] = {"noise": self.noise if self.noise_prior is None else self.noise_prior.text}
        if self.noise == "learned" or self.noise_prior is not None:
            settings["initial"] = self.initial
        if (self.location, self.scale) != (0.0, 1.0):
            settings |= {"location": self.location, "scale": self.scale}
        return settings


def _as_numbers(name: str, argument: PerTarget) -> float | list[float]:
    try:
        values = torch.as_tensor(argument, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a number or one per target, got {argument!r}") from None
    if values.ndim > 1 or values.numel() == 0 or not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be a finite number or one per target, got {values.tolist()}")
    plain: float | list[float] = values.tolist()
    return plain


def _check_scale(location: float | list[float], scale: float | list[float]) -> None:
    for value in scale if isinstance(scale, list) else [scale]:
        positive("scale", value)
    if isinstance(location, list) and isinstance(scale, list) and len(location) != len(scale):
        raise ValueError(f"location and scale must have the same length, got {len(location)} and {len(scale)}")


def _log_softplus(x: Tensor) -> Tensor:
    """`log(softplus(x))`; far below zero softplus underflows, so its series is used there."""
    low = x < -15.0
    inside = functional.softplus(torch.where(low, 0.0, x)).log()
    below = torch.where(low, x, -15.0)
    return torch.where(low, below - 0.5 * below.exp(), inside)
