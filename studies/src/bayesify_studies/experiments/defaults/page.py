"""The page of the experiment: what was asked and what was found, line by line, and the tables behind it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bayesify_studies.experiments.defaults import goals, verdicts
from bayesify_studies.experiments.defaults.baselines import BASELINES, OF_CLASSES
from bayesify_studies.experiments.defaults.cells import FAILED, FINE, METHODS, REFUSED, UNAFFORDABLE, Cell, Lines, Size
from bayesify_studies.experiments.defaults.cells import missing as missing_cells
from bayesify_studies.experiments.defaults.distances import ANNEALED
from bayesify_studies.experiments.defaults.problems import PROBLEMS
from bayesify_studies.experiments.defaults.published import BEST
from bayesify_studies.experiments.defaults.search import TRIES
from bayesify_studies.experiments.framework.findings import Findings, Line, Table

CIFAR = (
    "A ResNet on CIFAR-10 is not part of this experiment, because it takes too long on a CPU. "
    "`studies/scripts/cifar10_resnet18.py` runs it on a GPU."
)
_FEW_SPLITS = 10
_ERRORS = ("mean", "sd", "sigma_mean", "sigma_sd")
READING = (
    "± is the standard error over splits. Scores are means over the seeds that were computed. Each seed has its own "
    "data set, except for images and text. A cell is one fit of one method to one problem with one seed."
)


def findings(lines: Lines, size: Size, notes: Sequence[str] = ()) -> Findings:
    """What the cells of a file show.

    Args:
        lines: the cells by key.
        size: how much was asked for.
        notes: sentences about how the cells were computed.

    Returns:
        The answer, its evidence and what is missing.

    """
    tuned, judged = verdicts.against_tuned(lines), verdicts.judged(lines)
    tables, far = goals.tables_of_auto(lines), goals.from_hmc(lines)
    states = Counter(one.state for one in judged)
    silent = [one for one in judged if one.state == FAILED and not one.warnings]
    alarms = [one for one in judged if one.state == FINE and one.warnings]
    short = [one for one in tuned if one.misses]
    return Findings(
        answer=f"Of {len(judged)} fits at the defaults, {states[FINE]} are fine, {states['between']} are neither fine "
        f"nor failed and {states[FAILED]} failed. " + _said_of_tuned(tuned, short),
        lines=[
            _line_of_tuned(tuned, short),
            Line(
                "Failures without a warning",
                "goal: none",
                f"{len(silent)} of {states[FAILED]} failed fits",
                f"{len(alarms)} of {states[FINE]} fine fits gave a warning",
            ),
            *_lines_of_tables(tables),
            *_lines_of_hmc(far),
            *_lines_of_posteriors(lines),
            Line("ResNet-18 on CIFAR-10", "goal: at most 0.5 points below plain", "not in this experiment", CIFAR),
        ],
        numbers={
            "fits": len(judged),
            "states": dict(states),
            "failed_without_warning": [_name(one) for one in silent],
            "fine_with_warning": [_name(one) for one in alarms],
            "against_tuned": [one.to_dict() for one in tuned],
            "auto_on_tables": [vars(one) | {"published": BEST.get(one.table)} for one in tables],
            "from_hmc": [_finite(vars(one)) for one in far],
            "posteriors": {
                method: {name: {key: errors[key] for key in _ERRORS} for name, errors in of.items()}
                for method, of in goals.posteriors_of(lines).items()
            },
            "scores": _scores(lines, size),
        },
        tables=_with_rows(
            _problems(lines, size),
            _matrix("Accuracy or RMSE at the defaults", lines, size, ("accuracy", "rmse"), baselines=True),
            _matrix("NLL at the defaults", lines, size, ("nll",), baselines=True),
            _matrix(
                "ECE (classification) or coverage of the 90% intervals (regression)",
                lines,
                size,
                ("ece", "coverage"),
                baselines=True,
            ),
            _of_tuned(tuned),
            _warned(judged),
            _matrix("Seconds of one core", lines, size, ("cpu_seconds",), baselines=True),
            _of_tables(tables),
            _of_hmc(far),
            _of_posteriors(lines),
            _silent(silent),
            _not_counted(lines),
        ),
        shortfalls=[*notes, *_shortfalls(lines, size)],
        reading=READING,
    )


def _with_rows(*tables: Table) -> list[Table]:
    return [table for table in tables if table.rows]


def _said_of_tuned(tuned: list[verdicts.AgainstTuned], short: list[verdicts.AgainstTuned]) -> str:
    if not tuned:
        return "Tuned settings were not computed."
    return (
        f"The defaults are as good as tuned settings for {len(tuned) - len(short)} of {len(tuned)} pairs of a method "
        "and a problem."
    )


def _line_of_tuned(tuned: list[verdicts.AgainstTuned], short: list[verdicts.AgainstTuned]) -> Line:
    missed = Counter(name for one in short for name in one.misses)
    words = ", ".join(f"{name.upper() if name != 'accuracy' else name} on {count}" for name, count in missed.items())
    return Line(
        "Defaults, compared with tuned settings of the same method",
        "goal for every pair: accuracy at least 0.97 times, RMSE at most 1.03 times, NLL at most 0.05 above the tuned "
        "one",
        f"reached by {len(tuned) - len(short)} of {len(tuned)} pairs of a method and a problem",
        "the search was not run"
        if not tuned
        else f"{f'missed: {words}' if words else 'all goals reached'}; the tuned settings are the best of at most "
        f"{len(TRIES)} on validation data",
    )


def _lines_of_tables(tables: list[goals.TableOfAuto]) -> list[Line]:
    published = [one for one in tables if one.as_published is not None]
    boosted = [one for one in tables if one.over_boosting is not None]
    near = [one.table for one in published if one.as_published]
    covering = [one.table for one in tables if one.covers]
    close = [one.table for one in boosted if (one.over_boosting or math.inf) <= verdicts.OF_BOOSTING]
    return [
        Line(
            "Auto: NLL against the best published row",
            "goal: within one standard error on 4 of 6 tables",
            f"{len(near)} of {len(published)}",
            _of_published(published),
        ),
        Line(
            "Auto: 90% intervals contain 87% to 93% of the targets",
            "goal: on all 9 tables",
            f"{len(covering)} of {len(tables)}",
            _listed(covering),
        ),
        Line(
            "Auto: RMSE at most 1.1 times that of boosting",
            "goal: on every table",
            f"{len(close)} of {len(boosted)}",
            _listed(close),
        ),
    ]


def _of_published(published: list[goals.TableOfAuto]) -> str:
    """Which tables are as good as published, and how far the number of splits lets that be said."""
    if not published:
        return "no table has two splits"
    below = [one.table for one in published if one.nll <= BEST[one.table]]
    near = [one.table for one in published if one.as_published and one.table not in below]
    fewest = min(one.splits for one in published)
    wide = f" With {fewest} splits, a standard error is only a rough estimate." if fewest < _FEW_SPLITS else ""
    return f"At or below the best row: {_listed(below)}. Above it by at most one standard error: {_listed(near)}.{wide}"


def _lines_of_hmc(far: list[goals.FromHMC]) -> list[Line]:
    found = []
    for method, asked in (
        ("auto", "goal: within 0.02 in accuracy and 0.03 in total variation on every seed"),
        (ANNEALED, "goal: within 0.05 in both"),
    ):
        mine = [one for one in far if one.method == method]
        if mine:
            near = ", ".join(f"{one.near} of {one.seeds} {one.data}" for one in mine)
            worst = max(one.worst_variation for one in mine)
            found.append(Line(f"distance from HMC: {method}", asked, near, f"largest total variation {worst:.3f}"))
    others = [one for one in far if one.method not in {"auto", ANNEALED}]
    if others:
        silent, seen = sum(one.unflagged for one in others), sum(one.flagged for one in others)
        noted = sum(one.noted for one in others)
        found.append(
            Line(
                "distance from HMC: the other methods",
                "goal: every fit that is not within 0.05 gives a warning or a note",
                f"{seen} of {silent + noted + seen} such fits gave a warning and {noted} a note in summary()",
                "predictions may be good and still differ from HMC's" if silent else "goal reached",
            )
        )
    return found


def _lines_of_posteriors(lines: Lines) -> list[Line]:
    found = []
    for method, of in goals.posteriors_of(lines).items():
        good = sum(goals.reached(method, errors) for errors in of.values())
        mean, sd = goals.OF_POSTERIORS[method]
        found.append(
            Line(
                f"posteriordb: {method.replace('_', ' ')}",
                f"goal: all means within {mean:g} sd and all sds within {100 * sd:.0f}%",
                f"{good} of {len(of)} posteriors",
                f"worst mean {max(one['mean'] for one in of.values()):.3f} sd, worst sd "
                f"{100 * max(one['sd'] for one in of.values()):.1f}%",
            )
        )
    return found


def _problems(lines: Lines, size: Size) -> Table:
    rows = []
    for name in size.problems:
        seeds = {Cell.of(key).seed for key in lines if key.startswith(f"default|{name}|")}
        rows.append([name, PROBLEMS[name].kind, PROBLEMS[name].about, str(len(seeds))])
    return Table("Problems", ["problem", "kind", "training examples", "seeds"], rows, CIFAR)


def _matrix(title: str, lines: Lines, size: Size, names: tuple[str, ...], *, baselines: bool = False) -> Table:
    columns = [(method, "default") for method in METHODS if method in size.methods]
    columns += [(name, "baseline") for name in BASELINES] if baselines else []
    found = {
        (problem, method): _cell(verdicts.defaults_of(lines, problem, method, part).values(), names)
        for problem in size.problems
        for method, part in columns
    }
    used = [method for method, _ in columns if any(found[problem, method] for problem in size.problems)]
    rows = [[problem, *(found[problem, method] or "–" for method in used)] for problem in size.problems]
    return Table(
        title, ["problem", *used], rows, "`point` is the plain network. Every method has its default settings."
    )


def _cell(fits: Iterable[Any], names: tuple[str, ...]) -> str:
    fits = list(fits)
    for name in names:
        value = verdicts.mean_of(fits, name)
        if value is not None:
            return f"{value:.4g}" if name in {"rmse", "cpu_seconds"} else f"{value:.3f}"
    return ""


def _warned(judged: list[verdicts.Judged]) -> Table:
    rows = []
    for method in METHODS:
        mine = [one for one in judged if one.method == method]
        if not mine:
            continue
        cells = [method, str(len(mine))]
        for state in (FINE, "between", FAILED):
            of = [one for one in mine if one.state == state]
            cells += [str(len(of)), str(sum(bool(one.warnings) for one in of))]
        rows.append(cells)
    headings = ["method", "fits", "fine", "of these warned", "between", "of these warned", "failed", "of these warned"]
    note = (
        "A fit is judged against the best network of the same problem and seed. The page on warnings "
        "[defines](../warnings.md#how-often-they-are-wrong) fine and failed; other fits are between. No fit had "
        "validation data, as is usual on the command line."
    )
    return Table("Fits that are fine or failed, and their warnings", headings, rows, note)


def _of_tables(tables: list[goals.TableOfAuto]) -> Table:
    rows = [
        [
            one.table,
            one.used,
            str(one.splits),
            f"{one.nll:.3f}" + ("" if one.error is None else f" ± {one.error:.3f}"),
            f"{BEST[one.table]:.2f}" if one.table in BEST else "–",
            f"{100 * one.coverage:.1f}%",
            "–" if one.over_boosting is None else f"{one.over_boosting:.2f}",
            f"{one.warned} of {one.splits}",
            f"{one.seconds:.0f}",
        ]
        for one in tables
    ]
    headings = ["table", "chosen", "splits", "test NLL", "best published", "coverage of 90% intervals"]
    return Table("Auto on tables of numbers", [*headings, "RMSE / boosting's", "warned", "CPU s"], rows)


def _of_hmc(far: list[goals.FromHMC]) -> Table:
    rows = [
        [
            f"{one.data}: {one.method}",
            str(one.seeds),
            str(one.near),
            str(one.flagged),
            str(one.noted),
            str(one.unflagged),
            *(
                "–" if math.isnan(value) else f"{value:.3f}"
                for value in (one.worst_accuracy, one.total_variation, one.worst_variation)
            ),
        ]
        for one in far
    ]
    headings = ["", "seeds", "near HMC", "far, with a warning", "far, with a note", "far, neither"]
    headings += ["largest accuracy gap", "mean total variation", "largest total variation"]
    note = (
        "All fits have a 2-5-5-2 tanh network and the prior normal:1; other settings are the defaults. For Auto, near "
        "means within 0.02 in accuracy and 0.03 in total variation. For the others it means within 0.05 in both. The "
        "reference has 16 chains of 400 draws and other seeds than Auto. A note is a line of `summary()`. It says "
        "that the fit is an approximation and that HMC is affordable. It does not depend on the fit, so fits near HMC "
        "have it too."
    )
    return Table("Distance from HMC on circles and moons", headings, rows, note)


def _of_posteriors(lines: Lines) -> Table:
    rows = []
    for method, of in goals.posteriors_of(lines).items():
        for name, errors in of.items():
            cells = [f"{errors['mean']:.3f}", f"{errors['sigma_mean']:.3f}", f"{100 * errors['sd']:.1f}"]
            rows.append([name, method.replace("_", " "), *cells, f"{100 * errors['sigma_sd']:.1f}"])
    headings = ["posterior", "method", "worst mean (sd)", "sigma's mean (sd)", "worst sd (%)", "sigma's sd (%)"]
    note = (
        "Largest errors of posterior means, in standard deviations, and of standard deviations. Sigma is the noise. "
        "HMC has 8 chains of 1,250 draws. Full rank has 2,000 steps of natural gradients with 8 draws each."
    )
    return Table("Reference posteriors of posteriordb", headings, rows, note)


def _of_tuned(tuned: list[verdicts.AgainstTuned]) -> Table:
    rows = []
    for one in sorted(tuned, key=lambda one: (one.method, one.problem)):
        error = "accuracy" if "accuracy" in one.default else "rmse"
        cells = [f"{one.default[error]:.4g}", f"{one.tuned[error]:.4g}", f"{one.default['nll']:.3f}"]
        missed = ", ".join(name if name == "accuracy" else name.upper() for name in one.misses) or "–"
        nll = f"{one.tuned['nll']:.3f}"
        rows.append([f"{one.method}, {one.problem}", one.best, str(one.seeds), *cells, nll, missed])
    headings = ["", "best setting", "seeds", "default", "tuned", "default's NLL", "tuned NLL", "goals missed"]
    note = (
        f"Accuracy or RMSE, and NLL. The search has these settings: {', '.join(TRIES)}. Wide is 4 times as many hidden "
        "units on tables (HMC: 30-30 tanh); long is 3 times the epochs; another model is a noise that depends on the "
        "inputs, the prior normal:fan_in, or another dropout rate. They are judged on a "
        "fifth of the first seed's training rows, by NLL."
    )
    return Table("Defaults and tuned settings", headings, rows, note)


def _silent(silent: list[verdicts.Judged]) -> Table:
    counts = Counter((one.problem, one.method) for one in silent)
    rows = [[problem, method, str(count)] for (problem, method), count in sorted(counts.items())]
    return Table("Failed without a warning", ["problem", "method", "fits"], rows)


def _not_counted(lines: Lines) -> Table:
    rows = []
    for key, line in sorted(lines.items()):
        cell = Cell.of(key)
        of_classes = cell.part == "baseline" and PROBLEMS[cell.problem].kind == "classification"
        if of_classes and cell.method not in OF_CLASSES:
            continue
        if line["status"] in {REFUSED, UNAFFORDABLE, "broken"} and cell.part in {"default", "baseline"}:
            if verdicts.defaults_of(lines, cell.problem, cell.method, cell.part):
                continue  # another seed has its score
            said = "not run" if line["reason"].endswith("not installed") else line["status"]
            rows.append([cell.problem, cell.method, said, line["reason"]])
    seen = {(row[0], row[1]): row for row in rows}
    return Table(
        "Not counted",
        ["problem", "method", "", "reason"],
        [seen[key] for key in sorted(seen)],
        "If the first seed was refused or took too long, the other seeds were not tried.",
    )


# Kinds of fits that are missing, in words.
_LEFT = {
    "default": "at the defaults",
    "try": "in the search for tuned settings",
    "tuned": "with the tuned settings",
    "baseline": "of baselines",
    "distance": "for distances from HMC",
    "posterior": "for posteriordb",
}


def _shortfalls(lines: Lines, size: Size) -> list[str]:
    left = Counter(cell.part for cell in missing_cells(lines, size))
    commits = sorted({str(line.get("commit")) for line in lines.values()})
    told = [CIFAR, f"The cells were computed at commits {', '.join(commits)}."] if commits else [CIFAR]
    told += ["Image data sets have only their first 5,000 images. The other data sets are complete."]
    if left:
        parts = ", ".join(f"{left[part]} {said}" for part, said in _LEFT.items() if left[part])
        told.append(f"For lack of time, these fits were not computed: {parts}.")
    if not any(
        key.startswith("baseline|") and "|ngboost|" in key and one["status"] == FINE for key, one in lines.items()
    ):
        told.append("NGBoost was not installed where the cells were computed, so its columns are left out.")
    return told


def _scores(lines: Lines, size: Size) -> dict[str, Any]:
    """Mean scores by problem and method."""
    names = ("accuracy", "rmse", "nll", "ece", "coverage", "cpu_seconds")
    found: dict[str, Any] = {}
    for problem in size.problems:
        for method, part in [*((one, "default") for one in METHODS), *((one, "baseline") for one in BASELINES)]:
            fits = list(verdicts.defaults_of(lines, problem, method, part).values())
            means = {name: verdicts.mean_of(fits, name) for name in names}
            if fits:
                kept = {name: value for name, value in means.items() if value is not None}
                found.setdefault(problem, {})[method] = _finite({"seeds": len(fits), **kept})
    return found


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def _name(one: verdicts.Judged) -> str:
    return f"{one.problem}, {one.method}, seed {one.seed}"


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
