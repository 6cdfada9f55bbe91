"""The Decide page finds the threshold for an error that the user chooses, on half of the test examples."""

import pytest
import torch

from bayesify.methods.saving import load
from bayesify.studio.models import Examples


def test_the_threshold_keeps_the_error_and_is_that_of_the_library(ask, runs):
    told = ask("decide/promise", model="variational", max_error=0.05, draws=20)
    assert told["bound"] <= 0.05
    assert told["wrong"] <= max(1, 0.1 * told["accepted"])
    assert told["examples"] + told["others"] == len(ask("decide", model="variational", draws=20)["truth"])
    stricter = ask("decide/promise", model="variational", max_error=0.03, draws=20)
    assert stricter["threshold"] >= told["threshold"]
    # The run itself promises nothing more than before.
    assert ask("decide", model="variational", draws=20)["promises"] == []
    assert load(runs["variational"]).guarantees == {}


def test_the_counts_on_the_other_half_are_right(ask, runs):
    from types import SimpleNamespace

    from bayesify import noise
    from bayesify import runs as folders
    from bayesify.workflows.run_data import preparation_of

    run = runs["point"]
    config = folders.read_config(run)
    model = SimpleNamespace(name=str(run), config=config, preparation=preparation_of(config, run))
    test = Examples(model)
    told = ask("decide/promise", model="point", max_error=0.05, draws=5, seed=3)
    order = noise.permutation(noise.keys(3, noise.Stream.SHUFFLE, network=1, step=1)[0], len(test.y))
    rest = order[len(order) // 2 :]
    p = load(run).predict(test.x[rest], draws=5, seed=3)
    kept = p.confidence >= told["threshold"]
    assert told["accepted"] == int(kept.sum())
    assert told["wrong"] == int((kept & (p.labels != test.y[rest])).sum())
    assert isinstance(kept, torch.Tensor)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"max_error": 0.0001}, "needs at least"),
        ({"by": "guess"}, "by must be one of"),
    ],
)
def test_what_cannot_be_promised_is_refused_in_words(ask, settings, words):
    status, said = ask("decide/promise", model="point", **settings)
    assert status == 422
    assert words in said


def test_a_recalibrated_run_is_recalibrated_on_every_page(runs, reproduced, tmp_path):
    import contextlib
    import shutil

    import httpx
    from studio_server import serving

    from bayesify.cli import main
    from bayesify.runs import read_config
    from bayesify.workflows.run_data import examples_of

    run = tmp_path / "soft"
    shutil.copytree(runs["point"], run)
    with contextlib.redirect_stdout(None):
        assert main(["recalibrate", str(run), "--by", "temperature", "--share", "0.5"]) == 0
    test = examples_of(read_config(run), run)
    p, before = (load(folder).predict(test.x, draws=5) for folder in (run, runs["point"]))
    assert not torch.allclose(p.confidence, before.confidence)
    with serving([run], reproduced) as url, httpx.Client(base_url=url, timeout=240) as client:
        shown = client.get("/studio/api/decide", params={"model": "soft", "draws": 5}).json()["scores"]["confidence"]
        drawing = {"sample": {"kind": "test", "number": 0, "model": "soft"}, "boxed": False, "draws": 5}
        drawn = client.post("/studio/api/draw", json=drawing).json()["answers"][0]["confidence"]
    torch.testing.assert_close(torch.tensor(shown), p.confidence.float(), atol=1e-5, rtol=0)
    assert drawn == pytest.approx(float(p.confidence[0]), abs=1e-4)
