"""The studio's API says what the library says, page by page."""

import asyncio
import base64
import io
import json
import math
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from studio_server import serving

import bayesify as bf
from bayesify.cli import main
from bayesify.data import Preparation
from bayesify.methods import CARDS
from bayesify.runs import read_config
from bayesify.studio import (
    attach,
    demonstration,
    models,
    results_page,
    static_files,
    strokes,
    understand_page,
    watched_training,
    weights_page,
)
from bayesify.studio import draw_page as draw
from bayesify.workflows.run_data import examples_of

SEVEN = [[(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)]]
LINE = [[-2, -6.2503], [-2 / 3, -2.5021], [2 / 3, -6.0753], [2, 7.9208]]


@pytest.fixture(scope="module")
def test_part(runs):
    return examples_of(read_config(runs["variational"]), runs["variational"])


# Draw


def test_a_drawing_is_answered_by_each_run_as_the_library_answers_it(ask, runs):
    said = ask("draw", {"strokes": SEVEN, "pen": 0.13, "draws": 20, "seed": 3})
    assert [answer["name"] for answer in said["answers"]] == list(runs)
    for answer, folder in zip(said["answers"], runs.values(), strict=True):
        method = bf.load(folder)
        preparation = Preparation.from_dict(method.notes["preparation"])
        x = preparation.apply(strokes.digit(SEVEN, preparation, pen=0.13)[None])
        expected = method.predict(x, draws=20, seed=3)
        assert answer["label"] == expected.names[0]
        assert answer["probs"] == pytest.approx(expected.probs[0].tolist(), abs=2e-5)
        assert np.array(answer["draw_probs"]) == pytest.approx(expected.draw_probs[:, 0].numpy(), abs=2e-5)
        for name in ("confidence", "entropy", "aleatoric", "epistemic"):
            assert answer[name] == pytest.approx(float(getattr(expected, name)[0]), abs=1e-5)
        assert answer["draws"] == expected.draws
        seen = np.array(answer["seen"]["levels"]).reshape(8, 8) * 16
        assert seen == pytest.approx(strokes.digit(SEVEN, preparation, pen=0.13).numpy(), abs=0.02)


def test_an_empty_pad_says_nothing(ask):
    assert ask("draw", {"strokes": []}) == {"empty": True, "answers": []}


def said_by(python, folder, capsys, monkeypatch):
    """What an export prints, run where nothing but the runs is at hand."""
    monkeypatch.chdir(folder)
    (folder / "page.py").write_text(python)
    capsys.readouterr()
    runpy.run_path(str(folder / "page.py"))
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["test", "withheld"])
def test_an_image_of_the_runs_data_is_answered_and_exported_as_it_is(
    client, ask, test_part, runs, kind, tmp_path, capsys, monkeypatch
):
    sample = {"kind": kind, "number": 4, "model": "variational"}
    shown = Image.open(io.BytesIO(client.get("/studio/api/draw/sample", params=sample).content))
    x = (test_part.x if kind == "test" else test_part.unknown)[4:5]
    assert np.corrcoef(np.asarray(shown, float).ravel(), x[0].numpy())[0, 1] > 0.999
    body = {"sample": sample, "boxed": False, "models": ["variational"], "draws": 30}
    answer = ask("draw", body)["answers"][0]
    expected = bf.load(runs["variational"]).predict(x, draws=30)
    assert answer["probs"] == pytest.approx(expected.probs[0].tolist(), abs=2e-5)
    said = said_by(ask("python/draw", {**body, "at_least": 0})["python"], tmp_path, capsys, monkeypatch)
    name, label, *numbers = said.split()
    assert (name, label) == ("variational", answer["label"])
    scores = [answer[score] for score in ("confidence", "aleatoric", "epistemic")]
    assert [float(number) for number in numbers] == pytest.approx(scores, rel=1e-5, abs=1e-7)


