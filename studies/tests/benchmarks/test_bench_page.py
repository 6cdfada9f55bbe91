"""The speed page and its driver: tables say what was measured, parts are kept, machines are merged."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from bayesify_studies.benchmarks import floor, machine, memory, scaling, speed_page, speed_pictures

ROOT = Path(__file__).parents[3]
SPEED = ROOT / "studies" / "scripts" / "speed.py"


def measured():
    curve = scaling.curve((1, 2, 4), [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    rates = {"bandwidth": 1e10, "bandwidth_of_main_memory": 1e10, "matrix": 1e11, "vector": 5e10}
    widths = (784, 400, 400, 10)
    limit = {
        "rates": rates,
        "units": 400,
        "plain": floor.distance(floor.plain_passes(widths, 128), rates, [4.0]),
        "variational": floor.distance(floor.bayesian_passes(widths, 128), rates, [8.0]),
    }
    row = {"library": "torchbnn", "what": "variational, normal", "version": "1.2", "ms": 15.0, "ratio": 7.5}
    return {
        "cpu": {
            "machine": machine.describe(),
            "parts": {
                "step/mixture": {"ratio": 1.45, "ratio_quartiles": [1.4, 1.5], "ratio_to_compiled_plain": 1.7},
                "scaling/draws": {"curves": {"draws": curve}},
                "floor/400": limit,
                "fleet/networks": {"rows": [{"networks": 3, "us_per_network": 812.0, "quartiles": [800.0, 830.0]}]},
                "peers": {
                    "plain_ms": 2.0,
                    "rows": [row | {"ratio_quartiles": [7.0, 8.0], "to_ours": 5.0}],
                    "skipped": {"posteriors": "no wheel"},
                },
                "hmc": {"failed": "ValueError: not here"},
            },
        },
        "cuda": {
            "machine": machine.describe() | {"gpu": "Card", "gpu_memory_gib": 1.0, "cuda": "13.0"},
            "parts": {"epochs/400": {"seconds_of_600_epochs": 30.0}},
        },
    }


def test_the_page_says_what_was_measured():
    text = speed_page.page(measured(), "Found by hand.", ["speed-peers.png"])
    rows = [line for line in text.splitlines() if line.startswith("|")]

    def row(*words):
        return next(line for line in rows if all(word in line for word in words))

    assert "| 1.45 [1.4, 1.5] | reached |" in row("training step / plain step, scale mixture")
    assert "| 1.7 | missed by 36% | earlier |" in row("compiled plain step, scale mixture")
    assert "| – | not measured |" in row("plain step, normal prior")
    assert "| 25 s | 30 s | missed by 20% |" in row("GPU", "600 epochs")
    assert "| 15 | 7.5 [7, 8] | 5.0 |" in row("torchbnn 1.2")
    assert "| 1 to 4 | 1 to 4 | 1.00 | linear or better |" in row("a step with draws")
    assert "| 3 | 812 [800, 830] |" in row("CPU", "812")
    # 4 bytes of 19 vectors of 478,410 less the first matrix, once.
    assert f"| {4 * (19 * 478_410 - 313_600) / 1e6:.1f} |" in row("variational, 400 units")
    assert "posteriors was left out: no wheel." in text
    assert "Not measured: CPU hmc: ValueError: not here." in text
    assert "Found by hand." in text.partition(speed_page.START)[2].partition(speed_page.END)[0]
    assert "](speed-peers.png)" in text.partition(speed_page.START)[0]
    assert "GPU: Card (1.0 GiB, CUDA 13.0)" in text


def test_the_page_answers_its_question_first():
    found = measured()
    assert speed_page.page(found).split("\n\n")[1].endswith("?")
    assert "**" not in speed_page.page(found), "no step that answers it was measured"
    found["cpu"]["machine"]["cores"] = 2
    found["cpu"]["parts"]["step/normal"] = {
        "ratio": 1.1,
        "ratio_quartiles": [1.0, 1.2],
        "ratio_to_compiled_plain": 1.148,
    }
    answer = "Compared with a plain step, a compiled variational step takes 1.15 times as long on 2 CPU cores"
    assert speed_page.page(found).split("\n\n")[2] == f"**{answer}. 3 of 5 goals for speed and memory are reached.**"
    found["cuda"]["parts"]["graphs/1200-normal"] = {"ratio": 1.086, "ratio_quartiles": [1.0, 1.1]}
    assert f"**{answer} and 1.09 times as long on one Card (1,200 units). " in speed_page.page(found)


def test_the_pictures_are_drawn_and_small(tmp_path):
    names = speed_pictures.draw_all(measured(), tmp_path)
    assert names == ["speed-peers.png", "speed-growth-cpu.png"]
    for name in names:
        assert 0 < (tmp_path / name).stat().st_size < 150_000
    assert speed_pictures.draw_all({}, tmp_path) == []


@pytest.fixture
def speed():
    spec = importlib.util.spec_from_file_location("speed", SPEED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(speed, monkeypatch, capsys):
    """The driver as a person calls it, in this process: its exit code or last words, and what it printed."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["speed.py", *map(str, arguments)])
        code = 0
        try:
            speed.main()
        except SystemExit as stopped:
            code = stopped.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_parts_are_named_kept_and_merged(run, tmp_path):
    everything = run("--list", "--device", "cuda")[1].split()
    assert {"graphs/mixture", "epochs/400", "fleet/grid", "floor/400"} <= set(everything)
    out = tmp_path / "speed.json"
    assert run("--quick", "--only", "memory", "--out", out)[0] == 0
    kept = json.loads(out.read_text())
    assert kept["cpu"]["parts"]["memory"]["units"] == 16
    assert (tmp_path / "speed.md").is_file()
    # A second run measures what is missing alone, and keeps the rest.
    before = kept["cpu"]["parts"]["memory"]
    assert run("--quick", "--only", "memory", "--missing", "--out", out)[1] == ""
    assert json.loads(out.read_text())["cpu"]["parts"]["memory"] == before
    other = tmp_path / "speed-cuda.json"
    other.write_text(json.dumps({"cuda": measured()["cuda"]}))
    findings = (tmp_path / "speed.md").read_text().replace(speed_page.START, f"{speed_page.START}\nBy hand.")
    (tmp_path / "speed.md").write_text(findings)
    assert run("--merge", other, "--out", out)[0] == 0
    assert list(json.loads(out.read_text())) == ["cpu", "cuda"]
    page = (tmp_path / "speed.md").read_text()
    assert "By hand." in page
    assert "30 s" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "stp"], "there is no part 'stp'; known: step/mixture"),
        (["--merge", "absent.json"], "there is no file absent.json"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
    ],
)
def test_bad_input_of_the_driver_is_one_line(run, arguments, words, tmp_path):
    code, _, said = run(*arguments, "--out", tmp_path / "speed.json")
    assert code
    assert words in f"{code} {said}"


