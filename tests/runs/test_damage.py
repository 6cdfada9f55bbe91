"""Damage that a run can take: flipped bits, bad bytes, and descriptions of networks that no memory holds."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch

import bayesify as bf
from bayesify.runs import tensor_files

OLD = Path(__file__).parents[1] / "methods" / "saved_runs"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    folder = tmp_path_factory.mktemp("damage") / "run"
    method = bf.Ensemble(bf.networks.mlp(2, 2, units=4), "categorical", members=2)
    method.fit((x, (x[:, 0] > 0).long()), epochs=3, run=folder, progress=False)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


def edit(run, **changes):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | changes))


def body(path):
    """Where the tensors of a safetensors file begin."""
    return 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint/state.safetensors"])
def test_every_flipped_bit_of_the_tensors_is_noticed(run, name):
    path = run / name
    content, start = path.read_bytes(), body(path)
    for place in range(start, len(content), max(1, (len(content) - start) // 40)):
        for bit in (0, 6):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(bf.RunError, match="does not have its checksum; use a copy, or train again"):
                tensor_files.read(path)
    if name == "model.safetensors":
        with pytest.raises(bf.RunError, match=r"model\.safetensors is damaged"):
            bf.load(run)


def test_a_changed_number_in_the_state_is_noticed(run):
    path = run / "checkpoint" / "state.safetensors"
    content = path.read_bytes()
    place = content.index(b'\\"step\\": 3')
    path.write_bytes(content[:place] + content[place:].replace(b'\\"step\\": 3', b'\\"step\\": 2', 1))
    with pytest.raises(bf.RunError, match="checksum"):
        tensor_files.read(path)


def test_equal_tensors_make_equal_files(tmp_path):
    tensors = {"b": torch.arange(3), "a": torch.zeros(()), "half": torch.ones(2, dtype=torch.bfloat16)}
    for name in ("one", "two"):
        tensor_files.write(tmp_path / name, dict(reversed(tensors.items())) if name == "two" else tensors, {"x": 0.1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    read, state = tensor_files.read(tmp_path / "one")
    assert state == {"x": 0.1}
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_runs_of_version_0_1_have_no_checksum_and_still_load():
    header = (OLD / "point" / "model.safetensors").read_bytes()[8:]
    assert b"checksum" not in header[: header.index(b"}}")]
    assert bf.load(OLD / "point").complete


@pytest.mark.parametrize("bad", [b"\xff", b"\x00", b"{", b"[1]\n", b'{"epoch": "x"}\n', b"[" * 100_000])
def test_a_bad_line_of_the_history_is_left_out_and_named(run, bad, caplog):
    lines = (run / "history.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    (run / "history.jsonl").write_bytes(lines[0] + bad + (b"" if bad.endswith(b"\n") else lines[1]) + lines[2])
    assert bf.load(run).history["epoch"] == [1, 3]
    assert f"{run / 'history.jsonl'} is damaged: left out line 2" in caplog.text


@pytest.mark.parametrize(
    "network",
    [
        {"type": "mlp", "inputs": 2, "outputs": 2, "units": [30_000, 30_000]},
        {"type": "mlp", "inputs": 2, "outputs": 2, "units": [10**12]},
        {"type": "mlp", "inputs": 2, "outputs": 2, "units": 1, "layers": 10**9},
        {"type": "mlp", "inputs": 2, "outputs": 2, "units": 1, "layers": 10**6},
        {"type": "cnn", "input_shape": [1, 10**5, 10**5], "outputs": 2},
    ],
)
def test_a_network_larger_than_its_file_is_refused_before_it_is_built(run, network, monkeypatch):
    edit(run, network=network)
    linear = torch.nn.Linear.__init__

    def small(self, *args, **kwargs):
        linear(self, *args, **kwargs)
        assert self.weight.is_meta or self.weight.numel() < 10**6

    monkeypatch.setattr(torch.nn.Linear, "__init__", small)
    with pytest.raises(bf.RunError, match=r"describes a model of at least [\d,]+ numbers, the file holds 84") as caught:
        bf.load(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"members": 10**9}},
        {"method": "swag", "settings": {"rank": 10**9}},
        {"method": "sgld", "settings": {"chains": 10**5, "samples": 10**5}},
        {"method": "hmc", "settings": {"chains": 2, "stored": 10**9, "judged": [10]}},
        {"method": "hmc", "settings": {"chains": 2, "stored": 1, "judged": [10**6, 10**6]}},
    ],
)
def test_settings_that_no_memory_holds_are_refused(run, changes):
    edit(run, **changes)
    with pytest.raises(bf.RunError, match="describes a model of at least"):
        bf.load(run)


def test_a_full_covariance_that_the_file_does_not_have_is_refused(run):
    wide = {"type": "mlp", "inputs": 2, "outputs": 2, "units": [400, 400]}
    settings = {
        "family": "full_rank",
        "estimator": "weight",
        "gradient": "reparametrised",
        "bound": "elbo",
        "rho": -5.0,
    }
    edit(run, network=wide, method="variational", settings=settings)
    with pytest.raises(bf.RunError, match="describes a model of at least"):
        bf.load(run)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"data": []}, r"data must be an object or null, got '\[\]'"),
        ({"data": {"class_names": "ab"}}, "data.class_names must be a list or null"),
        ({"seed": True}, "seed must be a whole number"),
        ({"input_shapes": [[-1]]}, "input_shapes must hold lists of whole numbers"),
        ({"input_shapes": [[10**9, 10**9]]}, "no input has the shape"),
        ({"plan": {"epochs": 0}}, "epochs must be an integer"),
        ({"likelihood": {"name": "categorical", "classes": -3}}, "does not describe a method|does not fit"),
        ({"prior": "posterior:."}, "run"),
    ],
)
def test_entries_of_a_configuration_that_cannot_be(run, changes, words):
    edit(run, **changes)
    with pytest.raises(bf.RunError, match=words) as caught:
        bf.load(run)
    assert str(run) in str(caught.value) or "posterior" in str(changes)
