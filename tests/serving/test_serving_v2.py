"""The Open Inference Protocol: what it says about models, what it answers, and what it refuses."""

import json

import numpy as np
import pytest
import torch

import bayesify as bf
from bayesify.runs import read_config
from bayesify.workflows.run_data import preparation_of

OUTPUTS = ["probs", "label", "confidence", "entropy", "aleatoric", "epistemic", "accepted"]


def reference(folder, raw, draws, seed):
    """What the library itself says about raw inputs."""
    preparation = preparation_of(read_config(folder), folder)
    return bf.load(folder).predict(preparation.apply(torch.as_tensor(raw)), draws=draws, seed=seed)


def test_server_and_health_answer_in_json(client):
    about = client.get("/v2").json
    assert (about["name"], about["extensions"]) == ("bayesify", ["binary_tensor_data"])
    assert client.get("/v2/health/live").json == {"live": True}
    assert client.get("/v2/health/ready").json == {"ready": True}
    for path in ("", "/versions/1"):
        assert client.get(f"/v2/models/plain{path}/ready").json == {"name": "plain", "ready": True}


def test_metadata_describes_inputs_and_outputs(client):
    about = client.get("/v2/models/variational").json
    assert client.get("/v2/models/variational/versions/1").json == about
    assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 8, 8]}]
    kinds = {t["name"]: (t["datatype"], t["shape"]) for t in about["outputs"]}
    assert list(kinds) == OUTPUTS
    assert kinds["probs"] == ("FP32", [-1, 9])
    assert kinds["label"] == ("INT64", [-1])
    assert kinds["accepted"] == ("BOOL", [-1])
    assert about["parameters"]["class_names"] == list("012456789")
    table = client.get("/v2/models/houses").json
    assert table["inputs"] == [{"name": "input", "datatype": "FP64", "shape": [-1, 2]}]
    assert {"name": "interval", "datatype": "FP32", "shape": [-1, 2]} in table["outputs"]


@pytest.mark.parametrize("name", ["plain", "variational", "mc-dropout"])
def test_answers_are_those_of_the_library(client, folders, images, name):
    said = client.tensors(name, images[:5], parameters={"draws": 12, "seed": 7, "at_least": 0.9})
    ours = reference(folders[name], images[:5], 12, 7)
    classes = 9 if name == "variational" else 10
    assert said["probs"][:2] == ("FP32", [5, classes])
    np.testing.assert_allclose(np.reshape(said["probs"][2], (5, classes)), ours.probs, rtol=1e-5, atol=1e-7)
    assert said["label"] == ("INT64", [5], ours.labels.tolist())
    for score in ("confidence", "entropy", "aleatoric", "epistemic"):
        np.testing.assert_allclose(said[score][2], getattr(ours, score), rtol=1e-4, atol=1e-6)
    assert said["accepted"] == ("BOOL", [5], ours.accept(at_least=0.9).tolist())


def test_numbers_come_with_moments_and_an_interval(client, folders):
    rows = np.array([[50.0, 0.0], [150.0, 1.0]])
    said = client.tensors("houses", rows, parameters={"at_most": 1e9})
    ours = reference(folders["houses"], rows, 30, 0)
    assert list(said) == ["mean", "std", "aleatoric", "epistemic", "interval", "accepted"]
    for name in ("mean", "std", "aleatoric", "epistemic"):
        np.testing.assert_allclose(said[name][2], getattr(ours, name), rtol=1e-4)
    lower, upper = ours.interval()
    np.testing.assert_allclose(np.reshape(said["interval"][2], (2, 2)), torch.stack((lower, upper), -1), rtol=1e-4)
    assert said["accepted"][2] == [True, True]
    assert client.tensors("houses", rows, parameters={"at_most": 0})["accepted"][2] == [False, False]


def test_outputs_id_and_parameters_come_back_as_asked(client, images):
    wanted = [{"name": "epistemic"}, {"name": "label"}]
    answer = client.infer("variational", images[:2], id="mine", outputs=wanted, parameters={"draws": 3, "seed": 5}).json
    assert answer["id"] == "mine"
    assert [t["name"] for t in answer["outputs"]] == ["epistemic", "label"]
    assert (answer["model_name"], answer["model_version"]) == ("variational", "1")
    assert answer["parameters"] == {"draws": 3, "seed": 5}
    assert "id" not in client.infer("variational", images[:1]).json
    # A method that holds one function says so, whatever was asked for.
    assert client.infer("plain", images[:1], parameters={"draws": 50}).json["parameters"]["draws"] == 1


