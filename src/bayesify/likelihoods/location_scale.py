"""Numbers with additive noise of one shape: `y = location + scale * f + noise * e`, with `e` of a standard shape."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from bayesify.errors import nearest
from bayesify.likelihoods.scaled import PerTarget, Scaled, log_softplus
from bayesify.likelihoods.shapes import aligned, one_number, real

KNOWN_NOISES = ("learned", "heteroscedastic")


class LocationScale(Scaled):
    """The base class of `Gaussian`, `Laplace` and `StudentT`: one shape of noise around `location + scale * output`.

    A class gives the shape by four functions of `z = (y - mean) / noise`: `standard_log_density`, `standard_cdf`,
    `standard_quantile` and `standard_variance`.

    Args:
        noise: the scale of the noise in the units of the targets; or `"learned"`, one positive parameter in
            standardised units (`scale * exp(log_noise)`); or `"heteroscedastic"`, one for every input, from the second
            half of the outputs (`scale * softplus(raw)`).
        initial: the start value of a learned noise, in standardised units; 1 is the standard deviation of the targets.
        location: the target at an output of 0, a number or one per target (the axis after the batch).
        scale: the change of the target per unit of output, likewise; above 0.

    Examples:
        >>> likelihood = bf.likelihoods.Laplace(noise=0.5, location=10.0)
        >>> isinstance(likelihood, bf.likelihoods.LocationScale), likelihood.mean(torch.zeros(1, 1, 1))
        (True, tensor([[10.]]))

    """

    # The variance of the noise over the square of its scale.
    standard_variance: float = 1.0
    # The Fisher information of the location, for a scale of 1.
    standard_information: float = 1.0
    # Whether `standard_log_cdf` exists, which censored targets need.
    has_log_cdf: ClassVar[bool] = False
    log_noise: nn.Parameter | None

    def __init__(
        self, noise: Any = "learned", initial: float = 1.0, location: PerTarget = 0.0, scale: PerTarget = 1.0
    ) -> None:
        super().__init__(location, scale)
        self.noise: Any = self._checked_noise(noise)
        if not 0 < initial < math.inf:
            raise ValueError(f"initial must be a standard deviation above 0, got {initial}")
        self.initial = initial
        self.parameters_per_target = 2 if self.noise == "heteroscedastic" else 1
        learned = nn.Parameter(torch.tensor(math.log(initial))) if self.noise == "learned" else None
        self.register_parameter("log_noise", learned)

    @abstractmethod
    def standard_log_density(self, z: Tensor) -> Tensor:
        """The logarithm of the density of the noise, for a scale of 1.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """

    @abstractmethod
    def standard_cdf(self, z: Tensor) -> Tensor:
        """The distribution function of the noise, for a scale of 1.

        Args:
            z: standardised residuals.

        Returns:
            Probabilities, shaped like `z`.

        """

    @abstractmethod
    def standard_quantile(self, levels: Tensor) -> Tensor:
        """The quantiles of the noise, for a scale of 1.

        Args:
            levels: probabilities strictly between 0 and 1.

        Returns:
            Quantiles, shaped like `levels`.

        """

    def standard_log_cdf(self, z: Tensor) -> Tensor:
        """The logarithm of the distribution function, with its derivative; every shape is symmetric around 0.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """
        raise NotImplementedError

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log density of the noise at the residuals, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        return self._log_density_at(*self.standardised(outputs, targets)).sum(-1)

    def standardised(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The residuals over the scale of the noise, and the logarithm of that scale.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Returns:
            `(y - mean) / noise` as `[draws, batch, size]`, and logarithms that broadcast against it.

        """
        location, deviation, log_std = self._moments(outputs)
        shape = deviation.shape
        deviation, numbers = aligned(deviation, targets)
        # The location is subtracted in the precision of the targets, before they are rounded to that of the outputs.
        centred = (numbers.reshape(shape[1:]) - location).to(deviation.dtype).reshape(numbers.shape)
        log_std = log_std.expand(shape).reshape(deviation.shape) if log_std.ndim else log_std
        return (centred - deviation) * torch.exp(-log_std), log_std

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
        """The variance of the noise of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        _, deviation, log_std = self._moments(outputs)
        return one_number((torch.exp(2 * log_std) * self.standard_variance).expand_as(deviation))

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a target at most `values`.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.standard_cdf((values - self.mean(outputs)) / self._noise_scale(outputs))

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The quantiles `mean + noise * q`, with `q` those of the standard shape.

        Args:
            outputs: `[draws, batch, ...]`.
            levels: probabilities strictly between 0 and 1, shaped like the mean of one draw or of all draws.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.mean(outputs) + self._noise_scale(outputs) * self.standard_quantile(levels)

    def information_root(self, outputs: Tensor) -> Tensor:
        """The root of the Fisher information of the outputs, for noise that is not heteroscedastic.

        It is `scale / noise` times the root of `standard_information`. For normal noise its square is also the
        curvature of `-log p`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            A tensor that broadcasts against the outputs.

        """
        _, _, log_std = self._moments(outputs)
        root = self._per_target_values("scale", outputs) * (-log_std).exp()
        return root if self.standard_information == 1.0 else root * math.sqrt(self.standard_information)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, without those that do not matter or are the default."""
        settings: dict[str, Any] = {"noise": self.noise}
        if self.noise == "learned":
            settings["initial"] = self.initial
        return settings | self.units()

    def _checked_noise(self, noise: Any) -> Any:
        if isinstance(noise, str):
            if noise not in KNOWN_NOISES:
                known = " or ".join(KNOWN_NOISES)
                raise ValueError(f"noise must be a number, {known}, got {noise!r}{nearest(noise, KNOWN_NOISES)}")
        elif not isinstance(noise, int | float) or not 0 < noise < math.inf:
            raise ValueError(f"noise must be a number above 0, learned or heteroscedastic, got {noise!r}")
        return noise

    def _log_density_at(self, z: Tensor, log_std: Tensor) -> Tensor:
        return self.standard_log_density(z) - log_std

    def _noise_scale(self, outputs: Tensor) -> Tensor:
        _, deviation, log_std = self._moments(outputs)
        return one_number(log_std.exp().expand_as(deviation))

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
        if raw is not None:
            log_std = log_softplus(raw)
        elif self.log_noise is not None:
            log_std = self.log_noise.to(deviation.dtype)
        else:
            return location, deviation, deviation.new_full((), math.log(float(cast("float", self.noise))))
        log_scale = scale.log() if isinstance(scale, Tensor) else math.log(scale)
        return location, deviation, log_std + log_scale
