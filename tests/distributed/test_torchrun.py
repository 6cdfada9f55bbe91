"""What people type: `torchrun -m bayesify train`, a script under torchrun, and a process that is killed."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from together import why_not

import bayesify as bf
from bayesify.cli import main

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
RECIPE = ("--data", "moons", "--method", "variational", "--epochs", "3", "--batch-size", "100", "--seed", "1")


@pytest.fixture(scope="module")
def killed_training():
    spec = importlib.util.spec_from_file_location("killed_training", HERE / "killed_training.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torchrun(*arguments, restarts=0, processes=2):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words += [f"--max-restarts={restarts}", *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)


def same(first, second):
    one, other = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    return all(
        torch.allclose(one[name].double(), other[name].double(), rtol=1e-5, atol=1e-6) for name in one.keys() | other
    )


def test_the_command_trains_the_network_of_one_process_and_prints_once(tmp_path, capsys):
    done = torchrun("-m", "bayesify", "train", *RECIPE, "--distributed", "sharded", "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the run is in") == 1
    assert main(["train", *RECIPE, "--out", str(tmp_path / "one")]) == 0
    assert same(tmp_path / "one", tmp_path / "two")
    assert not list((tmp_path / "two").glob("*lock*"))


def test_a_folder_that_holds_a_run_is_refused_in_one_line(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    done = torchrun("-m", "bayesify", "train", *RECIPE, "--out", tmp_path / "taken")
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("bayesify:")]
    assert len(lines) == 1  # from one process, not from both
    assert "taken" in lines[0]


@pytest.mark.parametrize("how", [(), ("sharded",)])
def test_a_killed_process_is_started_again_and_goes_on_from_the_checkpoint(tmp_path, killed_training, how):
    done = torchrun(HERE / "killed_training.py", tmp_path / "run", *how, restarts=1)
    assert done.returncode == 0, done.stderr[-3000:]
    # It was killed the first time. torchrun names one process of those that ended between two of its looks: the killed one
    # (-9), or on a busy machine perhaps the other one, which lost its partner (1).
    assert re.search(r"failed \(exitcode: (-9|1)\)", done.stderr), done.stderr[-3000:]
    killed_training.train(tmp_path / "whole")
    assert same(tmp_path / "whole", tmp_path / "run")
    assert bf.load(tmp_path / "run", network=killed_training.method().network.module()).history["epoch"] == [
        *range(1, 7)
    ]


def test_a_killed_process_ends_the_run_with_the_reason_and_one_process_goes_on(tmp_path, killed_training):
    done = torchrun(HERE / "killed_training.py", tmp_path / "run", "sharded")
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr
    bnn = killed_training.method()
    bnn.resume(killed_training.data(), tmp_path / "run", progress=False)
    killed_training.train(tmp_path / "whole")
    assert same(tmp_path / "whole", tmp_path / "run")
