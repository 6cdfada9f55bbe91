"""Which check for unknown inputs suits the studio's pad? Many are compared on drawings; one is tried on new ones.

    python studies/scripts/pad_checks.py RUN...                                             # the drawings for choosing
    python studies/scripts/pad_checks.py --cost 0.017 --only edges-10000 RUN...             # as the studio has it

Every check is fitted on training images alone and refuses 2% of other training images; `--cost 0.017` refuses 1.7% that
are sure instead. The drawings for choosing are those of `drawings.json` and `drawings-fresh.json`: 22 letters, drawn 30
times each, 60 scribbles and the digits. Accepted is a confidence of at least 90% (30 draws) and a pass of the check.
Coverage lost is of 4,000 test images.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pad import DRAWINGS, DRAWS, SURE, drawn
from scipy import ndimage
from torch import Tensor

import bayesify as bf
from bayesify.decisions import UnknownInputs
from bayesify.decisions.edges import edges, upright
from bayesify.methods import Method
from bayesify.runs import read_config
from bayesify.studio.pad_networks import CALIBRATED
from bayesify.workflows.run_data import examples_of, training_examples

FOR_CHOOSING = (DRAWINGS, DRAWINGS.with_name("drawings-fresh.json"))
TEST = 4000
COVERAGE, COMPARED = 0.98, 5000
# Principal components of each class, for the distance to a class's own normal distribution.
COMPONENTS = 30
Score = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Known:
    """Training images `[n, 784]` with their labels, and the network."""

    bnn: Method
    x: Tensor
    y: Tensor

    def some(self, count: int) -> tuple[Tensor, Tensor]:
        """An even selection of those that set no threshold."""
        rows = torch.arange(0, len(self.x), max(1, len(self.x) // count))
        return self.x[rows], self.y[rows]

    def others(self) -> tuple[Tensor, Tensor]:
        """Some that neither 5,000 nor 20,000 of `some` contain."""
        return self.x[1::18], self.y[1::18]


def nearest(features: Callable[[Tensor], Tensor], count: int, *, own_class: bool = False) -> Callable[[Known], Score]:
    """The distance to the nearest training image, or to the nearest one with the predicted label."""

    def fit(known: Known) -> Score:
        x, y = known.some(count)
        held = features(x)

        def score(images: Tensor, labels: Tensor) -> Tensor:
            distances = []
            for piece, own in zip(features(images).split(500), labels.split(500), strict=True):
                away = torch.cdist(piece, held)
                if own_class:
                    away = away.masked_fill(own[:, None] != y[None], float("inf"))
                distances.append(away.amin(1))
            return torch.cat(distances)

        return score

    return fit


def built_in(by: str, layer: str, neighbours: int) -> Callable[[Known], Score]:
    """A check of the library."""

    def fit(known: Known) -> Score:
        check = UnknownInputs(known.bnn, known.some(COMPARED)[0], by, layer=layer, neighbours=neighbours)
        return lambda images, _: check.score(images)

    return fit


def class_normals(features: Callable[[Tensor], Tensor]) -> Callable[[Known], Score]:
    """Minus the highest log-density of a class: principal components, and one variance for all that they leave out."""

    def fit(known: Known) -> Score:
        x, y = known.some(len(known.x))
        parts = []
        for label in y.unique():
            own = features(x[y == label]).double()
            mean = own.mean(0)
            values, vectors = torch.linalg.eigh(torch.cov(own.T))
            kept, rest = vectors[:, -COMPONENTS:], values[:-COMPONENTS].mean()
            parts.append((mean, kept, values[-COMPONENTS:], rest))

        def score(images: Tensor, _: Tensor) -> Tensor:
            seen, found = features(images).double(), []
            for mean, kept, values, rest in parts:
                away = seen - mean
                along = away @ kept
                left = (away.square().sum(1) - along.square().sum(1)).clamp(min=0)
                scale = values.log().sum() + (seen.shape[1] - COMPONENTS) * rest.log()
                found.append((along.square() / values).sum(1) + left / rest + scale)
            return torch.stack(found).amin(0)

        return score

    return fit


def both(*fits: Callable[[Known], Score]) -> Callable[[Known], Score]:
    """The larger of two scores, each as its rank among training images that it was not fitted on."""

    def fit(known: Known) -> Score:
        x, y = known.others()
        scores = [one(known) for one in fits]
        ranked = [one(x, y).double().sort().values for one in scores]

        def score(images: Tensor, labels: Tensor) -> Tensor:
            ranks = []
            for one, known_scores in zip(scores, ranked, strict=True):
                found = one(images, labels).double()
                far = (found / known_scores[-1] - 1).clamp(min=0)  # beyond all of them
                ranks.append(torch.searchsorted(known_scores, found).double() / len(known_scores) + far)
            return torch.stack(ranks).amax(0)

        return score

    return fit


def for_each_class(one: Callable[[Known], Score]) -> Callable[[Known], Score]:
    """A score divided by its quantile among training images of the predicted class."""

    def fit(known: Known) -> Score:
        x, y = known.others()
        score = one(known)
        found = score(x, y).double()
        levels = torch.stack([found[y == label].quantile(COVERAGE) for label in range(int(y.max()) + 1)])
        return lambda images, labels: score(images, labels).double() / levels[labels]

    return fit


def against_made_up(count: int, *, with_label: bool = False) -> Callable[[Known], Score]:
    """A classifier of edges, of training images against images that are made from them and show no digit.

    Args:
        count: training images.
        with_label: show it the predicted label too, so that it learns what an image with this label looks like.

    """

    def fit(known: Known) -> Score:
        x, y = known.some(count)
        names = [int(name) for name in known.bnn.notes["class_names"]]
        strange = made_up(x.reshape(-1, 28, 28), torch.tensor(names)[y])

        def seen(images: Tensor, labels: Tensor) -> Tensor:
            label = torch.nn.functional.one_hot(labels, len(names)) * float(with_label)
            return torch.cat((edges(images).float() * 10, label), 1)

        strange = strange.flatten(1)
        inputs = torch.cat((seen(x, y), seen(strange, labels_of(known.bnn, strange)[0])))
        targets = (torch.arange(len(inputs)) >= len(x)).float()
        weight = torch.tensor(len(x) / len(strange))
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
        optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
        for _ in range(15):
            for rows in torch.randperm(len(inputs)).split(256):
                lost = torch.nn.functional.binary_cross_entropy_with_logits(
                    net(inputs[rows])[:, 0], targets[rows], torch.where(targets[rows] > 0, weight, 1.0)
                )
                optimiser.zero_grad()
                lost.backward()
                optimiser.step()

        @torch.no_grad()
        def score(images: Tensor, labels: Tensor) -> Tensor:
            found: Tensor = net(seen(images, labels))[:, 0]
            return found

        return score

    return fit


def made_up(images: Tensor, digits: Tensor, seed: int = 0) -> Tensor:
    """Images `[n, 28, 28]` of no digit: halves of two digits, two over each other, turned and mirrored ones."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    differ = digits[order] != digits
    one, other = images[differ], images[order][differ]
    upper, left = one.clone(), one.clone()
    upper[:, 14:], left[:, :, 14:] = other[:, 14:], other[:, :, 14:]
    found = [upper, left, torch.maximum(one.roll(-4, 2), other.roll(4, 2))]
    # What such digits look like when they are turned is a digit again, and is left out.
    for turns, alike in ((1, [0]), (2, [0, 1, 6, 8, 9]), (3, [0])):
        found.append(images[~torch.isin(digits, torch.tensor(alike))].rot90(turns, (1, 2)))
    found.append(images[~torch.isin(digits, torch.tensor([0, 1, 8]))].flip(2))
    return torch.cat(found)


