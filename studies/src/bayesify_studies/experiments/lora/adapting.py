"""Networks that learnt the intents of one half, adapted to those of the other in several ways.

plain       adapters and head at their most probable values
ensemble    five of these, each with other adapters to start from
laplace     a Gaussian around the plain network's adapters, its width from their curvature
last_layer  the same for the head alone
exact       a variational posterior over the adapters, fitted by the ELBO as it is (temperature 1)
with_head   the same over the adapters and the head
tempered    over the adapters, with less weight on the KL, chosen on validation: no longer the ELBO
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bayesify import metrics
from bayesify.functional.initialisation import make
from bayesify.methods import Ensemble, LaplaceApproximation, Method, PointEstimate, Variational
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.lora import texts
from bayesify_studies.experiments.lora.network import Transformer, adapted

WAYS = {
    "plain": "LoRA",
    "ensemble": "ensemble of five LoRAs",
    "laplace": "Laplace on the adapters",
    "last_layer": "Laplace on the last layer",
    "exact": "Bayesian LoRA, ELBO (temperature 1)",
    "with_head": "Bayesian LoRA and head, ELBO (temperature 1)",
    "tempered": "Bayesian LoRA, tempered",
}
# Ways whose settings are those of another one.
SETTINGS_OF = {"ensemble": "plain", "laplace": "plain", "last_layer": "plain"}
SCORES = ("accuracy", "nll", "ece")
MEMBERS = 5
_BATCH = 64

# Scale of the prior, learning rate, temperature.
Setting = tuple[float, float, float]


def learn_base(work: Work, seed: int) -> dict[str, Any]:
    """Train the transformer on the first half and keep it; its accuracy on that half's test texts."""
    old = texts.half(False, work["domains"], work["intents"])
    method = PointEstimate(lambda: _transformer(work, old), "categorical", seed=seed)
    _fit(method, work, old.train, work["base_epochs"], 1e-3, seed)
    network = method.network.module(method.mean_weights)
    file = _file(work, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}, file)
    return {"accuracy": _scores(method, work, old.test)["accuracy"], "texts": len(old.train[1])}


def adapt(work: Work, way: str, seed: int, setting: Setting, *, choosing: bool = False) -> dict[str, Any]:
    """Adapt the network of a seed in one way; scores on test texts, or on validation texts to choose by."""
    new = texts.half(True, work["domains"], work["intents"])
    few = texts.few_of_each(new.train, work["count"], seed)
    method = adapted_method(work, way, seed, setting, few, new.intents)
    scores = _scores(method, work, new.validation if choosing else new.test)
    return scores | {"way": way, "setting": list(setting), "random_weights": method.network.random_size}


def adapted_method(work: Work, way: str, seed: int, setting: Setting, few: texts.Pair, intents: int) -> Method:
    """The method of a way, fitted to a few texts of each intent."""
    scale, rate, temperature = setting
    base = _transformer(work, texts.half(False, work["domains"], work["intents"]))
    base.load_state_dict(load_file(_file(work, seed)))

    def network() -> Transformer:
        return adapted(base, intents)

    given, prior = make(network, seed), f"normal:{scale}"
    if way in {"exact", "with_head", "tempered"}:
        random = ["lora", "head"] if way == "with_head" else "lora"
        ours = Variational(given, "categorical", prior=prior, bayesian=random, seed=seed)
        _fit(ours, work, few, work["variational_epochs"], rate, seed, kl=f"uniform,temperature={temperature:g}")
        return ours
    if way == "ensemble":
        several = Ensemble(network, "categorical", members=MEMBERS, prior=prior, start="fresh", seed=seed)
        _fit(several, work, few, work["epochs"], rate, seed)
        return several
    plain = PointEstimate(given, "categorical", prior=prior, seed=seed)
    _fit(plain, work, few, work["epochs"], rate, seed)
    if way == "plain":
        return plain
    best = plain.network.module(plain.mean_weights).cpu()
    chosen: dict[str, Any] = {"subset": "last_layer"} if way == "last_layer" else {"bayesian": "lora"}
    laplace = LaplaceApproximation(
        best, "categorical", prior=prior, prior_precision="marginal_likelihood", seed=seed, **chosen
    )
    return laplace.approximate(few, device=work.device)


def _fit(method: Any, work: Work, data: texts.Pair, epochs: int, rate: float, seed: int, **settings: Any) -> None:
    method.fit(
        data,
        epochs=epochs,
        batch_size=_BATCH,
        learning_rate=rate,
        schedule="cosine,warm-up=0.05",
        seed=seed,
        device=work.device,
        compiled=False,
        progress=False,
        **settings,
    )


@torch.no_grad()
def _scores(method: Method, work: Work, pair: texts.Pair) -> dict[str, float]:
    x, y = pair
    probs = method.predict(x.to(work.device), draws=work["draws"]).probs.double().cpu()
    return {
        "accuracy": metrics.accuracy(probs, y),
        "nll": metrics.nll(probs, y),
        "ece": metrics.expected_calibration_error(probs, y),
    }


def _transformer(work: Work, half: texts.Half) -> Transformer:
    return Transformer(half.words, half.intents, texts.LENGTH, work["width"], work["blocks"])


def _file(work: Work, seed: int) -> Path:
    return work.folder / "runs" / f"base-{seed}.safetensors"
