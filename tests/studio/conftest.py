"""Fixtures: small runs on the embedded digits, and the whole server over them in a thread, asked by a real client."""

import httpx
import pytest
from studio_server import make_runs, serving


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """An empty place for results, to be filled by a test."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="session")
def address(runs, reproduced):
    with serving(runs.values(), reproduced) as url:
        yield url


@pytest.fixture(scope="session")
def client(address):
    with httpx.Client(base_url=address, timeout=240) as asked:
        yield asked


@pytest.fixture
def ask(client):
    """Call the studio's API; the answer's JSON, or the refusal's status and words."""

    def call(path, body=None, **values):
        if body is None:
            answer = client.get(f"/studio/api/{path}", params=values)
        else:
            answer = client.post(f"/studio/api/{path}", json=body)
        content = answer.json()
        return content if answer.status_code == 200 else (answer.status_code, content.get("error") or content["detail"])

    return call
