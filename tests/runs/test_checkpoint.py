"""Checkpoints in parts: any number of processes reads what others wrote, and what is damaged is refused."""

import json

import pytest
import torch

from bayesify.errors import RunError
from bayesify.runs import STATE, checkpoint

SIZES = {"all": 20, "random": 12, "fixed": 8}
CUT = {"model/mean": "all", "model/width": "random", "optimizer/state/0/rows": "fixed", "model/noise": None}


def whole():
    generator = torch.Generator().manual_seed(0)
    return {
        "model/mean": torch.randn(20, generator=generator),
        "model/width": torch.randn(12, generator=generator),
        "optimizer/state/0/rows": torch.randn(3, 8, generator=generator),
        "model/noise": torch.randn(2, generator=generator),
    }


def pieces(rank, size):
    """Two buckets, of 12 and of 8 weights, each cut into `size` pieces; the last ones may be empty."""
    found = {"all": [], "random": [], "fixed": []}
    for kind, start, stop in (("random", 0, 12), ("fixed", 12, 20)):
        chunk = -(-(stop - start) // size)
        first = min(start + rank * chunk, stop)
        last = min(first + chunk, stop)
        if first < last:
            found["all"].append((first, last))
            found[kind].append((first - (12 if kind == "fixed" else 0), last - (12 if kind == "fixed" else 0)))
    return found


def cut(tensor, ranges):
    return torch.cat([tensor[..., :0], *(tensor[..., start:stop] for start, stop in ranges)], -1)


def write(run, size, step=5):
    files = []
    for rank in range(size):
        mine = pieces(rank, size)
        tensors = {
            name: tensor if CUT[name] is None else cut(tensor, mine[CUT[name]]).contiguous()
            for name, tensor in whole().items()
            if rank == 0 or CUT[name] is not None
        }
        files.append((checkpoint.part_name(rank, size, step), mine))
        checkpoint.write_part(run, files[-1][0], tensors)
    checkpoint.write_index(run, files, CUT, SIZES, {"progress": {"step": step}})


@pytest.mark.parametrize("written", [1, 2, 7])
@pytest.mark.parametrize("read", [1, 3, 4])
def test_any_number_of_processes_reads_what_others_wrote(tmp_path, written, read):
    write(tmp_path, written)
    for rank in range(read):
        mine = pieces(rank, read)
        found, state = checkpoint.read(tmp_path, mine.__getitem__, slice(rank, None, read))
        assert state == {"progress": {"step": 5}}
        for name, tensor in whole().items():
            expected = tensor if CUT[name] is None else cut(tensor, mine[CUT[name]])
            assert torch.equal(found[name], expected), name
    found, _ = checkpoint.read(tmp_path)
    assert all(torch.equal(found[name], tensor) for name, tensor in whole().items())
    assert checkpoint.shapes(tmp_path) == {name: tuple(tensor.shape) for name, tensor in whole().items()}


def test_the_later_of_two_forms_counts_and_the_other_is_removed(tmp_path):
    write(tmp_path, 2, step=5)
    checkpoint.write(tmp_path, whole(), {"progress": {"step": 6}})
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["state.safetensors"]
    # A process that ended before it removed the older form: both are there.
    kept = (tmp_path / STATE).read_bytes()
    write(tmp_path, 3, step=7)
    assert not (tmp_path / STATE).exists()
    (tmp_path / STATE).write_bytes(kept)
    assert checkpoint.read_state(tmp_path)["progress"]["step"] == 7
    write(tmp_path, 3, step=4)
    (tmp_path / STATE).write_bytes(kept)
    assert checkpoint.read_state(tmp_path)["progress"]["step"] == 6


def test_old_parts_are_removed_after_the_new_index(tmp_path):
    write(tmp_path, 4, step=5)
    write(tmp_path, 2, step=6)
    names = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert names == {"index.json", checkpoint.part_name(0, 2, 6), checkpoint.part_name(1, 2, 6)}


def test_a_damaged_part_is_refused_with_its_name(tmp_path):
    write(tmp_path, 2)
    part = tmp_path / "checkpoint" / checkpoint.part_name(1, 2, 5)
    content = bytearray(part.read_bytes())
    content[-3] ^= 1
    part.write_bytes(content)
    with pytest.raises(RunError, match=r"part-00001-of-00002-step-5\.safetensors is damaged"):
        checkpoint.read(tmp_path)
    part.unlink()
    with pytest.raises(RunError, match=r"there is no part-00001-of-00002-step-5\.safetensors"):
        checkpoint.read(tmp_path)


def test_parts_that_do_not_make_a_whole_are_refused(tmp_path):
    write(tmp_path, 2)
    file = tmp_path / checkpoint.INDEX
    index = json.loads(file.read_text())
    del index["files"][1]
    file.write_text(json.dumps(index))
    with pytest.raises(RunError, match="do not make a whole"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "bayesify-sharded-checkpoint-1"}'])
def test_a_damaged_index_is_refused_in_one_line(tmp_path, text):
    write(tmp_path, 2)
    (tmp_path / checkpoint.INDEX).write_text(text)
    with pytest.raises(RunError, match=r"index\.json") as raised:
        checkpoint.read(tmp_path)
    assert "\n" not in str(raised.value)


def test_an_index_does_not_lead_out_of_its_folder(tmp_path):
    write(tmp_path, 2)
    file = tmp_path / checkpoint.INDEX
    index = json.loads(file.read_text())
    index["files"][0]["name"] = "../../elsewhere.safetensors"
    file.write_text(json.dumps(index))
    with pytest.raises(RunError, match="not a name of a part"):
        checkpoint.read(tmp_path)
