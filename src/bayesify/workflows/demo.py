"""The demo: four kinds of network learn nine digits, and are then shown the tenth.

The images are scikit-learn's 8x8 digits. The settings below were chosen by the validation NLL on known digits, never by
how well a withheld digit is detected. `docs/demo.md` has the scores with each of the ten digits withheld in turn.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify import networks, runs
from bayesify.data import DataSet, open_data, withhold
from bayesify.errors import RunError
from bayesify.files import write_json
from bayesify.likelihoods import Categorical
from bayesify.methods.cards import CARDS
from bayesify.workflows.compare.candidates import MEMBERS, Candidate
from bayesify.workflows.compare.comparison import (
    Row,
    Spread,
    TrainedResult,
    compare,
    summarise,
    table,
)
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import claimed, write_metrics
from bayesify.workflows.unknown_check import fit_check, score_check

if TYPE_CHECKING:
    from rich.console import Console

# A typical digit, not the best: variational inference gains about as much AUROC on it as on average over all ten.
WITHHELD = "3"
UNITS, EPOCHS, BATCH_SIZE, DRAWS = 100, 300, 64, 100
QUICK_EPOCHS, QUICK_DRAWS = 15, 20
SURE = 0.9
CANDIDATES = {
    "plain": Candidate(CARDS["point"].title, "point"),
    "ensemble": Candidate(CARDS["ensemble"].label, "ensemble", {"members": MEMBERS}),
    "ensemble-fifth": Candidate("Ensemble, a fifth each", "ensemble", {"members": MEMBERS}, share=1 / MEMBERS),
    "mc-dropout": Candidate(CARDS["mc-dropout"].title, "mc-dropout", {"p": 0.5}),
    "variational": Candidate(CARDS["variational"].title, "variational", {"prior": "normal:2", "estimator": "local"}),
}
_ENLARGED = 16


@dataclass(frozen=True, eq=False)
class Demo:
    """The outcome of the demo: results in the order of the table, its rows, the report and the run folders."""

    results: list[TrainedResult]
    rows: list[Row]
    report: Path
    folders: dict[str, Path]


def run(
    out: str | Path,
    *,
    withheld: str | int = WITHHELD,
    seed: int = 0,
    quick: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> Demo:
    """Train and compare; write `report.html`, a run folder for each network and two images to predict.

    Args:
        out: the folder; an earlier demo in it is replaced, and other content is refused.
        withheld: the digit that no network is taught.
        seed: of initial weights, shuffling and noise.
        quick: a twentieth of the training, to check that everything works.
        progress: show a progress bar (never when the output is not a terminal).
        console: where to print.

    Returns:
        The results, the rows of the table, the report and the run folders.

    Raises:
        RunError: the folder holds something else.

    """
    out, console = Path(out), console or _terminal()
    _check_folder(out)
    prepared, raw = _digits(withheld, seed), withhold(open_data("digits"), str(withheld))
    folders = {name: out / name for name in CANDIDATES}
    with claimed(*folders.values(), overwrite=True), _one_thread():
        results = train(
            prepared, seed=seed, quick=quick, progress=progress, announce=_announcer(console, prepared, str(withheld))
        )
        report = _write(out, folders, results, prepared, raw)
    rows = summarise([results])
    console.print(table(rows))
    _explain(console, results, str(withheld))
    _print_next_steps(console, report, folders["variational"], out)
    return Demo(results, rows, report, folders)


def _check_folder(out: Path) -> None:
    """Refuse a folder that holds something else, such as a run; an earlier demo is replaced."""
    if not out.is_dir() or not any(out.iterdir()):
        return
    if (out / runs.CONFIG).exists() or not any((out / name).is_dir() for name in CANDIDATES):
        raise RunError(f"{out} holds something that is not a demo: choose another folder (--out)")


def every_digit(*, seed: int = 0, quick: bool = False, progress: bool = True) -> dict[str, list[TrainedResult]]:
    """Results with each digit withheld in turn, for `docs/demo.md`; takes about six minutes."""
    with _one_thread():
        return {
            digit: train(_digits(digit, seed), seed=seed, quick=quick, progress=progress)
            for digit in map(str, range(10))
        }


def scores(results: Mapping[str, Sequence[TrainedResult]]) -> dict[str, dict[str, dict[str, float]]]:
    """The scores of `every_digit` by method, withheld digit and name, as in `docs/results/demo.json`."""
    return {
        column[0].label: {
            digit: {
                "auroc": _auroc(result),
                "sure": _falsely_sure(result),
                **{name: getattr(result.evaluation, name) for name in ("accuracy", "nll", "ece")},
            }
            for digit, result in zip(results, column, strict=True)
        }
        for column in zip(*results.values(), strict=True)
    }


def tables(scored: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The two tables of `docs/demo.md` from `scores`: AUROC digit by digit, and means of the other scores."""
    digits = list(next(iter(scored.values())))
    areas = {label: [by_digit[digit]["auroc"] for digit in digits] for label, by_digit in scored.items()}
    plain = next(iter(areas.values()))
    lines = [f"| method | {' | '.join(digits)} | mean | gain over plain |", f"| --- |{' ---: |' * (len(digits) + 2)}"]
    for label, area in areas.items():
        gain = Spread.of([ours - theirs for ours, theirs in zip(area, plain, strict=True)])
        error = "" if gain.standard_error is None else f" ± {_short(gain.standard_error)}"
        last = "" if area is plain else f"{_short(gain.mean, '+')}{error}"
        lines.append(f"| {label} | {' | '.join([*map(_short, area), _short(fmean(area)), last])} |")
    sure = f"withheld digits answered with at least {SURE:.0%} confidence"
    lines += ["", f"| method | accuracy on known digits | NLL | ECE | {sure} |", f"| --- |{' ---: |' * 4}"]
    for label, by_digit in scored.items():
        mean = {name: fmean(row[name] for row in by_digit.values()) for name in ("accuracy", "nll", "ece", "sure")}
        lines.append(
            f"| {label} | {mean['accuracy']:.1%} | {_short(mean['nll'])} | {_short(mean['ece'])} | {mean['sure']:.0%} |"
        )
    return "\n".join(lines)


