"""A served model with a check for unknown inputs refuses them, says why, and counts them."""

import shutil

import numpy as np
import pytest
from talking import serving

from bayesify.cli import main
from bayesify.decisions import saved_check
from bayesify.methods.saving import load
from bayesify.serving.models import Registry


@pytest.fixture(scope="module")
def checked(folders, tmp_path_factory):
    place = tmp_path_factory.mktemp("checked")
    for name in ("plain", "houses"):
        shutil.copytree(folders[name], place / name)
        assert main(["unknown", str(place / name)]) == 0
    return place


def test_an_unlike_image_is_not_answered_and_is_counted(checked, images):
    noise = np.random.default_rng(0).integers(0, 17, (3, 8, 8)).astype(float)
    inputs = np.concatenate([images[:20], noise])
    method = load(checked / "plain")
    with serving(Registry([checked / "plain"], threads=1)) as client:
        said = client.post("/v1/predict", {"inputs": inputs.tolist()}).json["predictions"]
        known = [row["known"] for row in said]
        assert known[20:] == [False] * 3
        assert sum(known[:20]) >= 18
        for row in said:
            assert row["accepted"] is row["known"]  # no threshold was asked for
            assert (row["answer"] == "I do not know") is not row["known"]
            assert row["reason"] == (None if row["known"] else "unlike the training data")
        unsure = client.post("/v1/predict", {"inputs": images[:20].tolist(), "at_least": 0.999}).json["predictions"]
        assert {row["reason"] for row in unsure if row["known"] and not row["accepted"]} <= {"not certain enough"}
        text = client.get("/metrics").body.decode()
        refused = 2 * (20 - sum(known[:20])) + 3
        assert f'bayesify_unknown_inputs_total{{model="plain"}} {refused:.1f}' in text
        check = client.get("/v1/models").json["models"][0]["unknown_check"]
        assert check == {"by": "knn", "coverage": 0.99}
        data = {"name": "input", "shape": [23, 8, 8], "datatype": "FP32", "data": inputs.ravel().tolist()}
        inferred = client.post("/v2/models/plain/infer", {"inputs": [data]}).json
        outputs = {output["name"]: output["data"] for output in inferred["outputs"]}
        assert outputs["known"] == known
        assert outputs["accepted"] == known
        assert "known" in {output["name"] for output in client.get("/v2/models/plain").json["outputs"]}
    assert saved_check(method) is not None


def test_numbers_are_checked_too(checked):
    with serving(Registry([checked / "houses"], threads=1)) as client:
        rows = [{"area": 100.0, "kind": "flat"}, {"area": 9000.0, "kind": "flat"}]
        said = client.post("/v1/predict", {"inputs": rows}).json["predictions"]
    assert [row["known"] for row in said] == [True, False]
    assert said[1]["answer"] == "I do not know"


def test_a_model_without_a_check_says_nothing_about_it(client, images):
    said = client.post("/v1/predict", {"model": "plain", "inputs": images[0].tolist()}).json
    assert "known" not in said["predictions"][0]
