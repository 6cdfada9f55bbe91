"""Several workers behind one port: the same answers, metrics of all, and nothing lost when one dies or models change."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from talking import Client, serving

from bayesify.cli import main
from bayesify.serving import Registry
from bayesify.serving import server as server_module
from bayesify.serving.watched_folders import Watched


@pytest.fixture(scope="module")
def runs(folders, tmp_path_factory):
    """A folder of runs, with one run to begin with."""
    place = tmp_path_factory.mktemp("wide")
    shutil.copytree(folders["plain"], place / "plain")
    return place


@contextlib.contextmanager
def started(*arguments):
    command = [sys.executable, "-m", "bayesify", "serve", *map(str, arguments), "--port", "0", "--json", "--no-studio"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def children(number):
    with open(f"/proc/{number}/task/{number}/children") as file:
        return [int(child) for child in file.read().split()]


def counted(client, name):
    found = re.search(rf"^{name} ([\d.]+)$", client.get("/metrics").body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_workers_answer_alike_are_replaced_when_killed_and_take_new_models(runs, folders, images):
    with started(runs, "--workers", 2) as (process, said):
        assert (said["models"], said["workers"]) == (["plain"], 2)
        client = Client(said["url"])
        assert len(children(process.pid)) == 2

        def ask(_):
            return client.post("/v1/predict?model=plain", images[:2].tolist()).body

        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(ask, range(60)))
        assert len(answers) == 1
        # Each connection is the kernel's choice of worker: any of them counts for all.
        assert {counted(client, r'bayesify_predictions_total\{model="plain"\}') for _ in range(6)} == {120.0}

        (lost, _) = children(process.pid)
        os.kill(lost, signal.SIGKILL)
        assert {ask(None) for _ in range(20)} == answers  # those that wait at its socket are answered by its successor
        assert "signal 9" in process.stderr.readline()
        assert lost not in children(process.pid)
        assert len(children(process.pid)) == 2

        before = set(children(process.pid))
        shutil.copytree(folders["houses"], runs / "houses")
        process.send_signal(signal.SIGHUP)
        with ThreadPoolExecutor(2) as pool:
            during = list(pool.map(ask, range(100)))
        assert set(during) == answers
        assert "now serving houses, plain" in process.stderr.readline()
        assert not before & set(children(process.pid))
        assert client.get("/v2/models/houses/ready").status == 200

        (runs / "plain" / "config.json").write_text("{")
        process.send_signal(signal.SIGHUP)
        assert "the models stay as they are" in process.stderr.readline()
        assert ask(None) in answers
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_watched_folder_gains_and_loses_models_without_a_restart(folders, images, tmp_path):
    shutil.copytree(folders["plain"], tmp_path / "plain")
    with started(tmp_path, "--watch", 0.2) as (process, said):
        client = Client(said["url"])
        answer = client.post("/v1/predict?model=plain", images[:1].tolist()).body
        shutil.copytree(folders["houses"], tmp_path / "houses")
        assert "now serving houses, plain" in process.stderr.readline()
        assert client.get("/v2/health/ready").status == 200
        assert client.get("/v2/models/houses/ready").status == 200
        shutil.rmtree(tmp_path / "houses")
        assert process.stderr.readline().strip().endswith("now serving plain")
        assert client.get("/v2/models/houses/ready").status == 404
        assert client.post("/v1/predict?model=plain", images[:1].tolist()).body == answer
        shutil.rmtree(tmp_path / "plain")
        assert "the models stay as they are" in process.stderr.readline()
        assert client.get("/v2/models/plain/ready").status == 200
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)
    assert process.returncode == 0


def test_a_change_is_told_once_and_only_when_it_is_over(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    watched = Watched(lambda: sorted(tmp_path.iterdir()), 1.0)
    (run / "config.json").write_text("{}")
    assert [watched.changed() for _ in range(2)] == [False, False]  # its weights are still to come
    (run / "model.safetensors").write_text("1")
    assert watched.changed() is False  # perhaps more is being written
    assert [watched.changed() for _ in range(3)] == [True, False, False]
    (run / "model.safetensors").write_text("12")
    assert [watched.changed() for _ in range(3)] == [False, True, False]
    shutil.rmtree(run)
    assert [watched.changed() for _ in range(3)] == [False, True, False]


def test_a_port_in_use_is_refused_though_ports_can_be_shared(folders, capsys):
    with started(folders["plain"], "--workers", 2) as (_, said):
        port = said["url"].rpartition(":")[2]
        assert main(["serve", str(folders["plain"]), "--workers", "2", "--port", port]) == 2
        assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err


def test_compiling_is_for_one_worker(folders, capsys):
    assert main(["serve", str(folders["plain"]), "--workers", "2", "--compile"]) == 2
    assert "--compile is for one worker" in capsys.readouterr().err


def test_workers_end_with_a_parent_that_is_killed(folders):
    with started(folders["plain"], "--workers", 2) as (process, _):
        workers = children(process.pid)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 120
        while any(os.path.exists(f"/proc/{number}") for number in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_memory_of_the_weights_is_shared(folders):
    """A worker's own pages are few beside those that it shares with the parent."""
    with started(folders["plain"], "--workers", 2) as (process, said):
        Client(said["url"]).get("/v2/health/ready")
        time.sleep(0.5)
        for number in children(process.pid):
            with open(f"/proc/{number}/smaps_rollup") as file:
                sizes = {line.split(":")[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
            assert sizes["Private_Dirty"] < 0.35 * sizes["Rss"], sizes


def lets_in(place):
    with contextlib.closing(http.client.HTTPConnection(place, timeout=120)) as new:
        try:
            new.connect()
        except ConnectionRefusedError:
            return False
    return True


def test_a_request_that_comes_after_sigterm_over_an_open_connection_is_answered(folders, monkeypatch):
    monkeypatch.setattr(server_module, "_DRAINING", 900.0)
    with serving(Registry([folders["plain"]], threads=1)) as client:
        place = client.place.netloc
        connection = http.client.HTTPConnection(place, timeout=120)
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read()
        client.server.handle_exit(signal.SIGTERM, None)
        while lets_in(place):
            time.sleep(0.01)
        connection.request("GET", "/v2/health/live")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        answer.read()
        client.thread.join(120)  # long before the 900 seconds: there is nobody left to wait for
        assert not client.thread.is_alive()