def test_a_sample_that_is_not_here_is_refused(ask):
    assert ask("draw", {"sample": {"kind": "test", "number": 0, "model": "nobody"}})[0] == 404
    assert ask("draw/sample", kind="test", number=-1, model="point")[0] == 422
    assert ask("draw/sample", kind="shoes", number=0, model="point")[0] == 422


def test_the_export_of_strokes_on_the_pads_grid_holds_the_same_bits(ask):
    on_grid = [[(round(x * draw.STEPS) / draw.STEPS, round(y * draw.STEPS) / draw.STEPS) for x, y in SEVEN[0]]]
    for given in (on_grid, [[(0.1234567891, 0.9), (1 / 3, 0.2)]]):
        python = ask("python/draw", {"strokes": given, "pen": 0.13, "models": ["point"]})["python"]
        held = {}
        exec("\n".join(line for line in python.splitlines() if line.startswith(("steps =", "strokes ="))), held)
        assert held["strokes"] == given
    assert "/ 4095" in ask("python/draw", {"strokes": on_grid})["python"]


def test_the_export_of_an_own_picture_reads_the_file_that_was_named(ask, tmp_path, capsys, monkeypatch):
    seven = Image.new("L", (90, 90), 255)
    seven.paste(0, (25, 15, 65, 25))
    seven.paste(0, (52, 15, 65, 80))
    seven.save(tmp_path / "my seven.png")
    encoded = base64.b64encode((tmp_path / "my seven.png").read_bytes()).decode()
    body = {"picture": encoded, "picture_name": "my seven.png", "models": ["point"], "strokes": [[(0.1, 0.1)]]}
    answer = ask("draw", body)["answers"][0]
    said = said_by(ask("python/draw", {**body, "at_least": 0})["python"], tmp_path, capsys, monkeypatch)
    assert float(said.split()[2]) == pytest.approx(answer["confidence"], rel=1e-5)


def test_the_export_of_an_empty_pad_asks_nothing(ask, tmp_path, capsys, monkeypatch):
    assert said_by(ask("python/draw", {"strokes": []})["python"], tmp_path, capsys, monkeypatch) == ""


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"strokes": SEVEN, "draws": 0}, 422, "draws"),
        ({"strokes": [[[0.5]]]}, 422, "strokes"),
        ({"strokes": [[[0.5, 0.5]] * 20_001]}, 413, "20,000"),
        ({"picture": "nothing"}, 422, "PNG or JPEG"),
        ({"strokes": SEVEN, "models": ["variatoinal"]}, 404, "variational"),
    ],
)
def test_a_drawing_that_cannot_be_is_refused_in_words(ask, body, status, words):
    code, said = ask("draw", body)
    assert code == status
    assert words in said or words in str(body)


def test_the_runs_are_described(ask):
    said = ask("models")
    models = {model["name"]: model for model in said["models"]}
    assert models["variational"]["gaussian"]
    assert not models["point"]["gaussian"]
    assert models["ensemble"]["held"] == 3
    assert all(model["drawable"] and model["withheld"] == ["3"] for model in models.values())


# Decide


def test_scores_of_the_test_set_make_the_librarys_risk_coverage_curve(ask, runs, test_part):
    said = ask("decide", model="variational", draws=50, seed=0)
    predictive = bf.load(runs["variational"]).predict(test_part.x, draws=50)
    expected = bf.risk_coverage(predictive, test_part.y)
    wrong = np.array(said["labels"]) != np.array(said["truth"])
    found = bf.risk_coverage(np.array(said["scores"]["confidence"]), ~wrong)
    assert found.aurc == pytest.approx(expected.aurc, rel=1e-3)
    assert found.risk_at(1.0) == pytest.approx(expected.risk_at(1.0))
    assert said["shown"] == said["total"] == len(test_part.x)
    assert len(said["unknown"]["labels"]) == len(test_part.unknown)


