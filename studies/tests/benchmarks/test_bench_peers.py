"""Peers take turns in processes of their own; one that is not there is left out with its reason."""

import json
import sys

import pytest

from bayesify_studies.benchmarks import peers, speed_page

LIBRARY = """
PACKAGE = "torch"
def candidates(widths, x, y, n_data):
    assert widths == (784, 8, 8, 10) and x.shape == (4, 784)
    print("libraries print what they like")
    return {"variational, normal": lambda: None}
"""


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The real worker with two libraries of ours: one that runs and one that is not installed."""
    files = tmp_path / "benchmarks" / "peers"
    files.mkdir(parents=True)
    (files / "worker.py").write_text((peers.FOLDER / "worker.py").read_text())
    for name in ("plain_step", "here_step"):
        (files / f"{name}.py").write_text(LIBRARY.replace("variational, normal", "plain" if "plain" in name else "x"))
    (files / "absent_step.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.setattr(peers, "FOLDER", files)
    monkeypatch.setattr(peers, "OURS", ())
    monkeypatch.setattr(peers, "PEERS", {"here_step": "here", "absent_step": "absent"})
    monkeypatch.setattr(peers, "_PAUSE", 0.0)
    monkeypatch.delenv(peers.PYTHON, raising=False)
    return files


def test_a_missing_peer_is_skipped_with_its_reason_and_the_others_are_measured(folder):
    found = peers.measure(units=8, batch_size=4, rounds=3, steps=2, python=sys.executable)
    assert found["skipped"] == {"absent": "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"}
    (row,) = found["rows"]
    assert (row["library"], row["what"], row["rounds"]) == ("here", "x", 3)
    assert row["ratio"] == pytest.approx(row["ms"] / found["plain_ms"])
    assert "absent was left out: ModuleNotFoundError" in speed_page.peers_table(found)


def test_what_the_installer_said_is_the_reason(tmp_path):
    python = tmp_path / "bin" / "python"
    assert peers.not_installed(str(python), "absent") == ""
    (tmp_path / "peers.json").write_text(json.dumps({"absent": "not installed: no wheel", "here": "installed"}))
    assert peers.not_installed(str(python), "absent") == "not installed: no wheel"
    assert peers.not_installed(str(python), "here") == ""


def test_a_reason_names_no_place():
    said = "ImportError: cannot open /home/somebody/lib/x.so from https://host.example/simple/x and 1/2 of it"
    assert peers.without_places(said) == "ImportError: cannot open ... from ... and 1/2 of it"


def test_bad_input_is_one_line(folder, monkeypatch):
    with pytest.raises(ValueError, match="steps must be an integer of at least 1, got 0"):
        peers.measure(steps=0)
    with pytest.raises(ValueError, match="unknown peer 'heer'; did you mean 'here'"):
        peers.measure(only=["heer"])
    with pytest.raises(ValueError, match="cannot make a plain step: cannot run its Python"):
        peers.measure(python=str(folder / "python"), only=["here"])
    monkeypatch.setattr(peers, "FOLDER", folder / "nowhere")
    with pytest.raises(ValueError, match="run from a checkout"):
        peers.measure()


def test_the_python_is_the_one_given_then_the_variable_then_that_of_make(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "ENVIRONMENT", tmp_path)
    monkeypatch.delenv(peers.PYTHON, raising=False)
    assert peers.find_python() == sys.executable
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert peers.find_python() == str(tmp_path / "bin" / "python")
    monkeypatch.setenv(peers.PYTHON, "another")
    assert peers.find_python() == "another"
    assert peers.find_python("mine") == "mine"


def test_a_row_compares_the_rounds_that_both_had():
    # The slow one had two turns, in rounds where the plain step took 2 and 4.
    row = peers.row_of("slow", "ivon", "1.0", {0: 20.0, 2: 40.0}, {0: 2.0, 1: 100.0, 2: 4.0})
    assert row["ratio"] == 10.0
    assert row["ratio_quartiles"] == [10.0, 10.0]
    assert row["rounds"] == 2
    ours = peers.row_of("bayesify", "ivon", "0.1", {0: 4.0, 2: 8.0}, {0: 2.0, 2: 4.0})
    alone = peers.row_of("other", "else", "1.0", {0: 2.0}, {0: 2.0})
    compared = peers.with_ours([row, ours, alone])
    assert compared[0]["to_ours"] == 5.0
    assert "to_ours" not in compared[1]
    assert "to_ours" not in compared[2]


def test_every_peer_has_its_file():
    for file in (*peers.PLAIN, *peers.OURS, *peers.PEERS):
        assert (peers.FOLDER / f"{file}.py").is_file()
