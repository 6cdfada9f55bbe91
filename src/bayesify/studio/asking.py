"""Which labels a network of the plane would ask for next, by each acquisition function."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesify.decisions import choose_from
from bayesify.decisions.acquisition import OF_CLASSES, OF_DRAWS
from bayesify.errors import choose
from bayesify.methods import Method
from bayesify.studio.watched_training import DRAWS, Square

# Scores below this are rounding: one network alone has no epistemic uncertainty.
_NOTHING = 1e-6


def places(method: Method, square: Square, x: Tensor, by: str, n: int) -> list[dict[str, float]]:
    """The cells of the page, inside the box of the points, whose labels would teach most.

    Args:
        method: the trained method.
        square: the part of the plane that the page shows.
        x: the points that it was trained on, `[points, 2]`.
        by: the acquisition function.
        n: how many places.

    Returns:
        Coordinates and scores, the most wanted first; none where no label would teach anything.

    Raises:
        ValueError: the name is unknown, or there are fewer cells in the box.

    """
    choose("acquisition function", by, OF_CLASSES)
    lattice = square.lattice()
    low, high = x.amin(0), x.amax(0)
    cells = lattice[((lattice >= low) & (lattice <= high)).all(1)]
    if len(cells) < n:
        raise ValueError(f"the box of the points has {len(cells)} cells, fewer than the {n} places asked for")
    predicted = method.predict(cells, draws=DRAWS, seed=0)
    if predicted.draws == 1 and by in OF_DRAWS:
        return []
    asked = choose_from(predicted, n, by, seed=0)
    found = zip(cells[torch.tensor(asked.indices)].tolist(), asked.scores.tolist(), strict=True)
    return [{"x": a, "y": b, "score": score} for (a, b), score in found if score > _NOTHING]
