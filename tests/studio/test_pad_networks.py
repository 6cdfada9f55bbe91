"""Where MNIST is on this machine, the studio's own networks are trained on it: once, with a check, and whole or not at all."""

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest

from bayesify.cli.serve import _demo
from bayesify.decisions import saved_check
from bayesify.methods.saving import load
from bayesify.runs import read_config
from bayesify.studio import demonstration, pad_networks
from bayesify.workflows.unknown_check import training_inputs


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A small MNIST: bars whose place is the class, with noise."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part, count in (("train", 300), ("t10k", 100)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = random.integers(0, 60, (count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4:24, 2 * label + 2 : 2 * label + 5] = 250
        for what, array, number in (("images", images, 3), ("labels", labels, 1)):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            path = folder / f"{part}-{what}-idx{number}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes(), compresslevel=1))
    monkeypatch.setenv("BAYESIFY_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(demonstration, "cache", lambda: tmp_path / "cache")
    small = {name: replace(recipe, options=dict(recipe.options)) for name, recipe in pad_networks.NETWORKS.items()}
    small["ensemble"].options["members"] = 2
    monkeypatch.setattr(pad_networks, "NETWORKS", small)
    monkeypatch.setattr(pad_networks, "COMPARED", 50)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_networks_of_the_pad_learn_mnist_without_a_digit(mnist, monkeypatch):
    assert pad_networks.mnist_here()
    assert demonstration.find_demo() == []
    assert "28 x 28" in demonstration.what_is_made()
    said = []
    made = demonstration.make_demo(quick=True, progress=False, announce=said.append)
    assert [run.name for run in made] == list(demonstration.SHOWN)
    assert said[0] == "training 1 of 4: Plain network"
    assert len(said) == 4
    for run in made:
        about = read_config(run)["data"]
        assert (about["name"], list(about["withheld"])) == ("mnist", [pad_networks.WITHHELD])
        check = saved_check(load(run))
        assert (check.by, check.layer, check.neighbours) == ("knn", "edges", pad_networks.NEIGHBOURS)
        # Of the images that are not compared with, the check refuses the share that it may cost.
        known = training_inputs(run)
        others = known[[k for k in range(len(known)) if k % (len(known) // 50)]]
        sure = load(run).predict(others, draws=20).accept(at_least=pad_networks.SURE)
        refused = int((sure & ~check.accept(others)).sum())
        assert refused == pytest.approx(min(pad_networks.COST * len(others), 0.1 * int(sure.sum())), abs=1.01)
        assert (run / "metrics.json").is_file()
    # Found the second time, and what is missing is made again alone.
    monkeypatch.setattr("bayesify.cli.serve.say", said.append)
    assert _demo(quiet=True) == made
    assert len(said) == 4
    (made[2] / "unknown.safetensors").unlink()
    assert demonstration.find_demo() == []
    assert demonstration.make_demo(quick=True, progress=False, announce=said.append) == made
    assert said[4:] == ["fitting the check of network 3 of 4: MC dropout"]
    # A check of another kind, as an earlier version made it, is fitted again, without training.
    monkeypatch.setattr(pad_networks, "LAYER", "input")
    assert demonstration.find_demo() == []
    weights = (made[0] / "model.safetensors").read_bytes()
    assert demonstration.make_demo(quick=True, progress=False) == made
    assert (made[0] / "model.safetensors").read_bytes() == weights
    assert saved_check(load(made[0])).layer == "input"
