"""What a monitor reads: well formed for Prometheus, and true."""

import re

import numpy as np
import pytest
from talking import serving

from bayesify.serving.metrics import Histogram, Metrics
from bayesify.serving.models import Registry

LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def read(text):
    """Samples by name and labels; every line must have the form of the exposition format."""
    samples, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = LINE.fullmatch(line).groups()
            assert any(name.startswith(known) for known in types)
            samples[name, tuple(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', labels or ""))] = float(value)
    return samples


def test_counts_are_those_of_what_was_asked(folders, images):
    with serving(Registry([folders["variational"]], threads=1)) as client:
        for start in (0, 3, 6):
            client.infer("variational", images[start : start + 3], parameters={"at_least": 1.0})
        client.infer("variational", images[:2])
        client.infer("nothing", images[:1])
        client.get("/nowhere")
        samples = read(client.get("/metrics").body.decode())
    place = "/v2/models/{name}/infer"
    requests = {labels: value for (name, labels), value in samples.items() if name == "bayesify_requests_total"}
    by = {(dict(labels)["endpoint"], dict(labels)["code"]): value for labels, value in requests.items()}
    assert by == {(place, "200"): 4, (place, "404"): 1, ("other", "404"): 1}
    assert samples["bayesify_predictions_total", (("model", "variational"),)] == 11
    # No answer reaches a confidence of one.
    assert samples["bayesify_abstentions_total", (("model", "variational"),)] == 9
    assert samples["bayesify_batch_inputs_sum", ()] == 11
    assert samples["bayesify_batch_inputs_count", ()] == 4
    assert samples["bayesify_request_seconds_count", (("endpoint", place),)] == 5
    assert samples["bayesify_request_seconds_sum", (("endpoint", place),)] > 0
    # The request for the metrics themselves.
    assert samples["bayesify_requests_in_progress", ()] == 1


def test_a_histogram_counts_what_lies_at_or_below_each_bound():
    values = np.random.default_rng(0).gamma(2.0, 1.0, 500).round(1)
    histogram = Histogram((0.5, 1.0, 2.0, 5.0))
    for value in values:
        histogram.observe(float(value))
    samples = read("# TYPE h histogram\n" + "\n".join(histogram.lines("h")))
    for bound in (0.5, 1.0, 2.0, 5.0):
        assert samples["h_bucket", (("le", str(bound)),)] == (values <= bound).sum()
    assert samples["h_bucket", (("le", "+Inf"),)] == samples["h_count", ()] == 500
    assert samples["h_sum", ()] == pytest.approx(values.sum())


def test_labels_are_escaped():
    metrics = Metrics()
    metrics.answered('a "quoted"\\name\n', 2, 1)
    assert 'bayesify_predictions_total{model="a \\"quoted\\"\\\\name\\n"} 2' in metrics.text()


def test_prometheus_own_parser_reads_it(client):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    reply = client.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in parser.text_string_to_metric_families(reply.body.decode())}
    assert families["bayesify_request_seconds"].type == "histogram"
    assert families["bayesify_requests"].type == "counter"