def train(
    prepared: PreparedData,
    *,
    seed: int = 0,
    quick: bool = False,
    progress: bool = True,
    announce: Callable[[Candidate, int, int], None] | None = None,
) -> list[TrainedResult]:
    """Train all networks on the digits that are not withheld, and score them on the test images.

    Args:
        prepared: the digits, one of them withheld.
        seed: of initial weights, shuffling and noise.
        quick: a twentieth of the training.
        progress: show a progress bar (never when the output is not a terminal).
        announce: called with each candidate, its place from 0 and the number of candidates.

    Returns:
        A result for each network, in the order of the table.

    """
    inputs, outputs = prepared.train[0].shape[1], len(prepared.class_names)
    return compare(
        prepared.train,
        prepared.test,
        lambda: networks.mlp(inputs, outputs, units=UNITS, layers=1),
        Categorical(classes=outputs),
        unknown=prepared.unknown,
        methods=list(CANDIDATES.values()),
        epochs=QUICK_EPOCHS if quick else EPOCHS,
        batch_size=BATCH_SIZE,
        learning_rate=1e-2,
        schedule="cosine",
        seed=seed,
        draws=QUICK_DRAWS if quick else DRAWS,
        notes={**prepared.notes, "outputs": outputs},
        progress=progress,
        on_start=announce,
    )


def _digits(withheld: str | int, seed: int) -> PreparedData:
    return prepare_data(
        Recipe(data="digits", withhold=(str(withheld),), normalise="standard", units=(UNITS,), layers=1, seed=seed)
    )


