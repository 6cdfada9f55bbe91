"""A command shows at once that it has started, and a refused one still prints a single line."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import bayesify as bf
from bayesify.cli import main, output


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")


def test_a_terminal_is_told_at_once_that_torch_is_loaded(without_torch, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    output.begin()
    assert capsys.readouterr().err == "bayesify: loading PyTorch\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_where_torch_is_loaded_or_nobody_watches(capsys, monkeypatch, request, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    if not terminal:
        request.getfixturevalue("without_torch")
    output.begin()
    assert capsys.readouterr().err == ""


def test_a_refused_command_is_one_line(without_torch, capsys):
    assert main(["train", "--epochs", "many"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("bayesify: ")


def test_the_digits_are_those_of_scikit_learn():
    found, known = bf.data.load("digits"), load_digits()
    x = torch.cat((found.x_train, found.x_test)).reshape(-1, 64).numpy().astype(np.uint8)
    rows = {
        (*row, label) for row, label in zip(x.tolist(), torch.cat((found.y_train, found.y_test)).tolist(), strict=True)
    }
    assert rows == {(*map(int, row), int(label)) for row, label in zip(known.data, known.target, strict=True)}