def pixels(images: Tensor) -> Tensor:
    """The images as they are."""
    return images.reshape(len(images), -1)


def straight(images: Tensor, blur: float = 0.0) -> Tensor:
    """Sheared so that ink does not slant, and blurred."""
    made = upright(images.reshape(-1, 28, 28).double())
    return torch.from_numpy(ndimage.gaussian_filter(made.numpy(), (0, blur, blur))).flatten(1).to(images)


def blurred(images: Tensor) -> Tensor:
    """Upright and blurred by one pixel."""
    return straight(images, 1.0)


CHECKS: dict[str, Callable[[Known], Score]] = {
    "nearest": nearest(pixels, COMPARED),
    "nearest-20000": nearest(pixels, 20_000),
    "nearest-own-class": nearest(pixels, COMPARED, own_class=True),
    "upright": nearest(straight, COMPARED),
    "upright-blurred": nearest(blurred, COMPARED),
    "upright-blurred-own-class": nearest(blurred, COMPARED, own_class=True),
    "hidden": built_in("knn", "last", 1),
    "mahalanobis": built_in("mahalanobis", "input", 1),
    "class-normals": class_normals(straight),
    "nearest+hidden": both(nearest(pixels, COMPARED), built_in("knn", "last", 1)),
    "nearest+class-normals": both(nearest(pixels, COMPARED), class_normals(straight)),
    "upright+own-class": both(nearest(straight, COMPARED), nearest(pixels, COMPARED, own_class=True)),
    "upright-blurred-each-class": for_each_class(nearest(blurred, COMPARED, own_class=True)),
    "edges": nearest(edges, COMPARED),
    "edges-20000": nearest(edges, 20_000),
    "edges-10000": nearest(edges, 10_000),
    "edges-all": nearest(edges, 50_000),
    "edges-each-class": for_each_class(nearest(edges, COMPARED, own_class=True)),
    "edges-normals": class_normals(edges),
    "made-up": against_made_up(10_000),
    "made-up-label": against_made_up(10_000, with_label=True),
    "edges+made-up": both(nearest(edges, 10_000), against_made_up(10_000)),
    "edges+made-up-label": both(nearest(edges, 10_000), against_made_up(10_000, with_label=True)),
    "edges+upright-blurred": both(nearest(edges, COMPARED), nearest(blurred, COMPARED)),
}


