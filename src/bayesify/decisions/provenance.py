"""Where a guarantee comes from: how many examples, of which data, for which weights and which way of predicting.

A guarantee holds for one fixed predictor. The number of draws and their seed are part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from math import isfinite
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import RunError, at_least, whole_number
from bayesify.evaluation import read_targets
from bayesify.likelihoods.censored import Censored
from bayesify.likelihoods.labels import Labels
from bayesify.methods import Method, saving
from bayesify.predictive import Predictive, Recalibrated
from bayesify.predictive.recalibration import Recalibration
from bayesify.training.data_identity import digest_of

POPULATION = "inputs drawn in the same way as the calibration examples"
# What of a configuration decides predictions.
_DECIDES = ("method", "settings", "network", "bayesian", "output", "parameters", "prior", "likelihood")


class TooFewExamplesError(ValueError):
    """The calibration examples do not support what is asked for; the message says how many would."""


@dataclass(frozen=True)
class Provenance:
    """What a guarantee was made from.

    Args:
        examples: number of calibration examples.
        data: digest of these examples.
        weights: digest of the method's tensors.
        config: digest of the description of the method.
        draws: posterior draws of each prediction.
        seed: of the draws.
        by: `draws`, `moments` or `mean`.
        population: the inputs that it is guaranteed for, in words.
        recalibration: digest of the recalibration, or `none`; empty where it is not known.

    """

    examples: int
    data: str
    weights: str
    config: str
    draws: int
    seed: int
    by: str
    population: str = POPULATION
    recalibration: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)

    def check(self, predictive: Predictive) -> None:
        """Refuse a prediction that was made in another way than the ones that the guarantee was made from.

        Args:
            predictive: predictions for any inputs.

        Raises:
            TypeError: it is no prediction.
            ValueError: the number of draws, their seed, `by` or the recalibration differs.

        """
        if not isinstance(predictive, Predictive):
            raise TypeError(f"give predictions, bnn.predict(x, ...), not inputs: got {type(predictive).__name__}")
        made = predictive.recalibration if isinstance(predictive, Recalibrated) else None
        if self.recalibration not in ("", recalibration_digest(made)):
            raise ValueError("the guarantee was made with another recalibration: calibrate again")
        if predictive.by != self.by:
            raise ValueError(
                f'the guarantee was made for predictions by="{self.by}", got by="{predictive.by}": predict with '
                f'by="{self.by}", draws={self.draws}, seed={self.seed}'
            )
        if predictive.draws != self.draws:
            raise ValueError(
                f"the guarantee was made for predictions of {self.draws} draws, got {predictive.draws}: predict with "
                f"draws={self.draws}, seed={self.seed}, or calibrate for this number"
            )
        if predictive.keys is not None:
            keys = noise.keys(self.seed, noise.Stream.LOGITS, draws=range(self.draws))
            if not torch.equal(keys, predictive.keys.cpu()):
                raise ValueError(f"the guarantee was made for predictions of seed {self.seed}, this one has another")


@dataclass(frozen=True)
class CalibrationData:
    """Held-out examples with their predictions, a part at a time."""

    method: Method
    x: Any
    y: Tensor
    draws: int
    seed: int
    by: str

    def predictives(self) -> Iterator[tuple[Predictive, Tensor]]:
        """Predictions for parts of the inputs, each with its targets; labels that are no class are refused."""
        done = 0
        for part in self.method.predict_in_parts(self.x, draws=self.draws, seed=self.seed, by=self.by):
            targets = self.y[done : done + len(part)].to(part.outputs.device)
            if part.kind == "classification" and int(targets.max()) >= part.probs.shape[-1]:
                raise ValueError(f"labels must be from 0 to {part.probs.shape[-1] - 1}, got {int(targets.max())}")
            yield part, targets
            done += len(part)

    def provenance(self, population: str | None = None) -> Provenance:
        """What a guarantee that is made from these examples says about its origin."""
        few = pytree.tree_map_only(Tensor, lambda leaf: leaf[:1], self.x)
        draws = self.method.predict(few, draws=self.draws, seed=self.seed, by=self.by).draws
        return Provenance(
            examples=len(self.y),
            data=data_digest(self.x, self.y),
            weights=saving.weights_digest(self.method),
            config=config_digest(self.method),
            draws=draws,
            seed=self.seed,
            by=self.by,
            population=population or POPULATION,
            recalibration=recalibration_digest(self.method.recalibration),
        )


def recalibration_digest(recalibration: Recalibration | None) -> str:
    """A digest of a recalibration; `none` without one."""
    if recalibration is None:
        return "none"
    return f"sha256:{hashlib.sha256(json.dumps(recalibration.to_dict(), sort_keys=True).encode()).hexdigest()}"


def check_method(method: Any) -> None:
    """Refuse what is no method; an estimator of scikit-learn's form holds one.

    Args:
        method: what was given as a fitted method.

    Raises:
        TypeError: it is none.

    """
    if not isinstance(method, Method):
        holds = isinstance(getattr(method, "method_", None), Method)
        hint = ": give its method_, and inputs that its scaler_ has transformed" if holds else ""
        raise TypeError(f"the first argument must be a fitted method, got {type(method).__name__}{hint}")


def read(method: Method, data: Any, draws: int, seed: int, by: str) -> CalibrationData:
    """Held-out data in any form that `fit` takes."""
    x, y = read_targets(method, data)
    if isinstance(method.likelihood, Labels):
        _check_labels(method.likelihood, y)
    if isinstance(method.likelihood, Censored):
        _check_observed(method.likelihood, y)
    return CalibrationData(method, x, y, draws, seed, by)


def _check_labels(likelihood: Labels, y: Tensor) -> None:
    """Refuse examples without a label, and probabilities in place of labels."""
    if y.is_floating_point():
        raise ValueError("calibration examples need labels, got class probabilities: give the true class of each")
    missing = int((y == likelihood.ignore_index).sum())
    if missing and (y.ndim == 1 or missing == y.numel()):
        found = f"{missing:,} of {y.numel():,} calibration examples have no label ({likelihood.ignore_index})"
        raise ValueError(f"{found}: leave them out")


def _check_observed(likelihood: Censored, y: Tensor) -> None:
    """Refuse targets of which only a limit is known: whether a prediction is right cannot be told from them."""
    if not likelihood.limited:
        raise ValueError("guarantees and recalibration need observed targets, not pairs of a number and a side")
    censored = int((likelihood.sides(y) != 0).sum())
    if censored:
        found = f"{censored:,} of {y.numel():,} calibration targets are censored"
        raise ValueError(f"{found}: leave them out (the guarantee is then about inputs whose target is observed)")


def data_digest(x: Any, y: Tensor) -> str:
    """A digest of inputs and targets: their names, types, shapes and bytes."""
    return f"sha256:{digest_of(x, y)}"


def config_digest(method: Method) -> str:
    """A digest of what describes a method: network, prior, likelihood, settings."""
    about = saving.describe(method)
    text = json.dumps({name: about[name] for name in _DECIDES}, sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def one_target(targets: Tensor, count: int) -> Tensor:
    """Targets `[n]` or `[n, 1]` as `[n]`; others are refused."""
    if targets.numel() != count or len(targets) != count:
        raise ValueError(f"targets must have one value per input, {count}, got {list(targets.shape)}")
    return targets.reshape(-1)


def provenance_from(plain: Any) -> Provenance:
    """The provenance that `to_dict` described.

    Raises:
        RunError: the description is not one of ours.

    """
    made = Provenance(**checked_fields(Provenance, plain))
    try:
        at_least("draws", made.draws, 1)
        whole_number("seed", made.seed)
    except ValueError as problem:
        raise RunError(f"a saved guarantee cannot be read: {problem}") from None
    return made


def checked_fields(kind: Any, plain: Any) -> dict[str, Any]:
    """The fields of a saved guarantee, each of its own type; other types come from damaged or hostile files.

    Args:
        kind: the dataclass that they are for.
        plain: what was read.

    Returns:
        The fields by name; lists are tuples.

    Raises:
        RunError: a field is missing, unknown or of another type.

    """
    known = {item.name: str(item.type) for item in fields(kind)}
    # Runs of earlier versions lack what was added since, which has a default.
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    if not isinstance(plain, dict) or not needed <= set(plain) <= set(known):
        raise RunError(f"a saved guarantee cannot be read: it must have {', '.join(known)}")
    for name, value in plain.items():
        wanted = known[name]
        several = wanted.startswith("tuple")
        if several and not isinstance(value, list | tuple):
            raise RunError(f"a saved guarantee cannot be read: {name} must be a list, got {str(value)[:40]!r}")
        types = next((types for word, types in _TYPES.items() if word in wanted), (dict,))
        for item in value if several else [value]:
            fits = isinstance(item, types) and (not isinstance(item, bool) or bool in types)
            if fits and isinstance(item, int):
                fits = -(1 << 63) <= item < 1 << 64
            if not (fits or (item is None and "None" in wanted)) or (isinstance(item, float) and not isfinite(item)):
                raise RunError(f"a saved guarantee cannot be read: {name} must be {wanted}, got {str(item)[:40]!r}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}


_TYPES: dict[str, tuple[type, ...]] = {"float": (int, float), "int": (int,), "bool": (bool,), "str": (str,)}


def share(name: str, value: float) -> float:
    """Return a number strictly between 0 and 1; otherwise raise an error."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)
