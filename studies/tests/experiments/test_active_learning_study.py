"""The experiment on active learning: its chains, its counts, and a page from the numbers of its parts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from sklearn.datasets import load_digits

from bayesify_studies.experiments import active_learning
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.framework.work import Work

TINY = dict(active_learning.EXPERIMENT.quick) | {
    "seeds": 2,
    "strategies": ["batchbald", "random"],
    "labels": 40,
    "members": 2,
    "steps": 12,
    "pool": 300,
    "test": 100,
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
    return data


@pytest.mark.filterwarnings("ignore::bayesify.errors.BayesifyWarning")  # a dozen steps are too few
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


def test_the_pool_never_holds_an_image_of_the_validation_part(small_images, tmp_path):
    work = Work(tmp_path, TINY)
    pool, labels, test, _ = active_learning._images(small_images, work, 3)
    assert pool.shape == (300, 1, 28, 28)
    assert test.shape == (100, 1, 28, 28)
    assert float(pool.max()) == pytest.approx(1.0)
    kept = {bytes(image.numpy().tobytes()) for image in (small_images.x_train[1000:].float() / 255)}
    mine = {bytes(image[0].numpy().tobytes()) for image in pool}
    assert not kept & mine
    assert len(labels) == 300


def test_changed_images_keep_their_ink_about_in_place(small_images):
    x = small_images.x_train[:200].reshape(-1, 1, 28, 28).float() / 255
    moved = active_learning.changed(x, torch.Generator().manual_seed(0))
    assert moved.shape == x.shape
    assert float((moved - x).abs().mean()) > 0.02
    assert float(moved.mean() / x.mean()) == pytest.approx(1.0, abs=0.15)

    def centres(images):
        places = torch.arange(28.0)
        return (images.sum((1, 2)) * places).sum(1) / images.sum((1, 2, 3))

    away = centres(moved) - centres(x)
    # Shifts are uniform within 2 pixels, with a standard deviation of 1.15; bends and shears add a little.
    assert abs(float(away.mean())) < 0.4
    assert float(away.std()) == pytest.approx(1.2, abs=0.5)
