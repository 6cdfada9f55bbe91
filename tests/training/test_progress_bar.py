"""Who sees a progress bar: people at a terminal or at a notebook, and no file."""

import importlib.util
import sys
import types

import pytest
import torch

import bayesify as bf
from bayesify.training.progress_bar import progress_bar


@pytest.fixture
def notebook(monkeypatch):
    """A Jupyter kernel, as far as a bar can tell, without widgets."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    original = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "ipywidgets" else original(name, *more)
    )


def fit(blobs, **more):
    torch.manual_seed(0)
    bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical").fit(blobs, epochs=3, **more)


def test_a_notebook_without_widgets_shows_text(notebook, blobs, capsys):
    fit(blobs)
    said = capsys.readouterr()
    assert "step" in said.out
    assert "nll" in said.out
    assert said.err == ""


def test_a_notebook_shows_none_where_none_is_wanted(notebook, blobs, capsys):
    fit(blobs, progress=False)
    assert capsys.readouterr().out == ""


def test_a_file_has_none(blobs, capsys):
    fit(blobs)
    said = capsys.readouterr()
    assert "step" not in said.out + said.err


def test_an_interactive_shell_in_a_terminal_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=types.SimpleNamespace))
    with progress_bar(total=3, initial=0, unit="step", show=True) as bar:
        assert bar.disable  # the output of a test is no terminal
