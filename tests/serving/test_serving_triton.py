"""A public client of the v2 protocol, NVIDIA's for Triton, used as its documentation says."""

import numpy as np
import pytest

http = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
from tritonclient.utils import InferenceServerException  # noqa: E402


@pytest.fixture
def triton(client):
    with http.InferenceServerClient(client.place.netloc) as triton:
        yield triton


@pytest.mark.parametrize("binary", [True, False])
def test_inference(client, triton, images, binary):
    asked = http.InferInput("input", [4, 8, 8], "FP32")
    asked.set_data_from_numpy(images[:4].astype(np.float32), binary_data=binary)
    wanted = [http.InferRequestedOutput(name, binary_data=binary) for name in ("probs", "label", "accepted")]
    result = triton.infer(
        "variational", [asked], outputs=wanted, request_id="7", parameters={"draws": 9, "seed": 4, "at_least": 0.9}
    )
    expected = client.tensors("variational", images[:4], parameters={"draws": 9, "seed": 4, "at_least": 0.9})
    assert result.get_response()["id"] == "7"
    assert result.as_numpy("probs").dtype == np.float32
    assert result.as_numpy("probs").ravel().tolist() == expected["probs"][2]
    assert result.as_numpy("label").dtype == np.int64
    assert result.as_numpy("label").tolist() == expected["label"][2]
    assert result.as_numpy("accepted").dtype == bool
    assert result.as_numpy("accepted").tolist() == expected["accepted"][2]
    assert result.as_numpy("entropy") is None


def test_without_outputs_all_come_as_bytes(client, triton, images):
    asked = http.InferInput("input", [1, 8, 8], "UINT8")
    asked.set_data_from_numpy(images[:1].astype(np.uint8))
    result = triton.infer("variational", [asked], model_version="1")
    assert result.as_numpy("epistemic").tolist() == client.tensors("variational", images[:1])["epistemic"][2]


def test_health_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("plain")
    assert triton.is_model_ready("plain", "1")
    assert not triton.is_model_ready("nothing")
    assert triton.get_server_metadata()["name"] == "bayesify"
    assert triton.get_model_metadata("plain", "1")["outputs"][0] == {
        "name": "probs",
        "datatype": "FP32",
        "shape": [-1, 10],
    }


def test_errors_reach_the_client_in_words(triton, images):
    asked = http.InferInput("input", [1, 64], "FP32")
    asked.set_data_from_numpy(np.full((1, 64), np.nan, np.float32))
    with pytest.raises(InferenceServerException, match="NaN") as problem:
        triton.infer("plain", [asked])
    assert problem.value.status() == "422"
