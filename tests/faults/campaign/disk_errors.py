"""An error of the disk, or `kill -9`, at every single change that a training makes on it: nothing may be lost or mixed.

The disk stays broken from that change on (full, read-only) or fails once (an error of the device). The command must end
in one line, or finish. Afterwards, on a good disk, it must go on to the bits of a training that nothing happened to.
"""

import dataclasses
import errno
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import forked
import io_layer
from rows import Row
from trainings import methods, result

# What is written, and when, is decided by the loop of the optimised methods and by that of HMC.
METHODS = ("variational", "hmc")
FAULTS = (
    ("kill -9 at every change on the disk", io_layer.KILL, 0),
    ("disk full from every change on", io_layer.EVER_AFTER, errno.ENOSPC),
    ("read-only from every change on", io_layer.EVER_AFTER, errno.EROFS),
    ("one error of the device (EIO) at every change", io_layer.ONCE, errno.EIO),
)
SAVE_FAULTS = (
    (io_layer.KILL, 0),
    (io_layer.EVER_AFTER, errno.ENOSPC),
    (io_layer.ONCE, errno.ENOSPC),
    (io_layer.ONCE, errno.EIO),
)
REPLACED = "kill -9 at every change, while a run is replaced"
SAVED = "disk full or kill -9 at every change of save()"
NEW, OVER, SAVE = "training", "train --overwrite", "another method saved over a run"
EPOCHS = 2


def rows(ledger, short):
    """A row for each fault, over all methods, and for runs that are replaced."""
    if ledger.closed:
        yield from _counted(ledger)
        return
    if not io_layer.available():
        return
    with tempfile.TemporaryDirectory(prefix="disk-", dir=forked.FAST) as place:
        known = {}
        made = [(fault, NEW, _new(ledger, short, Path(place), kind, error, known)) for fault, kind, error in FAULTS]
        made.append((REPLACED, OVER, _replacing(ledger, short, Path(place))))
        made.append((SAVED, SAVE, _saving(ledger, short, Path(place))))
        for fault, part, trials in made:
            row = _row(fault, part, trials)
            if row.tried:
                yield row


def _counted(ledger):
    """The rows of the trials that were made so far."""
    found = [(fault, NEW, f"new {kind} {error} ") for fault, kind, error in FAULTS]
    for fault, part, prefix in (*found, (REPLACED, OVER, "replace "), (SAVED, SAVE, "save ")):
        trials = ledger.beginning(prefix)
        if trials:
            row = _row(fault, part, trials)
            yield dataclasses.replace(row, seconds=sum(facts["seconds"] for _, facts in trials))


def _row(fault, part, trials):
    began, tried, lost, made = time.monotonic(), 0, 0, {}
    for key, facts in trials:
        if facts is None:
            continue
        tried += 1
        if facts["why"]:
            lost += 1
            print(f"{fault}, {key}: {facts['why']}", file=sys.stderr, flush=True)
        # The last words of a key are the method, or the error of a `save`, and the number of the change, up to `of`.
        name = " ".join(key.split()[1:-1]) if part == SAVE else key.split()[-2]
        made[name] = (made.get(name, (0, 0))[0] + 1, facts.get("of", 0))
    if part == SAVE:
        whole = len(SAVE_FAULTS) * max((of for _, of in made.values()), default=0)
        note = f"{tried} of {whole}: {len(SAVE_FAULTS)} faults at each change"
    else:
        note = ", ".join(f"{name}: {count} of {of} changes" for name, (count, of) in made.items())
    return Row(fault, part, tried, tried - lost, lost, time.monotonic() - began, note)


def _new(ledger, short, place, kind, error, known):
    """A training into an empty folder, with a fault at each change; `known` has what a method changes and ends in."""
    for name, training in methods(EPOCHS).items():
        if name not in METHODS[: 1 if short else 2] or ledger.closed:
            continue
        out = place / "run"
        if name not in known:
            forked.import_what_it_imports(lambda: training.begin(place / "first"))
            shutil.rmtree(place / "first", ignore_errors=True)
            known[name] = _count(out, lambda: training.begin(out))
        changes, reference = known[name]
        for number in range(1, changes + 1, 12 if short else 1):
            key = f"new {kind} {error} {name} {number}"

            def trial(number=number):
                code, text, _ = forked.run(lambda: _armed(out, number, kind, error, lambda: training.begin(out)))
                why = _wrong_end(code, text, kind) or _wrong_later(training, out, code, reference)
                shutil.rmtree(out, ignore_errors=True)
                return {"why": why, "of": changes}

            yield key, ledger.trial(key, trial)


