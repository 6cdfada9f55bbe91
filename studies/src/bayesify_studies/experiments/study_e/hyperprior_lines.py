"""Study E's statements about priors on one side, what the cells say on the other: the lines of the page."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from bayesify.evaluation.seed_statistics import (
    between,
    error_of_share,
    estimate,
    paired,
    percent,
    settled,
    signed,
    written,
)
from bayesify_studies.experiments.framework.findings import Line
from bayesify_studies.experiments.study_e.hyperprior_cells import cells
from bayesify_studies.experiments.study_e.hyperprior_comparison import WAYS, Cells

AGREEING = 1.01  # the largest R-hat of chains that are a reference
ALMOST = 0.9  # the share of comparisons that we read "almost always" as
# What the study prints as its best: data set -> (family, hyperprior, accuracy on 300 points).
PUBLISHED = {"circles": ("cauchy", "inverse-gamma", 0.735), "moons": ("normal", "inverse-gamma", 0.851)}


def statements(found: Cells, numbers: dict[str, Any], hmc: dict[str, Any], names: list[str]) -> list[Line]:
    """All lines."""
    return [
        *(_claim(way, numbers[way]) for way in WAYS),
        *(_noise(way, numbers[way], names) for way in WAYS if names),
        *_best(found),
        _warming(found),
        _sparsity(found),
        _boundary(found),
        *([_hmc_line(hmc)] if hmc else []),
    ]


def answer(numbers: dict[str, Any]) -> str:
    """The question of the page, answered."""
    word = {1: "is better than", -1: "is worse than", 0: "is not significantly different from"}
    told = []
    for way, words in WAYS.items():
        pooled = numbers[way]["pooled"]
        told.append(
            f"With the {words}, a hyperprior {word[settled(pooled)]} a scale tuned on validation data: "
            f"{_points(pooled)} of accuracy ({between(pooled, '+.2f', 100)}). It is better in "
            f"{numbers[way]['better']} and "
            f"worse in {numbers[way]['worse']} of {len(numbers[way]['single'])} comparisons."
        )
    return " ".join(told)


def _claim(way: str, numbers: dict[str, Any]) -> Line:
    pooled, total = numbers["pooled"], len(numbers["single"])
    verdict = {
        1: "hyperpriors are better on average",
        -1: "hyperpriors are worse on average",
        0: "hyperpriors and a tuned scale are not significantly different on average",
    }[settled(pooled)]
    surely, perhaps = numbers["better"] / total, (numbers["better"] + numbers["open"]) / total
    holds = "holds" if surely >= ALMOST else "does not hold" if perhaps < ALMOST else "is open"
    positive = sum(one["mean"] > 0 for one in numbers["single"].values())
    rest = f'"almost always" {holds}: hyperpriors have the higher mean accuracy in {positive} of {total} comparisons'
    return Line(
        f"hyperprior minus tuned scale, {WAYS[way]}",
        '"almost always better" (study E)',
        f"{_points(pooled)} of accuracy, {between(pooled, '+.2f', 100)}; advantage in NLL "
        f"{signed(numbers['pooled_nll'], '.4f')} nats (negative: the hyperprior is worse); of {total} comparisons, "
        f"{numbers['better']} are better, {numbers['worse']} "
        f"worse and {numbers['open']} not significant",
        f"{verdict}; {rest}",
    )


def _noise(way: str, numbers: dict[str, Any], names: list[str]) -> Line:
    told, verdicts = [], []
    for name in names:
        change = numbers["noisy_less_clean"][name]
        told.append(f"{name} {_points(change)} ({between(change, '+.2f', 100)})")
        own = fmean(one["mean"] for key, one in numbers["single"].items() if key.startswith(f"{name}-"))
        more, less = ("grows", "shrinks") if own >= 0 else ("shrinks", "grows")
        word = {
            1: f"{more} with the noise",
            -1: f"{less} with the noise",
            0: "does not change significantly with the noise",
        }
        what = "advantage" if own >= 0 else "disadvantage"
        verdicts.append(f"on {name} the {what} of a hyperprior {word[settled(change)]}")
    return Line(
        f"advantage of a hyperprior at the highest noise minus its advantage at the lowest, {WAYS[way]}",
        '"especially on noisy data" (study E)',
        "; ".join(told),
        "; ".join(verdicts),
    )


def _best(found: Cells) -> Iterator[Line]:
    for name, (family, hyper, accuracy) in PUBLISHED.items():
        levels = [place for place in found.places if place[0] == name]
        if not levels:
            continue
        place = levels[len(levels) // 2]
        best = found.part("warm", place, (family, hyper))["best_accuracy"]
        gaps = {cell: found.gaps("warm", place, cell) for cell in cells()}
        own = gaps[family, hyper]
        beaten = sum(settled(paired(other, own)) == 1 for other in gaps.values())
        ahead = sum(settled(paired(other, own)) == -1 for other in gaps.values())
        ours = estimate([best - gap for gap in own])
        means = [fmean(gap) for gap in gaps.values()]
        error = error_of_share(accuracy, 300)
        yield Line(
            f"{name}: {family} with {hyper}, the study's best",
            f"{accuracy:.3f} on 300 points (standard error {error:.3f})",
            f"{written(ours, '.4f')} at noise {place[1]:g} (best possible {best:.4f})",
            f"it is significantly better than {beaten} and significantly worse than {ahead} of the 12 other priors; "
            f"the mean gaps of all 13 range from {100 * min(means):.2f} to {100 * max(means):.2f} points, and the "
            f"study's standard "
            f"error is {100 * error:.1f} points",
        )


def _warming(found: Cells) -> Line:
    worst = {
        way: max(fmean(found.gaps(way, place, cell)) for place in found.places for cell in cells()) for way in WAYS
    }
    mean = {
        way: [fmean(c) for c in zip(*(found.gaps(way, p, cell) for p in found.places for cell in cells()), strict=True)]
        for way in WAYS
    }
    gain = paired(mean["plain"], mean["warm"])
    verdict = {1: "helps", 0: "makes no significant difference", -1: "does harm"}
    return Line(
        "mean gap to the best possible accuracy, with the full KL from the start and with KL warm-up",
        "not examined",
        f"{100 * fmean(mean['plain']):.2f} and {100 * fmean(mean['warm']):.2f} points over all priors (difference "
        f"{between(gain, '+.2f', 100)}); worst prior {100 * worst['plain']:.1f} and {100 * worst['warm']:.1f} points",
        f"KL warm-up {verdict[settled(gain)]}",
    )


def _sparsity(found: Cells) -> Line:
    told, verdict = [], 0
    for key, words in (("hoyer", "Hoyer sparsity"), ("near_zero", "share within 2 sd of zero")):
        laplace, cauchy = (found.values("warm", (family, "inverse-gamma"), key) for family in ("laplace", "cauchy"))
        difference = paired(laplace, cauchy)
        verdict = verdict or settled(difference) if key == "hoyer" else verdict
        told.append(f"{words} {fmean(laplace):.3f} and {fmean(cauchy):.3f} (difference {between(difference, '+.3f')})")
    word = {1: "Laplace scores higher", -1: "Cauchy scores higher", 0: "no significant difference"}
    return Line(
        "last layer, Laplace and Cauchy with inverse-gamma",
        "Laplace sparse: all but two weights around zero; Cauchy not (one network each)",
        "; ".join(told),
        f"{word[verdict]} by the Hoyer measure; ten weights are too few to judge sparsity, and a "
        "Gaussian posterior is never exactly sparse",
    )


def _boundary(found: Cells) -> Line:
    near, far = (
        [fmean(c) for c in zip(*(found.values("warm", cell, key) for cell in cells()), strict=True)]
        for key in ("unsure_near", "unsure_far")
    )
    difference = paired(near, far)
    word = {1: "as the study says", -1: "against the study", 0: "not significant"}[settled(difference)]
    return Line(
        "spread of the probability near the true boundary and elsewhere",
        "uncertain near the true boundary (a picture)",
        f"{fmean(near):.3f} and {fmean(far):.3f} (difference {between(difference, '+.3f')})",
        word,
    )


def _hmc_line(hmc: dict[str, Any]) -> Line:
    told = "; ".join(f"{WAYS[way]}: {_points(hmc[way])} ({between(hmc[way], '+.2f', 100)})" for way in WAYS)
    word = {
        1: "is worse than HMC",
        -1: "is better than HMC",
        0: "is not significantly different from HMC",
    }
    return Line(
        "gap of mean-field VI minus gap of HMC, same priors",
        "not measured",
        f"HMC's gap {percent(hmc['gap'])}; {told}; largest R-hat of a prediction {hmc['worst_r_hat']:.3f}",
        f"with KL warm-up, mean-field VI {word[settled(hmc['warm'])]}"
        if hmc["worst_r_hat"] <= AGREEING
        else f"no conclusion: HMC did not converge everywhere, and above an R-hat of {AGREEING:g} it is no reference",
    )


def _points(found: dict[str, Any]) -> str:
    return signed(found, ".2f", " points", 100)
