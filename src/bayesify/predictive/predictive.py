"""The predictive distribution: a prediction from posterior draws, and its uncertainty by source.

For classification, with `p_d` the class probabilities of draw `d`, `p` their mean and `H` the entropy in
nats, the total uncertainty splits as `H[p] = mean_d H[p_d] + I` (aleatoric + epistemic), `I` being the mutual
information between the target and the weights (S. Depeweg et al., Decomposition of uncertainty in Bayesian
deep learning, 2018). For regression the variance splits in the same way: the mean noise variance plus the variance of
the means.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import at_least, choose, counted
from bayesify.likelihoods import Classification, Likelihood, Regression, Several
from bayesify.likelihoods.classification import entropy
from bayesify.likelihoods.labels import Labels
from bayesify.likelihoods.log_normal import LogNormal
from bayesify.likelihoods.regression import bisect
from bayesify.likelihoods.shapes import real
from bayesify.predictive import averages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CLASSIFICATION_SCORES = ("confidence", "entropy", "aleatoric", "epistemic", "expected_error", "std")
REGRESSION_SCORES = ("width", "std", "variance", "aleatoric", "epistemic")


class Predictive:
    """The predictive distribution of a batch of inputs, from the outputs of posterior draws and a likelihood.

    For classification, with `p` the mean of the class probabilities `p_d` of the draws and `H` the entropy in nats,
    `H[p] = mean_d H[p_d] + I` (total = aleatoric + epistemic), where I is the mutual information of target and weights.
    For regression the total variance is the mean noise variance plus the variance of the means.

    Each property is computed when it is first used, then kept. The shapes below are for one number or label per input;
    targets with more dimensions (pixels, several numbers) have them after the batch.

    Args:
        outputs: outputs of the network, `[draws, batch, ...]`.
        likelihood: how outputs become distributions of targets.
        keys: noise keys of the draws, `[draws, 2]`, for a likelihood that samples (`GaussianLogits`).
        class_names: names of the classes.

    Attributes:
        by: how a method made it: from `draws`, by `moments` or at the `mean` of the weights.

    Raises:
        ValueError: outputs have no draws or fewer than two dimensions.

    Examples:
        Two draws disagree: the probabilities are equal, and the uncertainty is mostly epistemic.

        >>> outputs = torch.tensor([[[4.0, 0.0]], [[0.0, 4.0]]])
        >>> prediction = bf.Predictive(outputs, bf.likelihoods.Categorical())
        >>> prediction.probs, prediction.aleatoric, prediction.epistemic
        (tensor([[0.5000, 0.5000]]), tensor([0.0901]), tensor([0.6031]))

    Reference:
        S. Depeweg, J. M. Hernandez-Lobato, F. Doshi-Velez and S. Udluft, "Decomposition of uncertainty in Bayesian deep
        learning for efficient and risk-sensitive learning", 2018 (arXiv:1710.07283).

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
        # A copy: a learned noise that is trained further must not change this prediction.
        self.likelihood = copy.deepcopy(likelihood).requires_grad_(requires_grad=False).to(outputs.device)
        self.keys = keys
        self.by = "draws"
        self.class_names = None if class_names is None else tuple(map(str, class_names))
        self._positions = torch.arange(outputs.shape[1])  # of these inputs in the batch that was predicted

    @property
    def kind(self) -> str:
        """`"classification"`, `"regression"`, or `"several"` (targets by name, see `parts`)."""
        return self.likelihood.kind

    @property
    def draws(self) -> int:
        """Number of posterior draws."""
        return len(self.outputs)

    @cached_property
    def draw_probs(self) -> Tensor:
        """Class probabilities of each draw, `[draws, batch, classes]`."""
        return self._classification("draw_probs").probs(self.outputs, self.keys)

    @cached_property
    def probs(self) -> Tensor:
        """Class probabilities, `[batch, classes]`: the mean over the draws."""
        self._classification("probs")
        return self._mean_probs_and_entropy[0]

    @cached_property
    def labels(self) -> Tensor:
        """The most probable class, `[batch]` int64."""
        self._classification("labels")
        return self.probs.argmax(-1)

    @property
    def names(self) -> list[str]:
        """Names of the labels (their numbers as text, without `class_names`)."""
        names = self.class_names
        return [str(label) if names is None else names[label] for label in self.labels.flatten().tolist()]

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
        """One minus the share of the draws that predict the most common label, `[batch]`."""
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
        """Uncertainty that more data would not remove, `[batch]`: mean entropy, or noise variance, of the draws."""
        if isinstance(self.likelihood, Regression):
            noise = self.likelihood.noise_variance(self.outputs)
            # A sum over draws can miss the mean of equal numbers by its last bit: a constant noise would then differ
            # between inputs.
            return torch.where((noise == noise[0]).all(0), noise[0], noise.mean(0))
        return self._mean_probs_and_entropy[1]

    @cached_property
    def epistemic(self) -> Tensor:
        """Disagreement of the draws, `[batch]`: the mutual information, or the variance of their means."""
        if isinstance(self.likelihood, Regression):
            return self._means("epistemic").var(0, correction=0).to(self._dtype)
        if self.draws == 1:
            return torch.zeros_like(self.entropy)  # exactly zero, without rounding
        return (self.entropy - self.aleatoric).clamp(min=0.0)  # rounding can leave it just below zero

    @cached_property
    def std(self) -> Tensor:
        """Regression: the root of `variance`, `[batch]`. Classes: standard deviation of `p_d`, `[batch, classes]`."""
        if self.kind == "regression":
            return self.variance.sqrt()
        return averages.spread(self._classification("probs"), self.outputs, self.keys, self.probs)

    def log_prob(self, targets: Any) -> Tensor:
        """The log density of targets, `log mean_d p_d(y)` in nats.

        Args:
            targets: true labels or numbers, `[batch]`; log densities are summed over further dimensions in each draw.

        Returns:
            Log densities, `[batch]`.

        Raises:
            ValueError: the number of targets differs from that of the inputs, or a label is too large.

        """
        prepared = self.likelihood.prepare(targets).to(self.outputs.device)
        if len(prepared) != len(self):
            raise ValueError(f"targets must have one row per input, {len(self)}, got {len(prepared)}")
        if isinstance(self.likelihood, Labels) and self.outputs.ndim > 3:
            # Labels say which axis has the classes, where nobody has.
            self.likelihood.class_dim = self.likelihood.class_axis(self.outputs[0], prepared)
        if isinstance(self.likelihood, Classification):
            known, largest = self.probs.shape[-1], int(self.likelihood.compared(prepared).max())
            if largest >= known:
                raise ValueError(f"labels must be from 0 to {known - 1}, got {largest}")
        per_draw = self.likelihood.log_density(self.outputs, prepared, self.keys)
        return per_draw.logsumexp(0) - math.log(self.draws)

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of a target at most `values` (regression).

        Args:
            values: one number per target, shaped like `mean`.

        Returns:
            Probabilities, shaped like `mean`.

        """
        likelihood = self._regression("cdf")
        if values.shape != self.mean.shape:
            raise ValueError(f"values must be {list(self.mean.shape)} like mean, got {list(values.shape)}")
        return likelihood.cdf(self.outputs.double(), values.double()).mean(0).to(self._dtype)

    def quantile(self, level: float) -> Tensor:
        """The smallest value with `cdf >= level` (regression), by bisection on the cdf.

        Args:
            level: a probability between 0 and 1.

        Returns:
            Quantiles, `[batch]`.

        """
        return self._quantile("quantile", level).to(self._dtype)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """The central interval that contains the target with probability `level` (regression).

        Args:
            level: a probability between 0 and 1.

        Returns:
            Lower and upper ends, `[batch]` each.

        """
        lower, upper = self._interval(level)
        return lower.to(self._dtype), upper.to(self._dtype)

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Sample targets from the predictive distribution: a draw of the weights, then targets given the weights.

        All inputs of one sample share a draw of the weights, and their noise is independent: a sample is a simulated
        data set. A value depends on the seed, the number of its sample and the position of its input in the batch. It
        does not depend on the other inputs or on the number of samples.

        Args:
            count: number of samples, at least 1.
            seed: the seed of the random numbers.

        Returns:
            Targets, `[count, batch, ...]`.

        """
        count = at_least("count", count, 1)
        self._check_one_target("sample")
        device = self.outputs.device
        pick = uniforms_inside(noise.keys(seed, noise.Stream.TARGETS, step=1, device=device)[0], count)
        draw = (pick * self.draws).long()
        classes = self.draw_probs if self.kind == "classification" else None
        shape = self.labels.shape if classes is not None else self.mean.shape
        size = math.prod(shape[1:])
        keys = noise.keys(seed, noise.Stream.TARGETS, step=2, draws=range(count), device=device)
        reach = int(self._positions.max()) + 1 if len(self) else 0
        uniforms = uniforms_inside(keys, reach * size).view(count, reach, size)[:, self._positions.to(device)]
        levels = uniforms.view(count, *shape)
        if classes is not None:
            cumulative = classes.double().cumsum(-1)
            # Divided by the sum, which is 1 up to rounding: a class of probability zero is never sampled.
            return (cumulative / cumulative[..., -1:])[draw].lt(levels.unsqueeze(-1)).sum(-1)
        self._regression("sample")
        likelihood = cast("Regression", self.likelihood.of_draws(draw))
        return likelihood.quantile(self.outputs.double()[draw], levels).to(self.mean.dtype)

    def score(self, name: str, level: float = 0.95) -> Tensor:
        """An uncertainty score by name, one number per target.

        Args:
            name: for classification "confidence", "entropy", "aleatoric", "epistemic", "expected_error" or "std" (of
                the label's probability); for regression "width" (of the interval), "std", "variance", "aleatoric" or
                "epistemic".
            level: level of the interval, for "width".

        Returns:
            Scores, `[batch]`.

        Raises:
            ValueError: the name is unknown.

        """
        self._check_one_target(name)
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
        """A score with its sign such that higher is more certain: `confidence`, or minus any other score.

        Args:
            name: a score, as for `score`.

        Returns:
            Scores, `[batch]`.

        """
        return self.score(name) if name == "confidence" else -self.score(name)

    def accept(
        self,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        by: str | None = None,
        level: float = 0.95,
    ) -> Tensor:
        """Which predictions are certain enough.

        Args:
            at_least: lowest confidence to accept, from 0 to 1.
            at_most: highest uncertainty to accept, for every score but the confidence.
            by: the score, as for `score`; "confidence" for classification and "width" for regression by default.
            level: level of the interval, for "width".

        Returns:
            True where a prediction is accepted, `[batch]` bool.

        Raises:
            ValueError: not exactly one of `at_least` and `at_most` is given, or the wrong one for this score.

        Examples:
            >>> prediction = bnn.predict(x)
            >>> prediction.accept(at_least=0.9).shape, prediction.accept(at_most=0.2, by="entropy").shape
            (torch.Size([60]), torch.Size([60]))

        """
        by = by or ("confidence" if self.kind == "classification" else "width")
        score = self.score(by, level)
        if (at_least is None) == (at_most is None):
            raise ValueError("accept needs exactly one of at_least= and at_most=")
        if by == "confidence" and at_least is None:
            raise ValueError("confidence grows with certainty: use at_least=, not at_most=")
        if by != "confidence" and at_most is None:
            raise ValueError(f"{by} grows with uncertainty: use at_most=, not at_least=")
        if at_least is not None and not 0 <= at_least <= 1:
            raise ValueError(f"at_least must be a confidence from 0 to 1, got {at_least!r}")
        return score >= at_least if at_least is not None else score <= float(at_most or 0.0)

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Predictions and uncertainties as NumPy arrays by name; regression adds the 95% interval."""
        if self.kind == "several":
            return {f"{name}.{key}": a for name, part in self.parts.items() for key, a in part.numpy().items()}
        if self.kind == "classification":
            names = ("probs", "labels", *CLASSIFICATION_SCORES)
            tensors = {name: getattr(self, name) for name in names}
        else:
            tensors = {name: getattr(self, name) for name in ("mean", "std", "variance", "aleatoric", "epistemic")}
            tensors["lower"], tensors["upper"] = self.interval()
        return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}

    def with_outputs(self, outputs: Tensor) -> Predictive:
        """The same distribution of other outputs, for example of the same ones in double precision.

        Args:
            outputs: outputs of the network, `[draws, batch, ...]`.

        Returns:
            A predictive with the same likelihood and names.

        """
        changed = Predictive(outputs, self.likelihood, self.keys, self.class_names)
        changed.by = self.by
        return changed

    def to_pandas(self, index: Any = None) -> Any:
        """The predictions and their uncertainties as a pandas frame, one row for each input.

        Classes have `label`, `confidence`, `entropy`, `aleatoric`, `epistemic`, `expected_error`, and the probability
        of each class as `p_NAME`. Numbers have `mean`, `std`, the ends `lower` and `upper` of the 95% interval,
        `aleatoric` and `epistemic`; several targets have their number after the name, as in `mean_0`.

        Args:
            index: of the frame, such as that of the inputs' frame.

        Returns:
            The frame.

        Raises:
            ImportError: pandas is not installed.
            ValueError: each input has a grid of labels, which is no row of a table.

        Examples:
            >>> bnn.predict(x, draws=5).to_pandas().columns.tolist()[:4]
            ['label', 'confidence', 'entropy', 'aleatoric']

        """
        from bayesify.predictive.frames import frame_of

        return frame_of(self, index)

    def _repr_html_(self) -> str:
        from bayesify.predictive.frames import html_of

        return html_of(self)

    @cached_property
    def of_logs(self) -> Predictive | None:
        """The predictive distribution of log y, which is Gaussian in each draw; None unless y is log-normal."""
        if not isinstance(self.likelihood, LogNormal):
            return None
        logs = Predictive(self.outputs, self.likelihood.of_logs, self.keys)
        logs.by, logs._positions = self.by, self._positions
        return logs

    def __len__(self) -> int:
        return self.outputs.shape[1]

    @property
    def parts(self) -> dict[str, Predictive]:
        """The predictive distribution of each target by name, where there are several."""
        rule = self.likelihood
        if isinstance(rule, Several):
            outputs = rule.outputs_of(self.outputs)
            return {
                name: Predictive(outputs[name], part, rule.keys_of(name, self.keys))
                for name, part in rule.likelihoods.items()
            }
        raise AttributeError(f"parts are for several targets, but this prediction has the likelihood {rule!r}")

    def __getitem__(self, index: str | int | slice | Sequence[int] | Tensor | NDArray[Any]) -> Predictive:
        """The predictive distribution of some of the inputs, or of one of several targets by its name.

        A single number gives a batch of one.
        """
        if isinstance(index, str):
            return self.parts[choose("target", index, self.parts)]
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"index {index} is out of range for {counted(len(self), 'input')}")
            index = slice(index % len(self), index % len(self) + 1)
        elif isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        selected = Predictive(self.outputs[:, index], self.likelihood, self.keys, self.class_names)
        selected.by = self.by
        selected._positions = self._positions[index.cpu() if isinstance(index, Tensor) else index]
        return selected

    def __repr__(self) -> str:
        size = f"{counted(self.draws, 'draw')}, {counted(len(self), 'input')}"
        return f"Predictive({self.kind}, {size}, {self.likelihood!r})"

    @cached_property
    def _mean_probs_and_entropy(self) -> tuple[Tensor, Tensor]:
        return averages.mean_probs_and_entropy(self._classification("probs"), self.outputs, self.keys)

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of results: that of the outputs, but at least float32."""
        return real(self.outputs[:0]).dtype

    def _means(self, name: str) -> Tensor:
        """Expected target of each draw, in double: float32 loses small differences between large numbers."""
        return self._regression(name).mean(self.outputs.double())

    def _quantile(self, name: str, level: float) -> Tensor:
        """A quantile in double precision; `name` is what an error calls the caller."""
        likelihood = self._regression(name)
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        if self.of_logs is not None:
            # Draws may differ by orders of magnitude, which a search between them would not resolve.
            return self.of_logs._quantile(name, level).exp()  # noqa: SLF001 -- the same class
        outputs = self.outputs.double()
        # The quantile of a mixture lies between the smallest and the largest of its components; for counts the search
        # starts one below the smallest, where the cdf is still below the level.
        quantiles = likelihood.quantile(outputs, outputs.new_full((), level))
        low, high = quantiles.amin(0) - (1.0 if likelihood.discrete else 0.0), quantiles.amax(0)
        return bisect(lambda values: likelihood.cdf(outputs, values).mean(0), level, low, high, likelihood.discrete)

    def _interval(self, level: float) -> tuple[Tensor, Tensor]:
        self._regression("interval")
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        lower, upper = (self._quantile("interval", 0.5 + 0.5 * side * level) for side in (-1.0, 1.0))
        return lower, upper

    def _check_one_target(self, name: str) -> None:
        if self.kind == "several":
            first = next(iter(self.parts))
            raise AttributeError(f"{name} is for one target: pick one of several by its name, prediction[{first!r}]")

    def _classification(self, name: str) -> Classification:
        self._check_one_target(name)
        if isinstance(self.likelihood, Classification):
            return self.likelihood
        raise AttributeError(
            f"{name} is for classification, but this prediction has the likelihood {self.likelihood!r}"
        )

    def _regression(self, name: str) -> Regression:
        self._check_one_target(name)
        if isinstance(self.likelihood, Regression):
            return self.likelihood
        raise AttributeError(f"{name} is for regression, but this prediction has the likelihood {self.likelihood!r}")


def uniforms_inside(keys: Tensor, size: int) -> Tensor:
    """Uniforms strictly inside (0, 1), `[..., size]` float64: the tails of a normal need 52 random bits."""
    words = noise.bits(keys, 2 * size).long().view(*keys.shape[:-1], size, 2)
    high, low = words[..., 0] & 0xFFFFFFFF, words[..., 1] & 0xFFFFF
    return ((high * 2**20 + low).double() + 0.5) * 2.0**-52
