"""What the page of `gaussian-logits` says of accuracies, of spreads and of what sampling costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.study_a.logits_cells import AMBIGUOUS, COVERAGES, HEADS, NETWORKS, Cell

# Means of a thousand logits this close to each other move no probability by more than about a hundredth.
COLLAPSED = 0.05
PUBLISHED = {"mnist": (0.979, 0.978), "cifar10": (0.4527, 0.4437)}
CLAIMED = (0.97, 0.993)
SECONDS = {"training": (200, 789), "answering": (41, 340)}
WANTED_AUROC, WANTED_RATIO = 0.99, 1.3
# Spreads that have collapsed need a fourth digit.
SPREAD = ".4f"


def summary(part: dict[str, Any]) -> dict[str, Any]:
    """The estimates of a cell."""
    names = ("accuracy", "nll", "entropy_auroc", "spread", "spread_ambiguous", "spread_others", "spread_auroc")
    return {name: estimate(part[name]) for name in names if name in part}


def accuracies(found: dict[Cell, Any]) -> list[Line]:
    """Accuracies beside the study's."""
    lines = []
    for data, published in PUBLISHED.items():
        plain = found.get((data, "mlp", "adam", "plain", 0.0))
        if plain is None:
            continue
        for head, value in (("plain", published[0]), ("expected", published[1]), ("log_expected", None)):
            part = found[data, "mlp", "adam", head, 0.0]
            apart = paired(part["accuracy"], plain["accuracy"])
            meaning = "the baseline" if head == "plain" else _compared(apart, "plain")
            shown = "not run" if value is None else f"{100 * value:.2f}%"
            lines.append(
                Line(f"{data}, MLP, Adam, {head}: accuracy", shown, percent(estimate(part["accuracy"])), meaning)
            )
    return lines


def claim(found: dict[Cell, Any]) -> list[Line]:
    """What the claimed jump from 97% to 99.3% may have been."""
    slow, fast = (found["mnist", "cnn", optimiser, "plain", 0.0]["accuracy"] for optimiser in ("sgd", "adam"))
    heads = [paired(found["mnist", "cnn", "adam", head, 0.0]["accuracy"], fast) for head in HEADS[1:]]
    best = max(heads, key=lambda one: float(one["mean"]))
    return [
        Line(
            "accuracy of a plain CNN on mnist: with SGD, with Adam",
            f"{CLAIMED[0]:.0%} to {CLAIMED[1]:.1%}, attributed to Gaussian logits (study A)",
            f"{percent(estimate(slow))} to {percent(estimate(fast))}",
            f"Adam alone adds {100 * paired(fast, slow)['mean']:+.2f} points; Gaussian logits then add at most "
            f"{100 * best['mean']:+.2f} ({between(best, '+.2f', 100)})",
        )
    ]


def spreads(found: dict[Cell, Any], swaps: Sequence[float]) -> list[Line]:
    """How wide the logits are, on clean labels and where some are swapped."""
    lines = []
    for head in HEADS[1:]:
        spread = estimate(found["mnist", "mlp", "adam", head, 0.0]["spread"])
        lines.append(
            Line(
                f"mean spread of the logits, clean mnist, MLP, Adam, {head}",
                "tiny" if head == "expected" else "not run",
                written(spread, SPREAD),
                f"{_collapsed(spread)}; it starts near 0.69",
            )
        )
    for swap in swaps:
        for network in NETWORKS:
            for head in HEADS[1:]:
                part = found["mnist", network, "adam", head, swap]
                odd, others = estimate(part["spread_ambiguous"]), estimate(part["spread_others"])
                lines.append(
                    Line(
                        f"{swap:.0%} of 1 and 7 swapped, {network.upper()}, {head}: spread on 1 and 7, spread on "
                        f"other digits, AUROC of the spread for 1 and 7",
                        "not run",
                        f"{written(odd, SPREAD)}, {written(others, SPREAD)}, {written(estimate(part['spread_auroc']))}",
                        f"the spread on 1 and 7 has {_collapsed(odd)}{_alone(part)}; the plain network's entropy has "
                        "AUROC "
                        f"{written(estimate(found['mnist', network, 'adam', 'plain', swap]['entropy_auroc']))}",
                    )
                )
    return lines


