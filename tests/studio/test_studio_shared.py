"""What the studio shows of runs, results and trainings, and what visitors bring to it."""

import base64
import contextlib
import json
import socket
import tempfile
import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from fastapi import HTTPException
from studio_server import serving

import bayesify as bf
from bayesify.evaluation.pruning import prunable_weights, prune
from bayesify.runs import read_history
from bayesify.studio import own_data, results_page, watched_training, weights_page
from bayesify.studio.own_data import OwnRuns
from bayesify.training.interrupts import stop_function

RUN_FILES = ("config.json", "model.safetensors", "history.jsonl")


@pytest.fixture(scope="module")
def address(runs, tmp_path_factory):
    """A server of its own: what visitors bring stays on it."""
    with serving(runs.values(), tmp_path_factory.mktemp("results")) as url:
        yield url


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=240) as asked:
        yield asked


# Compression


def test_pages_and_tables_are_compressed_and_predictions_are_not(client):
    for path in ("/", "/studio/static/studio.css", "/studio/static/pages/draw.js", "/studio/api/weights?model=point"):
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        packed = client.get(path, headers={"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip", path
        assert packed.content == plain.content
        assert int(packed.headers["content-length"]) < 0.6 * len(plain.content), path
    assert "content-encoding" not in client.get("/openapi.json").headers


# Results


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It takes 1.5 seconds. Then it ends.", "It takes 1.5 seconds."),
        ("Does it help? As the study ran it: it hurts. More.", "As the study ran it: it hurts."),
        ("One. ", "One."),
        ("", ""),
        ("A" * 100 + "; " + "b" * 200, "A" * 100 + "."),
    ],
)
def test_the_gallery_has_the_first_sentence_of_an_answer(text, first):
    assert results_page.first_sentence(text) == first


def test_a_long_sentence_ends_at_a_word():
    short = results_page.first_sentence("word " * 100)
    assert len(short) <= 222
    assert short.endswith("word …")


def test_the_gallery_shows_the_verdict_of_a_page_and_its_first_picture(tmp_path):
    told = {
        "title": "Coin",
        "answer": "A long one; and so on.",
        "pictures": [{"file": "coin-b.svg"}, {"file": "coin-a.svg"}],
    }
    (tmp_path / "coin.json").write_text(json.dumps(told))
    (tmp_path / "coin.md").write_text("# Coin\n\nHow far?\n\n**It is off by\n0.03.**\n\nMore, with **bold** words.\n")
    for name in ("coin-a.svg", "coin-b.svg", "coin-0.svg"):
        (tmp_path / name).write_text("<svg/>")
    card = results_page._card(0, tmp_path / "coin.json")
    assert card["answer"] == "It is off by 0.03."
    assert card["figures"] == ["coin-b.svg", "coin-a.svg", "coin-0.svg"]
    (tmp_path / "coin.md").write_text("# Coin\n\nHow far?\n\nNo verdict.\n")
    assert results_page._card(0, tmp_path / "coin.json")["answer"] == "A long one; and so on."


def test_a_figure_belongs_to_the_longest_name_that_it_begins_with(tmp_path):
    for name in ("mnist.json", "mnist-cnn.json", "mnist-cnn-least.svg", "mnist-error.svg"):
        (tmp_path / name).write_text("{}")
    figures = {
        name: [file.name for file in results_page._figures(tmp_path / name)]
        for name in ("mnist.json", "mnist-cnn.json")
    }
    assert figures == {"mnist.json": ["mnist-error.svg"], "mnist-cnn.json": ["mnist-cnn-least.svg"]}


# Weights


def test_an_edge_of_the_graph_leaves_when_pruning_takes_its_weight(runs):
    method = bf.load(runs["variational"])
    drawn = weights_page.graph(method)
    assert drawn["sizes"] == [64, 40, 9]
    assert drawn["shown"] == [24, 24, 9]
    assert len(drawn["edges"]) == 24 * 24 + 24 * 9
    place = next(place for place in method.network.places if place.name == "3.weight")
    nodes = torch.linspace(0, 39, 24).round().long().tolist()
    for fraction, column, rule in ((0.5, 3, "snr"), (0.8, 4, "magnitude")):
        left = prune(method, fraction, rule).kept_weights.reshape(-1)[place.start : place.stop].reshape(9, 40)
        kept = np.array(
            [[edge[column] >= fraction for edge in drawn["edges"] if edge[:2] == [1, i]] for i in range(24)]
        )
        # A rank is rounded to four places: a weight at the cut may fall on either side.
        assert (kept != left[:, nodes].T.bool().numpy()).sum() <= 1
    shares = sorted(edge[3] for edge in drawn["edges"])
    assert 0 <= shares[0] < 0.01
    assert shares[-1] < 1
    assert int(prunable_weights(method).sum()) == 64 * 40 + 40 * 9