def test_a_part_that_fails_is_recorded_and_the_others_go_on(run, monkeypatch, tmp_path):
    def broken(**_):
        raise RuntimeError("no compiler\nhere")

    monkeypatch.setattr(memory, "measure", broken)
    out = tmp_path / "speed.json"
    assert run("--quick", "--only", "memory,fleet/ensemble", "--out", out)[0] == 0
    parts = json.loads(out.read_text())["cpu"]["parts"]
    assert parts["memory"]["failed"] == "RuntimeError: no compiler here"
    assert "ratio" in parts["fleet/ensemble"]


def test_steps_are_told_from_the_process_whose_plain_steps_were_fastest(speed, monkeypatch):
    found = iter([(1.0, 4.0), (1.3, 2.5), (1.2, 2.6)])

    def process(command, check):
        ratio, plain = next(found)
        out = Path(command[command.index("--out") + 1])
        part = command[command.index("--only") + 1]
        assert "--once" in command
        assert check
        out.write_text(json.dumps({"cpu": {"parts": {part: {"ratio": ratio, "plain_ms": plain}}}}))

    monkeypatch.setattr(speed.subprocess, "run", process)
    told = speed.least_disturbed("step/normal", "plain_ms")
    assert told == {"ratio": 1.3, "plain_ms": 2.5, "ratios_of_all_processes": [1.0, 1.3, 1.2]}


def test_numbers_have_three_digits_and_no_exponent():
    assert speed_page.number(10478.0) == "10,500"
    assert speed_page.number(4082.0, (3951.0, 4140.0)) == "4,080 [3,950, 4,140]"
    assert [speed_page.digits(value) for value in (999.7, 99.94, 0.01234)] == ["1,000", "99.9", "0.0123"]
