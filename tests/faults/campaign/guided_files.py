"""Damaged files whose mutations are guided: one that reaches new lines of the readers is kept, and mutated further.

`mutated_files` damages the original each time, so that a file with two faults that depend on each other is rare. Here a
corpus grows for each kind of file, as a coverage-guided fuzzer's does: it keeps a content that makes our readers go from
one line to another that no earlier content did, refused or not. What a native library does inside is not seen.
"""

import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import forked
from rows import Row

FULL, SHORT = 1_000, 20
SEED, KEPT = 22, 300


def rows(ledger, short):
    """One row over all kinds of files."""
    count = SHORT if short else FULL
    with tempfile.TemporaryDirectory(prefix="guided-", dir=forked.FAST) as folder:
        place, made = Path(folder), []
        if ledger.closed:
            made = [facts for _, facts in ledger.beginning(f"{SEED} ")]
        else:
            (place / "originals").mkdir()
            code, text, _ = forked.run(lambda: _prepare(place / "originals"))
            assert code == 0, text
            import readers

            for name in readers.targets(place / "originals"):
                mine = count // readers.SHARE if name in readers.SLOW else count
                trial = f"{SEED} {name}", lambda name=name, mine=mine: _kind(place, name, mine)
                made.append(ledger.trial(*trial))
    done = [facts for facts in made if facts is not None]
    for facts in done:
        for line in facts["wrong"][:3]:
            print(line, file=sys.stderr, flush=True)
    if done:
        tried, lost, kept = (sum(facts[what] for facts in done) for what in ("tried", "lost", "kept"))
        note = f"{len(done)} kinds of files; {kept:,} contents reached new lines and were mutated further"
        yield Row("mutated file", "guided by the lines reached", tried, tried - lost, lost,
                  sum(facts["seconds"] for facts in done), note)  # fmt: skip


def _prepare(originals):
    from readers import make_originals

    make_originals(originals)
    return 0


def _kind(place, name, count):
    """What became of the mutated files of one kind, in a process of its own."""
    answer = place / "answer.json"
    answer.unlink(missing_ok=True)

    def read():
        import torch

        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            facts = _guided(place / "originals", Path(folder), name, count)
        answer.write_text(json.dumps(facts))
        return 0

    code, text, _ = forked.run(read, 3600)
    if code != 0:
        return {"tried": 1, "lost": 1, "kept": 0, "wrong": [f"{name}: the process ended with {code}: {text[-300:]}"]}
    return json.loads(answer.read_text())


def _guided(originals, place, name, count):
    from readers import SIGNED, Attempts

    attempts, reached, chance = Attempts(originals, place, SEED, signed=name in SIGNED), Reached(), random.Random(name)
    folder, file, mutations, _ = attempts.kinds[name]
    corpus = [(folder / file).read_bytes()]
    attempts.read(name, corpus[0], "the original", reached.watching)
    reached.new()
    until = time.monotonic() + 3000
    for number in range(count):
        content = chance.choice(corpus)
        # A mutation that needs whole JSON cannot be made to what an earlier one broke.
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            content = chance.choice(mutations)(content, chance)
        attempts.read(name, content, f"guided mutation {number}", reached.watching)
        if reached.new() and len(corpus) < KEPT and len(content) < 1 << 20:
            corpus.append(content)
        if len(attempts.wrong) > 50 or time.monotonic() > until:
            break
    tried = sum(attempts.counts.values())
    return {"tried": tried, "lost": len(attempts.wrong), "kept": len(corpus) - 1, "wrong": attempts.wrong[:20]}


class Reached:
    """The steps from line to line of the library's files that were made while it was watching."""

    def __init__(self):
        import bayesify

        self._root = str(Path(bayesify.__file__).parent)
        self._steps, self._known = set(), 0

    @contextlib.contextmanager
    def watching(self):
        """Note the steps of this block."""
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)

    def new(self):
        """Whether steps were made since the last call that were never made before."""
        known, self._known = self._known, len(self._steps)
        return self._known > known

    def _call(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(self._root):
            return None
        last, steps = 0, self._steps

        def step(frame, event, argument):
            nonlocal last
            if event == "line":
                steps.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step
