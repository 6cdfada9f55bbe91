"""The grid's winner again: on all training images with several seeds, and at rates beyond the edge of the grid.

The search tests one network, trained on five sixths of the images. Its best rate is the largest of the grid, so a
larger one may be better: rates on both sides of it are scored on validation images, and test images are used for the
winner of the search and for the best of these rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bayesify import networks
from bayesify.evaluation.seed_statistics import estimate, of_one_more, percent, written
from bayesify.fleets import Fleet
from bayesify.likelihoods import Categorical
from bayesify.methods import Variational
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.evidence import loss_per_example, losses
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import training
from bayesify_studies.experiments.study_d.knows_nothing import least_loss

NAME = "winner_again"
PAPER_ERROR = 0.0136


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """The winner with every seed, the rates on validation, the best rate with every seed, and the prior's floor."""
    return {
        "winner-refitted": (refitted, work),
        "winner-rates": (rates, work),
        "winner-floor": (floor, work),
        "winner-best-rate": (best_rate, work),
    }


def refitted(work: Work) -> dict[str, Any]:
    """The winner of the search, trained on all images with every seed, on the test images."""
    return _tested(work, work[NAME]["rate"])


def rates(work: Work) -> dict[str, Any]:
    """Rates around the grid's edge, trained and scored as the search does, with two seeds each."""
    asked, data = work[NAME], _images(work, everything=False)
    pairs = [(rate, seed) for rate in asked["rates"] for seed in asked["rate_seeds"]]
    methods, gone = _trained(work, data, [rate for rate, _ in pairs], [seed for _, seed in pairs])
    found: dict[str, Any] = {f"{rate:g}": {"errors": [], "nll": [], "diverged": 0} for rate in asked["rates"]}
    for number, ((rate, _), method) in enumerate(zip(pairs, methods, strict=True)):
        row = found[f"{rate:g}"]
        if number in gone:
            row["diverged"] += 1
            continue
        scored = _score(method, data.validation, asked["scoring_draws"])
        row["errors"].append(scored["error"])
        row["nll"].append(scored["nll"])
    return {"rates": found}


def best_rate(work: Work) -> dict[str, Any]:
    """The best of the rates, where it is not the winner's, trained on all images with every seed."""
    found = work.once("winner-rates", rates, work)["rates"]
    rate = chosen(found)
    return {"rate": rate} | ({} if math.isclose(rate, work[NAME]["rate"]) else _tested(work, rate))


def floor(work: Work) -> dict[str, Any]:
    """The loss of a network that knows nothing."""
    return least_loss(_images(work, everything=True), work[NAME]["prior"], work[NAME]["units"])


