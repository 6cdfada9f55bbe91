"""Parts on a Ray cluster of two nodes: the bits of one process, also where a node or the caller is killed."""

import json
import os
import subprocess
import sys
import threading
import time

import part_work
import pytest

from bayesify.cli import main
from bayesify.jobs import Part, make_engine, run_parts
from bayesify.workflows.sweep import sweep as sweeping
from bayesify.workflows.sweep.sweep import Search, sweep

SEARCH = Search(
    grid="small-grid", data="digits", normalise="standard", units=8, layers=1, epochs=4, batch_size=64, per_fleet=2
)
COMMAND = (
    *("sweep", "small-grid", "--data", "digits", "--normalise", "standard", "--units", "8", "--layers", "1"),
    *("--epochs", "4", "--batch-size", "64", "--per-fleet", "2"),
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The search in one process with one thread."""
    out = tmp_path_factory.mktemp("alone")
    return sweep(SEARCH, out, engine=make_engine(threads=1), progress=False), out


def assert_same_bits(out, alone):
    result, reference = json.loads((out / sweeping.RESULT).read_text(encoding="utf-8")), alone[0]
    assert result["rows"] == reference["rows"]
    assert result["test"] == reference["test"]
    for name in SEARCH.fleets():
        of_winner = (name, sweeping.WINNER, "model.safetensors")
        assert out.joinpath(*of_winner).read_bytes() == alone[1].joinpath(*of_winner).read_bytes()


class KillsANode:
    """Ray's engine, which loses a node as soon as a part has begun there."""

    inside = here = False
    share = (1, 1)

    def __init__(self, cluster, node, marks):
        self.engine, self.cluster, self.node, self.marks = make_engine("ray"), cluster, node, marks

    def run(self, parts, shared):
        self.marks.mkdir()
        counted = [
            Part(part.folder, part_work.counted, (part.work, *shared, *part.arguments), part.done) for part in parts
        ]
        threading.Thread(target=self.kill, daemon=True).start()
        yield from self.engine.run(counted, (str(self.marks), self.node.node_id))

    def kill(self):
        while not list(self.marks.glob(f"*@{self.node.node_id}@*")):
            time.sleep(0.05)
        self.cluster.remove_node(self.node, allow_graceful=False)


def test_a_node_killed_in_the_middle_of_a_sweep_changes_no_bit(cluster, second_node, alone, tmp_path):
    engine = KillsANode(cluster, second_node, tmp_path / "marks")
    sweep(SEARCH, tmp_path / "out", engine=engine, progress=False)
    begun = [mark.name.split("@")[0] for mark in (tmp_path / "marks").iterdir()]
    assert sorted(set(begun)) == sorted(SEARCH.fleets())
    assert len(begun) > len(set(begun))  # the part that was lost was begun twice
    assert_same_bits(tmp_path / "out", alone)


def test_a_killed_command_goes_on_from_its_folder(cluster, alone, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bayesify", *COMMAND, "--engine", "ray", "--address", cluster.address]
    with subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            deadline = time.monotonic() + 300
            while not list(out.glob(f"*/{sweeping.SCORES}")):
                assert running.poll() is None
                assert time.monotonic() < deadline, "no part was finished"
                time.sleep(0.05)
        finally:
            running.kill()
    finished = {file: file.stat().st_mtime_ns for file in out.glob(f"*/{sweeping.SCORES}")}
    assert len(finished) < len(SEARCH.fleets())
    assert main([*COMMAND, "--engine", "ray", "--out", str(out)]) == 0
    assert all(file.stat().st_mtime_ns == time_then for file, time_then in finished.items())
    assert_same_bits(out, alone)


def test_parts_have_their_threads_and_send_all_their_files(cluster, tmp_path):
    asked = [Part(tmp_path / f"part-{number}", part_work.add, (number,), part_work.DONE) for number in range(3)]
    assert run_parts(asked, make_engine("ray", address=cluster.address), shared=(10,), progress=False) == []
    told = [json.loads((part.folder / part_work.DONE).read_text(encoding="utf-8")) for part in asked]
    assert [one["sum"] for one in told] == [10, 11, 12]
    assert {one["threads"] for one in told} == {1}
    assert os.getpid() not in {one["process"] for one in told}
    assert [(part.folder / "beside" / "note.txt").read_text(encoding="utf-8") for part in asked] == ["0", "1", "2"]


def test_the_error_of_a_part_is_the_callers(cluster, tmp_path):
    with pytest.raises(ValueError, match=r"^part 0 cannot be done$"):
        run_parts(
            [Part(tmp_path / "part", part_work.fail, (0,), part_work.DONE)],
            make_engine("ray"),
            shared=(0,),
            progress=False,
        )


def test_a_module_that_the_nodes_do_not_have_is_named(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def work(folder):\n    pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    with pytest.raises(ValueError, match="a node of the Ray cluster has no module 'only_here': install bayesify and"):
        run_parts([Part(tmp_path / "part", only_here.work, (), part_work.DONE)], make_engine("ray"), progress=False)


def test_a_cluster_without_a_gpu_is_named(cluster, tmp_path):
    with pytest.raises(ValueError, match="the Ray cluster has no GPU: use --device cpu"):
        run_parts(
            [Part(tmp_path / "part", part_work.add, (0,), part_work.DONE)],
            make_engine("ray", device="cuda"),
            shared=(0,),
            progress=False,
        )


def test_an_address_where_nobody_listens_is_one_line(tmp_path):
    command = [sys.executable, "-m", "bayesify", *COMMAND, "--engine", "ray", "--address", "127.0.0.1:1"]
    told = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert told.stderr.splitlines()[-1] == "bayesify: there is no Ray cluster at 127.0.0.1:1: Connection refused"