def test_the_sheet_of_images_holds_the_test_images_in_order(client, ask, test_part):
    about = ask("decide", model="variational")["picture"]
    sheet = Image.open(io.BytesIO(client.get("/studio/api/decide/images", params={"model": "variational"}).content))
    columns, side = about["columns"], about["width"]
    assert sheet.width == columns * side
    levels = np.asarray(sheet, float)
    k = 57
    top, left = k // columns * side, k % columns * side
    shown = levels[top : top + side, left : left + side].ravel()
    assert np.corrcoef(shown, test_part.x[k].numpy())[0, 1] > 0.999


# Weights


def test_pruning_costs_what_the_library_says(ask, runs, test_part):
    method = bf.load(runs["variational"])
    for fraction in (0.0, 0.9):
        said = ask("weights/pruned", model="variational", fraction=fraction, draws=30)
        expected = bf.evaluate(bf.prune(method, fraction), (test_part.x, test_part.y), draws=30)
        assert said["error"] == pytest.approx(expected.error)
        assert said["nll"] == pytest.approx(expected.nll, rel=1e-4)


def test_numbers_are_pruned_by_rmse_and_a_part_is_the_same_part_in_the_export(
    tmp_path, reproduced, capsys, monkeypatch
):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{a:.3f},{b:.3f},{100 * a - 50 * b:.3f}" for a, b in rows]
    (tmp_path / "houses.csv").write_text("\n".join(["a,b,price", *lines]))
    command = ["train", "--data", str(tmp_path / "houses.csv"), "--target", "price", "--method", "variational"]
    command += ["--epochs", "5", "--units", "4", "--layers", "1", "--prior", "normal:1", "--json"]
    assert main([*command, "--out", str(tmp_path / "houses")]) == 0
    monkeypatch.setattr(models, "MOST_EXAMPLES", 5)
    with serving([tmp_path / "houses"], reproduced) as address, httpx.Client(base_url=address, timeout=240) as client:
        asked = {"model": "houses", "draws": 30}
        found = client.get("/studio/api/weights/pruned", params=asked).json()
        assert found["measure"] == "RMSE"
        assert found["examples"] < found["total"]
        python = client.post("/studio/api/python/weights", json={**asked, "fraction": 0.5}).json()["python"]
    said = said_by(python, tmp_path, capsys, monkeypatch)
    assert float(said.split()[0]) == pytest.approx(found["error"], rel=1e-5)


def test_densities_integrate_to_one_and_the_cut_leaves_the_share_below_it(ask, runs):
    said = ask("weights", model="variational")
    width = said["centres"][1] - said["centres"][0]
    for layer in said["layers"]:
        assert 0.97 <= sum(layer["density"]) * width <= 1.001  # the range holds at least 99.5% of the widest layer
    assert sum(said["snr"]["shares"]) == pytest.approx(1, abs=1e-4)
    snr = bf.plots.weights.signal_to_noise(bf.load(runs["variational"]))
    assert (snr < said["snr"]["cuts"][75]).mean() == pytest.approx(0.75, abs=0.002)


@pytest.mark.parametrize("method", CARDS)
def test_every_method_has_weights_to_show(method):
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    own = {"p": 0.2} if method == "mc-dropout" else {}
    bnn = CARDS[method].load()(bf.networks.mlp(3, 2, units=4), "categorical", prior="normal:1", **own)
    fitting = {"epochs": 12} if CARDS[method].optimised else {"warm_up": 20, "samples": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.BayesifyWarning)
        bnn.fit((x, (x[:, 0] > 0).long()), progress=False, **fitting)
    about = weights_page.describe(bnn)
    step = about["centres"][1] - about["centres"][0]
    for layer in about["layers"]:
        # The outermost half percent lies beyond the edges, and all may be in one layer.
        assert 0.9 < sum(layer["density"]) * step <= 1.001, layer["name"]
    assert (about["snr"] is None) == (about["why"] is not None)


