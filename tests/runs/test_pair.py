"""The description and the tensors of a run are replaced together, whatever happens between the two files."""

import json
import os
import shutil

import pytest
import torch

import bayesify as bf
from bayesify import files, runs
from bayesify.runs import pair, tensor_files


def make(noise, seed):
    torch.manual_seed(seed)
    return bf.PointEstimate(bf.networks.mlp(2, 1, units=4), bf.likelihoods.Gaussian(noise))


def shown(folder):
    method = bf.load(folder)
    return method.theta.tolist(), method.likelihood.noise


@pytest.fixture
def old(tmp_path):
    return make(0.1, 1).save(tmp_path / "run")


@pytest.mark.parametrize("fails", ["next", "model", "config"])
def test_a_failed_write_leaves_the_old_pair_or_the_new_one(old, tmp_path, monkeypatch, fails):
    new = make(2.0, 2)
    expected = [shown(old), shown(new.save(tmp_path / "other"))]
    original = files.replacing

    def replacing(path, *args, **kwargs):
        if {"next": pair.NEXT, "model": runs.MODEL, "config": runs.CONFIG}[fails] == path.name:
            raise OSError(28, "No space left on device")
        return original(path, *args, **kwargs)

    monkeypatch.setattr(files, "replacing", replacing)
    monkeypatch.setattr(tensor_files, "replacing", replacing)
    with pytest.raises(bf.RunError, match="No space left"):
        new.save(old)
    # Without the description of the new weights, they would be read with the old noise.
    assert shown(old) == expected[fails == "config"]
    monkeypatch.undo()
    new.save(old)
    assert shown(old) == expected[1]
    assert not list(old.glob(".*"))


def test_a_next_description_of_other_tensors_is_ignored_and_deleted(old):
    config = json.loads((old / "config.json").read_text())
    for content in ({"tensors": "sha256:0", "config": config | {"seed": 99}}, {"tensors": None}, [], "x"):
        (old / pair.NEXT).write_text(json.dumps(content))
        assert runs.read_config(old)["seed"] != 99
    runs.use(old)
    assert not (old / pair.NEXT).exists()


def test_a_training_that_was_to_replace_a_run_is_not_resumed_as_that_run(blobs, tmp_path):
    def fit(seed, folder):
        torch.manual_seed(seed)
        method = bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical")
        method.fit(blobs, epochs=2, run=folder, seed=seed, progress=False)
        return method

    fit(1, tmp_path / "run")

    class Stop(Exception):
        pass

    class Stopping(bf.callbacks.Callback):
        def on_fit_start(self, method, plan):
            raise Stop

    torch.manual_seed(2)
    with pytest.raises(Stop):
        bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical").fit(
            blobs, epochs=2, run=tmp_path / "new", seed=2, progress=False, callbacks=[Stopping()]
        )
    # As a kill leaves it between the new checkpoint and the new description.
    shutil.copy(tmp_path / "new" / runs.STATE, tmp_path / "run" / runs.STATE)
    before = bf.load(tmp_path / "run")
    with pytest.raises(bf.RunError, match="about to be replaced by another training"):
        before.resume(blobs, tmp_path / "run", extend=1, progress=False)
    assert before.complete


def test_what_a_killed_process_left_is_deleted_by_the_next_writer(old):
    gone = 2**22 + 1  # beyond any process number
    (old / f".model.safetensors.{gone}.1").mkdir()
    (old / f".model.safetensors.{gone}.1" / ".tmpAbCdEf").touch()
    (old / f".config.json.{gone}.1").touch()
    (old / f".config.json.{os.getpid()}.1").touch()  # of a process that runs
    runs.use(old)
    assert [path.name for path in old.glob(".*")] == [f".config.json.{os.getpid()}.1"]


def test_a_disk_that_fails_once_leaves_no_next_description(old, monkeypatch):
    # Found by a fault at every change on the disk: the deletion had one try.
    failures = [OSError(5, "Input/output error")]
    original = os.unlink

    def unlink(path, *args, **kwargs):
        if str(path).endswith(pair.NEXT) and os.path.exists(path) and failures:
            raise failures.pop()
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "unlink", unlink)
    make(2.0, 2).save(old)
    assert not failures
    assert not list(old.glob(".*"))
