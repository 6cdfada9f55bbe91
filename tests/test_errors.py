"""The words of errors that all modules share, and where a long line ends."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.errors import counted, first_line
from bayesify.methods.auto_table import Problem, choose


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("short, of two lines\nand more", "short, of two lines"),
        ("", "ValueError"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 117 + "..."),
        ("word " * 23 + "fives", "word " * 23 + "fives"),  # 120 characters
        ("word " * 25, "word " * 22 + "word..."),
        ("a" * 117 + " " + "b" * 30, "a" * 117 + "..."),
        ("a" * 100 + ", " + "b" * 30, "a" * 100 + "..."),
    ],
)
def test_a_long_line_ends_after_a_word(message, expected):
    assert first_line(ValueError(message)) == expected
    assert len(first_line(ValueError(message))) <= 120


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (1200, "row", "1,200 rows"),
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
    ],
)
def test_a_number_of_things_is_one_thing_or_several(number, noun, words):
    assert counted(number, noun) == words


def test_one_of_a_kind_is_not_several():
    x, y = torch.zeros(4, 1), torch.zeros(4, dtype=torch.long)
    with pytest.raises(ValueError, match=r"^inputs hold 1 NaN or infinite value: clean"):
        bf.PointEstimate(nn.Linear(1, 2), "categorical").fit((x.index_fill(0, torch.tensor(2), torch.nan), y))
    with pytest.raises(ValueError, match="needs 1 output for these targets, the network gives 2"):
        bf.PointEstimate(nn.Linear(1, 2), "gaussian").fit((x, x[:, 0]))
    assert " for 1 example of 1 input:" in choose(Problem("regression", rows=1, inputs=1)).reason
