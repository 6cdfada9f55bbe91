"""From a data set to an answer, in processes of their own, as a person would type it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from driving import COMMAND, ENVIRONMENT, shell
from safetensors.torch import load_file

import bayesify


def test_train_evaluate_predict_and_prune_in_a_shell(call, place, tmp_path):
    flags = ["--data", place / "iris.csv", "--target", "species", "--method", "variational"]
    flags += ["--units", 20, "--epochs", 100]
    trained = shell("train", *flags, "--learning-rate", 0.01, "--out", "runs/iris", "--json", cwd=tmp_path)
    assert trained.code == 0, trained.err
    assert trained.err == ""  # no progress bar where nobody watches
    assert trained.json["examples"] == {"train": 120, "validation": 0, "test": 30, "unknown": 0}
    scores = shell("evaluate", "runs/iris", "--draws", 20, "--json", cwd=tmp_path)
    assert scores.code == 0, scores.err
    assert scores.json["accuracy"] >= 0.8
    assert scores.json["accuracy"] + scores.json["error"] == pytest.approx(1.0)
    kept = json.loads((tmp_path / "runs/iris/metrics.json").read_text())
    assert kept["nll"] == scores.json["nll"]
    answer = shell(
        "predict", "runs/iris", "-", "--at-least", 0.5, "--json", cwd=tmp_path, stdin="sl,sw,pl,pw\n5.1,3.5,1.4,0.2\n"
    )
    assert answer.code == 0, answer.err
    assert answer.json["label"] == "setosa"
    assert answer.json["accepted"] is True
    assert {"confidence", "aleatoric", "epistemic"} <= set(answer.json)
    pruned = shell("prune", "runs/iris", "--fraction", 0.5, "--out", "runs/small", "--json", cwd=tmp_path)
    assert pruned.code == 0, pruned.err
    again = call("evaluate", tmp_path / "runs/small", "--json")
    assert again.json["error"] == pruned.json["error_after"]


def test_an_interrupted_run_goes_on_to_the_same_bits(call, refused, tmp_path):
    flags = ["train", "--data", "digits", "--method", "variational", "--units", "32", "--epochs", "60"]
    flags += ["--schedule", "cosine", "--validation", "0.1", "--keep", "best"]
    whole = call(*flags, "--out", tmp_path / "whole")
    assert whole.code == 0, whole.err
    process = subprocess.Popen(
        [*COMMAND, *flags, "--out", "cut"], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: (tmp_path / "cut/history.jsonl").read_text().count("\n") >= 1, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 1, said
    (interrupted,) = said.splitlines()
    assert interrupted.endswith("bayesify train --resume cut")
    refused(["evaluate", tmp_path / "cut"], "stopped in training", "--resume")
    resumed = shell("train", "--resume", "cut", "--json", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert resumed.json["epochs"] == 60
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_help_and_version_are_quick_and_need_no_torch():
    code = """
import sys
from bayesify.cli import main
assert main(["train", "--help"]) == 0
assert main(["--version"]) == 0
assert "torch" not in sys.modules, "the command line imports torch to print its help"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert f"bayesify {bayesify.__version__}" in done.stdout
    assert "--learning-rate" in done.stdout


def test_the_shell_can_complete_commands_and_names():
    asked = {"_BAYESIFY_COMPLETE": "complete_bash", "COMP_WORDS": "bayesify train --data fash", "COMP_CWORD": "3"}
    done = subprocess.run(
        [Path(sys.executable).with_name("bayesify")],
        capture_output=True,
        text=True,
        env=os.environ | asked,
        check=False,
    )
    assert done.stdout.split() == ["fashion-mnist"]


def wait_for(condition, process, seconds=240.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, "it ended before it could be interrupted"
        try:
            if condition():
                return
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    raise AssertionError("it took too long")
