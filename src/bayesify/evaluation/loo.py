"""Leave-one-out cross-validation from one posterior: how well each training example is predicted from the others.

    elpd = sum over i of log p(y_i | x_i, all other examples)

The posterior without example i is the posterior with it, weighted by `1 / p(y_i | x_i, w)`. The largest weights are
smoothed by a generalised Pareto distribution, whose shape k says how far the weights can be trusted (A. Vehtari,
A. Gelman and J. Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC", 2017
(arXiv:1507.04544); A. Vehtari et al., "Pareto smoothed importance sampling", 2024 (arXiv:1507.02646)). ArviZ smooths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from bayesify.methods.convergence import arviz_statistics
from bayesify.methods.log_likelihoods import log_likelihoods
from bayesify.training.kl import KL
from bayesify.training.plan import Plan
from bayesify.training.warnings import warn

if TYPE_CHECKING:
    from bayesify.methods import Method
    from bayesify.metrics import Floats

# Fewer draws have no tail to fit a distribution to.
FEWEST_DRAWS = 100
# Examples that the efficiency of chains is averaged over.
_JUDGED = 200
_LARGEST_K = 0.7


@dataclass(frozen=True)
class LOO:
    """Leave-one-out cross-validation of a method on its training data, as `bf.loo` returns it.

    Args:
        elpd: the expected log predictive density: the sum over the examples of their log density given all others, in
            nats; higher is better.
        standard_error: of `elpd`, over the examples.
        p_loo: the effective number of weights: how much better examples are predicted that were in training.
        pointwise: the terms of `elpd`, `[examples]`.
        pareto_k: the shape k of each example's weights, `[examples]`.
        largest_k: up to this k a term can be trusted: 0.7, or less with few draws.
        draws: posterior draws.
        method: the name of the method.

    Examples:
        >>> result = bf.loo(bnn, (x, y), draws=400)
        >>> result.examples, result.draws, result.pareto_k.shape
        (60, 400, (60,))
        >>> bool(result.elpd == result.pointwise.sum())
        True

    """

    elpd: float
    standard_error: float
    p_loo: float
    pointwise: Floats
    pareto_k: Floats
    largest_k: float
    draws: int
    method: str

    @property
    def examples(self) -> int:
        """The number of examples."""
        return len(self.pointwise)

    @property
    def nll(self) -> float:
        """Minus the mean log density of an example given all others: an estimate of the NLL on test data."""
        return -self.elpd / self.examples

    @property
    def untrusted(self) -> int:
        """The number of examples whose k is too large."""
        return int((self.pareto_k > self.largest_k).sum())

    def difference(self, other: LOO) -> tuple[float, float]:
        """The elpd of this method minus that of another one on the same examples, in the same order.

        Args:
            other: the result of the other method.

        Returns:
            The difference and its standard error, which is that of paired terms.

        Raises:
            ValueError: the other result has another number of examples.

        Examples:
            >>> result = bf.loo(bnn, (x, y), draws=400)
            >>> result.difference(result)
            (0.0, 0.0)

        """
        if other.examples != self.examples:
            raise ValueError(
                f"a difference needs the same examples: one result has {self.examples}, the other {other.examples}"
            )
        terms = self.pointwise - other.pointwise
        return float(terms.sum()), _standard_error(terms)

    def to_dict(self) -> dict[str, Any]:
        """The numbers about all examples together, as `json.dumps` takes them."""
        return {
            "elpd": self.elpd,
            "standard_error": self.standard_error,
            "p_loo": self.p_loo,
            "nll": self.nll,
            "examples": self.examples,
            "draws": self.draws,
            "largest_pareto_k": float(self.pareto_k.max()),
            "trusted_up_to": self.largest_k,
            "untrusted": self.untrusted,
            "method": self.method,
        }

    def __str__(self) -> str:
        shapes = f"Pareto k at most {self.pareto_k.max():.2f}, above {self.largest_k:.2f} for {self.untrusted}"
        lines = [
            f"elpd {self.elpd:.2f} nats, standard error {self.standard_error:.2f}; {self.nll:.4f} nats an example",
            f"effective number of weights {self.p_loo:.1f}",
            f"{shapes} of {self.examples:,} examples ({self.draws:,} draws)",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from bayesify.html import html_table

        rows = [(name.replace("_", " "), value) for name, value in self.to_dict().items() if name != "method"]
        return html_table(f"leave-one-out cross-validation: {self.method}", ("score", "value"), rows)


def loo(method: Method, data: Any, draws: int = 2000, seed: int = 0) -> LOO:
    """Leave-one-out cross-validation without training again, by Pareto-smoothed importance sampling (PSIS).

    It warns where a weight's Pareto shape k is above 0.7: that term, and so the sum, is too optimistic. An approximate
    posterior is taken for the posterior.

    Args:
        method: a fitted method with a posterior to draw from.
        data: the training data, all of it: `(x, y)`, a `Dataset` or a `DataLoader`.
        draws: posterior draws; a sampler uses all that it stored.
        seed: of the draws.

    Returns:
        The elpd with its standard error, its terms and their Pareto shapes.

    Raises:
        ValueError: the method has fewer than 100 draws, or the data is not that of the training.
        ModuleNotFoundError: ArviZ is not installed.

    Examples:
        >>> result = bf.loo(bnn, (x, y), draws=400)
        >>> bool(result.standard_error > 0), result.untrusted <= 60
        (True, True)

    Reference:
        A. Vehtari, A. Gelman and J. Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation
        and WAIC", 2017 (arXiv:1507.04544).

    """
    available = min(draws, method.held or draws) if method.numbers_by_chain() is None else method.held or 0
    if available < FEWEST_DRAWS:
        raise ValueError(
            f"leave-one-out needs at least {FEWEST_DRAWS} posterior draws, got {available} of {method.name}: "
            + (
                "raise draws="
                if method.held is None or method.held >= FEWEST_DRAWS
                else "use a method with a posterior"
            )
        )
    statistics = arviz_statistics()
    temperature = _temperature(method)
    found = log_likelihoods(method, data, draws, seed)
    _check_training_data(method, len(found.targets))
    density = _by_example(found.density.numpy())
    trained = density if found.trained is found.density else _by_example(found.trained.numpy())
    trained = trained / temperature
    if not (np.isfinite(density).all() and np.isfinite(trained).all()):
        wrong = int((~np.isfinite(density + trained)).any(1).sum())
        raise ValueError(
            f"{wrong} of {len(density)} examples are impossible under a draw: leave-one-out is not defined"
        )
    efficiency = _efficiency(found.trained.numpy() / temperature)
    # ArviZ takes log-likelihoods, and makes the weights of their negatives.
    weights, shapes = statistics.psislw(trained, r_eff=efficiency, axis=-1)
    terms: Floats = scipy.special.logsumexp(weights + density, axis=1)
    known: Floats = scipy.special.logsumexp(density, axis=1) - math.log(density.shape[1])
    count = density.shape[1]
    result = LOO(
        elpd=float(terms.sum()),
        standard_error=_standard_error(terms),
        p_loo=float((known - terms).sum()),
        pointwise=terms,
        pareto_k=np.asarray(shapes, dtype=np.float64),
        largest_k=min(1 - 1 / math.log10(count), _LARGEST_K),
        draws=count,
        method=method.name,
    )
    if result.untrusted:
        warn(
            f"{result.untrusted} of {result.examples:,} examples have a Pareto k above {result.largest_k:.2f} (largest "
            f"{result.pareto_k.max():.2f}): they decide the posterior, and the elpd is too optimistic. Take more "
            "draws; where that does not help, cross-validate by training again"
        )
    return result


def _by_example(values: Floats) -> Floats:
    """`[chains, draws, examples]` -> `[examples, chains * draws]`."""
    return np.ascontiguousarray(values.reshape(-1, values.shape[-1]).T)


def _standard_error(terms: Floats) -> float:
    return float(np.sqrt(len(terms) * terms.var(ddof=1)))


def _efficiency(values: Floats) -> float:
    """Effective over actual draws of an example's likelihood, a mean over examples: 1 for independent draws."""
    chains, draws, examples = values.shape
    if chains == 1 or draws < 4:
        return 1.0
    chosen = values[..., :: max(1, examples // _JUDGED)]
    likelihoods = np.exp(chosen - chosen.max((0, 1)))
    effective = arviz_statistics().ess(likelihoods, chain_axis=0, draw_axis=1, method="mean")
    return float(np.clip(np.nanmean(effective) / (chains * draws), 1 / (chains * draws), 1.0))


def _temperature(method: Method) -> float:
    """The temperature T of the posterior, in which the likelihood has the power 1 / T."""
    plan = method.plan
    temperature = float(getattr(method, "temperature", 1.0))
    if isinstance(plan, Plan):
        temperature *= KL.parse(plan.kl).temperature
    if temperature == 0:
        raise ValueError("leave-one-out needs a posterior, at a temperature of 0 there is none")
    return temperature


def _check_training_data(method: Method, examples: int) -> None:
    """Refuse another number of examples than that of the training, where it is known."""
    bound = method.final_elbo
    known = int(getattr(method, "n_data", 1)) if bound is None else bound.n_data
    if known > 1 and known != examples:
        raise ValueError(
            f"leave-one-out is for the training data: {method.name} was trained on {known:,} examples, got {examples:,}"
        )
