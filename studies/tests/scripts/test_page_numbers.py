"""The measured numbers in the pages of docs/ are those of docs/results, or are computed again here."""

import importlib
import json
import math
from pathlib import Path

import pytest
import torch
from scipy import integrate, special, stats

import bayesify as bf

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture
def numbers(monkeypatch):
    # The file stands on the one beside it.
    monkeypatch.syspath_prepend(str(ROOT / "studies" / "scripts"))
    return importlib.import_module("page_numbers")


def page(name):
    return (ROOT / "docs" / name).read_text()


def said_in(name):
    return " ".join(page(name).split())


def results(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_every_page_has_the_numbers_of_the_files(numbers):
    for name, texts in numbers.STATED.items():
        assert numbers.refreshed(page(name), texts, RESULTS) == page(name), (
            f"docs/{name} is older than docs/results: python studies/scripts/page_numbers.py"
        )


def test_other_numbers_in_the_files_are_noticed_and_words_stay(numbers, tmp_path):
    def tripled(found):
        if isinstance(found, dict):
            return {key: tripled(value) for key, value in found.items()}
        if isinstance(found, list):
            return [tripled(value) for value in found]
        return found if isinstance(found, str | bool | None) else 3 * found

    for name in ("speed", "moments", "pages"):
        (tmp_path / f"{name}.json").write_text(json.dumps(tripled(results(name))))
    for name, texts in numbers.STATED.items():
        for text in texts:
            assert numbers.refreshed(page(name), [text], tmp_path) != page(name), text
        other = numbers.refreshed(page(name), texts, tmp_path)
        assert numbers.refreshed(other, texts, RESULTS) == page(name)


def test_a_text_that_a_page_has_not_or_has_twice_is_refused(numbers):
    text = "took {speed:cpu.parts.hmc.ratio_eager:.1f} times"
    assert numbers.refreshed("It took\n9.9 times.", [text], RESULTS).startswith("It took\n1")
    for broken in ("It took long.", "It took 9.9 times and took 9.9 times."):
        with pytest.raises(ValueError, match="must have this text once"):
            numbers.refreshed(broken, [text], RESULTS)


def test_the_ranges_are_those_of_the_runs():
    distances = results("hmc-distance")["numbers"]["data"]
    found = [one["r_hat_weights"] for name in ("moons", "circles") for one in distances[name]["reference"]["diagnoses"]]
    assert f"({min(found):.3f} to {max(found):.3f} in the converged runs on moons and circles" in said_in(
        "methods/hmc.md"
    )
    rows = results("speed")["cpu"]["parts"]["predict"]["gaussian_logits"]
    eager, compiled = ([row[name] for row in rows] for name in ("ratio", "ratio_to_compiled_plain"))
    assert (
        f"takes {min(eager):.2f} to {max(eager):.2f} times the plain eager one and "
        f"{min(compiled):.2f} to {max(compiled):.2f} times a plain one"
    ) in said_in("prediction.md")
    units = results("pages")["intervals"]["units"]
    wide, narrow = (units[name]["coverage"]["values"] for name in ("50", "10"))
    assert (
        f"50 hidden units cover {min(wide):.0%} to {max(wide):.0%} of the other rows, those of 10 units "
        f"{min(narrow):.0%} to {max(narrow):.0%}"
    ) in said_in("gotchas.md")


def test_what_is_said_in_words_is_so():
    assert {one["labels_changed"] for one in results("moments")["bfloat16"].values()} == {0.0}
    scored = results("demo")
    ours = scored["Variational"]
    worse = [digit for digit, plain in scored["Plain network"].items() if ours[digit]["auroc"] <= plain["auroc"]]
    assert worse == ["9"]
    assert "beats the plain network's AUROC on nine digits of ten" in said_in("demo.md")


def test_the_exact_answers_of_the_examples():
    said = said_in("methods/exact.md")
    assert "({:.3f}, {:.3f})".format(*bf.exact.Coin(a=1, b=1).observe(heads=3).interval(0.95)) in said
    for heads in (3, 40):
        points = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
        grid = bf.exact.Grid(
            lambda theta, heads=heads: heads * torch.log(theta), theta=points, bounds={"theta": (0, 1)}
        )
        error = grid.truncation_error()
        mean, spacing, edges = float(grid.mean), float(error.spacing), float(error.edges)
        assert f"| {mean:.4f} | {mean - spacing - edges:.4f} | {(heads + 1) / (heads + 2):.4f} |" in said
        assert heads != 3 or f"spacing {spacing:.4f}, edges {edges:.4f}" in said


def test_the_computed_numbers_of_the_gotchas():
    said = said_in("gotchas.md")
    average, _ = integrate.quad(lambda z: special.expit(z) * stats.norm.pdf(z, 2, 3), -25, 29)
    assert f"the first gives {special.expit(2):.2f} and the second {average:.2f}" in said
    width = math.log1p(math.exp(-3))
    kl = 478_410 * (-math.log(width) - 0.5 + width**2 / 2)
    assert f"a KL of about {kl / 1e6:.1f} million nats: {kl / 60_000:.0f} per example" in said
