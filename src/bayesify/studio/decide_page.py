"""The Decide page: predictions and their scores for each test example, to try thresholds on."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response

from bayesify import noise
from bayesify.decisions.refusal import calibrate, promised
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.studio.models import API, DrawCount, ModelStore, Seed, folder_of, sheet, title_of
from bayesify.workflows import guarantees, run_data

SCORES = ("confidence", "entropy", "epistemic")
COLUMNS = 40


def router(store: ModelStore) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API)
    predictions = lru_cache(32)(partial(_predictions, store))

    @routes.get("/decide")
    def decide(model: str, draws: DrawCount = 50, seed: Seed = 0) -> Any:
        return predictions(model, draws, seed)

    @routes.get("/decide/promise")
    def promise(
        model: str,
        max_error: Annotated[float, Query(gt=0, lt=1)] = 0.01,
        confidence: Annotated[float, Query(gt=0, lt=1)] = 0.95,
        by: str = "confidence",
        draws: DrawCount = 50,
        seed: Seed = 0,
    ) -> dict[str, Any]:
        return tried_promise(store, model, max_error, confidence, by, draws, seed)

    @routes.get("/decide/images")
    def images(model: str, *, unknown: bool = False) -> Response:
        examples = store.examples(model)
        levels = examples.unknown_images if unknown else examples.images
        if levels is None:
            raise HTTPException(404, f"{model} was not trained on images")
        headers = {"Cache-Control": "max-age=3600"}
        return Response(sheet(levels, COLUMNS), media_type="image/png", headers=headers)

    return routes


def _predictions(store: ModelStore, name: str, draws: int, seed: int) -> dict[str, Any]:
    model = store.get(name)
    if model.method.likelihood.kind != "classification":
        raise HTTPException(422, f"{name} predicts numbers: this page is for classes")
    examples = store.examples(name)
    predictive = store.predict(name, examples.x, draws, seed)
    truth = examples.y.to(predictive.labels.device)
    picture = None if examples.images is None else list(examples.images.shape[-2:])
    unknown = None
    if examples.unknown is not None and len(examples.unknown):
        unknown = {"what": examples.unknown_what, **_table(store.predict(name, examples.unknown, draws, seed))}
        unknown["known"] = store.known(name, examples.unknown)
    return {
        "model": name,
        "method": model.method.name,
        "title": title_of(model.method),
        "what": examples.what,
        "shown": len(examples.x),
        "total": examples.total,
        "draws": predictive.draws,
        "seed": seed,
        "classes": list(predictive.class_names or map(str, range(predictive.probs.shape[-1]))),
        "truth": truth.tolist(),
        **_table(predictive),
        "known": store.known(name, examples.x),
        "picture": None if picture is None else {"height": picture[0], "width": picture[1], "columns": COLUMNS},
        "unknown": unknown,
        "promises": _promises(model.method, predictive.draws, seed),
    }


def tried_promise(
    store: ModelStore, name: str, max_error: float, confidence: float, by: str, draws: int, seed: int
) -> dict[str, Any]:
    """A threshold that keeps an error, from half of the test examples, and what it does on the other half.

    Nothing is saved: `bayesify certify` makes a guarantee for the run. Examples that were used for one are left out.

    Args:
        store: the loaded runs.
        name: of the run.
        max_error: the largest share of wrong predictions among the accepted ones.
        confidence: how sure that is.
        by: the score of the threshold.
        draws: posterior draws.
        seed: of the draws.

    Returns:
        The threshold, the coverage and the bound on the first half; coverage and error on the second.

    """
    if by not in SCORES:
        raise HTTPException(422, f"by must be one of {', '.join(SCORES)}, got {by[:40]!r}")
    model = store.get(name)
    if model.method.likelihood.kind != "classification":
        raise HTTPException(422, f"{name} predicts numbers: this page is for classes")
    shown = store.examples(name)
    used = set((model.method.guarantees.get("used") or {}).get("rows", ()))
    free = guarantees.without(run_data.Examples(shown.x, shown.y, shown.what), used)
    order = noise.permutation(noise.keys(seed, noise.Stream.SHUFFLE, network=1, step=1)[0], len(free.y))
    half = len(order) // 2
    first, second = ((free.x[rows], free.y[rows]) for rows in (order[:half], order[half:]))
    method, lock = store.copy_of(name)
    with lock:
        kept = dict(method.guarantees)
        try:
            refusal = calibrate(method, first, max_error, confidence, by=by, draws=draws, seed=seed)
            predictive = method.predict(second[0], draws=draws, seed=seed)
        except ValueError as problem:
            raise HTTPException(422, str(problem)) from None
        finally:
            method.guarantees = kept
    accepted = refusal.accept(predictive)
    wrong = int((refusal.wrong(predictive, second[1]) & accepted).sum())
    return {
        "threshold": refusal.threshold,
        "coverage": refusal.coverage,
        "bound": refusal.bound,
        "examples": half,
        "others": len(second[1]),
        "accepted": int(accepted.sum()),
        "wrong": wrong,
    }


def _promises(method: Method, draws: int, seed: int) -> list[dict[str, Any]]:
    """The guaranteed errors of a run, each with its threshold, and whether it holds for these draws."""
    return [
        {
            "max_error": refusal.max_error,
            "confidence": refusal.confidence,
            "by": refusal.by,
            "threshold": refusal.threshold,
            "coverage": refusal.coverage,
            "examples": refusal.provenance.examples,
            "draws": refusal.provenance.draws,
            "seed": refusal.provenance.seed,
            "holds": (refusal.provenance.draws, refusal.provenance.seed) == (draws, seed),
        }
        for refusal in promised(method)
        if refusal.by in SCORES
    ]


def _table(predictive: Predictive) -> dict[str, Any]:
    scores = {name: [round(v, 7) for v in predictive.score(name).double().cpu().tolist()] for name in SCORES}
    return {"labels": predictive.labels.cpu().tolist(), "scores": scores}


def python(store: ModelStore, name: str, by: str, threshold: float, draws: int, seed: int) -> str:
    """The numbers of the page in Python."""
    rule = f"at_least={threshold:g}" if by == "confidence" else f'at_most={threshold:g}, by="{by}"'
    folder = folder_of(store.get(name))
    examples = store.examples(name)
    part = examples.part
    # A run with a check for unknown inputs refuses what is unlike its training data.
    checked = "" if store.get(name).check is None else " & bf.UnknownInputs.load(run, bnn).accept(x)"
    return f"""from pathlib import Path

import bayesify as bf
from bayesify.runs import read_config
from bayesify.workflows.run_data import examples_of

run = Path({folder!r})
bnn = bf.load(run)
test = examples_of(read_config(run), run)
x, y = test.x{part}, test.y{part}
p = bnn.predict(x, draws={draws}, seed={seed})
accepted = p.accept({rule}){checked}
wrong = p.labels != y
print("coverage", float(accepted.double().mean()))
print("error of what is accepted", float(wrong[accepted].double().mean()))
curve = bf.risk_coverage(p, y, by="{by}")
bf.plots.risk_coverage({{bnn.name: curve}}).figure.savefig("risk-coverage.png")
"""
