"""One method with one setting and one seed: a transformer trained on CLINC's sentences, and its scores.

Every method that is trained has four settings to choose from. Ensembles and the Laplace approximation take those of
the plain network; the latter also finds the precision of its prior by the marginal likelihood.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify import metrics
from bayesify.decisions.unknown import score_of
from bayesify.errors import BayesifyWarning
from bayesify.functional.initialisation import make
from bayesify_studies.experiments.lora.network import Transformer
from bayesify_studies.experiments.lora.texts import LENGTH
from bayesify_studies.experiments.text.sentences import BagOfWords, Sentences, sentences

METHODS = {
    "plain": "plain network",
    "ensemble": "ensemble of five",
    "mc-dropout": "MC dropout",
    "variational": "mean-field VI, ELBO (temperature 1)",
    "tempered": "mean-field VI, tempered",
    "ivon": "IVON",
    "swag": "SWAG",
    "laplace": "Laplace, last layer",
    "bag-of-words": "bag of words, logistic regression",
}
# Methods whose settings are those of the plain network.
AS_PLAIN = ("ensemble", "laplace")
CHOSEN = tuple(method for method in METHODS if method not in AS_PLAIN)
MEMBERS = 5
Setting = Mapping[str, float]


def settings_of(method: str) -> list[dict[str, float]]:
    """The four settings of a method: learning rates, and what else shapes its answer."""
    other, values, rates = {
        "mc-dropout": ("p", (0.1, 0.3), (1e-3, 3e-3)),
        "variational": ("scale", (0.1, 0.3), (3e-3, 1e-2)),
        "tempered": ("temperature", (0.1, 0.01), (3e-3, 1e-2)),
        "ivon": ("scale", (0.1, 0.3), (0.1, 0.3)),
        "bag-of-words": ("scale", (0.3, 1.0), (1e-2, 3e-2)),
    }.get(method, ("scale", (0.3, 1.0), (1e-3, 3e-3)))
    return [{"rate": rate, other: value} for rate in rates for value in values]


def scored(
    method: str, seed: int, setting: Setting, settings: Mapping[str, Any], device: str, part: str
) -> dict[str, Any]:
    """Train and score: on validation sentences, or on those of the test and the unknown ones. What failed says why."""
    torch.set_float32_matmul_precision("high")
    data, began = sentences(settings["intents"]), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BayesifyWarning)
            fitted = fit(method, seed, setting, settings, data, device)
            if part == "validation":
                x, y = data.validation
                found = _known(fitted.predict(x.to(device), draws=settings["draws"]), y)
            else:
                found = _tested(fitted, data, settings["draws"], device)
            if part == "test" and method == "plain":
                found["laplace"] = _tested(_laplace(fitted, setting, data, device), data, settings["draws"], device)
            return found | {"work_seconds": time.perf_counter() - began}
    except Exception as problem:  # noqa: BLE001 -- the other parts go on
        traceback.print_exc()
        return {"failed": f"{type(problem).__name__}: {problem}"[:300]}


def fit(
    method: str, seed: int, setting: Setting, settings: Mapping[str, Any], data: Sentences, device: str
) -> bf.Method:
    """The method, fitted to the training sentences."""

    def network() -> nn.Module:
        if method == "bag-of-words":
            return BagOfWords(data.words, data.intents)
        return Transformer(data.words, data.intents, LENGTH, settings["width"], settings["blocks"])

    prior, own = f"normal:{setting.get('scale', 0.3):g}", make(network, seed)
    made: bf.Method
    more: dict[str, Any] = {"schedule": "cosine,warm-up=0.05"}
    if method in ("plain", "bag-of-words"):
        made = bf.PointEstimate(own, "categorical", prior=prior, seed=seed)
    elif method == "ensemble":
        made = bf.Ensemble(network, "categorical", members=MEMBERS, prior=prior, seed=seed)
    elif method == "mc-dropout":
        made = bf.MCDropout(own, "categorical", p=setting["p"], prior=prior, seed=seed)
    elif method in ("variational", "tempered"):
        made = bf.Variational(own, "categorical", prior=prior, seed=seed)
        more["kl"] = f"uniform,temperature={setting.get('temperature', 1.0):g}"
    elif method == "ivon":
        made = bf.IVON(own, "categorical", prior=prior, seed=seed)
    else:
        made = bf.SWAG(own, "categorical", prior=prior, seed=seed)
        more["schedule"] = "constant,warm-up=0.05"
    made.fit(
        data.train,
        epochs=settings["epochs"],
        batch_size=settings["batch"],
        learning_rate=setting["rate"],
        seed=seed,
        device=device,
        compiled=False,
        progress=False,
        **more,
    )
    return made


def _laplace(plain: Any, setting: Setting, data: Sentences, device: str) -> Any:
    network, prior = plain.network.module(plain.mean_weights).cpu(), f"normal:{setting['scale']:g}"
    laplace = bf.LaplaceApproximation(
        network, "categorical", prior=prior, subset="last_layer", prior_precision="marginal_likelihood"
    )
    return laplace.approximate(data.train, device=device)


def _tested(fitted: Any, data: Sentences, draws: int, device: str) -> dict[str, Any]:
    known = fitted.predict(data.test[0].to(device), draws=draws)
    unknown = fitted.predict(data.unknown.to(device), draws=draws)
    found: dict[str, Any] = _known(known, data.test[1])
    for by in ("entropy", *(("mutual_information",) if known.draws > 1 else ())):
        first, second = score_of(known, by).double().cpu(), score_of(unknown, by).double().cpu()
        found[f"auroc_{by}"] = metrics.auroc(first, second)
    return found


def _known(predicted: Any, intents: Tensor) -> dict[str, Any]:
    probs = predicted.probs.double().cpu()
    return {
        "accuracy": metrics.accuracy(probs, intents),
        "nll": metrics.nll(probs, intents),
        "ece": metrics.expected_calibration_error(probs, intents),
    }
