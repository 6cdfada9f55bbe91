"""A certified model answers by its promise, and says when the promise has lapsed."""

import shutil

import numpy as np
import pytest
import torch
from talking import serving

import bayesify as bf
from bayesify.cli import main
from bayesify.serving.models import Registry
from bayesify.serving.promises import Promises


@pytest.fixture(scope="module")
def certified(folders, tmp_path_factory):
    """Copies of runs with promises: classes with a refusal and sets, numbers with intervals."""
    place = tmp_path_factory.mktemp("certified")
    for name in ("plain", "houses"):
        shutil.copytree(folders[name], place / name)
    assert main(["certify", str(place / "plain"), "--max-error", "0.03", "--alpha", "0.1", "--draws", "20"]) == 0
    assert main(["certify", str(place / "houses"), "--alpha", "0.2", "--share", "1"]) == 0
    return place


def test_calibrated_accepts_what_was_promised(certified, images):
    from bayesify.decisions import refusal_of
    from bayesify.methods.saving import load

    method = load(certified / "plain")
    with serving(Registry([certified / "plain"], threads=1)) as client:
        body = {"inputs": images[:200].tolist(), "at_least": "calibrated"}
        answer = client.post("/v1/predict", body).json
        assert answer["at_least"] == "calibrated"
        assert answer["promise"]["max_error"] == 0.03
        assert answer["promise"]["holds"]
        confidences = np.array([row["confidence"] for row in answer["predictions"]])
        accepted = np.array([row["accepted"] for row in answer["predictions"]])
        assert (accepted == (confidences >= refusal_of(method).threshold)).all()
        assert 0 < accepted.sum() < 200
        assert all(row["label"] in row["set"] for row in answer["predictions"] if row["confidence"] > 0.9)
        described = client.get("/v1/models").json["models"][0]["promise"]
        assert described["holds"]
        assert len(described["promised"]) == 2
        other = client.post("/v1/predict", body | {"seed": 3})
        assert other.status == 422
        assert "seed=0" in other.error
        other = client.post("/v1/predict", {"inputs": images[:2].tolist(), "seed": 3}).json
        assert not other["promise"]["holds"]
        wrong = client.post("/v1/predict", {"inputs": images[0].tolist(), "at_most": "calibrated"})
        assert wrong.status == 422
        parameters = {"at_least": "calibrated"}
        data = {"name": "input", "shape": [1, 8, 8], "datatype": "FP32", "data": images[0].ravel().tolist()}
        inferred = client.post("/v2/models/plain/infer", {"inputs": [data], "parameters": parameters}).json
        assert inferred["parameters"]["promise_holds"] is True
        assert {"set", "accepted"} <= {output["name"] for output in inferred["outputs"]}


def test_a_model_without_a_promise_refuses(client, images):
    body = {"model": "plain", "inputs": images[0].tolist(), "at_least": "calibrated"}
    answer = client.post("/v1/predict", body)
    assert answer.status == 422
    assert "bayesify certify" in answer.error
    assert "promise" not in client.post("/v1/predict", body | {"at_least": 0.5}).json


def test_a_misspelt_calibrated_is_named(client, images):
    body = {"model": "plain", "inputs": images[0].tolist()}
    for given, words in (
        ("calibratd", "did you mean 'calibrated'?"),
        ("high", "a number or \"calibrated\", got 'high'"),
    ):
        for name in ("at_least", "at_most"):
            answer = client.post("/v1/predict", body | {name: given})
            assert answer.status == 422
            assert f"{name} must be" in answer.error
            assert words in answer.error
    assert "did you mean" not in answer.error


def test_a_shift_of_the_inputs_ends_the_promise(certified, images):
    # In the order of the file, writers follow each other: that is a change of the inputs too, and is seen as one.
    images = images[np.random.default_rng(0).permutation(len(images))]
    with serving(Registry([certified / "plain"], threads=1)) as client:
        promise = client.post("/v1/predict", {"inputs": images[:300].tolist()}).json["promise"]
        assert promise["holds"]
        assert 'bayesify_promise_holds{model="plain"} 1.0' in client.get("/metrics").body.decode()
        inverted = (16 - images[:100]).tolist()
        promise = client.post("/v1/predict", {"inputs": inverted}).json["promise"]
        assert not promise["holds"]
        assert "no longer look like" in promise["reason"]
        assert promise["evidence_of_shift"] >= 100
        text = client.get("/metrics").body.decode()
        assert 'bayesify_promise_holds{model="plain"} 0.0' in text
        assert 'bayesify_shift_evidence{model="plain"}' in text
        assert not client.get("/v1/models").json["models"][0]["promise"]["holds"]


def test_numbers_have_conformal_intervals(certified):
    with serving(Registry([certified / "houses"], threads=1)) as client:
        row = {"area": 100.0, "kind": "flat"}
        answer = client.post("/v1/predict", {"inputs": [row]}).json
        found = answer["predictions"][0]
        assert found["conformal_lower"] < found["value"] < found["conformal_upper"]
        assert answer["promise"]["coverage"] == pytest.approx(0.8)


def test_guarantees_that_were_made_differently_are_told_apart():
    """Two calls of certify with other draws: no request has both, and certainties of the two are not compared."""
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 2, units=4), "categorical", prior="normal:1")
    x = torch.randn(400, 2)
    y = (x[:, 0] > 0).long()
    bnn.fit((x[:200], y[:200]), epochs=40, learning_rate=0.05, progress=False, compiled=False)
    bf.calibrate(bnn, (x[200:], y[200:]), max_error=0.2, draws=20)
    promises = Promises(bnn)
    assert promises.status(20, 0)["holds"]
    assert promises.status(30, 0)["reason"] == "it was made for 20 draws and seed 0, this request has other ones"
    bf.conformal(bnn, (x[200:], y[200:]), alpha=0.1, draws=30)
    promises = Promises(bnn)
    assert not promises.status(20, 0)["holds"]
    assert promises.status(20, 0)["reason"].startswith("the guaranteed coverage was made for 30 draws")
    assert promises.status(30, 0)["reason"].startswith("the guaranteed error was made for 20 draws")
