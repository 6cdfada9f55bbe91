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
