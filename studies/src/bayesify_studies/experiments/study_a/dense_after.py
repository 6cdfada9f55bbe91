"""Study A's own network: a dense layer after the sampled logits, beside the same network without it.

    hidden = relu(dense_512(x)),  z ~ N(dense_10(hidden), softplus(dense_10(hidden))^2),  p = softmax(dense_10(z))

The study trains the mean over samples of the NLL, which is convex in z with or without an affine layer after it. So a
spread of zero is still an optimum, and the question is whether training finds it. The spread after the layer is that of
its outputs less their mean over the classes, which a softmax does not see. Networks are trained by the study's settings
(Adam, batches of 32) on fewer images and samples, as small as two cores allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a.logits_cells import AMBIGUOUS, material

KINDS = {"direct": "without such a layer", "dense": "with a dense layer after the logits"}
SCORES = ("accuracy", "spread", "spread_ambiguous", "spread_after")
COLLAPSED = 0.05
CLASSES, UNITS, RATE = 10, 512, 1e-3


class SampledLogits(nn.Module):
    """Means and raw standard deviations of the logits, and what follows their samples: nothing, or a dense layer."""

    def __init__(self, dense: bool) -> None:
        super().__init__()
        self.hidden, self.moments = nn.Linear(784, UNITS), nn.Linear(UNITS, 2 * CLASSES)
        self.after: nn.Module = nn.Linear(CLASSES, CLASSES) if dense else nn.Identity()

    def forward(self, x: Tensor, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Outputs `[samples, batch, classes]` and the standard deviations of the logits `[batch, classes]`."""
        mean, raw = self.moments(functional.relu(self.hidden(x.flatten(1)))).chunk(2, -1)
        spread = functional.softplus(raw)
        drawn = torch.randn(samples, *mean.shape, generator=generator)
        return self.after(mean + spread * drawn), spread


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each kind of network and share of swapped labels."""
    return {
        f"dense-after-{kind}-{round(100 * swap)}": (trained, work, kind, swap)
        for swap in work["dense_after"]["swaps"]
        for kind in KINDS
    }


def trained(work: Work, kind: str, swap: float) -> dict[str, Any]:
    """The scores of every seed."""
    asked = work["dense_after"]
    small = Work(work.folder, work.settings | {name: asked[name] for name in ("examples", "test", "samples")})
    _, prepared = material(small, "mnist", "mlp", "expected", swap)
    rows = [one_seed(prepared.train, prepared.test, kind, seed, asked) for seed in range(asked["seeds"])]
    return {name: [row[name] for row in rows] for name in rows[0]}


def one_seed(
    train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], kind: str, seed: int, asked: Mapping[str, Any]
) -> dict[str, float]:
    """Train one network by the mean over samples of the NLL, and score it."""
    torch.manual_seed(seed)
    network, generator = SampledLogits(kind == "dense"), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    (x, y), (x_test, y_test) = train, test
    for _ in range(asked["epochs"]):
        for rows in torch.randperm(len(x), generator=generator).split(asked["batch_size"]):
            outputs, _ = network(x[rows], asked["samples"], generator)
            labels = y[rows].expand(asked["samples"], -1)
            loss = functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        outputs, spread = network(x_test, asked["samples"], generator)
    probs = outputs.softmax(-1).mean(0)
    odd = (y_test.unsqueeze(-1) == torch.tensor(AMBIGUOUS)).any(-1)
    return {
        "accuracy": float((probs.argmax(-1) == y_test).double().mean()),
        "spread": float(spread.mean()),
        "spread_ambiguous": float(spread[odd].mean()),
        "spread_after": float((outputs - outputs.mean(-1, keepdim=True)).std(0).mean()),
    }


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """A line for each share of swapped labels, and the table."""
    asked, lines, rows = work["dense_after"], [], []
    numbers: dict[str, Any] = {}
    for swap in asked["swaps"]:
        own = {kind: found[f"dense-after-{kind}-{round(100 * swap)}"] for kind in KINDS}
        numbers[f"{round(100 * swap)}"] = {
            kind: {name: estimate(part[name]) for name in SCORES} for kind, part in own.items()
        }
        less = paired(own["dense"]["accuracy"], own["direct"]["accuracy"])
        spread = estimate(own["dense"]["spread"])
        state = "have collapsed (below 0.05)" if spread["mean"] < COLLAPSED else "have not collapsed (above 0.05)"
        word = {1: "better", -1: "worse", 0: "not significantly different"}[settled(less)]
        lines.append(
            Line(
                f"study A's network, a dense layer after the sampled logits, {swap:.0%} swapped: accuracy, mean spread",
                "97.8% (trained on all images), tiny" if swap == 0 else "not run",
                f"{percent(estimate(own['dense']['accuracy']))}, {written(spread, '.4f')}; without the layer "
                f"{percent(estimate(own['direct']['accuracy']))}, {written(estimate(own['direct']['spread']), '.4f')}",
                f"the spreads {state}; the accuracy is {word} ({between(less, '+.2f', 100)} points)",
            )
        )
        rows += [
            [
                f"{swap:.0%} swapped, {said}",
                percent(estimate(own[kind]["accuracy"])),
                *(written(estimate(own[kind][name]), ".4f") for name in SCORES[1:]),
            ]
            for kind, said in KINDS.items()
        ]
    headings = ["network", "accuracy", "mean spread of the logits", "on 1 and 7", "spread of the softmax's inputs"]
    note = (
        f"MLP, Adam, objective `expected` (the mean over samples of the NLL); {asked['examples']:,} images, "
        f"{asked['epochs']} epochs, "
        f"{asked['samples']} samples, {asked['seeds']} seeds. In the last column, the part that all classes share is "
        f"subtracted first, because the softmax ignores it."
    )
    return Added(numbers, lines=lines, tables=[Table("A dense layer after the sampled logits", headings, rows, note)])


ADDITION = Addition("dense_after", parts, tell)
