"""The server's metrics for Prometheus: requests, batches, predictions and abstentions.

Workers behind one port write theirs to files in `PROMETHEUS_MULTIPROC_DIR`, and each of them answers for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

if TYPE_CHECKING:
    from bayesify.decisions.martingale import ShiftMonitor

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Read by prometheus_client when it is imported.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
Series = TypeVar("Series", Counter, Histogram)
INPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, in a registry that no other server of the process shares."""

    def __init__(self) -> None:
        self.in_progress = 0
        self.registry = registry = _Registry()
        self._requests = Counter(
            "bayesify_requests",
            "Requests by endpoint, method and status code.",
            ("endpoint", "method", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "bayesify_request_seconds",
            "Time from a request to the last byte of its response.",
            ("endpoint",),
            buckets=SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "bayesify_batch_inputs", "Inputs evaluated together.", buckets=INPUTS, registry=registry
        )
        self._in_progress = Gauge(
            "bayesify_requests_in_progress",
            "Requests without a response so far.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._predictions = Counter(
            "bayesify_predictions", "Inputs predicted, by model.", ("model",), registry=registry
        )
        self._abstentions = Counter(
            "bayesify_abstentions",
            "Inputs whose prediction was not certain enough, by model.",
            ("model",),
            registry=registry,
        )
        self._unknown = Counter(
            "bayesify_unknown_inputs",
            "Inputs that were unlike the training data, by model with a check for them.",
            ("model",),
            registry=registry,
        )
        self._holds = Gauge(
            "bayesify_promise_holds",
            "1 while the inputs of a certified model look like its calibration, 0 after its guarantee has lapsed.",
            ("model",),
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._evidence = Gauge(
            "bayesify_shift_evidence",
            "Evidence that the inputs have changed: the capital of a test martingale, lapsed at 100.",
            ("model",),
            registry=registry,
            multiprocess_mode="livemax",
        )

        # prometheus_client takes its time to find a series by its labels; there are few of them.
        self._series: dict[tuple[Any, ...], Any] = {}

    def begin(self) -> None:
        """Count a request that has arrived."""
        self.in_progress += 1
        self._in_progress.set(self.in_progress)

    def request(self, endpoint: str, method: str, code: int, seconds: float) -> None:
        """Count a finished request; `endpoint` is the route, not the path, so that there are few of them."""
        self.in_progress -= 1
        self._in_progress.set(self.in_progress)
        self._labelled(self._requests, endpoint, method, code).inc()
        self._labelled(self._seconds, endpoint).observe(seconds)

    def batch(self, inputs: int) -> None:
        """Count a batch that goes to the worker."""
        self._batches.observe(inputs)

    def predictions(self, model: str, inputs: int, abstentions: int) -> None:
        """Count the inputs that a model predicted, and those among them that it abstained on."""
        self._labelled(self._predictions, model).inc(inputs)
        self._labelled(self._abstentions, model).inc(abstentions)

    def unknown_inputs(self, model: str, inputs: int) -> None:
        """Count the inputs of a model that were unlike its training data."""
        self._unknown.labels(model).inc(inputs)

    def watched(self, model: str, monitor: ShiftMonitor | None) -> None:
        """Report whether the guarantees of a certified model still hold for the inputs that it gets."""
        if monitor is not None:
            self._holds.labels(model).set(0.0 if monitor.lapsed else 1.0)
            self._evidence.labels(model).set(monitor.evidence)

    def _labelled(self, metric: Series, *labels: Any) -> Series:
        key = (metric, *labels)
        if key not in self._series:
            self._series[key] = metric.labels(*labels)
        found: Series = self._series[key]
        return found

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus, version 0.0.4."""
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self.registry)
        everybody = _Registry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)


def forget_process(number: int) -> None:
    """Leave a worker that has ended out of the gauges.

    Args:
        number: its process number.

    """
    if SHARED_FOLDER in os.environ:
        mark_process_dead(number)  # type: ignore[no-untyped-call]


class _Registry(CollectorRegistry):
    """A registry without the `_created` series; the library's own switch would act on the whole process."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
