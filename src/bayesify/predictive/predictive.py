"""What many draws say about an input: the answer, how unsure it is, and why.

For classification, with `p_d` the class probabilities of draw `d`, `p` their mean and `H` the entropy in
nats, the total uncertainty splits as `H[p] = mean_d H[p_d] + I` (aleatoric + epistemic), `I` being the mutual
information between the answer and the weights (S. Depeweg et al., Decomposition of uncertainty in Bayesian
deep learning, 2018). For regression variances split alike: mean noise variance plus the variance of means.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import at_least, choose
from bayesify.likelihoods import Classification, Likelihood, Regression
from bayesify.likelihoods.classification import entropy
from bayesify.likelihoods.regression import bisect
from bayesify.likelihoods.shapes import real
from bayesify.predictive import averages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CLASSIFICATION_SCORES = ("confidence", "entropy", "aleatoric", "epistemic", "expected_error", "std")
REGRESSION_SCORES = ("width", "std", "variance", "aleatoric", "epistemic")


class Predictive:
    """The predictive distribution of a batch of inputs: `outputs` `[draws, batch, ...]` and a likelihood.

    `keys` `[draws, 2]` are the noise keys of a likelihood that samples (`GaussianLogits`). Everything is
    computed when first asked for, then kept. Shapes below are for one target per input; a target with
    dimensions of its own (pixels, several numbers) has them after the batch.

        >>> p = Predictive(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]), Categorical())
        >>> p.probs, p.epistemic      # the two draws disagree: half and half, and mostly epistemic
    """

    def __init__(
        self,
        outputs: Tensor,
        likelihood: Likelihood,
        keys: Tensor | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if outputs.ndim < 2:
            raise ValueError(f"outputs must be [draws, batch, ...], got shape {list(outputs.shape)}")
        if len(outputs) < 1:
            raise ValueError("draws must be at least 1, got 0")
        self.outputs = outputs
        # A copy: a learned noise that trains on must not change an answer already given.
        self.likelihood = copy.deepcopy(likelihood).requires_grad_(requires_grad=False).to(outputs.device)
        self.keys = keys
        self.class_names = None if class_names is None else tuple(map(str, class_names))
        self._positions = torch.arange(outputs.shape[1])  # among the inputs predicted together

    @property
    def kind(self) -> str:
        """`"classification"` or `"regression"`."""
        return self.likelihood.kind

    @property
    def draws(self) -> int:
        """How many draws stand behind the answer."""
        return len(self.outputs)

    @cached_property
    def draw_probs(self) -> Tensor:
        """Class probabilities of each draw, `[draws, batch, classes]`."""
        return self._classification("draw_probs").probs(self.outputs, self.keys)

    @cached_property
    def probs(self) -> Tensor:
        """Their mean, `[batch, classes]`."""
        self._classification("probs")
        return self._mean_probs_and_entropy[0]

    @cached_property
    def labels(self) -> Tensor:
        """The most probable class, `[batch]` int64."""
        self._classification("labels")
        return self.probs.argmax(-1)

    @property
    def names(self) -> list[str]:
        """The labels by name (their numbers as text, where no `class_names` were given)."""
        known = self.class_names
        return [str(label) if known is None else known[label] for label in self.labels.flatten().tolist()]

    @cached_property
    def confidence(self) -> Tensor:
        """The probability of the label, `[batch]`."""
        self._classification("confidence")
        return self.probs.amax(-1)

    @cached_property
    def entropy(self) -> Tensor:
        """Total uncertainty `H[p]` in nats, `[batch]`."""
        self._classification("entropy")
        return entropy(self.probs)

    @cached_property
    def expected_error(self) -> Tensor:
        """One minus the share of the commonest label among the draws, `[batch]`."""
        likelihood = self._classification("expected_error")
        return 1.0 - averages.commonest_share(likelihood, self.outputs, self.keys, self.probs)

    @cached_property
    def mean(self) -> Tensor:
        """The expected target, `[batch]`."""
        return self._means("mean").mean(0).to(self._dtype)

    @cached_property
    def variance(self) -> Tensor:
        """Total variance of the target, `[batch]`: aleatoric + epistemic."""
        self._regression("variance")
        return self.aleatoric + self.epistemic

    @cached_property
    def aleatoric(self) -> Tensor:
        """What more data would not remove, `[batch]`: the mean entropy, or noise variance, of the draws."""
        if isinstance(self.likelihood, Regression):
            noise = self.likelihood.noise_variance(self.outputs)
            # The mean of equal numbers is that number, which a sum over draws can miss by its last bit: noise that is
            # the same everywhere would seem to tell inputs apart.
            return torch.where((noise == noise[0]).all(0), noise[0], noise.mean(0))
        return self._mean_probs_and_entropy[1]

    @cached_property
    def epistemic(self) -> Tensor:
        """How much the draws disagree, `[batch]`: the mutual information, or the variance of their means."""
        if isinstance(self.likelihood, Regression):
            return self._means("epistemic").var(0, correction=0).to(self._dtype)
        if self.draws == 1:
            return torch.zeros_like(self.entropy)  # nobody to disagree with, to the last bit
        return (self.entropy - self.aleatoric).clamp(min=0.0)  # rounding can leave it a hair below zero

    @cached_property
    def std(self) -> Tensor:
        """Regression: the root of `variance`, `[batch]`. Classes: the spread of `p_d`, `[batch, classes]`."""
        if self.kind == "regression":
            return self.variance.sqrt()
        return averages.spread(self._classification("probs"), self.outputs, self.keys, self.probs)

    def log_prob(self, targets: Any) -> Tensor:
        """`log mean_d p_d(y)` in nats, `[batch]`, summed over a target's own dimensions inside each draw."""
        prepared = self.likelihood.prepare(targets).to(self.outputs.device)
        if len(prepared) != len(self):
            raise ValueError(f"targets must have one row per input, {len(self)}, got {len(prepared)}")
        if isinstance(self.likelihood, Classification) and int(prepared.max()) >= self.probs.shape[-1]:
            known = self.probs.shape[-1]
            raise ValueError(f"labels must be below the {known} known classes, got {int(prepared.max())}")
        per_draw = self.likelihood.log_density(self.outputs, prepared, self.keys)
        return per_draw.logsumexp(0) - math.log(self.draws)

    def cdf(self, values: Tensor) -> Tensor:
        """The chance of a target at most `values`, both shaped like `mean` (regression)."""
        likelihood = self._regression("cdf")
        if values.shape != self.mean.shape:
            raise ValueError(f"values must be {list(self.mean.shape)} like mean, got {list(values.shape)}")
        return likelihood.cdf(self.outputs.double(), values.double()).mean(0).to(self._dtype)

    def quantile(self, level: float) -> Tensor:
        """The smallest value with `cdf >= level` (regression), `[batch]`, by bisection on the cdf."""
        return self._quantile("quantile", level).to(self._dtype)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """The central interval that holds the target with chance `level` (regression): lower and upper."""
        lower, upper = self._interval(level)
        return lower.to(self._dtype), upper.to(self._dtype)

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Targets drawn from the predictive, `[count, batch, ...]`: a draw of weights, then a target given it.

        One draw of the weights serves all inputs of a sample, and each input has a noise of its own, so that a sample
        is a data set as the model imagines it. A value depends on the seed, on the number of its sample and on the
        input's position among those predicted together, never on the other inputs nor on how many samples there are.
        """
        at_least("count", count, 1)
        device = self.outputs.device
        pick = _uniform(noise.keys(seed, noise.Stream.TARGETS, step=1, device=device)[0], count)
        draw = (pick * self.draws).long()
        classes = self.draw_probs if self.kind == "classification" else None
        shape = self.labels.shape if classes is not None else self.mean.shape
        size = math.prod(shape[1:])
        keys = noise.keys(seed, noise.Stream.TARGETS, step=2, draws=range(count), device=device)
        reach = int(self._positions.max()) + 1 if len(self) else 0
        own = _uniform(keys, reach * size).view(count, reach, size)[:, self._positions.to(device)]
        levels = own.view(count, *shape)
        if classes is not None:
            reached = classes.double().cumsum(-1)
            # Over their sum, which rounding may leave beside one: a class without a chance is never drawn.
            return (reached / reached[..., -1:])[draw].lt(levels.unsqueeze(-1)).sum(-1)
        likelihood = self._regression("sample")
        return likelihood.quantile(self.outputs.double()[draw], levels).to(self.mean.dtype)

    def score(self, name: str, level: float = 0.95) -> Tensor:
        """A score by name, one per target; `std` of classes is the label's, `width` is the interval's."""
        known = CLASSIFICATION_SCORES if self.kind == "classification" else REGRESSION_SCORES
        choose(f"{self.kind} score", name, known)
        if name == "width":
            lower, upper = self._interval(level)
            return (upper - lower).to(self._dtype)
        if name == "std" and self.kind == "classification":
            return self.std.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)
        value: Tensor = getattr(self, name)
        return value

    def certainty(self, name: str) -> Tensor:
        """A score turned so that more is surer: `confidence` as it is, every other one negated."""
        return self.score(name) if name == "confidence" else -self.score(name)

    def accept(
        self,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        by: str | None = None,
        level: float = 0.95,
    ) -> Tensor:
        """Which answers are certain enough, `[batch]` bool.

        `by` is `confidence` unless given, and the width of the interval of `level` for regression:
        `accept(at_least=0.9)`, `accept(at_most=0.2, by="entropy")`.
        """
        by = by or ("confidence" if self.kind == "classification" else "width")
        score = self.score(by, level)
        if (at_least is None) == (at_most is None):
            raise ValueError("accept needs one of at_least= and at_most=, got both or neither")
        if by == "confidence" and at_least is None:
            raise ValueError("confidence grows with certainty: use at_least=, not at_most=")
        if by != "confidence" and at_most is None:
            raise ValueError(f"{by} grows with uncertainty: use at_most=, not at_least=")
        if at_least is not None and not 0 <= at_least <= 1:
            raise ValueError(f"at_least is a confidence from 0 to 1, got {at_least!r}")
        return score >= at_least if at_least is not None else score <= float(at_most or 0.0)

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Answers and uncertainties as plain arrays by name; regression adds the 95% interval."""
        if self.kind == "classification":
            names = ("probs", "labels", *CLASSIFICATION_SCORES)
            tensors = {name: getattr(self, name) for name in names}
        else:
            tensors = {name: getattr(self, name) for name in ("mean", "std", "variance", "aleatoric", "epistemic")}
            tensors["lower"], tensors["upper"] = self.interval()
        return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}

    def __len__(self) -> int:
        return self.outputs.shape[1]

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor | NDArray[Any]) -> Predictive:
        """The same predictive for some of the inputs; a single number keeps a batch of one."""
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"input {index} of a predictive with {len(self)} inputs")
            index = slice(index % len(self), index % len(self) + 1)
        elif isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        part = Predictive(self.outputs[:, index], self.likelihood, self.keys, self.class_names)
        part._positions = self._positions[index.cpu() if isinstance(index, Tensor) else index]
        return part

    def __repr__(self) -> str:
        return f"Predictive({self.kind}, {self.draws} draws, {len(self)} inputs, {self.likelihood!r})"

    @cached_property
    def _mean_probs_and_entropy(self) -> tuple[Tensor, Tensor]:
        return averages.mean_probs_and_entropy(self._classification("probs"), self.outputs, self.keys)

    @property
    def _dtype(self) -> torch.dtype:
        """Of what is said about the inputs: that of the outputs, and not half of it."""
        return real(self.outputs[:0]).dtype

    def _means(self, name: str) -> Tensor:
        """Each draw's expected target, in double: targets far from zero leave no digits for what draws differ by."""
        return self._regression(name).mean(self.outputs.double())

    def _quantile(self, name: str, level: float) -> Tensor:
        likelihood = self._regression(name)
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        outputs = self.outputs.double()
        # The mixture's quantile lies among those of its draws; one count below the least of them falls short.
        each = likelihood.quantile(outputs, outputs.new_full((), level))
        low, high = each.amin(0) - (1.0 if likelihood.discrete else 0.0), each.amax(0)
        return bisect(lambda values: likelihood.cdf(outputs, values).mean(0), level, low, high, likelihood.discrete)

    def _interval(self, level: float) -> tuple[Tensor, Tensor]:
        self._regression("interval")
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        lower, upper = (self._quantile("interval", 0.5 + 0.5 * side * level) for side in (-1.0, 1.0))
        return lower, upper

    def _classification(self, name: str) -> Classification:
        if isinstance(self.likelihood, Classification):
            return self.likelihood
        raise AttributeError(f"{name} is for classification; this predictive is of {self.likelihood!r}")

    def _regression(self, name: str) -> Regression:
        if isinstance(self.likelihood, Regression):
            return self.likelihood
        raise AttributeError(f"{name} is for regression; this predictive is of {self.likelihood!r}")


def _uniform(keys: Tensor, size: int) -> Tensor:
    """Uniforms strictly inside (0, 1), float64 with 52 random bits, `[..., size]`: the tails of a normal need them."""
    words = noise.bits(keys, 2 * size).long().view(*keys.shape[:-1], size, 2)
    high, low = words[..., 0] & 0xFFFFFFFF, words[..., 1] & 0xFFFFF
    return ((high * 2**20 + low).double() + 0.5) * 2.0**-52
