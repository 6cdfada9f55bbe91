"""`python tests/faults/campaign [NAME...] [--short]`: make the faults, print the table, fail if anything was lost."""

import argparse
import contextlib
import dataclasses
import importlib
import subprocess
import sys
import time
import traceback
from pathlib import Path

import io_layer
from campaigns import CAMPAIGNS, LAYERED, SHARED
from ledger import Ledger
from rows import FULL, ROOT, SHORT, Row, put, table

# Reasons of the losses of one row at the end of the log.
MOST_REASONS = 10
# The row of a campaign that ended in an error; the page has none.
BROKE_OFF = "campaign broke off"


def main():
    options = _options()
    if not options.count and options.jobs == 1 and LAYERED & set(options.names):
        io_layer.available()
    until = time.monotonic() + 60 * options.minutes
    made, lost = [], []
    for name in options.names:
        path = None if options.short else options.ledger / f"{name}.jsonl"
        if path is not None and options.afresh:
            for old in (path, *path.parent.glob(f"{name}.*.jsonl")):
                old.unlink(missing_ok=True)
        began = time.monotonic()
        if options.jobs > 1 and name in SHARED:
            _in_processes(name, options, until)
        ledger = Ledger(path, closed=options.count or options.jobs > 1, share=options.share, until=until)
        trials, reasons = _rows(name, ledger, options.short), _Reasons()
        while (made_row := reasons.next(trials)) is not None:
            row = dataclasses.replace(
                made_row, campaign=name, command=f"make faults ONLY={name}", made=made_row.made or ledger.made()
            )
            # A share is not the whole: the process that started the others writes the rows.
            if options.share == (0, 1) and row.fault != BROKE_OFF:
                put(SHORT if options.short else options.rows, row)
            made.append(row)
            said = reasons.taken()
            if row.lost:
                # The first ones: a row with many losses must not hide those after it.
                lost += [table([row])[1], *said[:MOST_REASONS]]
            print(table([row])[1], file=sys.stderr, flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(table(made)), flush=True)
    if lost:
        # Last, because the end of a long log is what is kept and read; on both streams, because one may be kept alone.
        for stream in (sys.stdout, sys.stderr):
            print("\nlost:", *lost, sep="\n", file=stream, flush=True)
    return 1 if lost else 0


def _rows(name, ledger, short):
    """The rows of a campaign. One that breaks off has lost what it did not try, and the next ones are made."""
    try:
        yield from importlib.import_module(CAMPAIGNS[name]).rows(ledger, short)
    except Exception as error:  # noqa: BLE001 -- shown, and counted as a loss
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"{name} broke off at {Path(where.filename).name}:{where.lineno}: {error!r}", file=sys.stderr)
        traceback.print_exc()
        yield Row(BROKE_OFF, name, 1, 0, 1, 0.0)


class _Reasons:
    """What the trials say on the standard error, which still shows it: the reason of each loss."""

    def __init__(self):
        self._text = ""

    def next(self, trials):
        """The next row, or None at the end."""
        with contextlib.redirect_stderr(self):
            return next(trials, None)

    def taken(self):
        """What was said since the last row."""
        lines, self._text = self._text.splitlines(), ""
        return [line[:600] for line in lines if line.strip()]

    def write(self, text):
        self._text += text
        return sys.__stderr__.write(text)

    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)


def _options():
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CAMPAIGNS)}; without any, all")
    parser.add_argument("--short", action="store_true", help="a few of each, in minutes; the page is not changed")
    parser.add_argument("--afresh", action="store_true", help="forget the trials of a campaign that was stopped")
    parser.add_argument("--count", action="store_true", help="make no fault: write the rows of what was done so far")
    parser.add_argument("--jobs", type=int, default=1, help=f"processes that share {', '.join(sorted(SHARED))}")
    parser.add_argument("--share", type=_share, default=(0, 1), metavar="K/N", help="only share K of N, from 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after so many minutes")
    parser.add_argument(
        "--ledger", type=Path, default=ROOT / "build" / "faults" / "ledger", help="folder of the trials"
    )
    parser.add_argument("--rows", type=Path, default=FULL, help="file of the rows")
    options = parser.parse_args()
    unknown = set(options.names) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CAMPAIGNS)}")
    options.names = options.names or list(CAMPAIGNS)
    several = options.jobs > 1 or options.share != (0, 1)
    if several and (options.short or not set(options.names) <= SHARED):
        parser.error(f"--jobs and --share are for the full forms of {', '.join(sorted(SHARED))}")
    return options


def _share(text):
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and int(number) < int(of)):
        raise argparse.ArgumentTypeError(f"K/N with K from 0 to N - 1, got {text!r}")
    return int(number), int(of)


def _in_processes(name, options, until):
    """Make the trials of a campaign in several processes, which print what they find."""
    command = [sys.executable, str(Path(__file__).parent), name, "--ledger", str(options.ledger)]
    minutes = (until - time.monotonic()) / 60
    command += ["--minutes", f"{minutes:.3f}"] if minutes < float("inf") else []
    processes = [
        subprocess.Popen([*command, "--share", f"{number}/{options.jobs}"], stdout=subprocess.DEVNULL)
        for number in range(options.jobs)
    ]
    for process in processes:
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