def test_a_posterior_without_widths_is_said_to_have_none(ask):
    assert "no posterior width for each weight" in ask("weights", model="point")["why"]
    code, words = ask("weights/pruned", model="point", fraction=0.5)
    assert code == 422
    assert "cannot be pruned" in words


# Understand


def events(client, lesson):
    with client.stream("POST", "/studio/api/understand/train", json=lesson) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    parts = [re.match(r"event: (\w+)\ndata: (.*)", event, re.S).groups() for event in text.split("\n\n") if event]
    return [(kind, json.loads(content)) for kind, content in parts]


def levels(text):
    return np.frombuffer(base64.b64decode(text), np.uint8) / 255


def test_training_streams_surfaces_that_are_the_trained_methods_own(client, ask):
    points = ask("understand/points", data="moons", n=60, noise=0.1, seed=1)["points"]
    lesson = {"points": points, "epochs": 80, "seed": 1}
    heard = events(client, lesson)
    frames = [content for kind, content in heard if kind == "frame"]
    assert [content["share"] for content in frames] == sorted(content["share"] for content in frames)
    last = frames[-1]
    assert last["share"] == 1
    shown = []
    method = watched_training.train(watched_training.TrainingRequest(**lesson), shown.append)
    lattice = watched_training.Square(tuple(last["low"]), tuple(last["high"])).lattice()
    expected = method.predict(lattice, draws=watched_training.DRAWS)
    assert levels(last["probs"]) == pytest.approx(expected.probs[:, 1].numpy(), abs=0.02)
    assert levels(last["epistemic"]) == pytest.approx(expected.epistemic.numpy() / math.log(2), abs=0.02)
    x = torch.tensor(points)[:, :2]
    inside = ((lattice >= x.amin(0)) & (lattice <= x.amax(0))).all(1)
    best = lattice[torch.where(inside, expected.epistemic, -1).argmax()]
    assert [last["ask"]["x"], last["ask"]["y"]] == pytest.approx(best.tolist(), abs=1e-4)
    assert heard[-1][0] == "done"
    draws = ask("understand/draws", trained=heard[-1][1]["trained"], draws=30)["draws"]
    mean = np.mean([levels(draw) for draw in draws], 0)
    assert mean == pytest.approx(levels(last["probs"]), abs=0.01)


@pytest.mark.parametrize("method", list(watched_training.CARDS))
def test_every_method_can_be_watched(client, ask, method):
    points = ask("understand/points", data="circles", n=20)["points"]
    about = next(m for m in ask("understand/options")["methods"] if m["name"] == method)
    heard = events(client, {"points": points, "method": method, "epochs": 3, "units": 4, "prior": "normal:1"})
    assert heard[-1][0] in {"done", "problem"}, heard[-1]
    if heard[-1][0] == "problem":
        pytest.fail(f"{about}: {heard[-1][1]}")
    assert "probs" in heard[-2][1]


def test_the_export_asks_for_the_next_label_where_the_page_does(client, ask, tmp_path, capsys, monkeypatch):
    points = ask("understand/points", data="moons", n=40, noise=0.2, seed=3)["points"]
    lesson = {"points": points, "epochs": 40, "seed": 3, "low": [-2.5, -2.0], "high": [3.0, 3.5]}
    asked = [content for kind, content in events(client, lesson) if kind == "frame"][-1]["ask"]
    said = said_by(ask("python/understand", lesson)["python"], tmp_path, capsys, monkeypatch)
    printed = {name: float(value) for name, value in re.findall(r"'(\w+)': ([-\d.e]+)", said)}
    assert printed == pytest.approx(asked, rel=1e-6)


def test_what_a_method_is_has_no_marks_of_code(ask):
    assert not any("`" in method["about"] for method in ask("understand/options")["methods"])


