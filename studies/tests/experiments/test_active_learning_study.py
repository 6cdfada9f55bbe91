"""The experiment on active learning: its chains, its counts, and a page from the numbers of its parts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from sklearn.datasets import load_digits

from bayesify_studies.experiments import active_learning
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.framework.neighbour_graph import NeighbourGraph

TINY = dict(active_learning.EXPERIMENT.quick) | {
    "labels": 40,
    "graph": 600,
    "features": 12,
    "pool": 300,
    "test": 100,
    "epochs": 20,
}


@pytest.fixture(autouse=True)
def small_images(monkeypatch):
    """The small digits, three times as large and with a border, in the place of MNIST."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).mul(255 / 16).to(torch.uint8)
    large = torch.nn.functional.pad(images.repeat_interleave(3, 1).repeat_interleave(3, 2), (2, 2, 2, 2))
    y = torch.tensor(digits.target)
    data = SimpleNamespace(x_train=large[:1500], y_train=y[:1500], x_test=large[1500:], y_test=y[1500:])
    monkeypatch.setattr(active_learning, "open_data", lambda _: data)
    monkeypatch.setattr(active_learning, "VALIDATION", 500)
    active_learning._images.cache_clear()
    yield data
    active_learning._images.cache_clear()


@pytest.mark.filterwarnings("ignore::bayesify.errors.BayesifyWarning")  # twenty steps are too few
def test_the_page_has_the_numbers_of_its_parts(tmp_path):
    experiment = replace(active_learning.EXPERIMENT, quick=TINY)
    found = reproduce(experiment, tmp_path / "e", progress=False)
    parts = {p.stem: json.loads(p.read_text()) for p in (tmp_path / "e" / "parts").glob("*.json")}
    assert set(parts) == {f"{by}-{seed}" for by in TINY["strategies"] for seed in (100, 101)}
    assert all(one["labels"] == [20, 30, 40] for one in parts.values())
    accuracy = found["numbers"]["accuracy"]["random"]
    assert accuracy["values"] == [parts[f"random-{seed}"]["accuracies"][-1] for seed in (100, 101)]
    # Both strategies begin with the same labels and the same networks.
    for seed in (100, 101):
        assert parts[f"random-{seed}"]["accuracies"][0] == parts[f"batchbald-{seed}"]["accuracies"][0]
    assert "BatchBALD" in (tmp_path / "e" / "page.md").read_text()


def test_labels_are_counted_until_the_level_is_reached():
    one = {"labels": [20, 30, 40], "accuracies": [0.5, 0.91, 0.89]}
    assert active_learning.labels_for(one, 0.9) == 30
    assert active_learning.labels_for(one, 0.95) == float("inf")


def test_the_graph_never_holds_an_image_of_the_validation_part(small_images, monkeypatch):
    seen = []

    class Watched(NeighbourGraph):
        def __init__(self, images, *settings):
            seen.append(images)
            super().__init__(images, *settings)

    monkeypatch.setattr(active_learning, "NeighbourGraph", Watched)
    images = active_learning._images(900, 10, 12, 100)
    kept = {image.numpy().tobytes() for image in small_images.x_train[1000:].float() / 255}
    assert not kept & {image.numpy().tobytes() for image in seen[0]}
    assert images.x.shape[0] == images.y.shape[0] == 900
    assert images.x_test.shape == (100, images.x.shape[1])


def test_features_of_the_graph_tell_the_digits_apart_without_labels(small_images):
    images = active_learning._images(900, 10, 12, 200)
    assert images.x.mean(0).abs().max() < 0.3
    nearest = torch.cdist(images.x_test, images.x).argmin(1)
    # By chance one in ten is right.
    assert float((images.y[nearest] == images.y_test).double().mean()) > 0.85


def test_the_features_are_smooth_on_the_graph(small_images):
    graph = NeighbourGraph(small_images.x_train[:500].float() / 255, 10, 12)
    again = graph.of(small_images.x_train[:500].float() / 255)
    together = torch.stack([graph.features.flatten(), again.flatten()])
    assert float(torch.corrcoef(together)[0, 1]) > 0.9
