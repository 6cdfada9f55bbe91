"""Linear regression, exactly: a Gaussian prior on the coefficients, noise known or unknown.

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
    """Coefficients of the features in order, the intercept's last (as `nn.Linear` has its weight and bias).

    Args:
        scale: prior standard deviation of the coefficients, one or one for each; `math.inf` is flat. Where the noise is
            unknown it is in units of the noise.
        covariance: the prior covariance, in place of scales.
        mean: prior mean of the coefficients, one or one for each.
        noise: the standard deviation of the noise, or None where it is unknown.
        inverse_gamma: a and b of the prior of the noise variance, where it is unknown; (0, 0) is 1 / s^2.
        intercept: add a constant feature.

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
            raise ValueError(f"inverse_gamma must be two finite numbers from 0, got {inverse_gamma}")
        self.intercept = intercept
        self._design: Tensor | None = None
        self._targets = torch.empty(0, dtype=torch.float64)

    def fit(self, data: tuple[Any, Any]) -> Self:
        """Start over with `(x, y)`: x `[n, features]` (or `[n]` for one feature), y `[n]`."""
        self._design = None
        return self.observe(data)

    def observe(self, data: tuple[Any, Any]) -> Self:
        """Add `(x, y)` to what has been seen."""
        x, y = data
        design, targets = self._features(x), _numbers(y).reshape(-1)
        if len(design) != len(targets):
            raise ValueError(f"x has {len(design)} examples and y has {len(targets)}: they must be as many")
        if self._design is None:
            self._design, self._targets = design, targets
        else:
            if design.shape[1] != self._design.shape[1]:
                raise ValueError(
                    f"x must have the features seen before, {self._design.shape[1]}, got {design.shape[1]}"
                )
            self._design = torch.cat((self._design, design))
            self._targets = torch.cat((self._targets, targets))
        self._update()
        return self

    @property
    def mean(self) -> Tensor:
        """The posterior mean of the coefficients, `[K]`."""
        self._seen()
        return self._mean

    @property
    def covariance(self) -> Tensor:
        """The posterior covariance of the coefficients, `[K, K]` (of their t distribution where noise is unknown)."""
        return self._noise_variance() * self._shape()

    @property
    def std(self) -> Tensor:
        return self.covariance.diagonal().sqrt()

    @property
    def df(self) -> float:
        """Degrees of freedom of the coefficients' and the predictions' t distribution; infinite for known noise."""
        self._seen()
        return math.inf if self.noise is not None else 2 * self._a

    @property
    def log_evidence(self) -> float:
        """The log density of the targets before any was seen."""
        self._seen()
        improper = self.noise is None and min(self.prior_a, self.prior_b) == 0
        if improper or bool((self._prior_precision.diagonal() == 0).any()):
            raise ValueError("a flat prior is improper and has no evidence: give a finite scale (and a, b above 0)")
        n = len(self._targets)
        determinants = 0.5 * (torch.logdet(self._prior_precision) - _log_det(self._factor)).item()
        if self.noise is not None:
            return determinants - n * math.log(self.noise) - 0.5 * n * math.log(2 * math.pi) - 0.5 * self._misfit
        gammas = math.lgamma(self._a) - math.lgamma(self.prior_a)
        rates = self.prior_a * math.log(self.prior_b) - self._a * math.log(self._b)
        return determinants + gammas + rates - 0.5 * n * math.log(2 * math.pi)

    def predict(self, x: Any) -> Prediction:
        """The predictive distribution of a target at each row of x."""
        self._seen()
        rows = self._features(x)
        spread = torch.linalg.solve_triangular(self._factor, rows.mT, upper=False).square().sum(0)
        if self.noise is not None:
            aleatoric = torch.full_like(spread, self.noise**2)
            return Prediction(rows @ self._mean, (spread + aleatoric).sqrt(), math.inf, spread, aleatoric)
        variance, scale = self._noise_variance(), (self._b / self._a * (1 + spread)).sqrt()
        return Prediction(rows @ self._mean, scale, 2 * self._a, variance * spread, torch.full_like(spread, variance))

    def weights(self, draws: Sequence[int], seed: int = 0) -> Tensor:
        """Sets of coefficients number `draws` of the posterior, `[draws, K]`."""
        self._seen()
        keys = pure_noise.keys(seed, pure_noise.Stream.PREDICTION, draws=draws)
        white = pure_noise.normal(keys, len(self._mean)).double()
        spread: Tensor = torch.linalg.solve_triangular(self._factor.mT, white.mT, upper=True).mT
        return self._mean + spread * (1.0 if self.noise is not None else self.noises(draws, seed).unsqueeze(-1))

    def noises(self, draws: Sequence[int], seed: int = 0) -> Tensor:
        """The noise standard deviation of each of those draws, `[draws]`."""
        self._seen()
        if self.noise is not None:
            return torch.full((len(draws),), self.noise, dtype=torch.float64)
        from scipy.special import gammaincinv

        keys = pure_noise.fold(pure_noise.keys(seed, pure_noise.Stream.PREDICTION, draws=draws), 1)
        chances = pure_noise.uniform(keys, 1).double()[:, 0]
        precisions = torch.as_tensor(gammaincinv(self._a, chances.numpy())) / self._b
        return precisions.rsqrt()

    def _update(self) -> None:
        design, targets = self._seen(), self._targets
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
        left = (targets - design @ self._mean) / unit
        self._misfit = float(left @ left + shift @ self._prior_precision @ shift)
        if self.noise is None:
            # A flat coefficient does not scale with the noise: each takes half a degree from the noise's own.
            flat = int((self._prior_precision.diagonal() == 0).sum())
            self._a, self._b = self.prior_a + 0.5 * (len(targets) - flat), self.prior_b + 0.5 * self._misfit
            if self._a <= 0:
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
            raise ValueError(f"scale must be one number above 0 or {size} of them, got {scale.tolist()}")
        return torch.diag(scale.pow(-2).expand(size))

    def _features(self, x: Any) -> Tensor:
        x = _numbers(x)
        if x.ndim > 2 or x.ndim == 0:
            raise ValueError(f"x must be [n, features] or [n], got shape {list(x.shape)}")
        x = x.unsqueeze(1) if x.ndim == 1 else x
        return torch.cat((x, torch.ones_like(x[:, :1])), 1) if self.intercept else x

    def _shape(self) -> Tensor:
        self._seen()
        return torch.cholesky_inverse(self._factor)

    def _noise_variance(self) -> float:
        """What multiplies the shape: 1 for known noise, E[s^2] otherwise."""
        self._seen()
        if self.noise is not None:
            return 1.0
        return self._b / (self._a - 1) if self._a > 1 else math.inf

    def _seen(self) -> Tensor:
        if self._design is None:
            raise ValueError("nothing has been observed yet: call fit((x, y)) first")
        return self._design


