"""Small trainings as people start them, one for each method and command, and whether two results are the same bits."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

METHODS = ("point", "ensemble", "mc-dropout", "variational", "ivon", "laplace", "swag", "sgld", "sghmc")
_COMMON = ("--data", "moons", "--units", "8", "--batch-size", "100")
# What differs between two runs that are the same: times, and what a lock or a report says of the moment.
_PASSING = {
    "seconds",
    "date",
    "dates",
    "created",
    "time",
    "duration",
    "began",
    "ended",
    "wall_seconds",
    "peak_memory",
    "versions",
    "commit",
}


@dataclass(frozen=True)
class Training:
    """A command that works into a folder, and the one that goes on after an interruption.

    Args:
        name: of the method or the command.
        start: its words; `{out}` is the folder.
        again: the words that go on; where they are those of `start`, the command finds by itself what was done.

    """

    name: str
    start: tuple[str, ...]
    again: tuple[str, ...]

    def begin(self, out):
        """Start it in this process; the exit code."""
        return _command(self.start, out)

    def begin_over(self, out):
        """Start it in the place of the run that is in the folder."""
        return _command((*self.start, "--overwrite"), out)

    def go_on(self, out):
        """Go on with it; where nothing had been saved yet, start it again."""
        if self.again[0] != "train":
            return _command(self.again, out)
        return continued(out, lambda: self.begin_over(out), lambda: _command(self.again, out))


def continued(out, again, resume):
    """Go on with the training of a run folder: resume it, or start it again where it had saved nothing yet."""
    if not (out / "config.json").exists() or not (out / "checkpoint" / "state.safetensors").exists():
        return again()
    from bayesify.runs import use
    from bayesify.workflows.load import is_complete

    if not is_complete(out):
        return resume()
    # It was killed after its last write. The next process that writes there deletes what was left behind.
    use(out)
    return 0


def _command(words, out):
    import torch

    from bayesify.cli import main

    torch.set_num_threads(1)
    return main([word.format(out=out) for word in words])


def methods(epochs=12, seed=3):
    """A training with each of the ten methods, by name."""
    made = {}
    for name in METHODS:
        made[name] = (
            "train",
            "--method",
            name,
            *_COMMON,
            "--epochs",
            str(epochs),
            "--seed",
            str(seed),
            "--out",
            "{out}",
        )
    made["hmc"] = ("train", "--method", "hmc", "--data", "moons", "--units", "4", "--layers", "1", "--chains", "2")
    made["hmc"] += (
        "--samples",
        str(4 * epochs),
        "--warm-up",
        str(max(20, 5 * epochs)),
        "--seed",
        str(seed),
        "--out",
        "{out}",
    )
    return {name: Training(name, start, ("train", "--resume", "{out}")) for name, start in made.items()}


def trainings():
    """All of them, by name: the methods, a sweep and a reproduced experiment."""
    sweep = (
        "sweep",
        "small-grid",
        "--data",
        "moons",
        "--units",
        "8",
        "--layers",
        "1",
        "--epochs",
        "6",
        "--out",
        "{out}",
    )
    reproduce = ("reproduce", "line", "--preset", "quick", "--out", "{out}")
    others = (Training("sweep", sweep, sweep), Training("reproduce", reproduce, reproduce))
    return methods() | {one.name: one for one in others}


def result(out):
    """A digest of everything that a run or a command left, but for times: equal for equal bits."""
    digest = hashlib.sha256()
    for path in sorted(Path(out).rglob("*")):
        if (
            not path.is_file()
            or path.suffix in {".html", ".svg", ".png", ".md"}
            or path.name in {"report.json", ".lock"}
        ):
            continue
        name = str(path.relative_to(out))
        if path.name.startswith("."):
            raise AssertionError(f"{name} was left behind")
        if path.suffix in {".json", ".jsonl"}:
            text = path.read_text(encoding="utf-8")
            values = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
            content = json.dumps(_lasting(values, str(out)), sort_keys=True).encode()
        elif name == "checkpoint/state.safetensors":
            content = b""  # for resuming: its history has times; the model beside it is compared
        else:
            content = path.read_bytes()
        digest.update(json.dumps([name, len(content)]).encode() + content)
    return digest.hexdigest()


def _lasting(value, out):
    if isinstance(value, dict):
        return {key: _lasting(item, out) for key, item in value.items() if key not in _PASSING}
    if isinstance(value, list):
        return [_lasting(item, out) for item in value]
    return value.replace(out, "OUT") if isinstance(value, str) else value
