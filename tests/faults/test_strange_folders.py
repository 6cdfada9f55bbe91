"""Run folders of strangers where they are published, dropped on the studio, served or exported: nothing leaks or crashes."""

import base64
import json
import shutil

import numpy as np
import pytest
import torch
from fastapi import HTTPException

import bayesify as bf
from bayesify.runs import UNKNOWN, tensor_files
from bayesify.studio import own_data
from bayesify.studio.models import ModelStore
from bayesify.studio.own_data import OwnFolder, OwnRuns, OwnTable
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import train


class NoRuns:
    def names(self):
        return []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger") / "run"
    train(Recipe(data="digits", method="point", units=(8,), layers=1, epochs=1), folder, progress=False)
    return folder


@pytest.fixture
def drop(run):
    """Drop the run on the studio with some files changed; the model, or the refusal's words."""
    own = OwnRuns(ModelStore(NoRuns()))

    def dropped(**changes):
        files = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} | changes
        name = own.load(
            OwnFolder(name="x", files={name: base64.b64encode(content).decode() for name, content in files.items()})
        )
        return own.store.get(name)

    yield dropped
    own.remove()


def test_a_dropped_table_that_becomes_too_many_numbers_is_refused(monkeypatch):
    monkeypatch.setattr(own_data, "MOST_NUMBERS", 20_000)
    own = OwnRuns(ModelStore(NoRuns()))
    rows = [",".join("abcdefghijklmnopqrst"[(row * column + row) % 20] for column in range(1, 31)) for row in range(60)]
    text = "\n".join(
        [
            ",".join(f"c{column}" for column in range(30)) + ",y",
            *(f"{row},{number % 7}" for number, row in enumerate(rows)),
        ]
    )
    with pytest.raises(HTTPException, match="more than 20,000 numbers, the most here"):
        own.train(OwnTable(name="wide", text=text, target="y", method="point"))
    own.remove()


@pytest.mark.parametrize("config", [b"[]", b"3", b"null", b'"text"', b"[" * 100_000])
def test_a_dropped_configuration_that_is_no_object_is_refused(drop, config):
    with pytest.raises(HTTPException) as refusal:
        drop(**{"config.json": config})
    assert refusal.value.status_code == 422
    assert "\n" not in refusal.value.detail


def test_a_dropped_run_that_loads_and_cannot_predict_is_refused_when_it_is_dropped(drop, run):
    config = json.loads((run / "config.json").read_text())
    assert drop().method.name == "point"
    with pytest.raises(HTTPException, match="422"):
        drop(**{"config.json": json.dumps(config | {"output": 3}).encode()})


def test_an_input_of_a_dropped_run_has_a_largest_size(drop, run):
    config = json.loads((run / "config.json").read_text())
    config["data"]["preparation"]["image"] |= {"height": 8000, "width": 8000}
    with pytest.raises(HTTPException, match="too large here"):
        drop(**{"config.json": json.dumps(config).encode()})


def test_a_dropped_check_may_not_ask_for_a_billion_draws(drop, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    method = bf.load(tmp_path / "run")
    check = bf.UnknownInputs(method, torch.rand(50, 64), by="entropy", draws=1)
    check.save(tmp_path / "run")
    tensors, about = tensor_files.read(tmp_path / "run" / UNKNOWN)
    tensor_files.write(tmp_path / "run" / UNKNOWN, tensors, about | {"draws": 10**9})
    with pytest.raises(HTTPException, match="draws must be at most 10,000"):
        drop(**{UNKNOWN: (tmp_path / "run" / UNKNOWN).read_bytes()})


def test_a_link_to_a_file_elsewhere_is_not_published(run, tmp_path):
    stranger, secret = tmp_path / "run", tmp_path / "secret"
    shutil.copytree(run, stranger)
    secret.write_text("a password")
    (stranger / "README.md").unlink(missing_ok=True)
    (stranger / "README.md").symlink_to(secret)
    with pytest.raises(bf.RunError, match="link to a file outside the run"):
        bf.hub.save(stranger, tmp_path / "published")
    assert not any("password" in file.read_text(errors="replace") for file in (tmp_path / "published").glob("*"))


def test_the_links_of_the_hub_cache_are_copied(run, tmp_path):
    blobs, snapshot = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in (file for file in run.iterdir() if file.is_file()):
        shutil.copy(file, blobs / file.name)
        (snapshot / file.name).symlink_to(blobs / file.name)
    bf.hub.save(snapshot, tmp_path / "published")
    assert bf.load(tmp_path / "published").name == "point"


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'shape': (", b"\x80\x04."]
)
def test_an_example_for_an_export_that_is_no_array_is_one_line(refused, run, tmp_path, content):
    (tmp_path / "example.npy").write_bytes(content)
    example = tmp_path / "example.npy"
    refused(["export", run, "--example", example, "--out", tmp_path / "out.onnx"], example)


@pytest.mark.parametrize(
    "content", ["index\n" + "9" * 200_000 + "\n", "index\n" + "9" * 5000 + "\n", "other\n1\n", "\0\n"]
)
def test_a_list_of_inputs_to_skip_that_is_none_is_one_line(refused, run, tmp_path, content):
    np.save(tmp_path / "pool.npy", np.zeros((5, 8, 8)))
    (tmp_path / "asked.csv").write_text(content)
    words = ["ask", run, tmp_path / "pool.npy", "-n", 1, "--by", "entropy", "--skip", tmp_path / "asked.csv"]
    refused(words, "asked.csv must have a column index with whole numbers")


def test_a_result_that_cannot_be_written_leaves_the_one_before(call, run, tmp_path, monkeypatch):
    np.save(tmp_path / "pool.npy", np.zeros((5, 8, 8)))
    words = ["ask", run, tmp_path / "pool.npy", "-n", 1, "--by", "entropy", "--out", tmp_path / "asked.csv"]
    assert call(*words).code == 0
    before = (tmp_path / "asked.csv").read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bayesify.files._sync", full)
    assert call(*words).code == 1
    assert (tmp_path / "asked.csv").read_text() == before
