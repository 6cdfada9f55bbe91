"""`python tests/faults/campaign [NAME...] [--short]`: make the faults, print the table, fail if anything was lost."""

import argparse
import dataclasses
import importlib
import sys
import time

import io_layer
from campaigns import CAMPAIGNS, LAYERED
from ledger import Ledger
from rows import FULL, ROOT, SHORT, put, table


def main():
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CAMPAIGNS)}; without any, all")
    parser.add_argument("--short", action="store_true", help="a few of each, in minutes; the page is not changed")
    parser.add_argument("--afresh", action="store_true", help="forget the trials of a campaign that was stopped")
    parser.add_argument("--count", action="store_true", help="make no fault: write the rows of what was done so far")
    options = parser.parse_args()
    unknown = set(options.names) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CAMPAIGNS)}")
    if not options.count and LAYERED & set(options.names or CAMPAIGNS):
        io_layer.available()
    made = []
    for name in options.names or CAMPAIGNS:
        path = None if options.short else ROOT / "build" / "faults" / "ledger" / f"{name}.jsonl"
        if path is not None and options.afresh:
            path.unlink(missing_ok=True)
        began = time.monotonic()
        for made_row in importlib.import_module(CAMPAIGNS[name]).rows(
            Ledger(path, closed=options.count), options.short
        ):
            row = dataclasses.replace(made_row, campaign=name, command=f"make faults ONLY={name}")
            put(SHORT if options.short else FULL, row)
            made.append(row)
            print(table([row])[1], file=sys.stderr, flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(table(made)))
    return 1 if any(row.lost for row in made) else 0


if __name__ == "__main__":
    sys.exit(main())
