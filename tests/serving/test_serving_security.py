"""Who may ask: names, origins, types and tokens, on every method."""

import socket

import pytest
from talking import serving

from bayesify.serving.app import create_app
from bayesify.serving.models import Registry
from bayesify.serving.security import is_loopback

METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]
PATHS = ["/v2", "/v1/predict", "/metrics", "/docs", "/nowhere"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", PATHS)
def test_another_host_is_refused_on_every_method(client, method, path):
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", "a b", ""):
        assert client.ask(method, path, headers={"Host": host}).status in {400, 421}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", PATHS)
def test_another_origin_is_refused_on_every_method(client, method, path):
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost:1",
        "file://",
        "https://[::1",
        client.url + ".evil",
    ):
        assert client.ask(method, path, headers={"Origin": origin}).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_can_send_is_refused_on_every_method(client, method, kind):
    assert client.ask(method, "/v1/predict", b"{}", {"Content-Type": kind}).status == 415


def test_our_own_names_and_origin_pass(client):
    port = client.place.port
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "[::1]:9"):
        assert client.get("/v2", Host=host).status == 200
        assert client.get("/v2", Host=host, Origin=f"http://{host}").status == 200


def test_two_hosts_are_one_too_many(client):
    with socket.create_connection((client.place.hostname, client.place.port), timeout=120) as line:
        line.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        assert line.recv(12)[9:12] == b"400"
    with socket.create_connection((client.place.hostname, client.place.port), timeout=120) as line:
        line.sendall(b"GET /v2 HTTP/1.0\r\n\r\n")
        assert line.recv(12)[9:12] in {b"400", b"421"}


def test_every_answer_carries_the_same_protection(client):
    for reply in (client.get("/v2"), client.get("/nowhere"), client.get("/v2", Host="evil.example")):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in reply.headers
        assert "server" not in reply.headers


def test_other_methods_are_named(client):
    reply = client.ask("DELETE", "/v2")
    assert (reply.status, reply.headers["allow"], reply.error) == (405, "GET", "method not allowed")
    assert client.get("/v1/predict").headers["allow"] == "POST"
    assert client.get("/v2/").status == 404


def test_a_token_is_asked_for_everywhere_but_at_the_door(folders):
    with serving(Registry([folders["plain"]], threads=1), token="secret-enough") as client:
        for path in ("/v2", "/v1/models", "/metrics", "/docs", "/openapi.json", "/v2/models/plain", "/nowhere"):
            reply = client.get(path)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            for wrong in ("Bearer wrong", "Basic secret-enough", "secret-enough", "Bearer", "Bearer sécret"):
                assert client.get(path, Authorization=wrong).status == 401
            assert client.get(path, Authorization="Bearer secret-enough").status != 401
        assert client.post("/v1/predict", {"inputs": []}).status == 401
        assert client.ask("POST", "/v1/health").status == 401
        for path in ("/v2/health/live", "/v2/health/ready", "/v1/health"):
            assert client.get(path).status == 200
        document = client.get("/openapi.json", Authorization="bearer secret-enough").json
        assert document["paths"]["/v2"]["get"]["security"] == [{"token": []}]


def test_beyond_this_machine_a_token_is_required(folders):
    registry = Registry([folders["plain"]])
    for host in ("0.0.0.0", "::", "192.168.1.5", "models.example.org"):
        assert not is_loopback(host)
        with pytest.raises(ValueError, match="token"):
            create_app(registry, host=host)
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    with pytest.raises(ValueError, match="spaces"):
        create_app(registry, token="two words")


def test_beyond_this_machine_addresses_and_given_names_pass(folders):
    registry = Registry([folders["plain"]], threads=1)
    options = {"host": "0.0.0.0", "hosts": ["Models.example.org"], "token": "t"}
    with serving(registry, **options) as client:
        key = {"Authorization": "Bearer t"}
        assert client.get("/v2", Host="192.168.1.5:80", **key).status == 200
        assert client.get("/v2", Host="models.example.org", **key).status == 200
        # A proxy may speak to us by another name than the one its page has.
        assert client.get("/v2", Host="127.0.0.1", Origin="https://models.example.org", **key).status == 200
        assert client.get("/v2", Host="other.example.org", **key).status == 421
        assert client.get("/v2", Host="127.0.0.1", Origin="https://evil.example", **key).status == 403
