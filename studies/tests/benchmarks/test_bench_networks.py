"""The bench of known networks: every network and method runs in small, and the page says what the rows say."""

import json

import pytest

from bayesify_studies.benchmarks import network_page, network_steps, networks


@pytest.mark.parametrize(
    ("network", "method"),
    [("resnet18", "ivon"), ("resnet50", "variational"), ("vit", "flipout"), ("bert", "variational"), ("gpt2", "sghmc")],
)
def test_every_network_trains_in_small(network, method):
    row = network_steps.measure(network=network, method=method, compiled=False, device="cpu", tiny=True, batch=2)
    assert row["path"] == "eager"
    assert row["ms"] > 0
    assert row["weights"] > 1000


def test_the_bench_compares_with_the_plain_step():
    result = networks.measure(network="vit", compiled=False, tiny=True)
    assert result["ratio"] == pytest.approx(result["ours_ms"] / result["plain_ms"])
    assert networks.lines(result)[0].startswith("a step of vit by variational takes")
    with pytest.raises(ValueError, match="network"):
        networks.measure(network="vgg")


def row(method, ms, *, path="replayed", part="a", **more):
    made = {"part": part, "network": "bert", "method": method, "precision": "bfloat16", "path": path, "ms": ms}
    return made | {"compiled": path != "eager", "peak_gib": 1.0, "compile_seconds": 10.0, "weights": 2 * 10**7} | more


def test_the_page_has_the_ratios_of_the_rows_and_a_later_file_replaces_rows(tmp_path):
    first = [
        {"part": "a", "machine": {"gpu": "Card", "torch": "2"}},
        row("plain", 30.0, path="eager"),
        row("variational", 45.0, path="eager"),
        row("plain", 10.0, path="eager", part="b"),
        row("point", 10.0),
        row("torch.compile", 15.0, path="torch.compile", compile_seconds=20.0),
        row("variational", 20.0, peak_gib=2.0),
        row("ivon", 1.0) | {"failed": "out of memory"},
    ]
    second = [
        row("variational", 12.0, peak_gib=1.5, compile_seconds=50.0),
        row("variational", 12.5, compile_seconds=5.0, again=True),
    ]
    files = []
    for number, rows in enumerate((first, second)):
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in rows))
    results = tmp_path / "network-speed.json"
    network_page.publish(files[:1], results)
    assert "takes 2.00 to 2.00 times as long" in results.with_suffix(".md").read_text()
    network_page.publish(files[1:], results)
    text = results.with_suffix(".md").read_text()
    assert "step of these networks takes 1.20 to 1.20 times as long as a plain one" in text
    assert f"]({network_page.PICTURE})" in text
    assert results.with_name(network_page.PICTURE).stat().st_size > 1000
    assert json.loads(results.read_text())["pictures"][0]["file"] == network_page.PICTURE
    assert "Measured on one Card" in text
    assert "| BERT-base, bfloat16 † | variational | 12.00 | 10.00 | 1.20 |" in text
    # The eager step beside the plain one of the same process.
    assert "| BERT-base, bfloat16 † | variational | 45.00 | 30.00 | 1.50 |" in text
    assert "| eager step / eager plain step, flipout and samplers left out | 1.8 | 1.50 | reached |" in text
    assert "| memory peak / eager plain training with Adam | 1.8 | 1.50 | reached |" in text
    assert "| ensemble of 5 as one / 5 plain trainings, compiled alike | 0.7 | not measured |  |" in text
    assert "| compile time / torch.compile of the plain step | 1.5 | 2.50 | reached by 0 of 1 |" in text
    assert "| BERT-base, bfloat16 † | variational | 50 | 10 | 20 | 2.50 | 5 |" in text
    assert "IVON" not in text
    # Rows that were not measured again say so, and rows of one run do not.
    assert "A row with † has a number from an earlier run" in text
    network_page.publish(files, tmp_path / "at-once.json")
    assert "†" not in (tmp_path / "at-once.md").read_text()