def test_a_server_that_ends_ends_training_and_says_so():
    async def watched():
        trainings = understand_page.Trainings()
        lesson = watched_training.TrainingRequest(points=[(0, 0, 0), (1, 1, 1)] * 20, epochs=3000, units=64, layers=2)
        heard = []
        async for event in understand_page._events(lesson, trainings):
            heard.append(event)
            if len(heard) == 1:
                trainings.close()
        return trainings, heard

    trainings, heard = asyncio.run(watched())
    assert "shutting down" in heard[-1]
    assert trainings.closed.is_set()
    for _ in range(2400):
        if not any(thread.name == "studio-training" for thread in threading.enumerate()):
            return
        time.sleep(0.05)
    pytest.fail("training went on")


def test_one_network_has_no_place_to_ask_about(client, ask):
    points = ask("understand/points", n=20)["points"]
    heard = events(client, {"points": points, "method": "point", "epochs": 5})
    assert heard[-2][1]["ask"] is None
    assert heard[-2][1]["most_epistemic"] == 0


@pytest.mark.parametrize(
    ("lesson", "words"),
    [
        ({"method": "variatonal"}, "variational"),
        ({"prior": "normal:wide"}, "wide"),
        ({"points": [[0, 0, 0], [1, 1, 2]]}, "0 or 1"),
        ({"epochs": 10_000_000}, "epochs"),
    ],
)
def test_a_lesson_that_cannot_be_is_refused_in_words(ask, lesson, words):
    code, said = ask("understand/train", {"points": [[0, 0, 0], [1, 1, 1]], **lesson})
    assert code == 422
    assert words in said or "epochs" in lesson


def test_a_third_training_at_once_is_told_to_wait(client):
    lesson = {"points": [[0, 0, 0], [1, 1, 1]] * 20, "epochs": 3000, "units": 64, "layers": 2}
    with (
        client.stream("POST", "/studio/api/understand/train", json=lesson) as one,
        client.stream("POST", "/studio/api/understand/train", json=lesson) as two,
    ):
        assert one.status_code == two.status_code == 200
        third = client.post("/studio/api/understand/train", json=lesson)
        assert third.status_code == 429
        assert third.headers["retry-after"]
    for _ in range(1000):  # whoever stops watching stops the training
        time.sleep(0.05)
        with client.stream("POST", "/studio/api/understand/train", json={**lesson, "epochs": 1}) as again:
            if again.status_code == 200:
                return
    pytest.fail("the seats were not given back")


def test_the_coin_is_exact_and_its_grid_is_off_as_the_studies_say(ask):
    said = ask("coin", {"heads": 3, "tails": 0, "cells": 19})
    assert said["mean"] == pytest.approx(0.8)
    assert said["grid"]["mean"] == pytest.approx(0.7793, abs=5e-5)
    assert np.interp(0.5, said["theta"], said["exact"]) == pytest.approx(4 * 0.5**3, rel=1e-3)
    assert ask("coin", {"heads": 11, "tails": 9})["mean"] == pytest.approx(12 / 22)


def test_the_line_is_exact_and_a_fine_grid_agrees(ask):
    said = ask("line", {"points": LINE, "noise": 3, "cells": 61})
    assert said["exact"]["mean"] == pytest.approx([2.9205, -1.7267], abs=1e-3)
    assert np.square(said["exact"]["std"]) == pytest.approx([1.0125, 2.25], abs=1e-3)
    assert said["grid"]["mean"] == pytest.approx(said["exact"]["mean"], abs=2e-3)
    assert said["grid"]["std"] == pytest.approx(said["exact"]["std"], rel=2e-3)
    x, spread = np.array(said["x"]), (np.array(said["upper"]) - said["lower"]) / 2 / 1.959964
    assert spread**2 == pytest.approx(9 + 2.25 + 1.0125 * x**2, rel=1e-3)
    code, words = ask("line", {"points": [[1, 2], [1, 3]]})
    assert code == 422
    assert "one x" in words


# Results


