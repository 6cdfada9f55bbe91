"""Ten scribbles and six letters of the studio's pad: how many a run accepts, with and without its check.

    bayesify demo
    python examples/unknown_drawings.py runs/demo/plain runs/demo/variational

`drawings.json` has the strokes, in steps of the pad's grid: the studio's scribbles with seeds 1 to 10, and its letters.
Accepted is what has a confidence of at least 90% (30 draws) and passes the run's check for unknown inputs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bayesify as bf
from bayesify.decisions import saved_check
from bayesify.runs import read_config
from bayesify.studio.draw_page import STEPS
from bayesify.studio.strokes import digit
from bayesify.workflows.run_data import examples_of

SURE = 0.9
# The pens of the pad, for images of 8 x 8 pixels and for larger ones.
PENS = (0.13, 0.09)


def drawn(drawings: list[Any], preparation: bf.data.Preparation) -> Tensor:
    """Drawings as inputs of a network, by the same path as those of the pad."""
    strokes = [[[(x / STEPS, y / STEPS) for x, y in stroke] for stroke in one] for one in drawings]
    pen = PENS[0] if preparation.image is not None and preparation.image.height <= 8 else PENS[1]
    return preparation.apply(torch.stack([digit(one, preparation, pen=pen) for one in strokes]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="runs on digits with a check (bayesify unknown RUN)")
    drawings = json.loads(Path(__file__).with_name("drawings.json").read_text(encoding="utf-8"))
    print("run | scribbles | letters | test digits | coverage lost")
    for run in parser.parse_args().runs:
        bnn = bf.load(run)
        check = saved_check(bnn)
        if check is None:
            raise SystemExit(f"{run} has no check for unknown inputs: bayesify unknown {run}")
        preparation = bf.data.Preparation.from_dict(bnn.notes["preparation"])
        kinds = [drawn(drawings["scribbles"], preparation), drawn(list(drawings["letters"].values()), preparation)]
        test = examples_of(read_config(run), run).x
        sure = [bnn.predict(x, draws=30).accept(at_least=SURE) for x in (*kinds, test)]
        both = [certain & check.accept(x) for certain, x in zip(sure, (*kinds, test), strict=True)]
        counts = [f"{int(a.sum())} -> {int(b.sum())} of {len(a)}" for a, b in zip(sure[:2], both[:2], strict=True)]
        before, after = (float(one.double().mean()) for one in (sure[2], both[2]))
        print(f"{run.name} | {' | '.join(counts)} | {before:.1%} -> {after:.1%} | {100 * (before - after):.1f} points")


if __name__ == "__main__":
    main()
