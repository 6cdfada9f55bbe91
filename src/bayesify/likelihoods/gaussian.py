"""Numbers with normal noise, in the units of the targets: `y ~ N(location + scale * f, std^2)` for an output `f`.

A network works best on standardised numbers. `location` and `scale` (the mean and the standard deviation of the
training targets) convert between these and the original units: targets and predictions are both in original units.

A noise with a prior is one more unknown. The likelihood stores only the prior. A method holds the posterior of
`log std`, and `with_noise` gives the likelihood of its draws.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from bayesify.errors import nearest
from bayesify.likelihoods.location_scale import KNOWN_NOISES, LocationScale
from bayesify.likelihoods.noise_prior import EXAMPLES, NoisePrior, read_noise_prior
from bayesify.likelihoods.scaled import PerTarget
from bayesify.priors import Flat, Hyperprior, Prior


class Gaussian(LocationScale):
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

    Examples:
        >>> likelihood = bf.likelihoods.Gaussian(noise=2.0, location=10.0, scale=5.0)
        >>> outputs = torch.tensor([[[1.0]]])
        >>> likelihood.mean(outputs), likelihood.noise_variance(outputs)
        (tensor([[15.]]), tensor([[4.]]))
        >>> bf.likelihoods.Gaussian(noise=bf.priors.HalfCauchy(2.5))
        Gaussian(noise='half-cauchy(2.5)', initial=1.0)

    """

    name = "gaussian"
    text_options = ("noise", "initial", "location", "scale")
    has_log_cdf = True
    noise_prior: NoisePrior | None
    # The log noise of each draw, `[draws]`, where the noise has a prior and `with_noise` was called.
    drawn_log_noise: Tensor | None = None

    def __init__(
        self,
        noise: float | str | Hyperprior | Flat = 1.0,
        initial: float = 1.0,
        location: PerTarget = 0.0,
        scale: PerTarget = 1.0,
    ) -> None:
        super().__init__(noise, initial, location, scale)

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

        Examples:
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

    def standard_log_density(self, z: Tensor) -> Tensor:
        """`-z^2 / 2 - log(2 pi) / 2`.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def standard_cdf(self, z: Tensor) -> Tensor:
        """`Phi(z)`.

        Args:
            z: standardised residuals.

        Returns:
            Probabilities, shaped like `z`.

        """
        probability: Tensor = torch.special.ndtr(z)
        return probability

    def standard_quantile(self, levels: Tensor) -> Tensor:
        """`Phi^-1(levels)`.

        Args:
            levels: probabilities strictly between 0 and 1.

        Returns:
            Quantiles, shaped like `levels`.

        """
        value: Tensor = torch.special.ndtri(levels)
        return value

    def standard_log_cdf(self, z: Tensor) -> Tensor:
        """`log Phi(z)`.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """
        # As torch.special.log_ndtr, which cannot be mapped over the networks of a fleet without a loop.
        low, high = z.clamp(max=-1.0), z.clamp(min=-1.0)
        tail = (0.5 * torch.special.erfcx(-math.sqrt(0.5) * low)).log() - 0.5 * low.square()
        return torch.where(z < -1.0, tail, torch.log1p(-0.5 * torch.erfc(math.sqrt(0.5) * high)))

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

    def _drawn_log_std(self, deviation: Tensor) -> Tensor:
        """The log noise of each draw, shaped to broadcast against deviations `[draws, batch, ...]`."""
        drawn = self.drawn_log_noise
        if drawn is None:
            raise ValueError(f"the noise of {self!r} is unknown: give its draws, likelihood.with_noise(log_noise)")
        if len(drawn) not in {1, len(deviation)}:
            raise ValueError(f"the noise has {len(drawn)} draws, the outputs have {len(deviation)}")
        return drawn.to(deviation).view(-1, *[1] * (deviation.ndim - 1))

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, without those that do not matter or are the default."""
        if self.noise_prior is None:
            return super().settings()
        return {"noise": self.noise_prior.text, "initial": self.initial} | self.units()

    def _checked_noise(self, noise: Any) -> Any:
        self.noise_prior = read_noise_prior(noise)
        if self.noise_prior is not None:
            return self.noise_prior.density
        if isinstance(noise, str):
            if noise not in KNOWN_NOISES:
                raise ValueError(
                    f"noise must be a number, {', '.join(KNOWN_NOISES)} or a prior such as {EXAMPLES[0]}, "
                    f"got {noise!r}{nearest(noise, (*KNOWN_NOISES, *EXAMPLES))}"
                )
        elif isinstance(noise, Prior):
            message = f"noise is above 0, {noise.text} is a prior of weights: use one such as {EXAMPLES[0]}"
            raise ValueError(message)  # noqa: TRY004 -- a prior, but of the wrong kind
        elif isinstance(noise, bool) or not hasattr(noise, "__float__") or not 0 < noise < math.inf:
            raise ValueError(f"noise must be a text, a prior or a standard deviation above 0, got {noise!r}")
        elif not isinstance(noise, int | float):
            return float(noise)
        return noise

    def _log_density_at(self, z: Tensor, log_std: Tensor) -> Tensor:
        return -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)

    def _moments(self, outputs: Tensor) -> tuple[Tensor | float, Tensor, Tensor]:
        if self.noise_prior is None:
            return super()._moments(outputs)
        location, deviation, _, _ = self._means(outputs)
        return location, deviation, self._drawn_log_std(deviation)