def test_results_stand_in_the_order_of_their_readme(tmp_path):
    for name in ("alpha", "beta", "gamma", "numbers"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert [path.stem for path in results_page._files(tmp_path)] == ["alpha", "beta", "gamma", "numbers"]
    (tmp_path / "README.md").write_text("## [Third](gamma.md)\n\n## [First](alpha.md)\n\nSee [second](beta.md).\n")
    assert [path.stem for path in results_page._files(tmp_path)] == ["gamma", "alpha", "beta", "numbers"]


def test_results_are_shown_when_there_are_some_and_missed_when_not(client, ask, reproduced, monkeypatch):
    assert ask("results")["results"] == []
    (reproduced / "coin.json").write_text(json.dumps({"claim": "P(head) = 0.8", "value": 0.8}))
    Image.new("L", (4, 4)).save(reproduced / "coin.png")
    (reproduced / "broken.json").write_text("{")
    (reproduced / "secret.txt").write_text("no")
    try:
        broken, coin = ask("results")["results"]
        assert "could not be read" in broken["problem"]
        assert coin["answer"] == "P(head) = 0.8"
        assert coin["figures"] == ["coin.png"]
        assert ask("results/one", name="coin")["content"]["value"] == 0.8
        assert ask("results/one", name="../coin") == (404, "there is no result called '../coin'; did you mean 'coin'?")
        figure = client.get("/studio/api/results/figure", params={"result": 1, "number": 0})
        assert figure.headers["content-type"] == "image/png"
        assert figure.content == (reproduced / "coin.png").read_bytes()
        with monkeypatch.context() as patched:
            # Gone between the look into the folder and the reading.
            patched.setattr(Path, "read_bytes", Mock(side_effect=FileNotFoundError))
            gone = client.get("/studio/api/results/figure", params={"result": 1, "number": 0})
        assert gone.status_code == 404
        assert "load the page again" in gone.text
        for result, number in ((1, 1), (0, 0), (-1, 0), (9, 0)):
            assert (
                client.get("/studio/api/results/figure", params={"result": result, "number": number}).status_code == 404
            )
    finally:
        for file in list(reproduced.iterdir()):
            file.unlink()


def test_the_first_sentence_of_a_verdict_is_the_answer_and_the_others_follow(ask, reproduced):
    (reproduced / "speed.json").write_text("{}")
    page = "# Speed\n\nHow long does a\nstep take?\n\n**A step takes 1.1 ms. On a GPU: 0.2 ms.**\n\nThe network is small.\n"
    (reproduced / "speed.md").write_text(page)
    (reproduced / "told.json").write_text("{}")
    (reproduced / "told.md").write_text("# Told\n\nNothing was measured. So it ends.\n")
    try:
        speed, told = ask("results")["results"]
        assert (speed["title"], speed["question"]) == ("Speed", "How long does a step take?")
        assert (speed["answer"], speed["more"]) == ("A step takes 1.1 ms.", "On a GPU: 0.2 ms.")
        assert (told["question"], told["answer"], told["more"]) == ("", "Nothing was measured.", "")
        assert ask("results/one", name="speed")["heading"] == "Speed"
    finally:
        for file in list(reproduced.iterdir()):
            file.unlink()


# Export


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("draw", {"strokes": SEVEN, "pen": 0.13, "models": ["point"], "at_least": 0.5}, "point 7"),
        ("decide", {"model": "variational", "threshold": 0.9}, "coverage"),
        ("weights", {"model": "variational", "fraction": 0.5}, ""),
        ("coin", {"heads": 3, "tails": 0}, "exact 0.8"),
        ("line", {"points": LINE}, "grid"),
        (
            "understand",
            {"points": [[0, 0, 0], [1, 1, 1], [0, 0.2, 0], [1, 0.9, 1]], "epochs": 5, "method": "ensemble"},
            "ask next at",
        ),
    ],
)
def test_the_python_of_a_page_runs_and_says_what_the_page_says(
    ask, tmp_path, monkeypatch, capsys, kind, body, expected
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.py").write_text(ask(f"python/{kind}", body)["python"])
    capsys.readouterr()
    runpy.run_path(str(tmp_path / "page.py"))
    said = capsys.readouterr().out
    assert expected in said
    if kind == "decide":
        table = ask("decide", model="variational")
        kept = np.array(table["scores"]["confidence"]) >= 0.9
        assert float(re.search(r"coverage ([\d.]+)", said)[1]) == pytest.approx(kept.mean(), abs=1e-3)
    if kind == "weights":
        errors = [ask("weights/pruned", model="variational", fraction=f, draws=50)["error"] for f in (0, 0.5)]
        assert [float(line) for line in said.split()] == pytest.approx(errors)


# Counted


def test_requests_of_the_studio_are_counted_by_their_whole_path(client):
    client.get("/studio/api/models")
    client.post("/studio/api/python/coin", json={})
    said = client.get("/metrics").text
    assert 'endpoint="/studio/api/models"' in said
    assert 'endpoint="/studio/api/python/coin"' in said


# The page's files


def test_the_page_may_load_and_call_nothing_but_its_own_server(client):
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "connect-src 'self'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for path in static_files.STATIC.rglob("*"):
        if path.suffix in {".js", ".css", ".html", ".svg"}:
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text), path
            assert not re.search(r"\bon[a-z]+=\"|style=\"|\beval\(|innerHTML", text), path