def coverage(found: dict[Cell, Any], swaps: Sequence[float]) -> list[Line]:
    """Accuracy of the surest answers."""
    at = COVERAGES.index(0.9)
    lines = []
    for swap in (0.0, *swaps):
        plain = [one[at] for one in found["mnist", "mlp", "adam", "plain", swap]["by_confidence"]]
        part = found["mnist", "mlp", "adam", "log_expected", swap]
        ours, spread = ([one[at] for one in part[by]] for by in ("by_confidence", "by_spread"))
        lines.append(
            Line(
                f"accuracy of the 90% most certain predictions, {swap:.0%} swapped, MLP, log_expected",
                "not done",
                f"{percent(estimate(ours))} ordered by confidence, {percent(estimate(spread))} ordered by spread; "
                f"plain {percent(estimate(plain))}",
                f"ordered by confidence, {_compared(paired(ours, plain), 'plain')}; ordered by spread, "
                f"{_compared(paired(spread, ours), 'by confidence')}",
            )
        )
    return lines


def seconds(times: dict[str, Any], samples: int) -> list[Line]:
    """What sampling costs."""
    lines = []
    for what, (plain, sampled) in SECONDS.items():
        ratio = times[what]["expected"] / times[what]["plain"]
        lines.append(
            Line(
                f"time of {'prediction' if what == 'answering' else what} with {samples} samples, relative to plain",
                f"{sampled / plain:.1f}x ({plain} to {sampled} microseconds an example)",
                f"{ratio:.2f}x (fastest of three runs; {times['machine']})",
                "cheaper than in the study" if ratio < sampled / plain else "not cheaper than in the study",
            )
        )
    return lines


def _compared(apart: dict[str, Any], other: str) -> str:
    """A paired difference of accuracies in words."""
    words = {1: f"better than {other}", -1: f"worse than {other}", 0: f"no significant difference from {other}"}
    return f"{words[settled(apart)]}: {100 * apart['mean']:+.2f} points ({between(apart, '+.2f', 100)})"


def _collapsed(spread: dict[str, Any]) -> str:
    return (
        f"{'collapsed' if spread['mean'] < COLLAPSED else 'not collapsed'} "
        f"({'below' if spread['mean'] < COLLAPSED else 'above'} {COLLAPSED})"
    )


def _alone(part: dict[str, Any]) -> str:
    """The spread on each of the two digits, where one has collapsed and the other has not."""
    alone = {digit: part["spread_by_digit"][digit] for digit in AMBIGUOUS}
    if len({value < COLLAPSED for value in alone.values()}) == 1:
        return ""
    return ", " + " and ".join(f"on {digit} alone {value:.3f}" for digit, value in alone.items())


def answer(found: dict[Cell, Any], swaps: Sequence[float]) -> str:
    """The question of the page, answered."""
    clean = {head: estimate(found["mnist", "mlp", "adam", head, 0.0]["spread"]) for head in HEADS[1:]}
    said = ", ".join(f"`{head}` {written(one, SPREAD)}" for head, one in clean.items())
    gone = [head for head, one in clean.items() if one["mean"] < COLLAPSED]
    told = {2: "Both objectives collapse", 1: f"Only {''.join(gone)} collapses", 0: "Neither objective collapses"}
    most = max(swaps)
    part = {head: found["mnist", "mlp", "adam", head, most] for head in HEADS[1:]}
    spoken = "; ".join(
        f"`{head}` {written(estimate(one['spread_ambiguous']), SPREAD)} on 1 and 7, "
        f"{written(estimate(one['spread_others']), SPREAD)} on other digits, AUROC "
        f"{written(estimate(one['spread_auroc']))}"
        for head, one in part.items()
    )
    plain = found["mnist", "mlp", "adam", "plain", 0.0]["accuracy"]
    apart = {head: paired(found["mnist", "mlp", "adam", head, 0.0]["accuracy"], plain) for head in HEADS[1:]}
    helped = "; ".join(f"with `{head}`, {_compared(one, 'plain')}" for head, one in apart.items())
    entropy = estimate(found["mnist", "mlp", "adam", "plain", most]["entropy_auroc"])
    return (
        f"{told[len(gone)]} on clean digits with an MLP and Adam. The mean spreads are: {said}.{_unfinished(found)} "
        "With "
        f"{most:.0%} of the 1s and 7s relabelled, the spreads are: {spoken}. The plain network's entropy has AUROC "
        f"{written(entropy)}. The objective `expected` is convex in the logits, so a spread of zero is its optimum for "
        "any data. For `log_expected` a spread of zero is not the only optimum where labels disagree. Accuracy on "
        f"clean digits: {helped}."
    )