def _replacing(ledger, short, place):
    """A whole run is replaced by another training; what is in the folder is the old run, or the new one, never a mixture."""
    olds, news = methods(EPOCHS, seed=1), methods(EPOCHS, seed=3)
    for name in olds:
        if name not in METHODS[: 1 if short else 2] or ledger.closed:
            continue
        old, new, out = place / "old", news[name], place / "run"
        code, text, _ = forked.run(lambda: olds[name].begin(old))
        assert code == 0, text
        before = _prediction(old)
        overwrite = lambda: new.begin_over(out)  # noqa: E731
        shutil.copytree(old, out)
        changes, reference = _count(out, overwrite)
        for number in range(1, changes + 1, 12 if short else 1):
            key = f"replace {name} {number}"

            def trial(number=number):
                shutil.copytree(old, out)
                code, text, _ = forked.run(lambda: _armed(out, number, io_layer.KILL, 0, overwrite))
                why = _wrong_end(code, text, io_layer.KILL)
                if not why:
                    config = json.loads((out / "config.json").read_text()) if (out / "config.json").exists() else {}
                    is_old = config.get("plan", {}).get("seed") == 1
                    found = _prediction(out)
                    if (
                        is_old
                        and config.get("complete")
                        and found not in {before, "refused"}
                        and not (out / ".config.next").exists()
                    ):
                        why = "the folder says that it is the old run and predicts otherwise"
                    code, text, _ = forked.run(lambda: new.begin_over(out))
                    why = why or (
                        ""
                        if code == 0 and result(out) == reference
                        else f"trained again: exit code {code}, {text[-200:]}"
                    )
                shutil.rmtree(out, ignore_errors=True)
                return {"why": why, "of": changes}

            yield key, ledger.trial(key, trial)
        shutil.rmtree(old)


def _saving(ledger, short, place):
    """A network with other weights and another noise is saved over a run: the folder holds the one or the other."""
    if ledger.closed:
        return
    out, one, other = place / "run", place / "one", place / "other"

    def make(noise, seed):
        import torch

        import bayesify as bf

        torch.manual_seed(seed)
        return bf.Variational(bf.networks.mlp(2, 1, units=6), bf.likelihoods.Gaussian(noise), prior=f"normal:{noise}")

    def save(noise, seed, folder):
        make(noise, seed).save(folder)
        return 0

    for arguments in ((0.1, 1, one), (2.0, 2, other)):
        code, text, _ = forked.run(lambda: save(*arguments))
        assert code == 0, text
    allowed = {_prediction(one), _prediction(other)}
    shutil.copytree(one, out)
    changes, _ = _count(out, lambda: save(2.0, 2, out))
    for kind, error in SAVE_FAULTS:
        for number in range(1, changes + 1, 5 if short else 1):
            key = f"save {kind} {error} {number}"

            def trial(kind=kind, error=error, number=number):
                shutil.copytree(one, out)
                code, text, _ = forked.run(lambda: _armed(out, number, kind, error, lambda: save(2.0, 2, out)))
                why = "" if "Traceback" not in text or "RunError: " in text else text[-300:]
                found = _prediction(out)
                why = why or ("" if found in allowed else f"exit code {code}; it predicts as neither ({found[:80]})")
                if not why:
                    code, text, _ = forked.run(lambda: save(2.0, 2, out))
                    why = (
                        ""
                        if code == 0 and _prediction(out) == _prediction(other) and not list(out.glob(".*"))
                        else f"saved again: {code} {text[-200:]}"
                    )
                shutil.rmtree(out, ignore_errors=True)
                return {"why": why, "of": changes}

            yield key, ledger.trial(key, trial)


def _count(out, action):
    """How many changes a whole command makes, and its result; the folder is deleted."""
    counted = out.with_name("changes")

    def counting():
        io_layer.arm(out, 0, io_layer.COUNT)
        code = action()
        counted.write_text(str(io_layer.seen()))
        return code

    code, text, _ = forked.run(counting)
    assert code == 0, text
    found = result(out)
    shutil.rmtree(out)
    return int(counted.read_text()), found


def _armed(out, number, kind, error, action):
    io_layer.arm(out, number, kind, error)
    return action()


def _wrong_end(code, text, kind):
    """What is wrong with how a command ended: a hang, a traceback, an unexpected error; nothing where all is well."""
    lines = [line for line in text.splitlines() if line.startswith("bayesify: ")]
    if code is None:
        return "it did not end"
    if code == -9 and kind == io_layer.KILL:
        return ""
    if "Traceback" in text or "unexpected" in text:
        return f"exit code {code}: {text[-300:]}"
    if code not in {0, 1, 2} or (code and len(lines) != 1):
        return f"exit code {code}, {len(lines)} lines: {text[-300:]}"
    return ""


def _wrong_later(training, out, code, reference):
    """Let a training finish on a good disk; nothing where it ends in the same bits."""
    try:
        if code == 0 and result(out) == reference:
            return ""
    except AssertionError as left:
        return f"exit code 0, and {left}"
    again, text, _ = forked.run(lambda: training.go_on(out))
    if again != 0:
        return f"after exit code {code} it cannot go on: {text[-300:]}"
    try:
        return "" if result(out) == reference else f"after exit code {code} it ends in other bits"
    except AssertionError as left:
        return str(left)


def _prediction(folder):
    """A digest of what the run in a folder predicts, with its likelihood; "refused" where it does not load."""
    answer = folder.with_name("prediction")
    answer.unlink(missing_ok=True)

    def predict():
        import hashlib

        import torch

        import bayesify as bf

        try:
            method = bf.load(folder)
        except bf.RunError:
            answer.write_text("refused")
            return 0
        x = torch.linspace(-2, 2, 20).reshape(10, 2)
        p = method.predict(x, draws=5)
        shown = [
            p.outputs.tolist(),
            p.log_prob(
                torch.zeros(
                    10, dtype=torch.long if "probs" in dir(p) and method.likelihood.kind == "classification" else None
                )
            ).tolist(),
        ]
        answer.write_text(hashlib.sha256(json.dumps(shown).encode()).hexdigest())
        return 0

    code, text, _ = forked.run(predict)
    return answer.read_text() if code == 0 and answer.exists() else f"failed: {text[-200:]}"