def test_all_scripts_together_are_small():
    assert sum(path.stat().st_size for path in static_files.STATIC.rglob("*.js")) < 200_000


def test_files_are_looked_up_never_joined_to_a_path(client):
    assert client.get("/studio/static/app.js").headers["content-type"].startswith("text/javascript")
    for name in ("../page.py", "..%2fpage.py", "%2e%2e/page.py", "/etc/passwd", "nothing.js"):
        assert client.get(f"/studio/static/{name}").status_code == 404, name


def test_every_url_in_the_page_is_relative():
    html = (static_files.STATIC / "index.html").read_text()
    for url in re.findall(r'(?:href|src)="([^"]*)"', html):
        assert not url.startswith(("/", "http")), url
    assert '"studio/api/"' in (static_files.STATIC / "api.js").read_text()


# Without a run


def test_the_demos_runs_are_found_before_they_are_made(tmp_path, monkeypatch, runs):
    made = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demonstration, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(demonstration.pad_networks, "mnist_here", lambda: False)
    monkeypatch.setattr(demonstration, "SHOWN", tuple(runs))

    def make(out, **_):
        made.append(out)
        for name, folder in runs.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).symlink_to(folder)

    monkeypatch.setattr(demonstration.demo, "run", make)
    first = demonstration.demo_runs()
    assert made == [tmp_path / "cache" / "studio-demo"]
    assert demonstration.demo_runs() == first
    assert len(made) == 1
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(tmp_path / "cache" / "studio-demo")
    assert str(demonstration.demo_runs()[0]).startswith("runs")
    assert callable(attach)


# What clients may not do

LONG = {"points": [[0, 0, 0], [1, 1, 1]] * 300, "method": "hmc", "units": 128, "layers": 3}


def trainings():
    return [thread for thread in threading.enumerate() if thread.name == "studio-training"]


def wait_until(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.05)


