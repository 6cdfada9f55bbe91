"""Understand: the places whose labels a network would ask for next."""

import json
import re

import pytest
import torch

from bayesify.studio import asking, watched_training
from bayesify.studio.watched_training import Square, TrainingRequest


def trained(method, **settings):
    points = watched_training.plane("moons", 40, 0.2, 0)
    request = TrainingRequest(points=points, method=method, epochs=200, **settings)
    bnn = watched_training.train(request, lambda _: None)
    return bnn, Square.of(request), watched_training.tensors(request)[0]


@pytest.fixture(scope="module")
def variational():
    return trained("variational")


def test_a_batch_begins_where_the_single_label_does_and_is_spread_wider(variational):
    bald, batch = (asking.places(*variational, by, 5) for by in ("bald", "batchbald"))
    assert (bald[0]["x"], bald[0]["y"]) == (batch[0]["x"], batch[0]["y"])

    def spread(places):
        return float(torch.cdist(*[torch.tensor([[p["x"], p["y"]] for p in places])] * 2).mean())

    assert spread(batch) > 1.5 * spread(bald)
    x = variational[2]
    for by in asking.OF_CLASSES:
        found = torch.tensor([[p["x"], p["y"]] for p in asking.places(*variational, by, 3)])
        assert bool(((found >= x.amin(0)) & (found <= x.amax(0))).all())


def test_one_network_has_nothing_to_ask_for_but_its_least_certain_places():
    point = trained("point")
    assert asking.places(*point, "bald", 3) == []
    assert len(asking.places(*point, "entropy", 3)) == 3


def test_the_route_answers_and_refuses_in_words(client, ask):
    points = ask("understand/points", data="moons", n=30)["points"]
    lesson = {"points": points, "epochs": 30, "method": "ensemble"}
    with client.stream("POST", "/studio/api/understand/train", json=lesson) as answer:
        text = "".join(answer.iter_text())
    name = json.loads(re.search(r"event: done\ndata: (.*)", text).group(1))["trained"]
    assert len(ask("understand/ask", trained=name, by="epig", n=4)["places"]) == 4
    status, words = ask("understand/ask", trained=name, by="guess")
    assert status == 422
    assert "acquisition function" in words
    assert ask("understand/ask", trained="nobody")[0] == 404
