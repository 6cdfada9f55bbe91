"""What a monitor reads: well formed for Prometheus, and true."""

import re

from prometheus_client import parser
from talking import serving

from bayesify.serving.metrics import Metrics
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


def test_labels_are_escaped():
    metrics = Metrics()
    metrics.predictions('a "quoted"\\name\n', 2, 1)
    assert 'bayesify_predictions_total{model="a \\"quoted\\"\\\\name\\n"} 2.0\n' in metrics.text().decode()


def test_servers_of_one_process_share_no_numbers_and_no_times_of_creation():
    first, second = Metrics(), Metrics()
    first.batch(3)
    assert read(first.text().decode())["bayesify_batch_inputs_count", ()] == 1
    assert read(second.text().decode())["bayesify_batch_inputs_count", ()] == 0
    assert b"_created" not in first.text()


def test_prometheus_own_parser_reads_it(client):
    reply = client.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in parser.text_string_to_metric_families(reply.body.decode())}
    assert families["bayesify_request_seconds"].type == "histogram"
    assert families["bayesify_requests"].type == "counter"