@dataclass(frozen=True)
class Prediction:
    """Normal (`df` infinite) or Student's t predictions for several inputs.

    Args:
        mean: `[n]`.
        scale: `[n]`, the standard deviation where the noise is known.
        df: degrees of freedom.
        epistemic: variance of the function's value, `[n]`.
        aleatoric: variance of the noise, `[n]`.

    """

    mean: Tensor
    scale: Tensor
    df: float
    epistemic: Tensor
    aleatoric: Tensor

    @property
    def variance(self) -> Tensor:
        """Total variance, `[n]`; it is the sum of the epistemic and the aleatoric one."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    def quantile(self, levels: Any) -> Tensor:
        """Quantiles, `[levels, n]` (`[n]` for one level)."""
        from scipy.special import ndtri, stdtrit

        values = check_levels(levels).numpy()
        standard = torch.as_tensor(ndtri(values) if self.df == math.inf else stdtrit(self.df, values))
        return self.mean + self.scale * standard.unsqueeze(-1) if standard.ndim else self.mean + self.scale * standard

    def interval(self, mass: float = 0.95) -> tuple[Tensor, Tensor]:
        """The central interval with this mass at each input."""
        low, high = self.quantile([(1 - mass) / 2, (1 + mass) / 2])
        return low, high

    def log_density(self, y: Any) -> Tensor:
        """The log density of targets y, `[n]`."""
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