def _terminal() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _announcer(console: Console, prepared: PreparedData, withheld: str) -> Callable[[Candidate, int, int], None]:
    def announce(candidate: Candidate, place: int, total: int) -> None:
        if place == 0:
            console.print(
                f"{len(prepared.train[0]):,} images of nine digits to learn from; the {withheld} is never shown.",
                markup=False,
            )
        console.print(f"Training {place + 1} of {total}: {candidate.label}", markup=False)

    return announce


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: steps this small gain nothing from a second, and lose much where the other core is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _write(
    out: Path, folders: dict[str, Path], results: Sequence[TrainedResult], prepared: PreparedData, raw: DataSet
) -> Path:
    from bayesify.report import comparison_report
    from bayesify.report.shown_examples import easiest_known, most_telling_unknown

    assert raw.unknown is not None
    checked: list[TrainedResult] = []
    for folder, result in zip(folders.values(), results, strict=True):
        result.method.save(folder)
        check = fit_check(result.method, folder, prepared.train[0])
        found = score_check(check, prepared.test[0], prepared.unknown)
        checked.append(replace(result, unknown_check=found))
        about = {"method": result.name, "data": "the test part of digits"}
        write_metrics(folder, about | result.evaluation.to_dict() | {"unknown_check": found})
    _save_image(raw.x_test[easiest_known(results)], out / "known.png")
    _save_image(raw.unknown[most_telling_unknown(results, SURE)], out / "unknown.png")
    withheld = ", ".join(raw.withheld)
    examples = f"{len(raw.x_train):,} images of nine digits to learn from, {len(raw.x_test):,} others to test"
    return comparison_report(
        checked,
        path=out / "report.html",
        title=f"Nine digits learnt, the {withheld} withheld",
        subtitle=f"scikit-learn's 8x8 digits: {examples}, {len(raw.unknown):,} of the {withheld}.",
        class_names=prepared.class_names,
        known=(raw.x_test, raw.y_test),
        unknown=raw.unknown,
        unknown_name=f"the digit {withheld}",
        inputs=prepared.test[0],
        at_least=SURE,
    )


def _save_image(levels: Tensor, path: Path) -> None:
    """Save a raw digit as a PNG that is large enough to look at; `predict` resizes it to 8x8."""
    from PIL import Image

    grey = (levels.double() * (255 / 16)).round().to(torch.uint8).numpy()
    large: Any = np.kron(grey, np.ones((_ENLARGED, _ENLARGED), dtype=np.uint8))
    Image.fromarray(large).save(path)


def _explain(console: Console, results: Sequence[TrainedResult], withheld: str) -> None:
    sure = [f"{result.label} {_falsely_sure(result):.0%}" for result in results]
    spent = f"{results[0].example_gradients:,} per-example gradients for each method, {results[1].example_gradients:,}"
    for line in (
        "AUROC: how well uncertainty separates the unknown digit from known ones; 0.5 is chance, 1 is perfect.",
        "At 90%: the accuracy on known digits without the least certain tenth of the predictions.",
        f"Training budget: {spent} for the first ensemble. Cost is training time relative to the plain network.",
        f"Every prediction for a {withheld} is wrong. Share with at least {SURE:.0%} confidence: {'; '.join(sure)}.",
    ):
        console.print(line, markup=False)


def _falsely_sure(result: TrainedResult) -> float:
    assert result.unknown is not None
    return float((result.unknown.confidence >= SURE).double().mean())


def _auroc(result: TrainedResult) -> float:
    assert result.evaluation.auroc is not None
    return result.evaluation.auroc


def _short(value: float, sign: str = "") -> str:
    """Three decimals without the zero before the point."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1)


def _print_next_steps(console: Console, report: Path, folder: Path, out: Path) -> None:
    def quoted(path: Path) -> str:
        return shlex.quote(str(path))

    # Where the shell would not find the command, print its path.
    beside = Path(sys.executable).with_name("bayesify")
    bayesify = "bayesify" if shutil.which("bayesify") or not beside.exists() else os.path.relpath(beside)
    console.print("\nWhat next?", markup=False)
    for what, how in (
        ("Open the report", str(report)),
        (
            "Predict an unknown digit",
            f"{bayesify} predict {quoted(folder)} {quoted(out / 'unknown.png')} --at-least {SURE}",
        ),
        ("Train on your own table", f"{bayesify} train --data your.csv --out runs/yours"),
    ):
        # Commands are copied, so a line must not wrap.
        console.print(f"  {what + ':':<28}{how}", markup=False, soft_wrap=True)


def main(words: Sequence[str] | None = None) -> None:
    """Withhold every digit in turn, print the tables of `docs/demo.md`, and write the scores to a file if named."""
    parser = argparse.ArgumentParser(prog="python -m bayesify.workflows.demo", description=main.__doc__)
    parser.add_argument("out", nargs="?", type=Path, help="a JSON file for the scores")
    out = parser.parse_args(words).out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        parser.error(f"{out} cannot be written: give a file in a folder that exists")
    scored = scores(every_digit())
    if out is not None:
        write_json(out, scored)
    print(tables(scored))


if __name__ == "__main__":
    main()
