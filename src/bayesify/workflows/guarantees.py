"""Guarantees for a run: which examples they are made from, what is written, and how they are scored.

Examples that a guarantee or a recalibration was made from cannot score it. Their digests are saved with the run, and
every later step leaves them out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify import noise, runs
from bayesify.decisions import Certificate, Conformal, Refusal, conformal_of
from bayesify.decisions.martingale import Reference, certainty_of, input_scores
from bayesify.decisions.refusal import promised, refusal_of
from bayesify.errors import RunError, first_line
from bayesify.files import check_regular, delete, reason, write_json
from bayesify.methods import Method, saving
from bayesify.predictive import Predictive
from bayesify.runs import guarantees
from bayesify.workflows.run_data import Examples, training_examples

FORMAT, VERSION = "bayesify-certificate", 1


@dataclass(frozen=True)
class Part:
    """Some of the examples, with the words that name them."""

    x: Tensor
    y: Tensor
    what: str


def choose_part(method: Method, examples: Examples, share: float | None, seed: int) -> Part:
    """The examples that the next step may use.

    Args:
        method: the method of the run, which knows what was used before.
        examples: the run's test part, or other data.
        share: part of the unused examples to take, at random; None is half of the run's test part, so that the rest
            can score the guarantee, and all of other data.
        seed: of the choice.

    Returns:
        The chosen examples.

    Raises:
        ValueError: the share is out of range, or nothing is left.

    """
    share = (0.5 if examples.training is not None else 1.0) if share is None else share
    if not 0 < share <= 1:
        raise ValueError(f"--share must be above 0 and at most 1, got {share:g}")
    unused = unused_examples(method, examples)
    if len(unused.y) == 0:
        of = examples.what.removeprefix("all of ")
        raise ValueError(f"every example of {of} was used for an earlier step: give other examples, --data")
    count = max(1, round(share * len(unused.y)))
    order = noise.permutation(noise.keys(seed, noise.Stream.SHUFFLE, network=1, step=1)[0], len(unused.y))
    rows = order[:count].sort().values
    what = examples.what if len(unused.y) == len(examples.y) else f"the unused examples of {examples.what}"
    what = what if share == 1 else f"{share:.0%} of {what}"
    return Part(unused.x[rows], unused.y[rows], what)


def unused_examples(method: Method, examples: Examples) -> Examples:
    """The examples that neither a guarantee nor a recalibration was made from."""
    return without(examples, set((method.guarantees.get("used") or {}).get("rows", ())))


def trained_on(run: Path, examples: Examples, part: Part) -> int:
    """How many of some examples the run was trained on; 0 where this cannot be told.

    Equal rows are common in some tables. Equal examples count only where they are clearly more than the rows that
    the training data itself has more than once.

    Args:
        run: the folder.
        examples: what the part was chosen from; those of the run's own test part were not trained on.
        part: the examples for the next step.

    Returns:
        The number of examples that are equal to a training example.

    """
    training = None if examples.training is not None else training_examples(runs.read_config(run), run)
    if training is None:
        return 0
    counts = Counter(row_digests(*training))
    again = sum(count for count in counts.values() if count > 1) / counts.total()
    found = sum(digest in counts for digest in row_digests(part.x, part.y))
    return found if found > (2 * again + 0.01) * len(part.y) else 0


def used_rows(*folders: Path) -> set[str]:
    """Digests of the examples that any of some runs was recalibrated or certified on."""
    saved = [guarantees.read(folder) for folder in folders]
    return {row for found in saved if found is not None for row in (found[0].get("used") or {}).get("rows", ())}


def without(examples: Examples, used: set[str]) -> Examples:
    """The examples that are not among the used ones."""
    if not used:
        return examples
    rows = torch.tensor([digest not in used for digest in row_digests(examples.x, examples.y)])
    return replace(examples, x=examples.x[rows], y=examples.y[rows])


def mark_used(method: Method, part: Part) -> None:
    """Remember that examples were used."""
    before = method.guarantees.get("used") or {"rows": [], "what": []}
    rows = dict.fromkeys([*before["rows"], *row_digests(part.x, part.y)])
    method.guarantees["used"] = {"rows": list(rows), "what": [*before["what"], part.what]}


def row_digests(x: Tensor, y: Tensor) -> list[str]:
    """A short digest of each example."""
    inputs, targets = (tensor.detach().cpu().contiguous().numpy() for tensor in (x, y))
    return [
        hashlib.blake2b(row.tobytes() + target.tobytes(), digest_size=8).hexdigest()
        for row, target in zip(inputs, targets, strict=True)
    ]


def watch_inputs(method: Method, part: Part, draws: int, seed: int) -> None:
    """Save what the inputs of the calibration look like, for the server to compare new ones with."""
    certainties = [certainty_of(found) for found in method.predict_in_parts(part.x, draws=draws, seed=seed)]
    scores = input_scores(np.concatenate(certainties), part.x)
    weights = saving.weights_digest(method)
    method.guarantees["reference"] = {"weights": weights, "scores": Reference.of(scores).to_dict()}


def write(method: Method, run: Path) -> dict[str, Any]:
    """Write the guarantees of a run, and the certificate that names them for people.

    Args:
        method: the method of the run.
        run: its folder.

    Returns:
        The content of `certificate.json`.

    """
    saving.save_guarantees(method, run)
    certificates = all_certificates(method)
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": method.name,
        "recalibration": None if method.recalibration is None else method.recalibration.name,
        "calibration_data": (method.guarantees.get("used") or {}).get("what", []),
        "promises": [certificate.to_dict() for certificate in certificates],
        "limits": LIMITS,
    }
    if certificates:
        write_json(run / runs.CERTIFICATE, content)
    else:
        delete(run / runs.CERTIFICATE)
    return content


LIMITS = (
    "They hold for inputs drawn like the calibration examples, for these weights, and for predictions with the "
    "same draws and seed. The server watches the inputs without labels: it sees a change of the inputs, not a change "
    "of what the labels mean. A refusal also needs that a stricter threshold does not have a higher error."
)


def read_certificate(run: Path) -> dict[str, Any] | None:
    """The certificate of a run; None where it has none."""
    path = run / runs.CERTIFICATE
    try:
        check_regular(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise RunError(f"{path} cannot be read: {reason(problem)}") from None
    except (ValueError, RecursionError) as problem:
        raise RunError(f"{path} is damaged: {first_line(problem)}") from None
    if (
        not isinstance(content, dict)
        or content.get("format") != FORMAT
        or not isinstance(content.get("promises"), list)
    ):
        raise RunError(f"{path} was not written by bayesify")
    return content


def score_promises(
    method: Method, examples: Examples, settings: dict[str, Any], max_error: float | None
) -> dict[str, Any]:
    """How the guarantees of a run do on examples that they were not made from.

    Args:
        method: the method of the run.
        examples: unused examples.
        settings: draws, seed and `by` of the predictions.
        max_error: the guaranteed error to score; None scores the latest guarantee where these predictions are its own.

    Returns:
        The scores of `refusal` and `conformal`, where the run has them.

    """
    refusal = refusal_of(method, max_error) if max_error is not None or promised(method) else None
    sets = conformal_of(method)
    origin = refusal.provenance if refusal is not None else None if sets is None else sets.provenance
    if origin is None:
        return {}
    used = min(settings["draws"], method.held or settings["draws"])
    if max_error is None and (origin.draws, origin.seed, origin.by) != (used, settings["seed"], settings["by"]):
        return {}  # other predictions than those that were guaranteed
    predictive = method.predict(examples.x, **settings)
    scored = {} if refusal is None else {"refusal": score_refusal(refusal, predictive, examples.y)}
    if sets is not None and (sets.provenance.draws, sets.provenance.seed) == (origin.draws, origin.seed):
        scored["conformal"] = score_conformal(sets, predictive, examples.y)
    return scored


def score_refusal(refusal: Refusal, predictive: Predictive, targets: Tensor) -> dict[str, Any]:
    """How a guaranteed error does on examples that it was not made from.

    Args:
        refusal: the guarantee.
        predictive: predictions for n inputs.
        targets: their true labels or numbers.

    """
    accepted = refusal.accept(predictive)
    wrong = refusal.wrong(predictive, targets.to(accepted.device))[accepted]
    count = int(accepted.sum())
    return {
        "max_error": refusal.max_error,
        "confidence": refusal.confidence,
        "by": refusal.by,
        "threshold": refusal.threshold,
        "accepted": count,
        "coverage": count / max(1, len(accepted)),
        "wrong": int(wrong.sum()),
        "error": float(wrong.double().mean()) if count else None,
    }


def score_conformal(promise: Conformal, predictive: Predictive, targets: Tensor) -> dict[str, Any]:
    """How conformal sets or intervals do on examples that they were not made from."""
    about: dict[str, Any] = {"kind": promise.kind, "alpha": promise.alpha, "promised": promise.coverage}
    if predictive.kind == "classification":
        sets = promise.sets(predictive).cpu()
        inside = sets[torch.arange(len(sets)), targets.cpu().reshape(-1)]
        return about | {"coverage": float(inside.double().mean()), "mean_size": float(sets.sum(1).double().mean())}
    lower, upper = (end.cpu() for end in promise.interval(predictive))
    y = targets.cpu().reshape(lower.shape).to(lower)
    inside = (lower <= y) & (y <= upper)
    return about | {"coverage": float(inside.double().mean()), "mean_width": float((upper - lower).double().mean())}


def all_certificates(method: Method) -> list[Certificate]:
    """The certificates of every guarantee that a method has."""
    sets = conformal_of(method)
    return [promise.certificate for promise in (*promised(method), *(() if sets is None else (sets,)))]