@pytest.mark.parametrize("method", ["hmc", "variational", "laplace", "sghmc"])
def test_a_training_that_nobody_watches_ends(client, address, method):
    wait_until(lambda: not trainings())
    body = json.dumps({**LONG, "method": method, "epochs": 3000}).encode()
    place = httpx.URL(address)
    with socket.create_connection((place.host, place.port), timeout=120) as line:
        line.sendall(b"POST /studio/api/understand/train HTTP/1.1\r\nHost: localhost\r\n")
        line.sendall(b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert b" 200 " in line.recv(4096)
        wait_until(trainings)
    wait_until(lambda: not trainings())


def test_a_server_ends_in_peace_while_hmc_trains(runs):
    command = [sys.executable, "-m", "bayesify", "serve", runs["point"], "--port", "0", "--json"]
    with subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        url = json.loads(process.stdout.readline())["url"]
        with httpx.stream("POST", f"{url}/studio/api/understand/train", json=LONG, timeout=120) as stream:
            assert stream.status_code == 200
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            assert "shutting down" in "".join(stream.iter_text())
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("form", ["posterior:{}", " Posterior :{}", "*=posterior:{}", "*.bias=normal:1;*=POSTERIOR:{}"])
def test_a_request_names_no_folder(ask, runs, tmp_path, form):
    told = set()
    for folder in ("/etc/passwd", "/etc", "/no", runs["variational"]):
        prior = form.format(folder)[:80]
        for path in ("understand/train", "python/understand"):
            told.add(ask(path, {"points": [[0, 0, 0], [1, 1, 1]], "prior": prior}))
    # The same words, whatever is there.
    ((code, words),) = told
    assert (code, "another prior" in words) == (422, True)


@pytest.mark.parametrize("size", [(3000, 2000), (10_000, 9_000), (20_000, 10_000)])
def test_an_image_is_refused_by_its_size_before_it_is_decoded(ask, monkeypatch, size):
    file = io.BytesIO()
    Image.new("1", size).save(file, "PNG")

    def decoded(*_):
        raise AssertionError

    monkeypatch.setattr(ImageFile.ImageFile, "load", decoded)
    code, words = ask("draw", {"picture": base64.b64encode(file.getvalue()).decode()})
    assert (code, "pixels" in words) == (422, True)


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("coin", '{"heads": 1%s}' % ("0" * 400)),
        ("coin", '{"a": NaN}'),
        ("line", '{"points": [[NaN, 0], [1, 1]]}'),
        ("line", '{"points": [[1e300, 0], [-1e300, 1]]}'),
        ("line", f'{{"points": [[{HUGE}, 0], [1, 1]]}}'),
        ("line", '{"points": [[0, 0], [1, 1]], "noise": 1e-300}'),
        ("draw", '{"strokes": [[[NaN, 0], [1, 1]]]}'),
        ("draw", '{"strokes": [[[1e300, 0], [-1e300, 1]]]}'),
        ("draw", f'{{"strokes": [[[{HUGE}, 0], [1, 1]]]}}'),
        ("draw", '{"strokes": [[[0.1, 0.1]]], "pen": 1e-320}'),
        ("draw", json.dumps({"picture": base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()})),
        ("draw", '{"picture": "é"}'),
        ("draw", '{"picture": "\\u00e9"}'),
        ("understand/train", f'{{"points": [[{HUGE}, 0, 0], [1, 1, 1]]}}'),
        ("understand/train", '{"points": [[0, 0, 0], [1, 1, 1]], "low": [NaN, 0], "high": [1, 1]}'),
        ("understand/train", f'{{"points": [[0, 0, {HUGE}], [1, 1, 1]]}}'),
        ("understand/train", f'{{"points": [[0, 0, {2**70}], [1, 1, 1]]}}'),
        ("python/understand", '{"points": [[0, 0, 0], [1, 1, 1]], "prior": "normal:1e999"}'),
        ("python/decide", '{"model": "point", "threshold": NaN}'),
        ("python/draw", '{"strokes": [[["NaN", 0], [1, 1]]], "sample": {"kind": "test", "model": "point"}}'),
        ("python/draw", '{"strokes": [[[0.1, 0.2], ["Infinity", 1]]]}'),
        ("coin", "[" * 5000),
        ("coin", "\xff"),
    ],
)
def test_impossible_numbers_are_refused_and_never_a_500(client, path, body):
    answer = client.post(
        f"/studio/api/{path}", content=body.encode("latin-1"), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in {200, 400, 413, 422}, answer.text
    if answer.status_code != 200:
        assert len(answer.json()["error"]) < 300
