"""Checkpoints are whole or absent."""

import errno
import json

import pytest
import torch

from bayesify import files
from bayesify.errors import RunError
from bayesify.runs import tensor_files
from bayesify.training import checkpoints


def test_tensors_and_state_come_back_exactly(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b": torch.arange(4), "empty": torch.ones(0, dtype=torch.bool)}
    state = {"step": 3, "loss": 0.1 + 0.2, "text": "né\n"}
    tensor_files.write(tmp_path / "c" / "state", tensors, state)
    read, back = tensor_files.read(tmp_path / "c" / "state")
    assert back == state
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RAdam, torch.optim.NAdam]
)
def test_a_restored_optimiser_takes_the_same_steps(kind, dtype, tmp_path):
    def weights():
        return [torch.nn.Parameter(torch.linspace(-1, 1, 5, dtype=dtype)), torch.nn.Parameter(torch.ones(2))]

    def step(optimizer, parameters):
        optimizer.zero_grad()
        sum((p**2).sum() for p in parameters).backward()
        optimizer.step()

    first = weights()
    optimizer = kind(first, lr=0.1)
    for _ in range(3):
        step(optimizer, first)
    tensors, packed = checkpoints.pack_optimizer(optimizer)
    tensor_files.write(tmp_path / "state", tensors, {"optimizer": packed})
    second = [torch.nn.Parameter(p.detach().clone()) for p in first]
    other = kind(second, lr=0.1)
    read, state = tensor_files.read(tmp_path / "state")
    checkpoints.unpack_optimizer(other, read, state["optimizer"])
    for _ in range(3):
        step(optimizer, first)
        step(other, second)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_full_disk_leaves_the_state_before_it(tmp_path, monkeypatch):
    path = tmp_path / "state"
    tensor_files.write(path, {"a": torch.zeros(2)}, {"step": 1})

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_files, "save_file", full)
    with pytest.raises(RunError, match="No space left on device; the previous checkpoint is kept"):
        tensor_files.write(path, {"a": torch.ones(2)}, {"step": 2})
    assert tensor_files.read(path)[1] == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_too_little_space_is_said_before_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: type("U", (), {"free": 10})())
    with pytest.raises(RunError, match="no space left"):
        tensor_files.write(tmp_path / "state", {"a": torch.zeros(1000)}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 3, 20, 60])
def test_a_truncated_checkpoint_is_named(tmp_path, keep):
    path = tmp_path / "state"
    tensor_files.write(path, {"a": torch.zeros(50)}, {"step": 1})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RunError, match="damaged or incomplete"):
        tensor_files.read(path)


def test_a_foreign_or_missing_file_is_named(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(RunError, match="not a checkpoint written by bayesify"):
        tensor_files.read(tmp_path / "foreign")
    with pytest.raises(RunError, match="there is no state"):
        tensor_files.read(tmp_path / "state")


def test_json_is_replaced_whole_and_refuses_nan(tmp_path):
    files.write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        files.write_json(tmp_path / "file" / "b.json", {})
