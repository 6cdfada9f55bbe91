"""How training went: the objective, or one of its parts, by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bayesify.errors import choose
from bayesify.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayesify.plots.style import Look
    from bayesify.training.loop import History

COLUMNS = {
    "loss": "training loss",
    "nll": "training NLL (nats)",
    "kl": "KL (nats)",
    "validation_nll": "validation NLL (nats)",
    "validation_error": "validation error",
}


def training_history(
    histories: History | Mapping[str, History],
    *,
    show: str = "nll",
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """One column of the history by epoch: `loss`, `nll`, `kl`, `validation_nll` or `validation_error`.

    Values that are all above zero and span more than a factor of ten get a logarithmic scale.
    """
    from matplotlib.ticker import MaxNLocator

    choose("column of the history", show, COLUMNS)
    named = histories if isinstance(histories, Mapping) else {"": histories}
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    seen: list[float] = []
    for name, history in named.items():
        points = [(record["epoch"], record[show]) for record in history.records if record.get(show) is not None]
        if not points:
            continue
        epochs, values = zip(*points, strict=True)
        line = looks[name].line(marker_size=4.5 if len(epochs) == 1 else 0.0)
        axes.plot(epochs, values, label=style.key(name) or None, **line)
        seen += values
    style.dress(axes, title=title, x="epoch", y=COLUMNS[show])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if seen and np.all(np.isfinite(seen)) and min(seen) > 0 and max(seen) > 10 * min(seen):
        axes.set_yscale("log")
    style.legend(axes, "upper right")
    return axes
