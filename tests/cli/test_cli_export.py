"""`export`: a file that another program runs without bayesify, and what is refused in one line."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import bayesify as bf

pytestmark = pytest.mark.filterwarnings("ignore")

STRANGER = """
import json, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("graph.onnx", providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
about = json.loads(session.get_modelmeta().custom_metadata_map["bayesify"])
answers = dict(zip(names, session.run(None, {"input": np.load("raw.npy")})))
np.savez("answers.npz", **answers)
sys.exit("torch" in sys.modules or "bayesify" in sys.modules or about["raw_inputs"]["shape"] != [8, 8])
"""


def test_a_stranger_runs_the_graph_on_raw_images(call, digits_run, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'bayesify[export]'")
    out = tmp_path / "graph.onnx"
    told = call("export", digits_run, "--draws", 5, "--at-least", 0.8, "--out", out, "--json").json
    assert told["outputs"] == ["probs", "aleatoric", "epistemic", "accepted"]
    assert told["raw_inputs"] is True
    assert told["difference"] < 1e-5
    images = load_digits().images[:40]
    np.save(tmp_path / "raw.npy", images.astype(np.float32))
    subprocess.run([sys.executable, "-c", STRANGER], cwd=tmp_path, check=True)
    answers = np.load(tmp_path / "answers.npz")
    expected = bf.load(digits_run).predict(bf.prepare(digits_run, images), draws=5)
    for name in ("probs", "aleatoric", "epistemic"):
        assert np.abs(answers[name] - getattr(expected, name).numpy()).max() < 1e-5
    assert (answers["accepted"] == expected.accept(at_least=0.8).numpy()).all()


def test_rows_of_a_table_go_in_as_numbers(call, houses_run, tmp_path):
    out = tmp_path / "houses.pt2"
    call("export", houses_run, "--format", "torch-export", "--out", out)
    files = {"bayesify.json": ""}
    program = torch.export.load(out, extra_files=files).module()
    about = json.loads(files["bayesify.json"])
    names = [column["name"] for column in about["raw_inputs"]["columns"]]
    kinds = about["raw_inputs"]["columns"][names.index("kind")]["categories"]
    row = {"area": 100.0, "rooms": 3.0, "kind": float(kinds.index("house"))}
    raw = torch.tensor([[row[name] for name in names]] * 2, dtype=torch.float64)
    raw[1, names.index("kind")] = 9.0  # no such category
    answers = program(raw)
    told = call("predict", houses_run, "-", "--json", stdin='{"area": 100, "rooms": 3, "kind": "house"}').json
    assert float(answers["mean"][0]) == pytest.approx(told["value"], rel=1e-5)
    assert float(answers["epistemic"][0]) == pytest.approx(told["epistemic"], rel=1e-3)
    assert answers["accepted"].tolist() == [True, False]


def test_wrong_uses_are_refused_in_one_line(refused, digits_run, houses_run, tmp_path):
    out = tmp_path / "a.onnx"
    refused(["export", digits_run, "--format", "onx", "--out", out], "did you mean 'onnx'")
    refused(["export", houses_run, "--draws", 50, "--out", out], "stores 3 draws")
    refused(["export", houses_run, "--at-least", 0.9, "--out", out], "use at_most")
    refused(["export", digits_run, "--out", tmp_path / "a.txt"], "ends in .onnx")
    refused(["export", tmp_path / "none", "--out", out], "there is no run")
    refused(["export", digits_run, "--format", "module", "--int8", "--out", tmp_path / "a.pt2"], "int8 is for")
    refused(["export", digits_run, "--max-error", 0.01, "--out", out], "no error was guaranteed")
    out.write_text("mine")
    refused(["export", digits_run, "--out", out], "it exists")
    assert out.read_text() == "mine"
