"""`bayesify serve` as a person types it: it starts, it ends, and it says in one line what cannot be done."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from talking import Client

from bayesify.cli import main


@pytest.fixture
def refused(capsys, monkeypatch):
    monkeypatch.delenv("BAYESIFY_TOKEN", raising=False)

    def run(*arguments):
        capsys.readouterr()
        code = main(["serve", *map(str, arguments)])
        said = capsys.readouterr()
        assert (code, said.out) == (2, ""), said
        *earlier, line = said.err.splitlines()
        assert [words for words in earlier if not words.startswith("bayesify: starting the ")] == []
        assert line.startswith("bayesify: ")
        return line

    return run


def test_it_starts_answers_and_ends(folders, images):
    command = [sys.executable, "-m", "bayesify", "serve", folders["plain"], folders["houses"], "--port", "0", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BAYESIFY_TOKEN": "from-outside"}
    environment.pop("PYTHONUNBUFFERED", None)  # its first line must come through a pipe without that
    with subprocess.Popen(
        [*map(str, command), "--no-studio"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        started = json.loads(process.stdout.readline())
        assert started["models"] == ["plain", "houses"]
        client = Client(started["url"])
        assert client.infer("plain", images[:1]).status == 401
        key = {"Authorization": "Bearer from-outside"}
        assert client.post("/v1/predict?model=plain", images[0].tolist(), **key).status == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_first_interrupt_says_what_it_waits_for_and_a_second_stops(folders, images):
    # A body that never comes is a request in progress.
    command = [sys.executable, "-m", "bayesify", "serve", folders["plain"], "--port", "0", "--json", "--no-studio"]
    with subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        client = Client(json.loads(process.stdout.readline())["url"])
        with socket.create_connection((client.place.hostname, client.place.port), timeout=120) as line:
            head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            line.sendall(head + b"Content-Length: 100\r\n\r\n[1")
            # The monitor's own request is one of those in progress.
            while "bayesify_requests_in_progress 2" not in client.get("/metrics").body.decode():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            # The monitor's last request may still be on its way out.
            assert re.fullmatch(
                r"finishing (1 request|2 requests); Ctrl-C again stops now\n", process.stderr.readline()
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130


def test_the_help_names_the_studio(capsys):
    assert main(["serve", "--help"]) == 0
    assert "studio" in capsys.readouterr().out


def test_runs_that_cannot_be_served(refused, folders, tmp_path):
    assert "nowhere" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tmp_path / "empty")
    # Known only when the weights are read, after the server has started.
    shutil.copytree(folders["plain"], tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"broken")
    assert "model.safetensors" in refused(tmp_path / "broken", "--port", 0, "--no-studio")


def test_addresses_that_cannot_be_used(refused, folders):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(folders["plain"], "--port", port)
        assert f"port {port} of 127.0.0.1 is in use: choose another with --port" in line
    assert "0 to 65535" in refused(folders["plain"], "--port", 70000)
    assert "no.such.host.invalid" in refused(folders["plain"], "--host", "no.such.host.invalid", "--token", "t")
    for host in ("0.0.0.0", "::"):
        line = refused(folders["plain"], "--host", host)
        assert f"--host {host} can be reached from other machines: give --token or set BAYESIFY_TOKEN" in line


def test_a_taken_port_is_known_before_the_demo_is_trained(refused, monkeypatch):
    from bayesify.cli import serve

    monkeypatch.setattr(serve, "_demo", lambda **_: pytest.fail("the demo was trained first"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "is in use" in refused("--port", taken.getsockname()[1])


def test_the_first_line_comes_before_torch_is_imported():
    code = (
        "import sys; from bayesify.cli import main, serve\n"
        "serve.say = lambda line: (print(line, 'torch' in sys.modules), sys.exit(0))\n"
        "main(['serve', 'runs/mine'])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240).stdout
    assert said == "starting the studio for runs/mine; this takes a few seconds False\n"


def test_settings_that_make_no_sense(refused, folders):
    assert "draws must be" in refused(folders["plain"], "--draws", 0)
    assert "limit of 10" in refused(folders["plain"], "--draws", 30, "--max-draws", 10)
    assert "window must be" in refused(folders["plain"], "--window", 5000)
    assert "spaces" in refused(folders["plain"], "--port", 0, "--token", "two words")


@pytest.mark.parametrize("command", [["serve"], ["bench", "serve"]])
def test_what_is_not_installed_is_named(command, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fastapi" else find(name))
    assert main(command) == 2
    assert capsys.readouterr().err == "bayesify: serving needs fastapi: pip install 'bayesify[serve]'\n"


def test_without_a_run_the_demo_is_served(monkeypatch, folders, tmp_path):
    from bayesify.cli import serve
    from bayesify.studio import demonstration

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demonstration, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(demonstration.pad_networks, "mnist_here", lambda: False)
    made = []

    def run(out, *, console, **_):
        assert console.quiet, "the demo's own table would bury the one line that matters"
        made.append(out)
        for name in demonstration.SHOWN:
            shutil.copytree(folders["plain"], out / name)

    monkeypatch.setattr(demonstration.demo, "run", run)
    for _ in range(2):
        assert [folder.name for folder in serve._demo(quiet=True)] == list(demonstration.SHOWN)
    assert made == [tmp_path / "cache" / "studio-demo"]


def test_the_benchmark_measures_both_on_one_server(capsys):
    assert (
        main(["bench", "serve", "--rounds", "1", "--seconds", "0.3", "--connections", "4", "--draws", "5", "--json"])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["ratio"] == pytest.approx(result["plain_per_second"] / result["variational_per_second"])
    assert 0 < result["variational_p50_ms"] <= result["variational_p99_ms"]
    assert (result["draws"], result["connections"]) == (5, 4)
