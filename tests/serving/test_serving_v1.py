"""The friendly protocol: numbers, pictures and arrays in, sentences out."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from bayesify.cli import main


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(image, form="PNG"):
    file = io.BytesIO()
    Image.fromarray(np.kron(image * 15.9, np.ones((4, 4))).astype(np.uint8)).save(file, form)
    return file.getvalue()


def test_models_and_health(client, folders):
    listed = {model["name"]: model for model in client.get("/v1/models").json["models"]}
    assert list(listed) == list(folders)
    assert listed["variational"]["class_names"] == list("012456789")
    assert listed["variational"]["input"] == {"shape": [8, 8], "maximum": 16.0, "columns": []}
    assert listed["bands"]["input"]["columns"][1] == {"name": "kind", "categories": ["flat", "house"]}
    assert listed["houses"]["kind"] == "regression"
    # As many as an answer has: an ensemble of three members, a plain network with one set of weights.
    assert {name: model["draws"] for name, model in listed.items()} == {
        "plain": 1,
        "variational": 100,
        "mc-dropout": 100,
        "bands": 100,
        "houses": 3,
    }
    assert client.get("/v1/health").json == {"status": "ready", "models": list(folders)}
    # Nothing of where they lie on the disk.
    assert str(folders["plain"].parent) not in client.get("/v1/models").body.decode()


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_picture_is_answered_as_on_the_command_line(client, folders, images, tmp_path, capsys, form):
    file = tmp_path / f"digit.{form.lower()}"
    file.write_bytes(png(images[7], form))
    headers = {"Content-Type": f"image/{form.lower()}"}
    path = "/v1/predict?model=variational&draws=20&seed=3&at_least=0.99"
    ours = client.ask("POST", path, file.read_bytes(), headers).json
    words = ["predict", folders["variational"], file, "--draws", 20, "--seed", 3, "--at-least", 0.99, "--json"]
    assert main([*map(str, words)]) == 0
    theirs = json.loads(capsys.readouterr().out)
    said, expected = ours["predictions"][0], theirs["predictions"][0]
    assert (ours["model"], ours["draws"], ours["seed"], ours["at_least"]) == ("variational", 20, 3, 0.99)
    assert {*said, "input"} == set(expected)
    for name in ("answer", "label", "accepted"):
        assert said[name] == expected[name]
    assert list(said["probs"]) == list(expected["probs"])
    np.testing.assert_allclose(list(said["probs"].values()), list(expected["probs"].values()), rtol=1e-5, atol=1e-7)
    for name in ("confidence", "entropy", "aleatoric", "epistemic"):
        assert said[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6)


def test_one_or_many_in_every_form(client, images):
    def predict(body, kind="application/json"):
        reply = client.ask("POST", "/v1/predict?model=variational", body, {"Content-Type": kind})
        assert reply.status == 200, reply.body
        return reply.json["predictions"]

    many = predict(json.dumps(images[:3].tolist()))
    assert len(many) == 3
    assert predict(json.dumps({"inputs": images[:3].tolist()})) == many
    assert predict(json.dumps(images[1].tolist())) == many[1:2]
    assert predict(json.dumps(images[:3].reshape(3, 64).tolist())) == many
    for kind in ("application/x-npy", "application/octet-stream"):
        assert predict(npy(images[:3]), kind) == many
    assert predict(npy(np.asfortranarray(images[:3].astype(np.uint8))), "application/x-npy") == many
    assert predict(npy(images[0].astype(">f4")), "application/x-npy; charset=binary") == many[:1]


def test_rows_of_a_table_have_names_and_categories(client):
    rows = [{"area": 40.0, "kind": "flat"}, {"kind": "house", "area": 190}]
    reply = client.post("/v1/predict", {"model": "bands", "inputs": rows, "draws": 5})
    coded = client.post("/v1/predict", {"model": "bands", "inputs": [[40.0, 0], [190, 1]], "draws": 5})
    assert reply.status == 200
    assert reply.json == coded.json
    assert [one["label"] for one in reply.json["predictions"]] == ["cheap", "dear"]
    alone = client.post("/v1/predict?model=bands&draws=5", rows[0])
    assert alone.json["predictions"] == reply.json["predictions"][:1]


def test_numbers_are_answered_with_an_interval_or_not_at_all(client):
    ask = {"model": "houses", "inputs": {"area": 100, "kind": "flat"}}
    one = client.post("/v1/predict", ask).json["predictions"][0]
    assert one["lower"] < one["value"] < one["upper"]
    assert one["answer"] == one["value"]
    strict = client.post("/v1/predict", {**ask, "at_most": 1.0}).json["predictions"][0]
    assert (strict["answer"], strict["accepted"], strict["value"]) == ("I do not know", False, one["value"])


def test_abstaining_keeps_the_best_guess_apart(client, images):
    sure = client.post("/v1/predict?model=variational&at_least=1", images[0].tolist()).json["predictions"][0]
    assert (sure["answer"], sure["accepted"]) == ("I do not know", False)
    assert sure["label"] in "012456789"


def header(shape, kind="<f8"):
    """A .npy file that promises more than it holds."""
    about = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(about).to_bytes(2, "little") + about


JSON, NPY, PNG = "application/json", "application/x-npy", "image/png"
BAD = {
    "no model": ("", JSON, b"[]", 422, "model must be one of plain, variational"),
    "no such model": ("?model=vari", JSON, b"[1]", 404, "no model 'vari'"),
    "a model that is a number": ("", JSON, b'{"inputs": [1], "model": 3}', 422, "name"),
    "a path for a model": ("?model=../../etc/passwd", JSON, b"[1]", 404, "no model"),
    "an address for an input": ("?model=plain", JSON, b'{"inputs": "http://example.org/seven.png"}', 422, "numbers"),
    "an unknown setting": ("?model=plain&draw=3", JSON, b"[1]", 400, "did you mean 'draws'"),
    "an unknown setting inside": ("?model=plain", JSON, b'{"inputs": [1], "sead": 3}', 400, "did you mean 'seed'"),
    "twice in the address": ("?model=plain&draws=1&draws=2", JSON, b"[1]", 400, "twice"),
    "twice in all": ("?model=plain", JSON, b'{"inputs": [1], "model": "plain"}', 400, "twice"),
    "draws in words": ("?model=plain&draws=many", JSON, b"[1]", 422, "'many'"),
    "a confidence that is none": ("?model=plain&at_least=nan", JSON, b"[1]", 422, "at_least"),
    "NaN": ("?model=plain", JSON, b"[NaN]", 422, "NaN"),
    "not JSON": ("?model=plain", JSON, b"seven", 400, "not JSON"),
    "objects for images": ("?model=plain", JSON, b'[{"a": 1}]', 422, "images"),
    "a column too few": ("?model=bands", JSON, b'{"area": 3}', 422, "'kind'"),
    "a column too many": ("?model=bands", JSON, b'{"area": 3, "kind": "flat", "sea": 1}', 422, "'sea'"),
    "a list for a category": ("?model=bands", JSON, b'{"area": 3, "kind": ["flat"]}', 422, "expected a number, text"),
    "a number beyond all": ("?model=bands", JSON, b'{"area": 1%s, "kind": "flat"}' % (b"0" * 400), 422, "too large"),
    "an object among lists": ("?model=bands", JSON, b'[{"area": 3, "kind": "flat"}, [1, 2]]', 422, "like the first"),
    "a picture for a table": ("?model=bands", PNG, b"\x89PNG", 422, "table"),
    "no picture": ("?model=plain", PNG, b"\x89PNG\r\n", 400, "PNG"),
    "half a picture": ("?model=plain", PNG, png(np.eye(8))[:70], 400, "damaged"),
    "a GIF in disguise": ("?model=plain", PNG, b"GIF89a" + bytes(100), 400, "PNG"),
    "no array": ("?model=plain", NPY, b"hello", 400, ".npy"),
    "half an array": ("?model=plain", NPY, npy(np.zeros((8, 8)))[:-8], 400, "has 512 bytes, not 504"),
    "an array of objects": ("?model=plain", NPY, header((1,), "|O"), 422, "numbers"),
    "an array of text": ("?model=plain", NPY, npy(np.array(["a"])), 422, "numbers"),
    "a promise of terabytes": ("?model=plain", NPY, header((10**6, 10**6)), 400, "0 bytes"),
    "NaN in an array": ("?model=plain", NPY, npy(np.full((8, 8), np.nan)), 422, "NaN"),
    "another type": ("?model=plain", "text/csv", b"1,2", 415, "Content-Type"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line(client, name):
    query, kind, body, status, words = BAD[name]
    reply = client.ask("POST", f"/v1/predict{query}", body, {"Content-Type": kind})
    assert reply.status == status, reply.body
    assert words in reply.error


def test_a_row_that_training_never_saw_gets_a_reason_and_the_others_their_predictions(client):
    rows = [{"area": 3, "kind": "flat"}, {"area": 3, "kind": "tent"}, {"area": None, "kind": "flat"}]
    body = json.dumps(rows).encode()
    reply = client.ask("POST", "/v1/predict?model=bands", body, {"Content-Type": JSON})
    assert reply.status == 200, reply.body
    known, tent, gap = json.loads(reply.body)["predictions"]
    alone = client.ask("POST", "/v1/predict?model=bands", json.dumps(rows[0]).encode(), {"Content-Type": JSON})
    assert known == json.loads(alone.body)["predictions"][0]
    for row, words in ((tent, "unknown category 'tent'"), (gap, "'area': missing value")):
        assert row["answer"] == "I do not know"
        assert not row["accepted"]
        assert row["epistemic"] is None
        assert words in row["reason"]


def test_a_pickle_is_never_opened(client, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    file = io.BytesIO()
    np.save(file, np.array([Trap()], dtype=object), allow_pickle=True)
    reply = client.ask("POST", "/v1/predict?model=plain", file.getvalue(), {"Content-Type": "application/x-npy"})
    assert reply.status == 422
    assert not (tmp_path / "sprung").exists()
