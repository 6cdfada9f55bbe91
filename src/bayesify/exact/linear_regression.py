"""The exact posterior of linear regression: a Gaussian prior on the coefficients, noise known or unknown.

    y = X w + e,  e ~ N(0, s^2)
    noise known:    w ~ N(m, V)                                  =>  w | y ~ N(m_n, V_n)
    noise unknown:  w | s^2 ~ N(m, s^2 V),  s^2 ~ IG(a, b)       =>  Normal-inverse-gamma, predictions are Student's t

with V_n^-1 = V^-1 + X'X / s^2 (without the s^2 where it is unknown); Bishop 2006, section 3.3, and Gelman et al.,
Bayesian Data Analysis, chapter 14. An infinite scale is the flat limit p(w) = 1; with a = b = 0, the reference prior
p(w, s^2) = 1 / s^2, it gives the classical t intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from bayesify import noise as pure_noise
from bayesify.errors import positive
from bayesify.exact.coin import check_levels


class LinearRegression:
    """The exact posterior of linear regression, `y = X w + e` with `e ~ N(0, s^2)` and a Gaussian prior on w.

    The K coefficients w are those of the features in order, then the intercept (the order of `nn.Linear`).

    Args:
        scale: prior standard deviation of the coefficients, one number or `[K]`; `math.inf` is a flat prior. Where the
            noise is unknown, the scale is in units of the noise.
        covariance: the prior covariance, `[K, K]`, instead of scales.
        mean: prior mean of the coefficients, one number or `[K]`.
        noise: the standard deviation s of the noise, or None where it is unknown.
        inverse_gamma: parameters a and b of the prior IG(a, b) of the noise variance, where the noise is unknown;
            (0, 0) is the prior `1 / s^2`.
        intercept: add a constant feature.

    Raises:
        ValueError: a scale, the noise or a parameter of the inverse gamma is out of range.

    Examples:
        >>> points = torch.linspace(-1, 1, 20)
        >>> model = bf.exact.LinearRegression(scale=10.0, noise=0.5).fit((points, 2 * points + 1))
        >>> model.mean
        tensor([1.9993, 0.9999], dtype=torch.float64)
        >>> model.predict([0.0, 3.0]).std
        tensor([0.5123, 0.7535], dtype=torch.float64)

    Reference:
        C. M. Bishop, "Pattern Recognition and Machine Learning", 2006, section 3.3;
        A. Gelman et al., "Bayesian Data Analysis", third edition, 2013, chapter 14.

    """

    def __init__(
        self,
        scale: float | Sequence[float] | Tensor = 1.0,
        *,
        covariance: Any = None,
        mean: float | Sequence[float] | Tensor = 0.0,
        noise: float | None = 1.0,
        inverse_gamma: tuple[float, float] = (1.0, 1.0),
        intercept: bool = True,
    ) -> None:
        self.noise = None if noise is None else positive("noise", noise)
        self.scale, self.covariance_given, self.mean_given = scale, covariance, mean
        self.prior_a, self.prior_b = (float(value) for value in inverse_gamma)
        if not (0 <= self.prior_a < math.inf and 0 <= self.prior_b < math.inf):
            raise ValueError(f"inverse_gamma must be two finite numbers of at least 0, got {inverse_gamma}")
        self.intercept = intercept
        self._design: Tensor | None = None
        self._targets = torch.empty(0, dtype=torch.float64)

    def fit(self, data: tuple[Any, Any]) -> Self:
        """Replace all data.

        Args:
            data: `(x, y)`, with x `[n, features]` (or `[n]` for one feature) and y `[n]`.

        Returns:
            The model itself.

        """
        self._design = None
        return self.observe(data)

    def observe(self, data: tuple[Any, Any]) -> Self:
        """Add data to what was observed before.

        Args:
            data: `(x, y)`, with x `[n, features]` (or `[n]` for one feature) and y `[n]`.

        Returns:
            The model itself.

        Raises:
            ValueError: shapes do not match, or the data does not determine the coefficients under a flat prior.

        """
        x, y = data
        design, targets = self._features(x), _numbers(y).reshape(-1)
        if len(design) != len(targets):
            raise ValueError(f"x and y must have the same length, got {len(design)} and {len(targets)}")
        if self._design is None:
            self._design, self._targets = design, targets
        else:
            if design.shape[1] != self._design.shape[1]:
                seen = self._design.shape[1] - self.intercept
                raise ValueError(f"x must have {seen} features as before, got {design.shape[1] - self.intercept}")
            self._design = torch.cat((self._design, design))
            self._targets = torch.cat((self._targets, targets))
        self._update()
        return self

    @property
    def mean(self) -> Tensor:
        """The posterior mean of the coefficients, `[K]`."""
        self._observed()
        return self._mean

    @property
    def covariance(self) -> Tensor:
        """The posterior covariance of the coefficients, `[K, K]` (of their t distribution where noise is unknown)."""
        return self._noise_variance() * self._shape()

    @property
    def std(self) -> Tensor:
        """The posterior standard deviations of the coefficients, `[K]`."""
        return self.covariance.diagonal().sqrt()

    @property
    def df(self) -> float:
        """Degrees of freedom of the t distributions of coefficients and predictions; infinite for known noise."""
        self._observed()
        return math.inf if self.noise is not None else 2 * self.posterior_a

    @property
    def log_evidence(self) -> float:
        """The log density of the targets under the prior."""
        self._observed()
        improper = self.noise is None and min(self.prior_a, self.prior_b) == 0
        if improper or bool((self._prior_precision.diagonal() == 0).any()):
            raise ValueError(
                "a flat prior is improper and has no evidence: give a finite scale (and a, b above 0 for unknown noise)"
            )
        n = len(self._targets)
        determinants = 0.5 * (torch.logdet(self._prior_precision) - _log_det(self._factor)).item()
        if self.noise is not None:
            return determinants - n * math.log(self.noise) - 0.5 * n * math.log(2 * math.pi) - 0.5 * self._misfit
        gammas = math.lgamma(self.posterior_a) - math.lgamma(self.prior_a)
        rates = self.prior_a * math.log(self.prior_b) - self.posterior_a * math.log(self.posterior_b)
        return determinants + gammas + rates - 0.5 * n * math.log(2 * math.pi)

    def predict(self, x: Any) -> Prediction:
        """The predictive distribution of the targets.

        Args:
            x: inputs, `[n, features]` or `[n]` for one feature.

        Returns:
            A `Prediction` for n targets.

        """
        self._observed()
        rows = self._features(x)
        spread = torch.linalg.solve_triangular(self._factor, rows.mT, upper=False).square().sum(0)
        if self.noise is not None:
            aleatoric = torch.full_like(spread, self.noise**2)
            return Prediction(rows @ self._mean, (spread + aleatoric).sqrt(), math.inf, spread, aleatoric)
        variance, scale = self._noise_variance(), (self.posterior_b / self.posterior_a * (1 + spread)).sqrt()
        return Prediction(
            rows @ self._mean, scale, 2 * self.posterior_a, variance * spread, torch.full_like(spread, variance)
        )

    def weights(self, draws: Sequence[int], seed: int = 0) -> Tensor:
        """Posterior draws of the coefficients.

        Args:
            draws: the numbers of the draws; a draw depends only on its number and the seed.
            seed: the seed of the random numbers.

        Returns:
            Coefficients, `[draws, K]`.

        """
        self._observed()
        keys = pure_noise.keys(seed, pure_noise.Stream.PREDICTION, draws=draws)
        white = pure_noise.normal(keys, len(self._mean)).double()
        spread: Tensor = torch.linalg.solve_triangular(self._factor.mT, white.mT, upper=True).mT
        return self._mean + spread * (1.0 if self.noise is not None else self.noises(draws, seed).unsqueeze(-1))

    def noises(self, draws: Sequence[int], seed: int = 0) -> Tensor:
        """Posterior draws of the standard deviation of the noise, one for each draw of `weights`.

        Args:
            draws: the numbers of the draws.
            seed: the seed of the random numbers.

        Returns:
            Standard deviations, `[draws]`.

        """
        self._observed()
        if self.noise is not None:
            return torch.full((len(draws),), self.noise, dtype=torch.float64)
        from scipy.special import gammaincinv

        keys = pure_noise.fold(pure_noise.keys(seed, pure_noise.Stream.PREDICTION, draws=draws), 1)
        levels = pure_noise.uniform(keys, 1).double()[:, 0]
        precisions = torch.as_tensor(gammaincinv(self.posterior_a, levels.numpy())) / self.posterior_b
        return precisions.rsqrt()

    def _update(self) -> None:
        design, targets = self._observed(), self._targets
        size = design.shape[1]
        prior_mean = _numbers(self.mean_given).expand(size)
        self._prior_precision = self._precision(size)
        unit = 1.0 if self.noise is None else self.noise
        scaled = design / unit
        precision = self._prior_precision + scaled.mT @ scaled
        factor, failed = torch.linalg.cholesky_ex(precision)
        if int(failed):
            raise ValueError(
                f"{len(design)} examples do not determine {size} coefficients under a flat prior: give a finite scale"
            )
        self._factor = factor
        residual = targets - design @ prior_mean
        shift = torch.cholesky_solve((scaled.mT @ (residual / unit)).unsqueeze(-1), factor).squeeze(-1)
        self._mean = prior_mean + shift
        remaining = (targets - design @ self._mean) / unit
        self._misfit = float(remaining @ remaining + shift @ self._prior_precision @ shift)
        if self.noise is None:
            # The flat limit of p(w | s^2) has no factor 1/s: each flat coefficient takes 1/2 from a.
            flat = int((self._prior_precision.diagonal() == 0).sum())
            self.posterior_a, self.posterior_b = (
                self.prior_a + 0.5 * (len(targets) - flat),
                self.prior_b + 0.5 * self._misfit,
            )
            if self.posterior_a <= 0:
                raise ValueError(f"{len(targets)} examples do not determine {size} coefficients and the noise")

    def _precision(self, size: int) -> Tensor:
        if self.covariance_given is not None:
            covariance = _numbers(self.covariance_given)
            if covariance.shape != (size, size):
                raise ValueError(f"covariance must be [{size}, {size}], got {list(covariance.shape)}")
            factor, failed = torch.linalg.cholesky_ex(covariance)
            if int(failed):
                raise ValueError("covariance must be positive definite")
            return torch.cholesky_inverse(factor)
        scale = _numbers(self.scale)
        if scale.ndim > 1 or (scale.ndim == 1 and len(scale) != size) or not bool((scale > 0).all()):
            raise ValueError(f"scale must be one number above 0 or a list of {size}, got {scale.tolist()}")
        return torch.diag(scale.pow(-2).expand(size))

    def _features(self, x: Any) -> Tensor:
        x = _numbers(x)
        if x.ndim > 2 or x.ndim == 0:
            raise ValueError(f"x must be [n, features] or [n], got shape {list(x.shape)}")
        x = x.unsqueeze(1) if x.ndim == 1 else x
        return torch.cat((x, torch.ones_like(x[:, :1])), 1) if self.intercept else x

    def _shape(self) -> Tensor:
        self._observed()
        return torch.cholesky_inverse(self._factor)

    def _noise_variance(self) -> float:
        """The factor of the posterior covariance: 1 for known noise, E[s^2] otherwise."""
        self._observed()
        if self.noise is not None:
            return 1.0
        return self.posterior_b / (self.posterior_a - 1) if self.posterior_a > 1 else math.inf

    def _observed(self) -> Tensor:
        if self._design is None:
            raise ValueError("nothing has been observed yet: call fit((x, y)) first")
        return self._design


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution of n targets: normal, or Student's t where the noise is unknown.

    Args:
        mean: mean of each target, `[n]`.
        scale: scale of each distribution, `[n]`; the standard deviation for a normal.
        df: degrees of freedom; infinite for a normal.
        epistemic: variance of the regression function, `[n]`.
        aleatoric: variance of the noise, `[n]`.

    Examples:
        >>> prediction = bf.exact.LinearRegression().fit(([0.0, 1.0, 2.0], [0.1, 0.9, 2.2])).predict([1.0])
        >>> low, high = prediction.interval(0.9)
        >>> prediction.mean, low, high
        (tensor([0.9933], ...), tensor([-0.8579], ...), tensor([2.8446], ...))

    """

    mean: Tensor
    scale: Tensor
    df: float
    epistemic: Tensor
    aleatoric: Tensor

    @property
    def variance(self) -> Tensor:
        """Total variance, `[n]`: epistemic + aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        """Standard deviation, `[n]`."""
        return self.variance.sqrt()

    def quantile(self, levels: Any) -> Tensor:
        """Quantiles of each target.

        Args:
            levels: one level from 0 to 1, or several.

        Returns:
            `[levels, n]`, or `[n]` for one level.

        """
        from scipy.special import ndtri, stdtrit

        values = check_levels(levels).numpy()
        standard = torch.as_tensor(ndtri(values) if self.df == math.inf else stdtrit(self.df, values))
        return self.mean + self.scale * standard.unsqueeze(-1) if standard.ndim else self.mean + self.scale * standard

    def interval(self, mass: float = 0.95) -> tuple[Tensor, Tensor]:
        """The central interval of each target.

        Args:
            mass: its probability.

        Returns:
            Lower and upper ends, `[n]` each.

        """
        low, high = self.quantile([(1 - mass) / 2, (1 + mass) / 2])
        return low, high

    def log_density(self, y: Any) -> Tensor:
        """The log density of the targets.

        Args:
            y: targets, `[n]`.

        Returns:
            Log densities, `[n]`.

        """
        z = (_numbers(y).reshape(-1) - self.mean) / self.scale
        if self.df == math.inf:
            return -0.5 * z.square() - self.scale.log() - 0.5 * math.log(2 * math.pi)
        df = self.df
        constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return constant - (df + 1) / 2 * torch.log1p(z.square() / df) - self.scale.log()


def _numbers(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64).detach().cpu()


def _log_det(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal().log().sum()
