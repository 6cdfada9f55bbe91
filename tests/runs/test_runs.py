"""Run folders: what is written can be read, and what cannot be read is named."""

import json

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify import runs


@pytest.fixture
def run(blobs, tmp_path):
    method = bf.Variational(
        bf.networks.mlp(2, 3, units=8), "categorical", prior={"*.bias": "normal:2", "*": "scale-mixture:0.5,1,0.1"}
    )
    method.notes = {"class_names": ["a", "b", "c"], "name": "blobs"}
    method.fit(blobs, epochs=2, progress=False, run=tmp_path / "run")
    return tmp_path / "run"


def edit(run, **changes):
    config = json.loads((run / "config.json").read_text())
    config.update(changes)
    (run / "config.json").write_text(json.dumps(config))


def test_the_folder_says_everything_needed(run):
    config = json.loads((run / "config.json").read_text())
    assert config["version"] == 1
    assert config["network"]["type"] == "mlp"
    assert config["plan"]["epochs"] == 2
    assert config["prior"] == "*.bias=normal:2;*=scale-mixture:0.5,1,0.1"
    assert config["data"]["class_names"] == ["a", "b", "c"]
    assert config["versions"]["torch"] == torch.__version__
    assert len((run / "history.jsonl").read_text().splitlines()) == 2
    assert sorted(p.name for p in run.iterdir()) == ["checkpoint", "config.json", "history.jsonl", "model.safetensors"]


def test_class_names_travel_with_the_run(run, blobs):
    assert bf.load(run).predict(blobs[0][:2], draws=2).names[0] in {"a", "b", "c"}


def test_a_network_of_the_users_is_asked_for_and_checked(blobs, tmp_path):
    def network(width):
        return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3))

    method = bf.Variational(network(5), "categorical")
    method.fit(blobs, epochs=1, progress=False)
    method.save(tmp_path / "run")
    with pytest.raises(bf.RunError, match="network="):
        bf.load(tmp_path / "run")
    with pytest.raises(bf.RunError, match="does not fit"):
        bf.load(tmp_path / "run", network=network(6))
    loaded = bf.load(tmp_path / "run", network=network(5))
    assert torch.equal(loaded.predict(blobs[0]).outputs, method.predict(blobs[0]).outputs)
    assert bf.load(tmp_path / "run", network=lambda: network(5)).history.records == method.history.records


def test_a_pruned_network_stays_pruned(run, tmp_path):
    small = bf.prune(bf.load(run), 0.5)
    small.save(tmp_path / "small")
    loaded = bf.load(tmp_path / "small")
    assert torch.equal(loaded.kept_weights, small.kept_weights)
    assert (loaded.mean_weights == 0).sum() >= 40
    assert loaded.notes["pruned"] == {"fraction": 0.5, "by": "snr"}


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda run: (run / "config.json").unlink(), "has no config.json"),
        (lambda run: (run / "config.json").write_text("{"), "damaged"),
        (lambda run: (run / "config.json").write_text("[]"), "not written by bayesify"),
        (lambda run: edit(run, format="other"), "not written by bayesify"),
        (lambda run: edit(run, version=2), "version 2, but this bayesify reads up to 1: upgrade"),
        (lambda run: edit(run, method="variationl"), "did you mean 'variational'"),
        (lambda run: edit(run, settings={"nonsense": 1}), "does not describe a method"),
        (lambda run: (run / "model.safetensors").unlink(), "incomplete: model.safetensors is missing"),
        (lambda run: (run / "model.safetensors").write_bytes(b"12345678"), "damaged or incomplete"),
    ],
)
def test_a_folder_that_is_no_run_is_named_in_one_line(run, damage, words):
    damage(run)
    with pytest.raises(bf.RunError, match=words) as caught:
        bf.load(run)
    assert "\n" not in str(caught.value)


def test_missing_folders_and_files_in_their_place(run, tmp_path):
    with pytest.raises(bf.RunError, match="no run at"):
        bf.load(tmp_path / "nowhere")
    with pytest.raises(bf.RunError, match="is a file"):
        bf.load(run / "config.json")


def test_a_damaged_history_is_read_as_far_as_it_is_whole(run):
    text = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(text[:-20])
    assert len(bf.load(run).history) == 1


def test_a_run_is_not_overwritten_by_accident(run, blobs, tmp_path):
    before = (run / "model.safetensors").read_bytes()
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
    with pytest.raises(bf.RunError, match="not empty: choose another folder"):
        method.fit(blobs, epochs=1, progress=False, run=run)
    assert (run / "model.safetensors").read_bytes() == before
    method.fit(blobs, epochs=1, progress=False, run=run, overwrite=True)
    assert isinstance(bf.load(run), bf.PointEstimate)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(bf.RunError, match="not a run: it is not overwritten"):
        method.fit(blobs, epochs=1, progress=False, run=tmp_path / "mine", overwrite=True)
    with pytest.raises(bf.RunError, match="is a file"):
        method.fit(blobs, epochs=1, progress=False, run=tmp_path / "mine" / "thesis.txt")
    with pytest.raises(bf.RunError, match="cannot write"):
        method.fit(blobs, epochs=1, progress=False, run=tmp_path / "mine" / "thesis.txt" / "run")


def test_resuming_needs_a_checkpoint_and_a_whole_one(run, blobs):
    method = bf.load(run)
    state = run / "checkpoint" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(bf.RunError, match="damaged"):
        method.resume(blobs, run, progress=False)
    state.unlink()
    with pytest.raises(bf.RunError, match="no checkpoint to resume from"):
        method.resume(blobs, run, progress=False)


def test_the_version_is_the_packages_own():
    assert runs.VERSION == 1
    assert bf.__version__ == runs.versions()["bayesify"]
