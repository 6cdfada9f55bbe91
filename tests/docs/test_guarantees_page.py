"""The page on guarantees: its blocks of Python run, and its table has the numbers that are computed."""

import re
from pathlib import Path

import torch

import bayesify as bf
from bayesify.decisions.sequential_tests import smallest_sample

PAGE = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()


def clouds(examples, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (examples,), generator=generator)
    return torch.randn(examples, 2, generator=generator) + 2.5 * y[:, None], y


def test_the_blocks_run():
    torch.manual_seed(0)
    bnn = bf.Ensemble(bf.networks.mlp(2, 2, units=8), "categorical", members=2)
    bnn.fit(clouds(300, 0), epochs=30, learning_rate=0.02, progress=False, compiled=False)
    (x_held, y_held), (x_other, y_other), (x_new, _) = clouds(1000, 1), clouds(300, 2), clouds(50, 3)
    known = {"bf": bf, "bnn": bnn, "x_held": x_held, "y_held": y_held, "x_new": x_new}
    known |= {"x_other": x_other, "y_other": y_other}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, known)
    assert known["accepted"].shape == (50,)
    assert known["sets"].shape == known["rare"].shape == (50, 2)
    assert bnn.recalibration is not None


def test_the_smallest_samples_are_those_that_are_computed():
    listed = re.findall(r"^\| (0\.\d+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert [(float(bound), int(count.replace(",", ""))) for bound, count in listed] == [
        (bound, smallest_sample(bound, 0.05)) for bound in (0.1, 0.05, 0.01, 0.001)
    ]