def chosen(found: Mapping[str, Any]) -> float:
    """The rate with the least mean validation error, of those at which nothing diverged."""
    good = {rate: row for rate, row in found.items() if row["errors"] and not row["diverged"]}
    return float(min(good, key=lambda rate: (sum(good[rate]["errors"]), sum(good[rate]["nll"]))))


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The winner over seeds, beside the paper's and the search's own network; validation errors by rate."""
    asked, again, tried = work[NAME], found["winner-refitted"], found["winner-rates"]["rates"]
    best, rows, kept = found["winner-best-rate"], [], {}
    for name, part in (("the search's winner", again), (f"rate {best['rate']:g}, best on validation", best)):
        if "seeds" not in part:
            continue
        errors, nll = (estimate([one[key] for one in part["seeds"]]) for key in ("error", "nll"))
        loss = losses([one["elbo"] for one in part["seeds"]])
        low, high = of_one_more(errors) if "interval" in errors else (math.nan, math.nan)
        inside = "inside" if low <= PAPER_ERROR <= high else "below" if low > PAPER_ERROR else "above"
        rows.append(
            [
                name,
                percent(errors),
                f"{inside} the 95% prediction interval, {100 * low:.2f} to {100 * high:.2f}%",
                written(nll, ".4f"),
                written(loss["loss"], ".3f"),
                f"{found['winner-floor']['loss']:.3f}",
            ]
        )
        kept[name] = {"error": errors, "nll": nll, "elbo": loss}
    test = (numbers.get("test") or {}).get("error")
    alone = "" if test is None else f" The search's network, trained on five sixths, errs on {test:.2%}."
    shown = [
        [
            f"{float(rate):g}" + (", the grid's largest" if math.isclose(float(rate), asked["rate"]) else ""),
            percent(estimate(row["errors"])) if row["errors"] else "",
            written(estimate(row["nll"]), ".4f") if row["nll"] else "",
            str(row["diverged"]),
        ]
        for rate, row in tried.items()
    ]
    edge = best["rate"] in (min(map(float, tried)), max(map(float, tried)))
    return Added(
        {
            "tested": kept,
            "best_rate": best["rate"],
            "at_the_edge": edge,
            "rates": tried,
            "knows_nothing": found["winner-floor"]["loss"],
        },
        tables=[
            Table(
                "The winner on all images, over seeds",
                [
                    "network",
                    "test error",
                    "the paper's 1.36%",
                    "test NLL",
                    "loss per example",
                    "loss of knowing nothing",
                ],
                rows,
                f"{len(again['seeds'])} seeds, {asked['epochs']} epochs, {asked['draws']} draws a step, all 60,000 "
                f"images.{alone} The loss is minus the ELBO per training example.",
            ),
            Table(
                "Learning rates beyond the grid's edge, on validation",
                ["rate (mean loss)", "validation error", "validation NLL", "diverged"],
                shown,
                f"The winner's prior and draws, {len(asked['rate_seeds'])} seeds a rate, trained as in the search. "
                f"Best: {best['rate']:g}" + (", at the edge of these rates too." if edge else ", not at an edge."),
            ),
        ],
    )


def _tested(work: Work, rate: float) -> dict[str, Any]:
    data, seeds = _images(work, everything=True), work[NAME]["seeds"]
    methods, gone = _trained(work, data, [rate] * len(seeds), seeds)
    return {
        "rate": rate,
        "diverged": len(gone),
        "seeds": [
            _score(method, data.test, work[NAME]["test_draws"]) | {"elbo": loss_per_example(method, *data.train)}
            for number, method in enumerate(methods)
            if number not in gone
        ],
    }


def _trained(
    work: Work, data: training.Images, learning_rates: Sequence[float], seeds: Sequence[int]
) -> tuple[list[Variational], set[int]]:
    """Networks as the search makes them (`workflows/sweep`), and which of them diverged."""
    asked, inputs = work[NAME], data.train[0].shape[1]
    classes = int(data.train[1].max()) + 1
    methods = [
        Variational(
            networks.mlp(inputs, classes, units=asked["units"], layers=2),
            Categorical(classes=classes),
            prior=asked["prior"],
            start="uniform:-0.03,0.03",
            rho="uniform:-3.5,-3",
            seed=seed,
        )
        for seed in seeds
    ]
    fleet = Fleet(methods)
    fleet.fit(
        data.train,
        learning_rates=learning_rates,
        epochs=asked["epochs"],
        batch_size=128,
        optimizer="sgd",
        draws=asked["draws"],
        precision="bfloat16" if work.device.startswith("cuda") else "float32",
        device=work.device,
        may_diverge=True,
        progress=work.progress,
    )
    return methods, set(fleet.diverged)


@torch.no_grad()
def _score(method: Variational, pair: tuple[torch.Tensor, torch.Tensor], draws: int) -> dict[str, float]:
    x, y = (part.to(method.mu.device) for part in pair)
    answer = method.predict(x, draws=draws)
    return {
        "error": float((answer.probs.argmax(-1) != y).double().mean()),
        "nll": -float(answer.log_prob(y).double().mean()),
    }


def _images(work: Work, *, everything: bool) -> training.Images:
    asked = work[NAME]
    return training.images(
        Work(work.folder, {"data": asked["data"], "examples": asked["examples"]}), everything=everything
    )


ADDITION = Addition(NAME, parts, tell)