def test_a_convolution_has_no_graph():
    method = bf.Variational(bf.networks.cnn((1, 28, 28), 10, preset="lenet"), "categorical")
    assert weights_page.graph(method) is None


# Understand


def test_progress_says_the_epoch_the_losses_and_the_time_left():
    progress = watched_training.Progress(200)
    for epoch in range(100):
        progress.on_epoch_end(None, {"loss": 100.0 - epoch})
    said = progress.at(0.5)
    assert (said["epoch"], said["epochs"], said["share"]) == (100, 200, 0.5)
    assert said["left"] == pytest.approx(said["seconds"])
    assert said["losses"][0] == [1, 100.0]
    assert said["losses"][-1] == [100, 1.0]
    assert len(said["losses"]) == 60
    assert watched_training.Progress(None).at(1.0)["losses"] == []


def test_hidden_units_of_a_draw_add_up_to_its_answer():
    points = watched_training.plane("moons", 20, 0.1, 0)
    request = watched_training.TrainingRequest(points=points, method="point", units=6, epochs=30)
    shown = []
    method = watched_training.train(request, shown.append)
    square = watched_training.Square.of(request)
    units = watched_training.hidden_units(method, square, "tanh", seed=0)
    assert sorted(unit["unit"] for unit in units) == list(range(6))
    levels = np.array([np.frombuffer(base64.b64decode(unit["levels"]), np.uint8) / 255 for unit in units])
    effects = np.array([unit["effect"] for unit in units])
    probs = method.predict(square.lattice()).probs.double().numpy()
    logits = np.log(probs[:, 1] / probs[:, 0])
    # The levels are scaled and rounded, so the sum is the log odds up to one shift and one scale.
    assert np.corrcoef(effects @ levels, logits)[0, 1] > 0.999
    assert (
        watched_training.hidden_units(
            watched_training.train(request.model_copy(update={"layers": 0}), shown.append), square, "tanh", 0
        )
        == []
    )


def test_a_training_that_is_not_watched_sends_its_surface_once():
    points = watched_training.plane("moons", 20, 0.1, 0)
    request = watched_training.TrainingRequest(points=points, method="point", epochs=40, draws=5, watch=False)
    shown = []
    watched_training.train(request, shown.append)
    assert [("probs" in frame) for frame in shown][-1]
    assert sum("probs" in frame for frame in shown) == 1
    assert shown[-1]["epoch"] == shown[-1]["epochs"] == 40


# Runs


def test_runs_are_listed_with_their_curves(ask, runs):
    listed = {run["name"]: run for run in ask("runs")["runs"]}
    assert set(runs) <= set(listed)
    records = read_history(runs["variational"])
    curve = listed["variational"]["curves"]["kl"]
    assert curve == [[record["epoch"], record["kl"]] for record in records]
    assert listed["variational"]["seconds"] == pytest.approx(sum(record["seconds"] for record in records))


# Visitors' own


def table(rows=90):
    torch.manual_seed(0)
    values = torch.randn(rows, 2)
    kinds = ["left" if a < 0 else "right" for a, _ in values.tolist()]
    return "a,b,side\n" + "\n".join(
        f"{a:.3f},{b:.3f},{kind}" for (a, b), kind in zip(values.tolist(), kinds, strict=True)
    )


def test_a_dropped_table_becomes_a_run_with_answers(ask):
    added = ask("own/table", {"name": "../my table.csv", "text": table(), "method": "point"})
    assert (added["name"], added["classes"]) == ("my-table", ["left", "right"])
    said = ask("own/answers", model="my-table")
    confidences = [row["confidence"] for row in said["unsure"]]
    assert confidences == sorted(confidences)
    assert said["sure"][0]["confidence"] >= confidences[-1]
    # Which side of zero is easy: the surest answers are right.
    assert all(row["answer"] == row["truth"] for row in said["sure"])
    assert ask("decide", model="my-table")["classes"] == ["left", "right"]
    (run,) = [each for each in ask("runs")["runs"] if each["name"] == "my-table"]
    assert run["scores"]["accuracy"]["value"] > 0.8, "a visitor asks first how good the network is"


