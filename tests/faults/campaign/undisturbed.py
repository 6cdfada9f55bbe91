"""What a training that nothing happens to ends in, and whether one that was killed and continued ends in the same bits."""

import shutil
import sys

import forked
from trainings import result


def undisturbed(begin, out, times):
    """The result of a training and how long it takes.

    Args:
        begin: trains into a folder and returns the exit code.
        out: the folder; it is deleted.
        times: how often it is timed. Most kills would come after the end if the one run that is timed were a slow one.

    """
    forked.import_what_it_imports(lambda: begin(out))
    shutil.rmtree(out, ignore_errors=True)
    seconds = []
    for _ in range(times):
        code, text, took = forked.run(lambda: begin(out))
        assert code == 0, text
        reference = result(out)
        shutil.rmtree(out)
        seconds.append(took)
    return reference, min(seconds)


def compared(code, out, reference, said, about, kills):
    """The facts of a trial whose training was continued to its end; its folder is deleted.

    Args:
        code: the exit code of what continued it; None where it did not end.
        out: its folder.
        reference: the result of a training that nothing happened to.
        said: what it printed.
        about: what was tried, for the line about a loss.
        kills: how often it was killed.

    """
    try:
        same = code == 0 and result(out) == reference
    except (AssertionError, ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        same = False
    shutil.rmtree(out, ignore_errors=True)
    said = "it did not end" if code is None else said.strip()[-400:]
    why = "" if same else f"{about}, exit code {code}: {said or 'other bits'}"
    return {"kills": kills, "lost": 0 if same else max(kills, 1), "why": why}


def counted(trials):
    """Kills, losses and seconds of some trials; each loss is printed."""
    for one in trials:
        if one["lost"]:
            print(one["why"], file=sys.stderr)
    return tuple(sum(one.get(what, 0.0) for one in trials) for what in ("kills", "lost", "seconds"))
