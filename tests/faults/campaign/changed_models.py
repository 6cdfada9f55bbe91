"""A model that is replaced, damaged or deleted on disk while it serves. Lost: a wrong number, a 5xx, or a server that ends."""

import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rows import Row
from served import BROKEN, Reference, image, runs, serving, wait_until

_ENDPOINTS = (
    "/v1/models", "/v2/models/variational", "/studio/api/models", "/studio/api/runs", "/studio/api/weights?model=variational",
    "/studio/api/decide?model=variational&draws=3", "/studio/api/weights/pruned?model=variational&fraction=0.3&draws=3",
    "/studio/api/decide/images?model=plain", "/studio/api/own/answers?model=bands&draws=3", "/studio/api/draw/sample?kind=test&model=plain",
)  # fmt: skip


def rows(ledger, short):
    """One row for the files, one for models that come and go with several workers."""
    yield _files_changed(_CHANGES[:2] if short else _CHANGES)
    yield _models_changed(4 if not short else 1)


def _files_changed(changes):
    began = time.monotonic()
    tried = lost = 0
    for number, change in enumerate(changes):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(shutil.copytree(runs(), Path(place) / "runs"))
            shutil.copy(runs().parent / "bands.csv", place)
            with serving("--threads", 1, folder=folder) as server:
                good = Reference(server)
                # Before and after the first use of what is read late.
                if number % 2:
                    [server.ask("GET", path) for path in _ENDPOINTS]
                change(folder)
                for path in _ENDPOINTS:
                    status, _, answer = server.ask_patiently("GET", path)
                    lost += _noted(
                        status < 500 and (status < 400 or "error" in json.loads(answer)), change, path, status, answer
                    )
                for each in range(4):
                    lost += _noted(good.holds(each), change, good.requests[each][0])
                strokes = {"strokes": [[[0.2, 0.2], [0.8, 0.8]]], "draws": 3}
                drawn, _, answer = server.post_patiently("/studio/api/draw", strokes)
                lost += _noted(drawn < 500, change, "draw", drawn, answer)
                code, said = server.end()
                # A line that names the damaged file is as it should be.
                said = [
                    line
                    for line in said.splitlines()
                    if "is damaged: left out" not in line and "cannot be read" not in line
                ]
                lost += _noted((code, said) == (0, []), change, "end", code, said)
                tried += len(_ENDPOINTS) + 6
    return Row(fault="model replaced or deleted on disk while it serves", part="server", tried=tried, survived=tried - lost,
               lost=lost, seconds=time.monotonic() - began,
               note=f"{len(changes)} changes of the files, each followed by requests to every endpoint that could read them")  # fmt: skip


def _models_changed(rounds):
    """`kill -HUP` of a server with two workers: models appear and disappear, and a broken one changes nothing."""
    began = time.monotonic()
    tried = lost = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(runs(), Path(place) / "runs"))
        with serving("--workers", 2, "--no-studio", folder=folder) as server:
            good = Reference(server)
            for number in range(rounds):
                name = f"new-{number}"
                shutil.copytree(folder / "plain", folder / name)
                lost += _noted(_renewed(server, f"{name}, "), _models_changed, f"{name} is read", server.said()[-300:])
                lost += _noted(_status(server, name) == 200, _models_changed, f"{name} appears")
                (folder / name / "model.safetensors").write_bytes(b"broken")
                refused = _renewed(server, "the models stay as they are")
                right = all(good.holds(each) for each in range(40))
                lost += _noted(refused and right, _models_changed, "good requests beside a broken model")
                lost += _noted(
                    _status(server, name) == 200, _models_changed, "a model whose file broke is served from memory"
                )
                shutil.rmtree(folder / name)
                gone = _renewed(server, "now serving") and _status(server, name) == 404
                lost += _noted(gone, _models_changed, f"{name} disappears")
                tried += 5
    return Row(fault="models added, broken and removed without a restart", part="server", tried=tried, survived=tried - lost,
               lost=lost, seconds=time.monotonic() - began, note="two workers, kill -HUP; 40 good requests during each change")  # fmt: skip


def _renewed(server, word):
    """Send SIGHUP and wait until the server says what came of it: before, old and new workers answer side by side."""
    before = len(server.said())
    server.process.send_signal(signal.SIGHUP)
    return wait_until(lambda: word in server.said()[before:])


def _status(server, name):
    try:
        return server.post_patiently(f"/v1/predict?model={name}", image())[0]
    except BROKEN:
        return None


def _noted(fine, change, *what):
    if not fine:
        print(change.__name__, *(str(part)[:300] for part in what), file=sys.stderr)
    return int(not fine)


def _other_weights_in_place(folder):
    data = bytearray((folder / "variational" / "model.safetensors").read_bytes())
    data[-4000:] = bytes(4000)
    with (folder / "variational" / "model.safetensors").open("r+b") as file:
        file.write(data)


def _other_weights_renamed(folder):
    for name in ("plain", "variational"):
        new = folder / name / "new"
        new.write_bytes(bytes(3) + (folder / name / "model.safetensors").read_bytes()[3:])
        new.replace(folder / name / "model.safetensors")


def _weights_cut_off(folder):
    for name in ("plain", "variational", "bands", "houses"):
        with (folder / name / "model.safetensors").open("r+b") as file:
            file.truncate(10)


def _configurations_broken(folder):
    for path in folder.glob("*/config.json"):
        path.write_text('{"data": {"name": "../../etc/passwd"}, ')


def _histories_broken(folder):
    for path in folder.glob("*/*.json*"):
        if path.name != "config.json":
            path.write_bytes(b"\xff\x00{[")


def _folders_deleted(folder):
    shutil.rmtree(folder)


def _folders_are_files(folder):
    shutil.rmtree(folder)
    folder.write_text("")


def _other_run_under_the_name(folder):
    shutil.rmtree(folder / "variational")
    shutil.copytree(folder / "houses", folder / "variational")


_CHANGES = (
    _other_weights_in_place, _other_weights_renamed, _weights_cut_off, _configurations_broken, _histories_broken, _folders_deleted,
    _folders_are_files, _other_run_under_the_name,
)  # fmt: skip
