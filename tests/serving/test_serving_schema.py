"""The OpenAPI document says what the server does: every path is tried against it, and its page needs nothing else."""

import base64
import hashlib
import re
import subprocess
import sys

import pytest
from talking import serving

from bayesify.serving.models import Registry


def test_answers_are_those_that_the_document_promises(folders, tmp_path):
    """Every path with examples, boundary cases and random requests, both as the document asks and against it."""
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    with serving(Registry([folders["plain"], folders["bands"]], threads=1)) as client:
        words = ["--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "1", "--no-color"]
        # That a body has the right form does not say that its numbers are as many as a model's pixels.
        words += ["--exclude-checks", "positive_data_acceptance", "--request-timeout", "20"]
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{client.url}/openapi.json", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Tested: 13" in done.stdout
        assert client.registry.metrics.registry.get_sample_value("bayesify_predictions_total", {"model": "plain"}) > 10


def test_examples_are_answered(client):
    paths = client.get("/openapi.json").json["paths"]
    tried = 0
    for path, operations in paths.items():
        for operation in operations.values():
            for example in (
                operation.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("examples", {})
                .values()
            ):
                place = path.replace("{name}", "plain").replace("{version}", "1")
                assert client.post(place, example["value"]).status == 200
                tried += 1
    assert tried == 4


def test_the_page_describes_every_path_and_fetches_nothing(client):
    reply = client.get("/docs")
    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    page = reply.body.decode()
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    for path in client.get("/openapi.json").json["paths"]:
        assert f"</b> {path}</h3>" in page
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", page)
    away = client.get("/")
    assert (away.status, away.headers["location"]) == (307, "docs")


def test_what_the_page_shows_is_escaped():
    from bayesify.serving.page import render

    operation = {"summary": "<b>", "parameters": [{"name": "<i>", "in": "path", "schema": {"enum": ["<u>"]}}]}
    page = render({"info": {"title": "<t>", "version": "1"}, "paths": {"/<p>": {"get": operation}}})
    assert not re.search(r"<(b>\W*<|i>|u>|t>|p>/)", page.replace("<h3><b>GET</b>", ""))


def test_arrays_of_numbers_are_one_line_on_the_page(client):
    page = client.get("/docs").body.decode()
    assert re.search(r"\[0(, 0){7}", page)
    assert not re.search(r"\n\s*0,?\n", page)


def test_the_document_says_what_a_label_is(client):
    schemas = client.get("/openapi.json").json["components"]["schemas"]
    assert "index" in schemas["OutputTensor"]["description"]
    assert "name" in schemas["PredictResponse"]["properties"]["predictions"]["description"]
