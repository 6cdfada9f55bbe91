"""Requests to a network that takes the numbers of words: what it does not have is refused in a line, alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from talking import serving
from token_runs import token_run

from bayesify.serving import Registry
from bayesify.serving.limits import Limits

GOOD = [1, 2, 3, 4, 5, 6, 7]


@pytest.fixture(scope="module", params=["Tagger", "chain"])
def served(request, tmp_path_factory):
    """A server of one run, and the run's method."""
    place = tmp_path_factory.mktemp("tokens")
    method, *_ = token_run(place, request.param)
    registry = Registry([place / request.param], network=f"token_runs:{request.param}", threads=1, limits=Limits())
    with serving(registry) as client:
        yield client, method


def test_whole_numbers_of_any_type_are_answered_as_in_python(served):
    client, method = served
    expected = method.predict(torch.tensor([GOOD])).confidence[0]
    for numbers in (GOOD, [float(number) for number in GOOD]):
        said = client.post("/v1/predict", {"inputs": [numbers]}).json["predictions"][0]
        assert torch.allclose(torch.tensor(said["confidence"]), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (70, "the largest index is 70, but an embedding has 50 rows, for indices from 0 to 49"),
        (-1, "the smallest index is -1, but an embedding has 50 rows, for indices from 0 to 49"),
        (5.5, "inputs must be whole numbers of at most 64 bits, as the network takes them, got 5.5"),
    ],
)
def test_other_tokens_are_refused_in_a_line(served, wrong, words):
    client, _ = served
    said = client.post("/v1/predict", {"inputs": [[*GOOD[:6], wrong]]})
    assert said.status == 422
    assert said.json["error"].endswith(words)
    name = client.get("/v1/models").json["models"][0]["name"]
    tensor = {"name": "input", "shape": [1, 7], "datatype": "FP64", "data": [*GOOD[:6], wrong]}
    said = client.post(f"/v2/models/{name}/infer", {"inputs": [tensor]})
    assert (said.status, said.json["error"].endswith(words)) == (422, True)


def test_a_wrong_request_does_not_fail_those_it_shares_a_batch_with(served):
    client, _ = served
    batches = client.registry.batcher
    before, sizes = batches.limits, []
    batches.limits, batches._observe = replace(before, window=0.5), sizes.append
    try:
        with ThreadPoolExecutor(6) as clients:
            rows = [[*GOOD[:6], last] for last in (7, 8, 70, 9, 10, 11)]
            said = list(clients.map(lambda row: client.post("/v1/predict", {"inputs": [row]}), rows))
    finally:
        batches.limits = before
    assert max(sizes) > 1, "the requests met in a batch"
    assert [one.status for one in said] == [200, 200, 422, 200, 200, 200]
