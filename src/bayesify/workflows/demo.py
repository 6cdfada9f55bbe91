"""The point in a minute: four kinds of network learn nine digits, and are then shown the tenth.

The images are scikit-learn's 8x8 digits. The settings below were chosen by the NLL on known digits, in a part of the
training images held out for it; nothing was chosen by how well a withheld digit is noticed. `docs/demo.md` has the
scores for each of the ten digits withheld in turn.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify import networks
from bayesify.data import DataSet, open_data, withhold
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

if TYPE_CHECKING:
    from rich.console import Console

# Typical of the ten, not the best: its AUROC gains by variational inference about as much as the mean over all ten.
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
_PICTURE_SCALE = 16


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo has made: results in the order of the table, its rows, the report and the run folders."""

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
    """Train, compare, and write `report.html`, a run folder for each network and two pictures to ask about.

    Args:
        out: the folder; an earlier demo in it is replaced.
        withheld: the digit that no network is taught.
        seed: of starts, shuffling and noise.
        quick: a twentieth of the training, to see that everything works.
        progress: show a bar while training (never when the output is not a terminal).
        console: where to print.

    """
    out, console = Path(out), console or _terminal()
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
    _say_what_next(console, report, folders["variational"], out)
    return Demo(results, rows, report, folders)


def every_digit(*, seed: int = 0, quick: bool = False, progress: bool = True) -> dict[str, list[TrainedResult]]:
    """Results with each digit withheld in turn, which is how `docs/demo.md` was made; about six minutes."""
    with _one_thread():
        return {
            digit: train(_digits(digit, seed), seed=seed, quick=quick, progress=progress)
            for digit in map(str, range(10))
        }


def scores(results: Mapping[str, Sequence[TrainedResult]]) -> dict[str, dict[str, dict[str, float]]]:
    """What `docs/results/demo.json` holds of such results: by method, by withheld digit, each score."""
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
    """Such scores as the two tables of `docs/demo.md`: AUROC digit by digit, and means of the rest."""
    digits = list(next(iter(scored.values())))
    areas = {label: [own[digit]["auroc"] for digit in digits] for label, own in scored.items()}
    plain = next(iter(areas.values()))
    lines = [f"| method | {' | '.join(digits)} | mean | gain over plain |", f"| --- |{' ---: |' * (len(digits) + 2)}"]
    for label, area in areas.items():
        gain = Spread.of([ours - theirs for ours, theirs in zip(area, plain, strict=True)])
        error = "" if gain.standard_error is None else f" ± {_short(gain.standard_error)}"
        last = "" if area is plain else f"{_short(gain.mean, '+')}{error}"
        lines.append(f"| {label} | {' | '.join([*map(_short, area), _short(fmean(area)), last])} |")
    sure = f"withheld digits answered with at least {SURE:.0%} confidence"
    lines += ["", f"| method | accuracy on known digits | NLL | ECE | {sure} |", f"| --- |{' ---: |' * 4}"]
    for label, own in scored.items():
        mean = {name: fmean(one[name] for one in own.values()) for name in ("accuracy", "nll", "ece", "sure")}
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
    """All networks on the digits that are not withheld, scored on the test images."""
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
    """Steps this small gain nothing from a second thread, and lose much where other work holds the second core."""
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
    from bayesify.report.examples import easiest_known, most_telling_unknown

    assert raw.unknown is not None
    for folder, result in zip(folders.values(), results, strict=True):
        result.method.save(folder)
        write_metrics(folder, {"method": result.name, "data": "the test part of digits", **result.evaluation.to_dict()})
    _save_picture(raw.x_test[easiest_known(results)], out / "known.png")
    _save_picture(raw.unknown[most_telling_unknown(results, SURE)], out / "unknown.png")
    withheld = ", ".join(raw.withheld)
    examples = f"{len(raw.x_train):,} images of nine digits to learn from, {len(raw.x_test):,} others to test"
    return comparison_report(
        results,
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


def _save_picture(levels: Tensor, path: Path) -> None:
    """One raw digit as a PNG large enough to look at; `predict` makes it small again."""
    from PIL import Image

    grey = (levels.double() * (255 / 16)).round().to(torch.uint8).numpy()
    large: Any = np.kron(grey, np.ones((_PICTURE_SCALE, _PICTURE_SCALE), dtype=np.uint8))
    Image.fromarray(large).save(path)


def _explain(console: Console, results: Sequence[TrainedResult], withheld: str) -> None:
    sure = [f"{result.label} {_falsely_sure(result):.0%}" for result in results]
    spent = f"{results[0].example_gradients:,} example-gradients for each method, {results[1].example_gradients:,}"
    for line in (
        "AUROC: how well doubt tells the unknown digit from known ones; 0.5 is chance, 1 is perfect.",
        "At 90%: the accuracy on known digits when the least sure tenth of the answers is withheld.",
        f"Budget: {spent} for the first ensemble. Cost is training time over the plain network's.",
        f"No answer to a {withheld} can be right; at least {SURE:.0%} sure of one all the same: {'; '.join(sure)}.",
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


def _say_what_next(console: Console, report: Path, folder: Path, out: Path) -> None:
    def quoted(path: Path) -> str:
        return shlex.quote(str(path))

    # A command that the shell would not find is named by its place.
    beside = Path(sys.executable).with_name("bayesify")
    bayesify = "bayesify" if shutil.which("bayesify") or not beside.exists() else os.path.relpath(beside)
    console.print("\nWhat next?", markup=False)
    for what, how in (
        ("See the pictures, open", str(report)),
        ("Ask about one", f"{bayesify} predict {quoted(folder)} {quoted(out / 'unknown.png')} --at-least {SURE}"),
        ("Train on a table of yours", f"{bayesify} train --data your.csv --out runs/yours"),
    ):
        # Commands are for copying: a line must not be broken.
        console.print(f"  {what + ':':<28}{how}", markup=False, soft_wrap=True)


def main(words: Sequence[str] | None = None) -> None:
    """Every digit: print the tables of `docs/demo.md`, and write the scores where asked to."""
    parser = argparse.ArgumentParser(prog="python -m bayesify.workflows.demo", description=main.__doc__)
    parser.add_argument("out", nargs="?", type=Path, help="a JSON file for the scores")
    out = parser.parse_args(words).out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        parser.error(f"{out} cannot be written: give a file in a folder that is there")
    found = scores(every_digit())
    if out is not None:
        write_json(out, found)
    print(tables(found))


if __name__ == "__main__":
    main()
