"""Ten scribbles and six letters drawn on the pad: a check that is fitted on the training digits alone refuses them.

`examples/drawings.json` has the studio's own scribbles (seeds 1 to 10) and letters, in steps of the pad's grid.
"""

import contextlib
import json
import shutil
from pathlib import Path

import httpx
import pytest
import torch
from studio_server import serving

import bayesify as bf
from bayesify import runs as folders
from bayesify.cli import main
from bayesify.decisions import saved_check
from bayesify.methods.saving import load
from bayesify.studio import demonstration
from bayesify.studio.draw_page import STEPS
from bayesify.workflows.run_data import examples_of

SURE, PEN = 0.9, 0.13
DRAWINGS = json.loads((Path(__file__).parents[2] / "examples" / "drawings.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def checked(runs, tmp_path_factory):
    """Copies of the runs with a check for unknown inputs each."""
    place = tmp_path_factory.mktemp("checked")
    for name, run in runs.items():
        shutil.copytree(run, place / name)
        with contextlib.redirect_stdout(None):
            assert main(["unknown", str(place / name)]) == 0
    return {name: place / name for name in runs}


def strokes(steps):
    return [[(x / STEPS, y / STEPS) for x, y in stroke] for stroke in steps]


def answers(post, drawings):
    """What each run says to each drawing, by run."""
    said: dict[str, list] = {}
    for steps in drawings:
        content = post({"strokes": strokes(steps), "pen": PEN, "draws": 30})
        for answer in content["answers"]:
            said.setdefault(answer["name"], []).append(answer)
    return said


def accepted(said):
    return {name: sum(a["confidence"] >= SURE and a["known"] is not False for a in own) for name, own in said.items()}


def test_scribbles_and_letters_are_refused_at_little_cost(checked, reproduced, ask):
    bare = accepted(answers(lambda body: ask("draw", body), DRAWINGS["scribbles"]))
    assert all(count >= 4 for count in bare.values()), bare  # without the check most scribbles pass
    with (
        serving(checked.values(), reproduced) as url,
        httpx.Client(base_url=url, timeout=240) as client,
    ):

        def post(body):
            return client.post("/studio/api/draw", json=body).json()

        for kind in (DRAWINGS["scribbles"], DRAWINGS["letters"].values()):
            assert all(count <= 1 for count in accepted(answers(post, kind)).values())
        decided = client.get("/studio/api/decide", params={"model": "point", "draws": 5}).json()
        code = client.post("/studio/api/python/draw", json={"strokes": strokes(DRAWINGS["letters"]["A"])}).json()
    assert "UnknownInputs.load" in code["python"]
    point, part = load(checked["point"]), examples_of(folders.read_config(checked["point"]), checked["point"])
    assert decided["known"] == saved_check(point).accept(part.x).tolist()
    assert decided["unknown"]["known"] == saved_check(point).accept(part.unknown).tolist()
    for name, run in checked.items():
        method, test = load(run), examples_of(folders.read_config(run), run)
        sure, check = method.predict(test.x).accept(at_least=SURE), saved_check(method)
        cost = float(sure.double().mean() - (sure & check.accept(test.x)).double().mean())
        assert cost <= 0.02, name


def test_the_demos_runs_get_a_check_where_an_earlier_version_made_none(runs, tmp_path):
    run = tmp_path / "old"
    shutil.copytree(runs["point"], run)
    assert not (run / folders.UNKNOWN).exists()
    demonstration.add_checks([run])
    assert saved_check(load(run)).by == "knn"


def test_a_check_of_other_weights_is_refused(checked, tmp_path):
    run = tmp_path / "swapped"
    shutil.copytree(checked["point"], run)
    method = load(run)
    with torch.no_grad():
        next(method.parameters()).add_(1.0)
    with pytest.raises(bf.errors.RunError, match="other weights"):
        bf.UnknownInputs.load(run, method)
