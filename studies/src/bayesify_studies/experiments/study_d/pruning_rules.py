"""Both pruning rules at every share from a half on, three priors with the whole KL, and why magnitude can be better.

The first two are read from the errors that the page has. The last trains the one network in which magnitude beats
signal-to-noise again, and looks at what the two rules do in each layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bayesify.evaluation.pruning import prunable_weights, scores
from bayesify.evaluation.seed_statistics import estimate, paired, percent, settled_by_holm, signed, written
from bayesify.methods import Variational
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.corrections import pruning_rules
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import training
from bayesify_studies.experiments.study_d.pruning_networks import PRIORS
from bayesify_studies.experiments.study_d.pruning_widths import error_in_order
from bayesify_studies.experiments.study_d.training import ADAM, Trained

SHARES = ("0.5", "0.75", "0.9", "0.95", "0.98")
THREE = ("(1/2, 1, e^-6)", "(1/10, 1, e^-6)", "(3/4, 1, e^-8)")
WIDE = PRIORS["(3/4, 1, e^-8)"]
CUT = 0.9


def tell_rules(work: Work, _: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """Signal-to-noise less magnitude in every network and at every share, after correction for their number."""
    found = pruning_rules(numbers)
    signs = dict(zip(found, settled_by_holm(list(found.values())), strict=True))
    networks = list(dict.fromkeys(name.rpartition(" units at ")[0] for name in found))
    word = {1: " worse", -1: " better", 0: ""}
    rows = []
    for network in networks:
        name, units = network.rsplit(", ", 1)
        own = [f"{network} units at {100 * float(share):g}%" for share in SHARES]
        rows.append([name, units, *(signed(found[one], ".2f", times=100) + word[signs[one]] for one in own)])
    by_share = {
        share: {
            word: sum(signs[f"{network} units at {100 * float(share):g}%"] == sign for network in networks)
            for word, sign in (("better", -1), ("worse", 1), ("open", 0))
        }
        for share in SHARES
    }
    large = str(work["units"][1])
    three = {name: numbers["errors"][f"Adam, {name} | {large} | snr"] for name in THREE}
    return Added(
        {
            "by_share": by_share,
            "networks": len(networks),
            "three_priors": {name: {"whole": one["0"], "pruned": one["0.98"]} for name, one in three.items()},
        },
        tables=[
            Table(
                "Signal-to-noise minus magnitude, points of test error",
                ["network", "units", *(f"{100 * float(share):g}% pruned" for share in SHARES)],
                rows,
                "Mean over seeds ± its standard error, paired. Better and worse mark differences that are "
                "significant after "
                f"Holm's correction for all {len(found)} comparisons.",
            ),
            Table(
                f"Three priors with the full KL, {large} units: test error with 98% of the weights pruned",
                ["prior", "all weights", "98% pruned", "difference"],
                [
                    [
                        f"mixture {name}",
                        percent(one["0"]),
                        percent(one["0.98"]),
                        signed(paired(one["0.98"]["values"], one["0"]["values"]), ".2f", " points", 100),
                    ]
                    for name, one in three.items()
                ],
                "Pruned by signal-to-noise. The networks that were chosen for pruning above have a reduced KL.",
            ),
        ],
    )


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """The network at its own number of epochs, and at more."""
    return {f"why-{epochs}": (layers, work, epochs) for epochs in work["why"]["epochs"]}


def layers(work: Work, epochs: int) -> dict[str, Any]:
    """What each rule prunes in each layer, and how far the widths have come from where they started."""
    data = training.images(work, everything=True)

    def judged(trained: list[Trained]) -> dict[str, Any]:
        return {"seeds": [seen_by_layer(one.method, data.test) for one in trained]}

    return training.train(
        work,
        f"why-{epochs}",
        ADAM,
        data,
        {"wide": {"prior": WIDE}},
        units=work["units"][1],
        epochs=epochs,
        seeds=list(range(work["why"]["seeds"])),
        evaluate=judged,
    )


def seen_by_layer(method: Variational, test: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """Errors with 90% pruned by either rule, over all layers together or the same share of each; facts by layer."""
    prunable = prunable_weights(method)
    test = (test[0].to(prunable.device), test[1].to(prunable.device))
    numbers = torch.zeros(len(prunable), dtype=torch.int64, device=prunable.device)
    own = [place for place in method.network.places if bool(prunable[place.start])]
    for number, place in enumerate(own):
        numbers[place.start : place.stop] = number
    layer, order = numbers[prunable], {rule: scores(method, rule)[prunable] for rule in ("snr", "magnitude")}
    started = float(F.softplus(torch.tensor(float(ADAM.rho))))
    widths, means = method.std[prunable].detach(), method.mean_weights[: len(prunable)][prunable].abs().detach()
    errors = {}
    for rule, score in order.items():
        errors[rule] = error_in_order(method, prunable, score, CUT, test)
        errors[f"{rule} by layer"] = error_in_order(method, prunable, _within(score, layer, len(own)), CUT, test)
    facts = []
    for number in range(len(own)):
        here = layer == number
        pruned = {rule: float((score < _cut(score))[here].double().mean()) for rule, score in order.items()}
        facts.append(
            {
                "pruned": pruned,
                "median_width": float(widths[here].median()),
                "near_start": float(((widths[here] / started).log().abs() < 0.1).double().mean()),
                "log_correlation": float(
                    torch.corrcoef(torch.stack((means[here].log(), widths[here].log())).double())[0, 1]
                ),
            }
        )
    return {"whole": error_in_order(method, prunable, order["snr"], 0.0, test), "errors": errors, "layers": facts}


def tell_why(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """Both rules over all layers and within each, after each number of epochs."""
    rows, facts, kept = [], [], {}
    for name, part in found.items():
        epochs, seeds = name.removeprefix("why-"), part["seeds"]
        errors = {rule: estimate([one["errors"][rule] for one in seeds]) for rule in seeds[0]["errors"]}
        rows.append([epochs, percent(estimate([one["whole"] for one in seeds])), *map(percent, errors.values())])
        by_layer = []
        for number in range(len(seeds[0]["layers"])):
            own = [one["layers"][number] for one in seeds]
            told = {
                "snr": estimate([one["pruned"]["snr"] for one in own]),
                "magnitude": estimate([one["pruned"]["magnitude"] for one in own]),
                "median_width": estimate([one["median_width"] for one in own]),
                "near_start": estimate([one["near_start"] for one in own]),
                "log_correlation": estimate([one["log_correlation"] for one in own]),
            }
            by_layer.append(told)
            facts.append(
                [
                    epochs,
                    str(number + 1),
                    percent(told["snr"], 1),
                    percent(told["magnitude"], 1),
                    f"{told['median_width']['mean']:.5f}",
                    percent(told["near_start"], 0),
                    written(told["log_correlation"], ".2f"),
                ]
            )
        kept[epochs] = {"errors": errors, "layers": by_layer}
    units = work["units"][1]
    return Added(
        kept,
        tables=[
            Table(
                f"Why magnitude beats signal-to-noise under (3/4, 1, e^-8), {units} units: 90% pruned",
                [
                    "epochs",
                    "all weights",
                    "by signal-to-noise",
                    "90% of each layer",
                    "by magnitude",
                    "90% of each layer",
                ],
                rows,
                f"Test error, {work['why']['seeds']} seeds.",
            ),
            Table(
                "The same networks by layer",
                [
                    "epochs",
                    "layer",
                    "pruned by signal-to-noise",
                    "pruned by magnitude",
                    "median width",
                    "widths within 10% of the start",
                    "correlation of log mean and log width",
                ],
                facts,
                "Signal-to-noise is magnitude over the width: it adds something where widths differ for a reason.",
            ),
        ],
    )


def _cut(score: Tensor) -> Tensor:
    return score.sort().values[round(CUT * len(score))]


def _within(score: Tensor, layer: Tensor, count: int) -> Tensor:
    """The rank of each weight among those of its layer, from 0 to 1."""
    ranks = torch.empty_like(score)
    for number in range(count):
        here = layer == number
        ranks[here] = score[here].argsort().argsort().to(score) / int(here.sum())
    return ranks


RULES = Addition("rules", lambda _: {}, tell_rules)
WHY = Addition("why_magnitude", parts, tell_why, whole=False)
