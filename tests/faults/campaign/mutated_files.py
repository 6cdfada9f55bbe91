"""Damaged and hostile files: a million mutations over every reader. Lost: a hang, an error not ours, too much memory.

Each block of files is read in a process of its own, whose memory is measured: a crash of a native library is seen, and
memory that one file takes is not hidden by another. The mutations follow from the seed and the number alone.
"""

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import forked
from rows import Row

FULL, SHORT, BLOCK = 1_000_000, 4_000, 5_000
# A file of 64 MiB may be read, and is then held as bytes and as numbers.
EXPANDED, MOST_MEMORY = 64 << 20, 768 << 20
SEED = 22


def rows(ledger, short):
    """One row for each kind of file, and one for memory."""
    yield from made(ledger, SHORT if short else FULL, BLOCK, signed=False)


def made(ledger, wanted, size, *, signed):
    """The rows of so many files, in blocks."""
    os.environ["BAYESIFY_MAX_EXPANDED"] = str(EXPANDED)
    total, grown, seconds, done = {}, 0, 0.0, 0
    with tempfile.TemporaryDirectory(prefix="files-", dir=forked.FAST) as folder:
        place = Path(folder)
        if not ledger.closed:
            (place / "originals").mkdir()
            code, text, _ = forked.run(lambda: _prepare(place / "originals"))
            assert code == 0, text
            import readers  # noqa: F401 -- imported once, before the children are forked

        size = min(size, wanted)
        for block in range(wanted // size):
            facts = ledger.trial(f"{SEED} {block}", lambda: _block(place, block, size, signed))
            if facts is None:
                continue
            done, seconds = done + 1, seconds + facts.get("seconds", 0.0)
            for name, outcome, count in facts["counts"]:
                total[name, outcome] = total.get((name, outcome), 0) + count
            grown = max(grown, facts["grown"])
            for line in facts["wrong"][:3]:
                print(line, file=sys.stderr, flush=True)
    for name in dict.fromkeys(name for name, _ in total):
        counts = {outcome: count for (kind, outcome), count in total.items() if kind == name}
        tried = sum(counts.values())
        lost = sum(count for outcome, count in counts.items() if outcome not in {"read", "refused"})
        note = f"{counts.get('refused', 0):,} refused in one line, {counts.get('read', 0):,} read"
        yield Row("mutated file", name, tried, tried - lost, lost, seconds * tried / sum(total.values()), note)
    over = int(grown > MOST_MEMORY)
    note = f"{grown / 2**20:.0f} MiB at most for a file that may expand to {EXPANDED >> 20} MiB"
    part = f"blocks of {size:,} files{' with the right checksum' if signed else ''}"
    yield Row("memory while mutated files are read", part, done, done - over, over, seconds, note)


def _prepare(originals):
    from readers import make_originals

    make_originals(originals)
    return 0


def _block(place, block, size, signed):
    answer = place / f"answer-{block}.json"

    def read():
        import torch
        from readers import Attempts

        torch.set_num_threads(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with tempfile.TemporaryDirectory(dir=place) as folder:
            attempts = Attempts(place / "originals", Path(folder), SEED, signed=signed)
            for number in range(block * size, (block + 1) * size):
                attempts.make(number)
                if len(attempts.wrong) > 50:
                    break
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        counts = [[name, outcome, count] for (name, outcome), count in attempts.counts.items()]
        answer.write_text(json.dumps({"counts": counts, "wrong": attempts.wrong, "grown": grown}))
        return 0

    code, text, _ = forked.run(read, 3600)
    if code != 0:
        return {
            "counts": [["a crash of the process", "crashed", 1]],
            "wrong": [f"block {block}: {code}: {text[-300:]}"],
            "grown": 0,
        }
    facts = json.loads(answer.read_text())
    answer.unlink()
    return facts
