"""What the watch over inputs sees of real examples: known ones, and ones after a change.

One network is trained for each problem. Examples that it was not trained on are the known ones.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesify import networks
from bayesify.data import open_data
from bayesify.decisions.martingale import certainty_of, input_scores
from bayesify.methods import Ensemble, Method
from bayesify.training.warnings import without_warnings
from bayesify_studies.experiments.likelihoods.problems import table
from bayesify_studies.experiments.lora.texts import folder, words_of
from bayesify_studies.experiments.ood.unknown_inputs import turned

Scores = Mapping[str, NDArray[np.float64]]
Settings = Mapping[str, Any]
_INK = 0.7
_WORDS = 1000
_FEW = 5


def scores_of(name: str, settings: Settings) -> tuple[Scores, dict[str, Scores]]:
    """Scores of the known examples, and of those of each change."""
    bnn, known, changed = _PROBLEMS[name](settings)

    def watched(x: Tensor) -> Scores:
        certainty = np.concatenate([certainty_of(bnn.predict(part, draws=settings["draws"])) for part in x.split(2000)])
        return input_scores(certainty, x)

    return watched(known), {kind: watched(x) for kind, x in changed.items()}


Problem = tuple[Method, Tensor, dict[str, Tensor]]


def _mnist(settings: Settings) -> Problem:
    data, count = open_data("mnist"), settings["train"]
    known, labels = _grey(data.x_test), data.y_test
    bnn = _trained(_grey(data.x_train[:count]), data.y_train[:count], 10, "categorical:10", settings)
    return (
        bnn,
        known,
        {
            "fashion": _grey(open_data("fashion-mnist").x_test),
            "notmnist": _grey(open_data("notmnist").x_test),
            "darker": _INK * known,
            "turned": turned(known.reshape(-1, 28, 28), 0).flatten(1),
            "few": known[labels < _FEW],
        },
    )


def _clinc(settings: Settings) -> Problem:
    """Counts of the commonest words of the training questions."""
    with gzip.open(folder() / "data_full.json.gz", "rt", encoding="utf-8") as file:
        texts = json.load(file)
    counts: dict[str, int] = {}
    for text, _ in texts["train"]:
        for word in words_of(text):
            counts[word] = counts.get(word, 0) + 1
    common = sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS]
    place = {word: number for number, word in enumerate(common)}
    intents = sorted({intent for _, intent in texts["train"]})

    def counted(part: str) -> Tensor:
        x = torch.zeros(len(texts[part]), len(common))
        for row, (text, _) in enumerate(texts[part]):
            for word in words_of(text):
                if word in place:
                    x[row, place[word]] += 1
        return x

    y = torch.tensor([intents.index(intent) for _, intent in texts["train"]])
    bnn = _trained(counted("train"), y, len(intents), f"categorical:{len(intents)}", settings)
    return bnn, torch.cat((counted("val"), counted("test"))), {"unknown": counted("oos_test")}


def _power(settings: Settings) -> Problem:
    """Hours of a power plant: inputs are temperature, vacuum, pressure and humidity."""
    x, y = table("numbers", "power")
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))
    count = min(2000, len(y) // 2)
    train, rest = rows[:count], rows[count:]
    x = ((x - x[train].mean(0)) / x[train].std(0)).float()
    y = ((y - y[train].mean()) / y[train].std()).float()
    bnn = _trained(x[train], y[train], 1, "gaussian:learned", settings)
    known = x[rest]
    return bnn, known, {"hot": known[known[:, 0] > known[:, 0].median()]}


def _trained(x: Tensor, y: Tensor, width: int, likelihood: str, settings: Settings) -> Method:
    bnn = Ensemble(networks.mlp(x.shape[1], width, units=settings["units"]), likelihood, members=3)
    with without_warnings():
        bnn.fit((x, y), epochs=settings["epochs"], batch_size=100, learning_rate=1e-3, compiled=False, progress=False)
    return bnn


def _grey(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1).float() / 255


_PROBLEMS: dict[str, Callable[[Settings], Problem]] = {"mnist": _mnist, "clinc": _clinc, "power": _power}
