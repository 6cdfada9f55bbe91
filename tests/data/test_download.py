"""Downloads from a server on this machine: whole, interrupted, refused, and with the wrong content."""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bayesify import data
from bayesify.data import catalogue, download
from bayesify.data.catalogue import KnownDataSet, KnownRegression, RemoteFile

CONTENT = np.random.default_rng(1).integers(0, 256, 300_000, np.uint8).tobytes()
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Files by path; `cut` is after how many bytes each of the next answers breaks off."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut, self.asked, self.ranges = {}, [], [], True

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        if self.path not in self.server.files:
            self.send_error(404)
            return
        content, start = self.server.files[self.path], 0
        if asked and self.server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = start + self.server.cut.pop(0) if self.server.cut else len(content)
        self.wfile.write(content[start:stop])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.files["/file.bin"] = CONTENT
        yield running
        running.shutdown()
        thread.join()


def fetch(server, tmp_path, *names, digest=DIGEST):
    file = RemoteFile("file.bin", digest, len(CONTENT), tuple(server.url(name) for name in names or ("file.bin",)))
    return download.fetch(file, tmp_path / "here", tmp_path / "parts", progress=False)


def left(tmp_path):
    return [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_whole_file_arrives_with_its_checksum(server, tmp_path):
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert left(tmp_path) == [tmp_path / "here" / "file.bin"]


def test_a_broken_connection_is_taken_up_where_it_stopped(server, tmp_path):
    server.cut = [100_000, 150_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    starts = [int(re.search(r"\d+", asked)[0]) for _, asked in server.asked if asked]
    assert len(starts) == 2
    assert 0 < starts[0] < starts[1] < len(CONTENT)


def test_an_interrupted_download_leaves_no_file_and_the_next_call_goes_on(server, tmp_path):
    server.cut = [100_000, 10, 10]
    with pytest.raises(
        data.DataError, match=r"could not download file.bin: .*: interrupted; check the connection, or put the file in"
    ) as caught:
        fetch(server, tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "here").exists()
    server.asked.clear()
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[0][1] is not None
    assert left(tmp_path) == [tmp_path / "here" / "file.bin"]


def test_a_server_without_ranges_is_asked_again_from_the_start(server, tmp_path):
    server.ranges, server.cut = False, [100_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_already_whole_or_stale_does_not_get_in_the_way(server, tmp_path):
    server.cut = [299_000, 10, 10]
    with pytest.raises(data.DataError):
        fetch(server, tmp_path)
    (part,) = (tmp_path / "parts").glob("*.part")
    part.write_bytes(b"x" * (len(CONTENT) + 5))
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_the_wrong_content_is_refused_and_thrown_away(server, tmp_path):
    with pytest.raises(data.DataError, match="does not have the published checksum"):
        fetch(server, tmp_path, digest="sha256:" + "0" * 64)
    assert left(tmp_path) == []


def test_the_second_mirror_is_used_when_the_first_fails(server, tmp_path):
    server.files["/wrong.bin"] = b"something else"
    assert fetch(server, tmp_path, "missing.bin", "wrong.bin", "file.bin").read_bytes() == CONTENT
    assert [path for path, _ in server.asked] == ["/missing.bin", "/wrong.bin", "/file.bin"]


def test_a_missing_file_and_a_missing_network_are_one_line_each(server, tmp_path):
    with pytest.raises(data.DataError, match="the server answered 404"):
        fetch(server, tmp_path, "nothing.bin")
    url = server.url("file.bin").replace(str(server.server_port), "1")
    with pytest.raises(
        data.DataError, match=r"127.0.0.1:1/file.bin: no connection; check the connection, or put the file in"
    ) as caught:
        download.fetch(RemoteFile("file.bin", DIGEST, 1, (url,)), tmp_path / "here", tmp_path / "parts")
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_one_line(server, tmp_path):
    (tmp_path / "parts").write_text("a file where the folder should be")
    with pytest.raises(data.DataError, match=r"parts.*: cannot be written"):
        fetch(server, tmp_path)


def test_md5_sums_are_checked_too(server, tmp_path):
    assert fetch(server, tmp_path, digest=f"md5:{hashlib.md5(CONTENT).hexdigest()}").is_file()


def test_loading_downloads_what_is_missing_once(server, cache, monkeypatch):
    rows = "".join(f"{'ep'[row % 2]},{','.join('abcdefghijklmnopqrstuv')}\n" for row in range(8124)).encode()
    server.files["/mushroom"] = rows
    file = RemoteFile(
        "agaricus-lepiota.data", f"sha256:{hashlib.sha256(rows).hexdigest()}", 1, (server.url("mushroom"),)
    )
    known = KnownDataSet("mushroom", "", "", "", ("mushroom",), (file,), ("edible", "poisonous"))
    monkeypatch.setitem(catalogue.KNOWN, "mushroom", known)
    for _ in range(2):
        assert len(data.load("mushroom").x_train) == 6499
    assert len(server.asked) == 1
    assert (cache / "mushroom" / "agaricus-lepiota.data").read_bytes() == rows


@pytest.mark.parametrize("right", [True, False])
def test_uci_splits_are_checked_together(server, cache, monkeypatch, right):
    table = "".join(f"{row} {row**2} {row % 3}\n" for row in range(10)).encode()
    server.files["/data.txt"] = table
    digest = hashlib.sha256()
    for k in range(2):
        parts = {"train": [row for row in range(10) if row != k], "test": [k]}
        for part, rows in parts.items():
            server.files[f"/index_{part}_{k}.txt"] = "".join(f"{row:.18e}\n" for row in rows).encode()
            digest.update(np.array(rows, "<u4").tobytes())
    file = RemoteFile("data.txt", f"sha256:{hashlib.sha256(table).hexdigest()}", 1, (server.url("data.txt"),))
    known = KnownRegression(
        "uci/energy", "", "", "", ("uci-regression/energy",), (file,), features=2, splits=2,
        splits_hash=digest.hexdigest() if right else "0" * 64,
    )  # fmt: skip
    monkeypatch.setitem(catalogue.KNOWN, "uci/energy", known)
    if right:
        energy = data.load("uci/energy", split=1)
        assert energy.test_rows.tolist() == [1]
        assert energy.x_test.tolist() == [[1.0, 1.0]]
    else:
        with pytest.raises(data.DataError, match="splits of uci/energy do not have the published checksum"):
            data.load("uci/energy")
        assert not (cache / "uci-regression" / "energy" / "splits.npz").exists()


def test_a_missing_index_file_of_uci_splits_is_one_line_and_nothing_is_kept(server, cache, monkeypatch):
    table = b"1 2\n3 4\n"
    server.files["/data.txt"] = table
    file = RemoteFile("data.txt", f"sha256:{hashlib.sha256(table).hexdigest()}", 1, (server.url("data.txt"),))
    known = KnownRegression("uci/energy", "", "", "", ("uci-regression/energy",), (file,), features=1, splits=1)
    monkeypatch.setitem(catalogue.KNOWN, "uci/energy", known)
    with pytest.raises(data.DataError, match=r"could not download .*index_train_0.txt: the server answered 404"):
        data.load("uci/energy")
    assert sorted(path.name for path in left(cache)) == ["data.txt", "lock"]


def test_a_file_that_cannot_be_finished_is_not_left_behind(tmp_path):
    def half(stream):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(data.DataError, match=r"cannot be written .No space left on device"):
        download.write_whole(tmp_path / "here" / "file.npy", half)
    assert left(tmp_path) == []
