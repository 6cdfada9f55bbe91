"""What networks say to things drawn on the studio's pad: digits as people might draw them, letters and scribbles.

    python studies/scripts/pad.py RUN...                                               # the studio's own drawings
    python studies/scripts/pad.py --drawings examples/drawings-new.json RUN...         # drawings made for this table

Every digit and letter is drawn again and again: turned, slanted, stretched and bent at random, by a pen of some width
(seed 0). Accepted is a confidence of at least 90% (30 draws) and, where the run has a check for unknown inputs, a pass
of it. The new drawings are 22 letters (without I, O, S and Z, which are drawn like digits), the ten digits in other
shapes, and the scribbles with seeds 61 to 110. They were made before any network or check had seen them, and chose
nothing. `drawings-fresh.json` has earlier ones, which helped to choose the check (`pad_checks.py`).
"""

from __future__ import annotations

import argparse
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bayesify as bf
from bayesify.decisions import saved_check
from bayesify.methods import Method
from bayesify.runs import read_config
from bayesify.studio.draw_page import STEPS
from bayesify.studio.strokes import digit
from bayesify.workflows.run_data import examples_of

SURE, DRAWS, EACH = 0.9, 30, 30
DRAWINGS = Path(__file__).parents[2] / "examples" / "drawings.json"


def deformed(strokes: list[Any], random: np.random.Generator) -> list[Any]:
    """A drawing turned (6 degrees), slanted, stretched (10%) and bent by slow waves; all are standard deviations."""
    turn, slant = random.normal(0, 0.1), random.normal(0, 0.12)
    stretch = np.exp(random.normal(0, 0.1, 2))
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    matrix = 0.85 * rotation @ np.array([[stretch[0], slant], [0, stretch[1]]])
    sizes, phases = random.normal(0, 0.018, (4, 2)), random.uniform(0, 2 * math.pi, 4)
    made = []
    for stroke in strokes:
        points = np.array(stroke) / STEPS - 0.5
        along = points.sum(1, keepdims=True)
        bent = sum(
            np.sin(2 * math.pi * 0.6 * (k + 1) * along + phase) * size
            for k, (phase, size) in enumerate(zip(phases, sizes, strict=True))
        )
        made.append((points @ matrix.T + bent + 0.5).clip(0.02, 0.98).tolist())
    return made


def drawn(bnn: Method, file: Path, seed: int = 0) -> dict[str, tuple[Tensor, Tensor]]:
    """Drawings as inputs of a network, with the numbers of their classes (-1 where there is none).

    Args:
        bnn: a network on digits; a digit that it was not trained on is left out.
        file: `digits` and `letters` by name and `scribbles`, each in steps of the pad's grid.
        seed: of the deformations and the pens.

    """
    known = json.loads(file.read_text(encoding="utf-8"))
    preparation = bf.data.Preparation.from_dict(bnn.notes["preparation"])
    classes, random = [str(name) for name in bnn.notes["class_names"]], np.random.default_rng(seed)
    wanted = {
        "digits": [(classes.index(name), one) for name, one in known["digits"].items() if name in classes],
        "letters": [(-1, one) for one in known["letters"].values()],
    }
    wanted = {kind: [pair for pair in pairs for _ in range(EACH)] for kind, pairs in wanted.items()}
    wanted["scribbles"] = [(-1, one) for one in known["scribbles"]]
    assert preparation.image is not None
    pens = (0.11, 0.15) if preparation.image.height == 8 else (0.07, 0.12)
    found = {}
    for kind, drawings in wanted.items():
        strokes = [deformed(one, random) for _, one in drawings]
        raw = [digit(one, preparation, pen=random.uniform(*pens)) for one in strokes]
        found[kind] = preparation.apply(torch.stack(raw)), torch.tensor([label for label, _ in drawings])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="runs on digits")
    parser.add_argument(
        "--drawings", type=Path, default=DRAWINGS, help="a file of drawings, in steps of the pad's grid"
    )
    given = parser.parse_args()
    logging.getLogger("bayesify").setLevel(logging.ERROR)
    heads = (
        "run | digits known | digits right and accepted | wrong, accepted | letters accepted | scribbles | test known"
    )
    print(f"{heads} | test accepted, without the check and with it")
    for run in given.runs:
        bnn, config = bf.load(run), read_config(run)
        check = saved_check(bnn)
        found = {}
        for kind, (x, labels) in drawn(bnn, given.drawings).items():
            p = bnn.predict(x, draws=DRAWS)
            passed = torch.ones(len(x), dtype=torch.bool) if check is None else check.accept(x)
            found[kind] = passed, passed & p.accept(at_least=SURE), p.labels == labels
        passed, accepted, right = found["digits"]
        test = examples_of(config, run).x[:2000]
        shares = [passed, accepted & right, accepted & ~right, found["letters"][1], found["scribbles"][1]]
        like = torch.ones(len(test), dtype=torch.bool) if check is None else check.accept(test)
        sure = bnn.predict(test, draws=DRAWS).accept(at_least=SURE)
        coverage = " -> ".join(f"{float(share.double().mean()):.1%}" for share in (sure, sure & like))
        counts = [f"{float(share.double().mean()):.0%}" for share in (*shares, like)]
        print(" | ".join([run.name, *counts, coverage]), flush=True)


if __name__ == "__main__":
    main()
