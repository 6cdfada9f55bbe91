"""Runs in the layout of the Hugging Face Hub; a fake hub in the place of the network."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import bayesify as bf

yaml = pytest.importorskip("yaml")


@pytest.fixture
def run(blobs, tmp_path):
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
    bnn.fit(blobs, epochs=3, learning_rate=0.05, progress=False, run=tmp_path / "run")
    bnn.notes = {"name": "clouds", "kind": "classification", "path": "/home/somebody/clouds.csv"}
    bnn.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_saved_run_has_the_layout_and_predicts_the_same_bits(run, blobs, tmp_path):
    folder = bf.hub.save(run, tmp_path / "shared", licence="apache-2.0")
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "config.json", "history.jsonl", "model.safetensors",
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config["data"]["path"] == "clouds.csv"  # the place on this machine stays here
    header = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert (header["library_name"], header["license"], header["datasets"]) == ("bayesify", "apache-2.0", ["clouds"])
    assert torch.equal(bf.hub.load(folder).predict(blobs[0]).probs, bf.load(run).predict(blobs[0]).probs)


def test_scores_are_on_the_card(run, tmp_path):
    (run / "metrics.json").write_text(json.dumps({"accuracy": 0.9375, "data": "the test part of clouds"}))
    text = (bf.hub.save(run, tmp_path / "shared") / "README.md").read_text()
    assert "0.9375" in text
    assert "the test part of clouds" in text


def test_what_is_there_is_not_replaced(run, tmp_path):
    bf.hub.save(run, tmp_path / "shared")
    with pytest.raises(bf.RunError, match="not empty"):
        bf.hub.save(run, tmp_path / "shared")
    bf.hub.save(run, tmp_path / "shared", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(bf.RunError, match="not a run"):
        bf.hub.save(run, tmp_path / "mine", overwrite=True)
    with pytest.raises(bf.RunError, match="the run itself"):
        bf.hub.save(run, run, overwrite=True)


def test_push_and_load_go_through_the_library(run, blobs, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install 'bayesify[hub]'")
    store, asked = tmp_path / "store", []

    class Api:
        def __init__(self, token=None):
            asked.append(token)

        def create_repo(self, repo_id, *, private, exist_ok, repo_type):
            assert (private, exist_ok, repo_type) == (True, True, "model")

        def upload_folder(self, *, repo_id, folder_path, commit_message, repo_type):
            shutil.copytree(folder_path, store / repo_id)
            return f"https://hub/{repo_id}"

    def download(repo_id, *, revision, allow_patterns, token):
        if not (store / repo_id).exists():
            raise OSError("404 Client Error")
        assert "config.json" in allow_patterns
        assert not any("*" in name or name.endswith(".py") for name in allow_patterns)
        asked.append(revision)
        return str(store / repo_id)

    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(hub, "snapshot_download", download)
    bnn = bf.load(run)
    assert bf.hub.push(bnn, "you/clouds", token="secret") == "https://hub/you/clouds"
    assert bnn.run == run.resolve()
    again = bf.hub.load("you/clouds", revision="abc")
    assert asked == ["secret", "abc"]
    assert torch.equal(again.predict(blobs[0]).probs, bnn.predict(blobs[0]).probs)
    with pytest.raises(bf.RunError, match="could not be downloaded: 404"):
        bf.hub.load("you/nothing")
    with pytest.raises(bf.RunError, match="neither a folder nor the name of a repository"):
        bf.hub.load("../you/clouds")
    assert not list(Path(tmp_path).glob("*.tmp"))
