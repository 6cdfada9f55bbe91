"""Study D's fourth claim: pruning by signal-to-noise is worse than by magnitude.

The table of both rules at 400 and 1200 units, as the study trained and with Adam under three kinds of prior; and a
network of 1200 units whose prior is chosen on validation by its error without 98% of the weights, from two rounds of
candidates. The full preset has 72 networks in ten fleets, and small ones that need no GPU for the widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bayesify.evaluation.pruning import RULES
from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import pruning_pictures, pruning_rules, pruning_tables, pruning_widths, words
from bayesify_studies.experiments.study_d.pruning_networks import (
    FAMILIES,
    as_the_study,
    at,
    choice,
    losses,
    properly,
    winner,
)
from bayesify_studies.experiments.study_d.pruning_tables import PUBLISHED, RULE, short

TARGET = 0.0132
MIXTURE = "Adam, (1/2, 1, e^-6)"
FLAT_HUMP = (
    "A hump of a histogram counts as a mode if it stands out by at least a twentieth of the highest. With the mixture "
    "(1/2, 1, e^-6), {units} units and Adam there is a second, lower hump: the picture shows it near a signal-to-noise "
    "of 0.4. It contains under a tenth of the weights."
)


def run(work: Work) -> Findings:
    small, large = work["units"]
    tasks: dict[str, tuple[Any, ...]] = {f"study-{units}": (as_the_study, work, units) for units in (small, large)}
    tasks |= {
        f"adam-{units}-{family}": (properly, work, units, f"adam-{units}-{family}", FAMILIES[family])
        for units in (small, large)
        for family in FAMILIES
    }
    # A round after the first was made up once the choice of the one before it had been tested.
    for place, candidates in enumerate(work["candidates"], 1):
        tasks[f"choice-{place}"] = (choice, work, f"choice-{place}", candidates)
    parts = work.every(tasks | pruning_widths.tasks(work))
    rows: dict[tuple[str, int], Any] = {}
    for units in (small, large):
        rows["as the study, (1/2, 1, e^-6)", units] = parts[f"study-{units}"]["study"]
        for family, names in FAMILIES.items():
            rows |= {(f"Adam, {name}", units): parts[f"adam-{units}-{family}"][name] for name in names}
    rounds = _chosen(work, parts)
    for place, one in enumerate(rounds, 1):
        rows[f"chosen in round {place}, {short(one['prior'])}", large] = one["network"]
    chosen = rounds[-1]["network"]
    drawn = {key: row for key, row in rows.items() if not any(row is one["network"] for one in rounds[:-1])}
    gaps = {
        key: paired(at(row, "snr", 0.75)["errors"], at(row, "magnitude", 0.75)["errors"]) for key, row in rows.items()
    }
    blame = {kind: [parts[pruning_widths.part(kind, seed)] for seed in work.seeds] for kind in pruning_widths.HIDDEN}
    study = rows["as the study, (1/2, 1, e^-6)", small]
    loss = losses(chosen)
    lines = [
        Line(
            f"test error with {100 * fraction:g}% of the weights pruned, as the study, {small} units, by {RULE[rule]}",
            f"{value:.2f}%",
            percent(estimate(at(study, rule, fraction)["errors"])),
            f"unpruned {percent(estimate(study['snr'][0]['errors']))}, published {PUBLISHED[rule][0.0]:.2f}%",
        )
        for fraction in (0.5, 0.75, 0.95)
        for rule, value in ((rule, PUBLISHED[rule][fraction]) for rule in RULES)
    ]
    lines += [
        Line(
            f"signal-to-noise minus magnitude at 75% pruned, {name}, {units} units",
            "+10.38 points (study D)" if (name, units) == ("as the study, (1/2, 1, e^-6)", small) else "not done",
            words.points(gap),
            f"{'signal-to-noise is ' if settled(gap) else ''}{words.verdict(gap)}",
        )
        for (name, units), gap in gaps.items()
    ]
    lines += [_without_98(place, len(rounds), one, large) for place, one in enumerate(rounds, 1)]
    correlations = {units: rows["as the study, (1/2, 1, e^-6)", units]["widths_kept"] for units in (small, large)}
    kept = {units: fmean(found) for units, found in correlations.items()}
    least = min(map(min, correlations.values())) ** 2
    lines.append(
        Line(
            "study's training: correlation of the final log widths with the random initial ones",
            "not measured",
            ", ".join(f"{value:.3f} ({units} units)" for units, value in kept.items()),
            f"in every seed, at least {100 * least:.0f}% of the variance of the final log widths comes from their "
            f"random start; "
            + ("so signal-to-noise is magnitude plus noise" if least > 0.5 else "the widths were trained"),
        )
    )
    peaks = {f"{name}, {units}": row["shape"]["peaks"] for (name, units), row in rows.items()}
    lines.append(
        Line(
            "number of modes of the signal-to-noise histogram (first seed)",
            "one in most runs, two in one",
            "; ".join(f"{name}: {count}" for name, count in peaks.items()),
            f"{sum(count > 1 for count in peaks.values())} of {len(peaks)} have more than one",
        )
    )
    lines += [_blamed(kind, found) for kind, found in blame.items()]
    return Findings(
        answer=words.scope(work) + _answer(gaps, rounds, large, blame),
        lines=lines,
        numbers={
            "errors": {
                f"{name} | {units} | {rule}": {f"{at['fraction']:g}": estimate(at["errors"]) for at in row[rule]}
                for (name, units), row in rows.items()
                for rule in RULES
            },
            "snr_less_magnitude_at_75": {f"{name} | {units}": gap for (name, units), gap in gaps.items()},
            "chosen": _summary(rounds[-1]),
            "rounds": [_summary(one) for one in rounds],
            "widths": blame,
            "widths_kept": {str(units): value for units, value in kept.items()},
            "peaks": peaks,
        },
        tables=[
            pruning_tables.errors(rows),
            pruning_tables.costs(rows),
            pruning_tables.candidates(rounds, large),
        ],
        pictures=[
            Picture(
                work.figure("curves", pruning_pictures.curves(drawn, small, large)),
                "Test error after pruning, mean over seeds: signal-to-noise (full lines), magnitude (dashed).",
            ),
            Picture(
                work.figure("snr", pruning_pictures.signal_to_noise(drawn, small, large)),
                "Signal-to-noise of the first seed: histogram (scaled to its highest bin) and cumulative share (black "
                "line). Dashed lines, from left to right: cuts at 25, 50, 75 and 95%. The outermost bins contain "
                "everything beyond them.",
            ),
            Picture(
                work.figure("pruned", pruning_pictures.pruned_weights(drawn, small)),
                "Means of the weights left after pruning 0, 25, 50, 75 and 95% (light to dark), by both rules. The "
                "outermost bins contain everything beyond them.",
            ),
        ],
        shortfalls=[*words.shortfalls(work), *_missed(chosen, loss), *_flat_humps(peaks, small)],
    )


def _flat_humps(peaks: Mapping[str, int], units: int) -> list[str]:
    """The hump that the picture shows and the count of modes leaves out."""
    return [FLAT_HUMP.format(units=units)] if peaks.get(f"{MIXTURE}, {units}") == 1 else []


def _chosen(work: Work, parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of every round the candidate with the least validation error without 98% of its weights, trained and tested."""
    chosen = []
    for place, candidates in enumerate(work["candidates"], 1):
        found = {name: parts[f"choice-{place}"][name] for name in candidates}
        best = min(found, key=lambda name: (found[name]["pruned"], found[name]["error"]))
        network = work.once(f"chosen-{place}", winner, work, f"chosen-{place}", best)[best]
        chosen.append({"prior": best, "found": found, "network": network, "loss": losses(network)})
    return chosen