def labels_of(bnn: Method, x: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted labels, and whether each is sure."""
    p = bnn.predict(x, draws=DRAWS)
    return p.labels, p.accept(at_least=SURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="the studio's runs on MNIST")
    parser.add_argument("--drawings", type=Path, action="append", help="files of drawings")
    parser.add_argument(
        "--cost", type=float, help="refuse this share of images that are sure, instead of 2% of all images"
    )
    parser.add_argument("--only", help="names of checks, with commas between them")
    given = parser.parse_args()
    logging.getLogger("bayesify").setLevel(logging.ERROR)
    print(
        "check | run | digits known | digits right and accepted | letters accepted | scribbles | coverage lost, points"
    )
    drawings: dict[Path, list[Any]] = {}
    for name in given.only.split(",") if given.only else CHECKS:
        totals = []
        for run in given.runs:
            bnn, config = bf.load(run), read_config(run)
            found = training_examples(config, run)
            assert found is not None
            x, y = found[0], found[1]
            step = len(x) // CALIBRATED
            held = torch.arange(len(x)) % step == step - 1
            score = CHECKS[name](Known(bnn, x[~held], y[~held]))
            calibration = x[held][:CALIBRATED]
            labels, sure = labels_of(bnn, calibration)
            scores = score(calibration, labels).double()
            if given.cost is None:
                threshold = scores.quantile(COVERAGE)
            else:
                threshold = scores[sure].quantile(1 - given.cost * len(sure) / int(sure.sum()))
            if run not in drawings:
                drawings[run] = [drawn(bnn, file) for file in given.drawings or FOR_CHOOSING]
            parts = drawings[run]
            shares = {}
            for kind in ("digits", "letters", "scribbles"):
                images = torch.cat([part[kind][0] for part in parts])
                labels, sure = labels_of(bnn, images)
                known = score(images, labels).double() <= threshold
                right = labels == torch.cat([part[kind][1] for part in parts])
                shares[kind] = [float(one.double().mean()) for one in (known, known & sure & right, known & sure)]
            test = examples_of(config, run).x[:TEST]
            labels, sure = labels_of(bnn, test)
            lost = float((sure & (score(test, labels).double() > threshold)).double().mean())
            row = [*shares["digits"][:2], shares["letters"][2], shares["scribbles"][2], 100 * lost]
            totals.append(row)
            print(name, run.name, *(f"{one:.1%}" for one in row[:4]), f"{row[4]:.1f}", sep=" | ", flush=True)
        mean = np.mean(totals, 0)
        print(name, "mean", *(f"{one:.1%}" for one in mean[:4]), f"{mean[4]:.1f}", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
