"""A command shows at once what it does, and a refused one still prints a single line."""

import os
import subprocess
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


@pytest.fixture
def broken_torch(tmp_path):
    """The command in a process whose torch ends it at once: what it prints before that, on both streams."""
    (tmp_path / "path" / "torch").mkdir(parents=True)
    (tmp_path / "path" / "torch" / "__init__.py").write_text("raise SystemExit(3)")
    path = os.pathsep.join([str(tmp_path / "path"), *sys.path])

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "bayesify", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path,
            check=False,
        )
        return done.stdout, done.stderr

    return run


def test_a_log_or_a_pipe_gets_no_line(broken_torch):
    assert broken_torch("train", "--data", "moons", "--method", "ivon") == ("", "")
    assert broken_torch("evaluate", "runs/mine", "--json") == ("", "")


def test_a_missing_file_is_refused_before_torch_is_loaded(broken_torch):
    for command in ("train", "compare"):
        assert broken_torch(command, "--data", "nowhere.csv") == ("", "bayesify: nowhere.csv: there is no such file\n")


def test_a_command_that_does_not_load_torch_says_nothing_of_it(broken_torch):
    out, err = broken_torch("train", "--help")
    assert "Usage" in out
    assert err == ""


def test_a_person_at_a_terminal_sees_what_is_done_before_torch_is_loaded(without_torch, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    beginning = output.begin("train")
    output.say_beginning("training ivon on moons")
    beginning.find_spec("torch")
    assert capsys.readouterr().err == "bayesify: training ivon on moons: loading PyTorch\n"


def test_nothing_is_announced_where_torch_is_loaded(capsys):
    before = list(sys.meta_path)
    output.begin("train")
    assert sys.meta_path == before
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