def _summary(one: Mapping[str, Any]) -> dict[str, Any]:
    errors = {"unpruned": estimate(one["network"]["snr"][0]["errors"]), "pruned": estimate(one["loss"]["errors"])}
    return {"prior": one["prior"], **errors, **one["loss"]}


def _without_98(place: int, rounds: int, one: Mapping[str, Any], units: int) -> Line:
    loss = one["loss"]
    return Line(
        f"{units} units, 98% pruned by signal-to-noise, prior {short(one['prior'])} chosen on validation, round "
        f"{place} of {rounds}",
        "target: 1.32%, and no significant loss by paired tests",
        f"{percent(estimate(one['network']['snr'][0]['errors']))} unpruned, {percent(estimate(loss['errors']))} pruned",
        f"{words.points(loss['seeds'])}; over seeds {between(loss['seeds'], '+.2f', 100)}; over images "
        f"{between(loss['images'], '+.2f', 100)}; smallest p over seeds {min(loss['p']):.2g} (McNemar). "
        + ("A significant loss: an interval lies above zero." if loss["seen"] else "No significant loss."),
    )


def _blamed(kind: str, found: Sequence[Mapping[str, Any]]) -> Line:
    ratio, correlation = (fmean(one[name] for one in found) for name in ("ratio", "rank_correlation"))
    gain, whole = _better_order(found, "widths"), _better_order(found, "reference")
    return Line(
        f"do underestimated widths mislead pruning? {kind} on digits, compared with {pruning_widths.REFERENCE[kind]}",
        "suspected, not tested",
        f"mean-field widths are {ratio:.2f} times the reference widths (median); rank correlation of signal-to-noise "
        f"{correlation:.3f}",
        "change of the test error at 75% pruned, if the ratio has the reference's widths: "
        f"{words.verdict(gain)}; if it has the reference's widths and means: {words.verdict(whole)}.",
    )


def _better_order(found: Sequence[Mapping[str, Any]], order: str = "widths") -> dict[str, Any]:
    place = 1 + pruning_widths.FRACTIONS.index(0.75)
    return paired([one["errors"][order][place] for one in found], [one["errors"]["own"][place] for one in found])