def _unfinished(found: dict[Cell, Any]) -> str:
    """Cells of clean digits whose spread is still above the mark, which an answer about one of them would hide."""
    wide = [
        f"{network.upper()}, {optimiser}, `{head}` {written(spread, SPREAD)}"
        for (data, network, optimiser, head, swap), part in found.items()
        if data == "mnist" and swap == 0 and "spread" in part
        for spread in (estimate(part["spread"]),)
        if spread["mean"] >= COLLAPSED
    ]
    return f" Some spreads have not collapsed by the end of training: {'; '.join(wide)}." if wide else ""


def table(title: str, cells: Sequence[Cell], found: dict[Cell, Any]) -> Table:
    """Cells as rows."""
    rows = []
    for cell in cells:
        data, network, optimiser, head, swap = cell
        one = summary(found[cell])
        spread = [written(one[name]) if name in one else "" for name in ("spread", "spread_auroc")]
        told = [percent(one["accuracy"]), written(one["nll"]), *spread, written(one["entropy_auroc"])]
        rows.append([f"{data}, {network}, {optimiser}, {head}" + (f", {swap:.0%}" if swap else ""), *told])
    headings = [
        "data, network, optimiser, logits",
        "accuracy",
        "NLL",
        "mean spread",
        "AUROC of spread for 1 and 7",
        "AUROC of entropy for 1 and 7",
    ]
    note = (
        "Means and standard errors over seeds. All seeds of a row have the same swapped labels. With `expected`, the "
        "loss "
        "is the mean over the sampled logits of the NLL. With `log_expected`, it is the NLL of the mean "
        "probabilities. "
        "The AUROC measures how well a score finds the digits 1 and 7."
    )
    return Table(
        title, headings, rows, note + " In cifar10, classes 1 and 7 are car and horse, and no labels are swapped."
    )


def shortfalls(found: dict[Cell, Any], times: dict[str, Any], swaps: Sequence[float]) -> list[str]:
    """What was expected and is not so."""
    missed = []
    most = max(swaps)
    for network in NETWORKS:
        for head in HEADS[1:]:
            spread = estimate(found["mnist", network, "adam", head, 0.0]["spread"])
            if spread["mean"] >= COLLAPSED:
                missed.append(
                    f"{head} does not collapse on clean mnist ({network}, Adam): mean spread {written(spread)}"
                )
        stays = estimate(found["mnist", network, "adam", "expected", most]["spread_ambiguous"])
        if stays["mean"] >= COLLAPSED:
            missed.append(f"expected does not stay collapsed with {most:.0%} swapped ({network}): {written(stays)}")
        auroc = estimate(found["mnist", network, "adam", "log_expected", most]["spread_auroc"])
        if round(auroc["mean"], 2) < WANTED_AUROC:
            missed.append(
                f"AUROC of the spread, {most:.0%} swapped, {network}: {written(auroc)}, wanted {WANTED_AUROC}"
            )
    for head in HEADS[1:]:
        ratio = times["training"][head] / times["training"]["plain"]
        if ratio > WANTED_RATIO:
            missed.append(f"training with {head} takes {ratio:.2f} times as long as plain, wanted {WANTED_RATIO}")
    return missed
