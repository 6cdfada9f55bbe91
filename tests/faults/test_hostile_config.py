"""A configuration of a stranger never decides which code is imported, and the command line says what to do."""

import json
import os
import sys

import pytest

EVIL = "raise SystemExit('the code of a stranger ran')\n"
GOOD = "from torch import nn\n\ndef make(inputs, outputs):\n    return nn.Linear(inputs, outputs)\n"


@pytest.fixture
def stranger(call, tmp_path, monkeypatch):
    """A run of a network `strange_code:make`, in a folder where importing that module would end the process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "strange_code", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "strange_code.py").write_text(GOOD)
    training = ["--data", "moons", "--method", "point", "--epochs", "1", "--network", "strange_code:make"]
    assert call("train", *training, "--out", "run").code == 0
    sys.modules.pop("strange_code")
    return tmp_path


def test_the_config_of_a_run_does_not_import(stranger, refused, call):
    (stranger / "strange_code.py").write_text(EVIL)
    words = ("run/config.json names the network strange_code:make", "name it yourself with --network strange_code:make")
    refused(["train", "--config", "run/config.json", "--out", "again"], *words)
    refused(["train", "--config", "run", "--epochs", "1", "--out", "again"], *words)
    assert "strange_code" not in sys.modules
    assert not (stranger / "again").exists()
    assert call("train", "--config", "run", "--network", "mlp", "--out", "other").code == 0
    (stranger / "strange_code.py").write_text(GOOD)
    assert call("train", "--config", "run", "--network", "strange_code:make", "--out", "again").code == 0
    theirs, ours = (json.loads((stranger / name / "config.json").read_text()) for name in ("run", "again"))
    assert ours["parameters"] == theirs["parameters"]


@pytest.mark.parametrize("place", ["network", "settings", "toml"])
def test_nor_does_any_other_file(stranger, refused, place):
    (stranger / "strange_code.py").write_text(EVIL)
    config = json.loads((stranger / "run" / "config.json").read_text())
    if place == "network":
        config["data"]["factory"] = None
        config["network"] = {"type": "strange_code:make"}
    if place == "settings":
        config = {"data": "moons", "network": "strange_code:make"}
    (stranger / "theirs.json").write_text(json.dumps(config))
    (stranger / "theirs.toml").write_text('data = "moons"\nnetwork = "strange_code:make"\n')
    file = "theirs.toml" if place == "toml" else "theirs.json"
    refused(["train", "--config", file, "--out", "again"], "name it yourself with --network")
    assert "strange_code" not in sys.modules


def test_resuming_and_predicting_need_the_name_too(stranger, refused):
    (stranger / "strange_code.py").write_text(EVIL)
    refused(["train", "--resume", "run", "--extend", "1"], "name it with --network strange_code:make")
    refused(["evaluate", "run"], "name it with --network strange_code:make")
    assert "strange_code" not in sys.modules


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in this file system")
def test_a_pipe_as_configuration_is_refused(tmp_path, refused):
    os.mkfifo(tmp_path / "config.json")
    refused(["train", "--config", tmp_path / "config.json"], "it is a pipe, not a regular file")
    refused(["train", "--config", tmp_path], "it is a pipe, not a regular file")