def _answer(
    gaps: Mapping[tuple[str, int], dict[str, Any]],
    rounds: Sequence[Mapping[str, Any]],
    large: int,
    blame: Mapping[str, Any],
) -> str:
    loss, before = rounds[-1]["loss"], rounds[:-1]
    counts = {
        sign: sum(settled(gap) == sign for (name, _), gap in gaps.items() if "Adam" in name) for sign in (-1, 0, 1)
    }
    helped = [kind for kind, found in blame.items() if settled(_better_order(found)) < 0]
    said = {1: "worse than", -1: "better than", 0: "not significantly different from"}
    study = [
        f"{said[settled(gap)]} magnitude with {units} units" for (name, units), gap in gaps.items() if "study" in name
    ]
    return (
        f"With the study's training and 75% pruned, signal-to-noise is {' and '.join(study)}. "
        f"Of the networks trained with Adam, it is better in {counts[-1]}, worse in {counts[1]} and not "
        f"significantly different in {counts[0]}. With 98% pruned, the {large}-unit network with the chosen prior "
        f"has a "
        "test error of "
        f"{percent(estimate(loss['errors']))} ({words.points(loss['seeds'])}), "
        + ("a significant loss. " if loss["seen"] else "no significant loss. ")
        + "".join(
            f"This prior comes from a later round of candidates. That round was planned after the prior chosen in "
            f"round {place} had been tested ({percent(estimate(one['loss']['errors']))}, "
            f"{words.points(one['loss']['seeds'])}, "
            f"{'a' if one['loss']['seen'] else 'no'} significant loss). So the test images were used more than once. "
            for place, one in enumerate(before, 1)
        )
        + (
            f"The widths of better posteriors improve pruning for {' and '.join(helped)}, so underestimated widths "
            "mislead it there."
            if helped
            else "The widths of better posteriors (HMC, full rank) do not improve pruning significantly."
        )
    )


def _missed(chosen: Mapping[str, Any], loss: Mapping[str, Any]) -> list[str]:
    told = []
    for what, errors in (("whole", chosen["snr"][0]["errors"]), ("98% pruned", loss["errors"])):
        error = estimate(errors)["mean"]
        if error > TARGET:
            told.append(
                f"Target {100 * TARGET:.2f}% missed by the {what} network: {100 * (error - TARGET):.2f} points."
            )
    if loss["seen"]:
        told.append(
            f"Target missed: 98% pruning costs {words.points(loss['seeds'])}, which is significant: over seeds "
            f"{between(loss['seeds'], '+.4f', 100)}, over images {between(loss['images'], '+.4f', 100)}."
        )
    return told


EXPERIMENT = Experiment(
    name="pruning",
    title="Pruning by signal-to-noise and by magnitude",
    study="D",
    question="Study D found pruning by signal-to-noise worse than by magnitude. The paper prunes 95% of the "
    "weights at almost no cost. Does the difference come from the rule, the training, the prior, or the widths of a "
    "mean-field posterior?",
    run=run,
    quick={
        "data": "mnist",
        "examples": 2000,
        "units": [30, 60],
        "study_epochs": 4,
        "epochs": 6,
        "candidate_epochs": 6,
        "candidates": [["scale-mixture:0.1,1,0.00247875", "scale-mixture:0.25,1,0.00247875 uniform,temperature=0.3"]],
        "seeds": 2,
        "draws": 10,
        "widths": {"units": 8, "epochs": 20, "warm_up": 40, "samples": 40},
        "why": {"epochs": [3], "seeds": 1},
    },
    full={
        "data": "mnist",
        "examples": None,
        "units": [400, 1200],
        "study_epochs": 150,
        "epochs": 120,
        "candidate_epochs": 200,
        "candidates": [
            [
                "scale-mixture:0.05,1,0.00247875",
                "scale-mixture:0.1,1,0.00247875 uniform,temperature=0.3",
                "scale-mixture:0.1,1,0.000335463",
                "scale-mixture:0.1,1,0.000335463 uniform,temperature=0.3",
                "scale-mixture:0.25,1,0.000335463 uniform,temperature=0.3",
                "scale-mixture:0.25,1,0.000335463 uniform,temperature=0.1",
            ],
            [
                "scale-mixture:0.1,1,0.00247875 uniform,temperature=0.3",
                "scale-mixture:0.05,1,0.00247875 uniform,temperature=0.3",
                "scale-mixture:0.1,1,0.00247875 uniform,temperature=0.5",
                "scale-mixture:0.05,1,0.00247875 uniform,temperature=0.2",
                "scale-mixture:0.02,1,0.00247875 uniform,temperature=0.2",
                "scale-mixture:0.1,1,0.00135 uniform,temperature=0.5",
            ],
        ],
        "seeds": 5,
        "draws": 50,
        "widths": {"units": 10, "epochs": 150, "warm_up": 200, "samples": 200},
        "why": {"epochs": [120, 360], "seeds": 2},
    },
    additions=(pruning_rules.RULES, pruning_rules.WHY),
)
