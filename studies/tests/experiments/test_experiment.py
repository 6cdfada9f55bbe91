"""What every experiment stands on: parts that are kept, numbers with intervals, pages, and the command."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from bayesify.cli.app import main
from bayesify.errors import RunError
from bayesify.evaluation.seed_statistics import (
    between,
    error_of_share,
    estimate,
    paired,
    percent,
    settled,
    settled_together,
)
from bayesify.jobs import make_engine
from bayesify_studies import experiments
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.page import markdown, webpage
from bayesify_studies.experiments.framework.publishing import publish
from bayesify_studies.experiments.framework.work import Work

CALLS = []


def square(number):
    CALLS.append(number)
    if number == 13:
        raise KeyboardInterrupt
    return {"square": number * number}


def squares(work):
    found = [work.once(f"of-{number}", square, number) for number in work["numbers"]]
    rows = [[str(n), str(one["square"])] for n, one in zip(work["numbers"], found, strict=True)]
    return Findings(
        answer="Squares | are squares.",
        lines=[Line("the last", "unknown", rows[-1][1], "nothing")],
        numbers={"last": found[-1]["square"]},
        tables=[Table("All", ["number", "square"], rows)],
        pictures=[Picture(work.figure("curve", _figure()), "A line.")],
    )


def _figure():
    from bayesify.plots import style

    figure = style.new_figure(3, 2)
    figure.add_subplot().plot([0, 1], [0, 1])
    return figure


@pytest.fixture
def experiment():
    CALLS.clear()
    return Experiment(
        "squares", "Squares", "Z", "What are squares?", squares, {"numbers": [2, 3]}, {"numbers": [2, 13]}
    )


def test_an_estimate_has_the_t_interval_that_scipy_gives():
    values = np.random.default_rng(0).normal(3, 2, 7)
    found = estimate(values.tolist())
    low, high = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert found["interval"] == pytest.approx([low, high])
    assert found["standard_error"] == pytest.approx(stats.sem(values))
    assert "interval" not in estimate([1.0])


def test_a_paired_difference_is_the_t_test_on_pairs():
    rng = np.random.default_rng(1)
    shared = rng.normal(0, 10, 12)
    first, second = shared + rng.normal(0.5, 0.3, 12), shared
    found = paired(first, second)
    p_value = stats.ttest_rel(first, second).pvalue
    # What both share is ten times the difference: unpaired it could not be told.
    assert stats.ttest_ind(first, second).pvalue > 0.5
    assert (p_value < 0.05) == (settled(found) != 0)
    assert settled(found) == 1
    assert settled(paired(second, first)) == -1
    assert settled(estimate([1.0])) == 0


def test_many_differences_are_settled_together_as_bonferroni_says():
    rng = np.random.default_rng(2)
    values = [rng.normal(0.12 * place, 0.3, 9).tolist() for place in range(12)]
    found = [estimate(one) for one in values]
    p_values = np.array([stats.ttest_1samp(one, 0).pvalue for one in values])
    assert sum(settled(one) != 0 for one in found) == (p_values < 0.05).sum()
    assert settled_together(found) == (p_values < 0.05 / 12).sum()
    assert 0 < settled_together(found) < (p_values < 0.05).sum()
    assert settled_together([estimate([1.0])]) == 0


def test_what_a_page_shows_of_an_estimate():
    found = estimate([0.012, 0.014])
    assert percent(found) == "1.30 ± 0.10%"
    assert between({"mean": 1.0}) == "one seed: no interval"
    assert between(found, "+.3f").startswith("95% interval ")


def test_a_stopped_experiment_repeats_nothing_that_is_done(tmp_path, experiment):
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, tmp_path / "e", preset="full", progress=False)
    assert CALLS == [2, 13]
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, tmp_path / "e", preset="full", progress=False)
    assert CALLS == [2, 13, 13]
    # Whatever computed the part, the experiment goes on from its file.
    (tmp_path / "e/parts/of-13.json").write_text('{"square": 169, "seconds": 5.0, "machine": "another"}')
    found = reproduce(experiment, tmp_path / "e", preset="full", progress=False)
    assert found["numbers"] == {"last": 169}
    assert found["seconds"] >= 5.0
    assert "another" in found["machines"]
    assert len(CALLS) == 3


def test_what_killed_processes_left_neither_stays_nor_stands_in_the_way(tmp_path, experiment, dead_process):
    out = tmp_path / "e"
    out.mkdir()
    (out / f".experiment.json.{dead_process}.1").write_text("half")
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, out, preset="full", progress=False)
    for name in ("parts/.of-2.json", ".report.html"):
        (out / f"{name}.{dead_process}.1").write_text("half")
    (out / "parts/of-13.json").write_text('{"square": 169, "seconds": 5.0, "machine": "another"}')
    reproduce(experiment, out, preset="full", progress=False)
    assert list(out.rglob(".*")) == []


def test_a_finished_experiment_is_read_and_another_question_is_refused(tmp_path, experiment):
    first = reproduce(experiment, tmp_path / "e", progress=False)
    assert reproduce(experiment, tmp_path / "e", progress=False) == first
    assert CALLS == [2, 3]
    with pytest.raises(RunError, match="holds another experiment"):
        reproduce(experiment, tmp_path / "e", preset="full", progress=False)
    reproduce(experiment, tmp_path / "e", overwrite=True, progress=False)
    assert CALLS == [2, 3, 2, 3]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    with pytest.raises(RunError, match="holds no experiment of ours"):
        reproduce(experiment, tmp_path / "mine", progress=False)


def test_the_command_asks_for_the_device_that_computed_the_parts(tmp_path, experiment):
    gpu, cpu = "NVIDIA H200, x86_64, 1 thread, torch 2.11.0", "x86_64, 2 threads, torch 2.11.0"
    cases = (([gpu, gpu], " --device cuda"), ([cpu, gpu], " --device cuda"), ([cpu, "2 CPU threads"], ""))
    for number, (machines, ending) in enumerate(cases):
        folder = tmp_path / str(number)
        (folder / "parts").mkdir(parents=True)
        for (name, square), machine in zip((("of-2", 4), ("of-3", 9)), machines, strict=True):
            part = {"square": square, "seconds": 1.0, "machine": machine}
            (folder / "parts" / f"{name}.json").write_text(json.dumps(part))
        question = {"experiment": "squares", "preset": "quick", "settings": {"numbers": [2, 3]}}
        (folder / "experiment.json").write_text(json.dumps(question))
        found = reproduce(experiment, folder, progress=False)
        assert found["command"] == "bayesify reproduce squares --preset quick" + ending
    assert CALLS == []


def test_pages_and_published_copies_say_the_same(tmp_path, experiment):
    reproduce(experiment, tmp_path / "e", progress=False)
    page = (tmp_path / "e/page.md").read_text()
    assert "| the last | unknown | 9 | nothing |" in page
    assert "| 3 | 9 |" in page
    assert "(figures/curve.svg)" in page
    html = (tmp_path / "e/report.html").read_text()
    assert "Squares | are squares." in html
    assert "data:image/svg+xml," in html
    written = publish(tmp_path / "e", tmp_path / "docs")
    assert sorted(path.name for path in written) == ["squares-curve.svg", "squares.json", "squares.md"]
    assert "(squares-curve.svg)" in (tmp_path / "docs/squares.md").read_text()
    assert json.loads((tmp_path / "docs/squares.json").read_text())["numbers"] == {"last": 9}
    contents = (tmp_path / "docs/README.md").read_text()
    assert "Not yet here: coin, line," in contents
    assert "[speed.md]" not in contents
    with pytest.raises(RunError, match="no finished experiment"):
        publish(tmp_path / "docs", tmp_path / "elsewhere")


def test_a_page_has_a_column_for_published_numbers_only_if_there_are_some(tmp_path, experiment):
    results = reproduce(experiment, tmp_path / "e", progress=False)
    assert "| published | ours |" in markdown(results, "")
    alone = results | {"lines": [line | {"published": "none"} for line in results["lines"]]}
    assert "|  | result | what it means |" in markdown(alone, "")
    assert "| the last | 9 | nothing |" in markdown(alone, "")
    assert "Published and ours" not in webpage(alone, tmp_path / "e/figures")


def test_parts_in_processes_of_their_own_are_the_same(tmp_path):
    parts = {f"root-{n}": (root, n) for n in (4, 9, 16)}
    alone = Work(tmp_path / "a", {}, progress=False).every(parts)
    several = Work(tmp_path / "b", {}, engine=make_engine(jobs=2), progress=False).every(parts)
    assert {name: part["root"] for name, part in alone.items()} == {
        name: part["root"] for name, part in several.items()
    }
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        Work(tmp_path / "b", {}, engine=make_engine(jobs=2), progress=False).every(
            {"bad": (root, -1), "worse": (root, -2)}
        )


def root(number):
    return {"root": math.sqrt(number)}


def test_the_command_names_runs_and_refuses(tmp_path, capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert [one["name"] for one in listed] == list(experiments.NAMES)
    assert all(one["question"].endswith("?") for one in listed)
    out = ["--out", str(tmp_path / "runs")]
    assert main(["reproduce", "coin", "line", "--json", *out]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert found["coin"]["numbers"]["heads_3_tails_0"]["exact"] == pytest.approx(4 / 5)
    assert found["line"]["numbers"]["exact"]["slope"] == pytest.approx(2.9205, abs=5e-5)
    for wrong, said in (
        (["coyn"], "did you mean 'coin'?"),
        (["coin", "--preset", "huge"], "unknown preset 'huge'"),
        (["coin", "--jobs", "0"], "jobs must be an integer of at least 1"),
        (["coin", "--device", "abacus"], "cannot use device 'abacus'"),
    ):
        assert main(["reproduce", *wrong, "--out", str(tmp_path / "wrong")]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_the_coins_grid_errs_as_it_says(tmp_path):
    from bayesify_studies.experiments.coin import on_grid

    # The lecture prints 0.7793 and 0.9437; the exact answers are (heads + 1) / (tosses + 2).
    for heads, tails, printed in ((3, 0, 0.7793), (40, 0, 0.9437)):
        found = on_grid(heads, tails, 19)
        assert found["grid"] == pytest.approx(printed, abs=5e-5)
        assert found["exact"] == pytest.approx((heads + 1) / (heads + tails + 2))
        assert found["predicted"] == pytest.approx(found["grid"] - found["exact"], rel=0.01)


def test_the_standard_error_of_a_share_is_how_far_shares_lie_apart():
    shares = np.random.default_rng(0).binomial(10_000, 0.0146, size=20_000) / 10_000
    # The standard deviation of n numbers is known to one part in the root of 2n.
    assert error_of_share(0.0146, 10_000) == pytest.approx(shares.std(), rel=4 / math.sqrt(40_000))