def test_every_seed_has_draws_of_its_own(client, images):
    first, again, other = (client.tensors("variational", images[:3], parameters={"seed": s}) for s in (1, 1, 2))
    assert first == again
    assert first["probs"] != other["probs"]


@pytest.mark.parametrize("datatype", ["UINT8", "INT8", "INT16", "INT32", "INT64", "UINT64", "FP16", "FP32", "FP64"])
def test_every_datatype_holds_the_same_digits(client, images, datatype):
    whole = images[:2].astype(int)
    assert client.tensors("plain", whole, datatype) == client.tensors("plain", images[:2])


def test_examples_may_be_flat_and_single(client, images):
    said = client.tensors("plain", images[:1])
    for shape in ((8, 8), (64,), (1, 64), (1, 1, 8, 8)):
        assert client.tensors("plain", images[0].reshape(shape)) == said


def test_binary_tensors_both_ways(client, images):
    raw = images[:3].astype("<f4")
    tensor = {"name": "input", "shape": [3, 8, 8], "datatype": "FP32", "parameters": {"binary_data_size": raw.nbytes}}
    wanted = [
        {"name": "probs", "parameters": {"binary_data": True}},
        {"name": "label"},
        {"name": "accepted", "parameters": {"binary_data": True}},
    ]
    head = json.dumps({"inputs": [tensor], "outputs": wanted, "parameters": {"at_least": 0.5}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    reply = client.ask("POST", "/v2/models/plain/infer", head + raw.tobytes(), headers)
    assert reply.status == 200
    length = int(reply.headers["inference-header-content-length"])
    outputs = json.loads(reply.body[:length])["outputs"]
    expected = client.tensors("plain", images[:3], parameters={"at_least": 0.5})
    probs = np.frombuffer(reply.body[length : length + 120], "<f4")
    assert [t.get("parameters") for t in outputs] == [{"binary_data_size": 120}, None, {"binary_data_size": 3}]
    assert probs.tolist() == expected["probs"][2]
    assert outputs[1]["data"] == expected["label"][2]
    assert [bool(b) for b in reply.body[length + 120 :]] == expected["accepted"][2]


GOOD = {"name": "input", "shape": [1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}
BAD = {
    "not JSON": (b"{", 400, "not JSON"),
    "empty": (b"", 400, "empty"),
    "not an object": (b"[]", 400, "object"),
    "deeply nested": (b"[" * 5000, 400, "JSON"),
    "no inputs": ({}, 400, "inputs"),
    "two inputs": ({"inputs": [GOOD, GOOD]}, 400, "one tensor"),
    "an input that is a number": ({"inputs": [3]}, 400, "object"),
    "another name": ({"inputs": [GOOD | {"name": "x"}]}, 400, "'input'"),
    "no shape": ({"inputs": [{"name": "input", "datatype": "FP32", "data": []}]}, 400, "shape"),
    "a negative shape": ({"inputs": [GOOD | {"shape": [-1, 64]}]}, 400, "shape"),
    "an endless shape": ({"inputs": [GOOD | {"shape": [2] * 5000}]}, 400, "shape"),
    "too few numbers": ({"inputs": [GOOD | {"data": [1.0]}]}, 400, "64 numbers"),
    "another size": ({"inputs": [GOOD | {"shape": [1, 4], "data": [1.0] * 4}]}, 422, "[8, 8]"),
    "no such type": ({"inputs": [GOOD | {"datatype": "FP31"}]}, 400, "did you mean 'FP32'"),
    "text": ({"inputs": [GOOD | {"datatype": "BYTES"}]}, 400, "datatype"),
    "words among numbers": ({"inputs": [GOOD | {"data": ["a"] * 64}]}, 422, 'got "a"'),
    "null among numbers": ({"inputs": [GOOD | {"data": [None] * 64}]}, 422, "null"),
    "truth among numbers": ({"inputs": [GOOD | {"data": [True] * 64}]}, 422, "true"),
    "ragged": ({"inputs": [GOOD | {"data": [[1.0], [1.0, 2.0]]}]}, 422, "unequal lengths"),
    "beyond a byte": ({"inputs": [GOOD | {"datatype": "UINT8", "data": [256] * 64}]}, 422, "0 to 255"),
    "a half of a whole": ({"inputs": [GOOD | {"datatype": "INT32", "data": [0.5] * 64}]}, 422, "whole"),
    "NaN": (b'{"inputs": [NaN]}', 422, "NaN"),
    "infinity": (b'{"inputs": [-Infinity]}', 422, "Infinity"),
    "infinity in disguise": ({"inputs": [GOOD | {"data": [1e300] * 64}]}, 422, "infinity"),
    "a number beyond all": (
        b'{"inputs": [{"name": "input", "shape": [1], "datatype": "FP64", "data": [1%s]}]}' % (b"0" * 400),
        422,
        "64 bits",
    ),
    "a pixel out of range": ({"inputs": [GOOD | {"data": [17.0] * 64}]}, 422, "0 to 16"),
    "no inputs at all": ({"inputs": [GOOD | {"shape": [0, 8, 8], "data": []}]}, 422, "no numbers"),
    "an unknown parameter": ({"inputs": [GOOD], "parameters": {"drawz": 3}}, 400, "did you mean 'draws'"),
    "no draws": ({"inputs": [GOOD], "parameters": {"draws": 0}}, 422, "draws must be 1 to 1000, got 0"),
    "too many draws": ({"inputs": [GOOD], "parameters": {"draws": 1001}}, 422, "1 to 1000"),
    "draws that are no number": ({"inputs": [GOOD], "parameters": {"draws": True}}, 422, "whole number"),
    "a seed beyond 64 bits": ({"inputs": [GOOD], "parameters": {"seed": 1 << 70}}, 422, "seed"),
    "an impossible confidence": ({"inputs": [GOOD], "parameters": {"at_least": 1.5}}, 422, "0 to 1"),
    "a width for classes": ({"inputs": [GOOD], "parameters": {"at_most": 1}}, 422, "at_least"),
    "parameters that are a list": ({"inputs": [GOOD], "parameters": []}, 400, "parameters"),
    "an unknown output": ({"inputs": [GOOD], "outputs": [{"name": "prob"}]}, 400, "did you mean 'probs'"),
    "outputs by name alone": ({"inputs": [GOOD], "outputs": ["probs"]}, 400, "name"),
    "an id that is a number": ({"inputs": [GOOD], "id": 3}, 400, "id"),
    "bytes that nobody claims": ({"inputs": [GOOD | {"parameters": {"binary_data_size": 8}}]}, 400, "not both"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line(client, name):
    body, status, words = BAD[name]
    reply = client.post("/v2/models/plain/infer", body)
    assert reply.status == status, reply.body
    assert words in reply.error


@pytest.mark.parametrize("length", ["x", "-1", "1e3", "9" * 30])
def test_the_length_of_the_json_part_must_make_sense(client, length):
    reply = client.post("/v2/models/plain/infer", {"inputs": [GOOD]}, **{"Inference-Header-Content-Length": length})
    assert reply.status == 400
    assert "Inference-Header-Content-Length" in reply.error


def test_unknown_models_and_versions(client):
    for path in ("", "/ready", "/versions/1", "/versions/1/ready"):
        reply = client.get(f"/v2/models/varational{path}")
        assert (reply.status, "did you mean 'variational'" in reply.error) == (404, True)
        assert client.get(f"/v2/models/plain/versions/2{path[11:]}").status == 404
    assert client.post("/v2/models/nothing/infer", {"inputs": [GOOD]}).status == 404
    assert client.post("/v2/models/plain/versions/7/infer", {"inputs": [GOOD]}).status == 404
    assert client.post("/v2/models/plain/versions/1/infer", {"inputs": [GOOD]}).status == 200


def test_a_category_is_a_code_or_a_refusal(client):
    reply = client.infer("bands", np.array([[50.0, 2.0]]))
    assert (reply.status, "codes 0 to 1" in reply.error) == (422, True)


def test_an_answer_that_is_no_number_is_a_refusal(client):
    reply = client.infer("houses", np.array([[1e300, 0.0]]))
    assert (reply.status, "finite" in reply.error) == (422, True)