def test_a_dropped_table_has_a_check_for_unknown_inputs(ask):
    far = "".join(f"\n{30 + k % 5},{30 + k % 3},far" for k in range(20))
    ask("own/table", {"name": "sides.csv", "text": table() + far, "method": "point", "withhold": "far"})
    found = ask("decide", model="sides")
    assert not any(found["unknown"]["known"])
    known = found["known"]
    said = ask("own/answers", model="sides")
    assert said["unlike_total"] == known.count(False) <= 0.2 * said["total"]
    assert {row["row"] for row in said["unlike"]} == {k for k, like in enumerate(known) if not like}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text": "x"}, "expected rows below the header"),
        ({"target": "nowhere"}, "unknown target of broken.csv: 'nowhere'"),
        ({"method": "magic"}, "method must be auto or one of point"),
        ({"method": "hmc", "text": "a,b\n" + "1,2\n" * 5001}, "a table may have 5,000"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_words(ask, changes, words):
    status, said = ask("own/table", {"name": "broken.csv", "text": table(), **changes})
    assert status == 422
    assert words in said
    assert "/tmp" not in said


def packed(folder, **changes):
    files = {name: (folder / name).read_bytes() for name in RUN_FILES}
    files["config.json"] = json.dumps(json.loads(files["config.json"]) | changes).encode()
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def test_a_dropped_run_folder_answers_as_the_run_does(ask, runs):
    added = ask("own/run", {"name": "brought", "files": packed(runs["variational"])})
    assert added["name"] == "brought"
    strokes = {"strokes": [[(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)]], "models": ["variational", "brought"]}
    one, other = ask("draw", strokes)["answers"]
    assert other["probs"] == pytest.approx(one["probs"], abs=1e-6)


def test_a_dropped_run_folder_names_no_file_of_the_server(ask, runs, tmp_path):
    (tmp_path / "secret.csv").write_text(table())
    data = {"name": "secret", "path": str(tmp_path / "secret.csv"), "kind": "classification"}
    config = json.loads((runs["point"] / "config.json").read_text())
    added = ask("own/run", {"name": "thief", "files": packed(runs["point"], data=config["data"] | data)})
    for path in ("own/answers", "decide"):
        status, said = ask(path, model=added["name"])
        assert (status, "not here" in said) == (409, True)
    files = packed(runs["point"], prior=f"posterior:{runs['variational']}")
    status, said = ask("own/run", {"name": "heir", "files": files})
    assert status == 422
    assert "cannot be dropped" in said


def test_a_dropped_run_folder_with_a_huge_network_takes_no_memory(ask, runs):
    network = {"type": "mlp", "inputs": 64, "outputs": 9, "units": [10**7, 10**7], "activation": "relu", "dropout": 0.0}
    status, said = ask("own/run", {"name": "huge", "files": packed(runs["point"], network=network)})
    assert status == 422
    assert said


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no run folder: it has no config.json and no model.safetensors"),
        ({"config.json": "bm90IGpzb24=", "model.safetensors": ""}, ""),
        ({"config.json": "!", "model.safetensors": "!"}, ""),
        ({"config.json": "e30=", "model.safetensors": "AAAA"}, ""),
    ],
)
def test_a_folder_that_is_no_run_is_refused_in_words(client, files, words):
    answer = client.post("/studio/api/own/run", json={"name": "wrong", "files": files})
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert "/tmp" not in answer.text


def test_uploads_that_fail_side_by_side_leave_room_for_the_next():
    """Each has a folder of its own: with a number for each place that is taken, the second of three would meet the third."""
    store = SimpleNamespace(names=list, add=lambda _: None)
    own = OwnRuns(store)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        with pytest.raises(HTTPException), own._place("a"):  # noqa: PT012 -- two that are open at once
            _, other = stack.enter_context(own._place("b"))
            raise ValueError
        _, third = first.enter_context(own._place("c"))
        assert other != third
    own.remove()


def test_a_dropped_run_with_a_damaged_history_is_refused(ask, runs):
    files = packed(runs["point"]) | {"history.jsonl": base64.b64encode(b'{"epoch": 1, "lo').decode()}
    assert ask("own/run", {"name": "torn", "files": files}) == (422, "history.jsonl is damaged")


def test_a_value_of_the_wrong_form_is_named_and_not_repeated(ask):
    assert ask("line", {"points": [[0, 0]] * 3000}) == (
        422,
        "points: List should have at most 100 items after validation, not 3000",
    )
    status, said = ask("draw/sample", kind="test", model="x" * 500)
    assert (status, len(said) < 100) == (422, True)


def test_training_on_a_table_stops_when_the_client_leaves(address, monkeypatch):
    reached, ended = threading.Event(), threading.Event()

    def long_training(*_, **__):
        stopped, until = stop_function(), time.monotonic() + 120
        reached.set()
        while not stopped() and time.monotonic() < until:
            time.sleep(0.01)
        if stopped():
            ended.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(own_data, "train", long_training)
    body, place = json.dumps({"name": "left.csv", "text": table()}).encode(), httpx.URL(address)
    with socket.create_connection((place.host, place.port), timeout=120) as line:
        line.sendall(b"POST /studio/api/own/table HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        line.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert reached.wait(120)
        assert not ended.is_set()
    assert ended.wait(120)


def test_what_was_brought_is_deleted_with_the_server(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serving([runs["point"]], tmp_path / "results") as address:
        body = {"name": "brought", "files": packed(runs["point"])}
        assert httpx.post(f"{address}/studio/api/own/run", json=body, timeout=240).status_code == 200
        assert len(list(tmp_path.glob("bayesify-studio-*"))) == 1
    assert list(tmp_path.glob("bayesify-studio-*")) == []
