"""What a monitoring system asks for, in the text form of Prometheus (version 0.0.4).

Counters and histograms of a fixed set of names, written by one event loop: a library would bring locks, processes and a
global registry for what is a dictionary of numbers here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
INPUTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How many observations lie at or below each bound, their sum and their number, for each set of labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = defaultdict(float)

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count one observation."""
        counts = self._counts.setdefault(labels, [0] * (len(self.bounds) + 1))
        counts[bisect_left(self.bounds, value)] += 1
        self._sums[labels] += value

    def lines(self, name: str) -> list[str]:
        """The lines of all its series."""
        lines = []
        for labels, counts in self._counts.items():
            reached = 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
                reached += count
                lines.append(f"{name}_bucket{_braces((*labels, ('le', bound)))} {reached}")
            lines.append(f"{name}_sum{_braces(labels)} {_number(self._sums[labels])}")
            lines.append(f"{name}_count{_braces(labels)} {reached}")
        return lines


class Metrics:
    """The numbers of one server."""

    def __init__(self) -> None:
        self.in_progress = 0
        self._requests: dict[Labels, int] = defaultdict(int)
        self._predictions: dict[Labels, int] = defaultdict(int)
        self._abstentions: dict[Labels, int] = defaultdict(int)
        self._seconds = Histogram(SECONDS)
        self._batches = Histogram(INPUTS)

    def request(self, endpoint: str, method: str, code: int, seconds: float) -> None:
        """A request was answered; `endpoint` is the route, not the path, so that there are few of them."""
        self._requests[("endpoint", endpoint), ("method", method), ("code", str(code))] += 1
        self._seconds.observe(seconds, (("endpoint", endpoint),))

    def batch(self, inputs: int) -> None:
        """A batch went to the worker."""
        self._batches.observe(inputs)

    def answered(self, model: str, inputs: int, abstained: int) -> None:
        """A model answered, and said "I do not know" to some of the inputs."""
        self._predictions[(("model", model),)] += inputs
        self._abstentions[(("model", model),)] += abstained

    def text(self) -> str:
        """The page that a monitoring system reads."""
        families = (
            ("requests_total", "counter", "Requests by endpoint, method and status code.", _counts(self._requests)),
            ("request_seconds", "histogram", "Time from a request to its last byte.", self._seconds),
            ("batch_inputs", "histogram", "Inputs evaluated together.", self._batches),
            ("requests_in_progress", "gauge", "Requests that are being answered.", {"": self.in_progress}),
            ("predictions_total", "counter", "Inputs answered, by model.", _counts(self._predictions)),
            (
                "abstentions_total",
                "counter",
                "Inputs whose answer was not certain enough, by model.",
                _counts(self._abstentions),
            ),
        )
        lines = []
        for name, kind, words, values in families:
            full = f"bayesify_{name}"
            lines += [f"# HELP {full} {words}", f"# TYPE {full} {kind}"]
            if isinstance(values, Histogram):
                lines += values.lines(full)
            else:
                lines += [f"{full}{braces} {value}" for braces, value in values.items()]
        return "\n".join(lines) + "\n"


def _counts(counts: dict[Labels, int]) -> dict[str, int]:
    return {_braces(labels): value for labels, value in counts.items()}


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value))
