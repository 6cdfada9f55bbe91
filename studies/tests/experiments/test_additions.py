"""Additions to published pages, the queue that computes them, and what the new ones conclude from their parts."""

import json

import pytest
import torch

from bayesify import Variational, networks
from bayesify.likelihoods import Categorical
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework import queue
from bayesify_studies.experiments.framework.additions import Added, Addition, extend, join
from bayesify_studies.experiments.framework.code_state import digest
from bayesify_studies.experiments.framework.evidence import loss_per_example
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture, Table
from bayesify_studies.experiments.framework.page import _code
from bayesify_studies.experiments.framework.work import SEVERAL, Work
from bayesify_studies.experiments.study_b import long_steps
from bayesify_studies.experiments.study_d import grid_winner


def _square(number):
    return {"square": number * number}


def _fail():
    raise RuntimeError("this part never works")


def _tell(_, found, numbers):
    total = sum(part["square"] for part in found.values()) + numbers["before"]
    return Added({"total": total}, tables=[Table("Squares", ["", "total"], [["all", str(total)]])], shortfalls=["few"])


SQUARES = Addition("squares", lambda work: {f"square-{n}": (_square, n) for n in work["numbers"]}, _tell)


def _published():
    return {
        "numbers": {"before": 100},
        "lines": [],
        "tables": [{"title": "Old", "headings": [""], "rows": [], "note": ""}],
        "shortfalls": ["old"],
        "settings": {"seeds": 5},
    }


def test_an_addition_joins_a_published_page_once_and_says_who_computed_it(tmp_path):
    work = Work(tmp_path, {"numbers": [2, 3]})
    assert join(_published(), work, SQUARES) is None
    work.every(SQUARES.parts(work))
    joined = join(_published(), work, SQUARES)
    again = join(joined, work, SQUARES)
    assert joined == again
    assert joined["numbers"] == {"before": 100, "squares": {"total": 113}}
    assert [table["title"] for table in joined["tables"]] == ["Old", "Squares"]
    assert joined["shortfalls"] == ["old", "few"]
    (added,) = joined["added"]
    assert added["machines"]
    assert added["dates"]
    assert list(added["code"]) == [__name__]
    assert json.loads(json.dumps(joined)) == joined


def test_an_addition_with_missing_parts_joins_only_where_it_may(tmp_path):
    work = Work(tmp_path, {"numbers": [2, 3]})
    work.once("square-3", _square, 3)
    assert join(_published(), work, SQUARES) is None
    partial = Addition("squares", SQUARES.parts, _tell, whole=False)
    assert join(_published(), work, partial)["numbers"]["squares"] == {"total": 109}


def test_a_picture_of_an_addition_replaces_its_namesake_or_stands_first_where_it_says_more(tmp_path):
    def joined(file, *, first):
        one = Addition("more", lambda _: {}, lambda *_: Added({}, pictures=[Picture(file, "new")], first=first))
        old = [{"file": "page-a.svg", "caption": "old"}, {"file": "page-b.svg", "caption": "old"}]
        found = join(_published() | {"name": "page", "pictures": old}, Work(tmp_path, {}), one)
        return [(picture["file"], picture["caption"]) for picture in found["pictures"]]

    a, b, c = ((f"page-{name}.svg", caption) for name, caption in (("a", "old"), ("b", "old"), ("c", "new")))
    assert joined("c.svg", first=True) == [c, a, b]
    assert joined("c.svg", first=False) == [a, b, c]
    assert joined("b.svg", first=True) == [a, ("page-b.svg", "new")]


def test_an_addition_does_not_hide_that_the_code_of_the_rest_has_changed(tmp_path):
    """The module of an addition may have computed the rest of the page too, in an earlier state."""
    module = "bayesify_studies.experiments.coin"
    page = {"commit": "e148902", "code": {module: "earlier"}, "added": [{"code": {module: digest(module)}}]}
    assert _code(page).endswith("has changed since the result was computed. Changed modules: coin.")
    assert "not changed" in _code(page | {"code": {module: digest(module)}})
    assert _code(page | {"code": {module: digest(module)}, "added": [{"code": {module: "x"}}]}).endswith(": coin.")


def test_parts_of_different_code_have_no_state_in_common(tmp_path):
    work = Work(tmp_path, {"numbers": [2, 3]})
    work.every(SQUARES.parts(work))
    (same,) = work.cost().code.values()
    assert same not in (None, SEVERAL)
    file = tmp_path / "parts" / "square-3.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"code": {__name__: "earlier"}}))
    assert work.cost().code == {__name__: SEVERAL}


def test_reproduce_computes_additions_with_the_rest(tmp_path):
    findings = Findings("an answer", [], {"before": 1})
    extend(findings, Work(tmp_path, {"numbers": [4]}), [SQUARES])
    assert findings.numbers["squares"] == {"total": 17}
    assert [table.title for table in findings.tables] == ["Squares"]


def test_a_part_that_fails_does_not_stop_the_queue_and_no_part_is_computed_twice(tmp_path, monkeypatch, capsys):
    parts = {"a-wrong": (_fail,), "a-good": (_square, 3), "b-begun": (_square, 4), "b-other": (_square, 5)}
    experiment = Experiment("coin", "", "", "", lambda _: None, {}, {}, parts=lambda _: parts)
    monkeypatch.setattr(queue, "find", lambda _: experiment)
    (tmp_path / "coin" / "begun").mkdir(parents=True)
    (tmp_path / "coin" / "experiment.json").write_text('{"experiment": "coin", "preset": "quick", "settings": {}}')
    (tmp_path / "coin" / "begun" / "b-begun").touch()
    failed = queue.compute([("coin", "b"), ("coin", "a")], tmp_path, "quick", "cpu", 60.0)
    assert failed == ["coin:a-wrong"]
    assert "this part never works" in capsys.readouterr().out
    assert {file.stem for file in (tmp_path / "coin" / "parts").iterdir()} == {"a-good", "b-other"}
    assert queue.compute([("coin", "")], tmp_path, "quick", "cpu", -1.0) == []


def test_the_loss_counts_the_whole_kl_and_every_example():
    torch.manual_seed(0)
    x, y = torch.randn(2300, 4), torch.randint(0, 3, (2300,))
    method = Variational(networks.mlp(4, 3, units=5), Categorical(classes=3), prior="normal:1", seed=1)
    method.fit((x, y), epochs=1, kl="uniform,temperature=0.1", progress=False)
    found = loss_per_example(method, x, y, draws=7)
    exact = -float(method.likelihood.log_prob(method.draw(x, draws=7), y).double().mean())
    assert found["nll"] == pytest.approx(exact, rel=1e-6)
    # The KL of two normals, by hand.
    mean, width = method.mu.detach().double(), method.std.detach().double()
    kl = float((0.5 * (mean**2 + width**2 - 1) - width.log()).sum()) / 2300
    assert found["kl"] == pytest.approx(kl, rel=1e-4)
    assert found["loss"] == found["nll"] + found["kl"]


def test_the_longest_stable_step_ends_at_the_first_rate_that_hurts():
    def row(diverged, *errors):
        return {"diverged": diverged, "errors": list(errors)}

    rates = {"0.256": row(0, 0.1), "0.064": row(0, 0.12, 0.13), "0.128": row(1, 0.12), "0.032": row(0, 0.14)}
    assert long_steps.longest(rates, 0.2) == 0.064
    assert long_steps.longest({"0.1": row(0, 0.13, 0.5)}, 0.2) is None
    assert long_steps.longest({"0.1": row(3)}, 0.2) is None


def test_the_page_says_for_which_data_the_studys_rate_is_too_large(tmp_path):
    def part(length, longest):
        rates = ("0.032", "0.064", "0.128", "0.256")
        good = {rate: {"diverged": 0, "errors": [0.1]} for rate in rates if float(rate) <= longest}
        return {"squared_length": length, "rates": {rate: {"diverged": 2, "errors": []} for rate in rates} | good}

    work = Work(tmp_path, find("fashion-table").settings("full"))
    found = {"steps-fashion-mnist-126-800": part(662.0, 0.064), "steps-mnist-126-800": part(331.0, 0.128)}
    told = long_steps.tell(work, found, {})
    (line,) = told.lines
    assert line.ours == "0.064 and 0.128"
    assert "is 0.128: for Fashion-MNIST it is too large; for MNIST it is stable." in line.meaning
    assert "2.0 times as large. Rate times squared length is 42 and 42; the" in line.meaning
    assert "not the whole reason" not in line.meaning
    (line,) = long_steps.tell(work, found | {"steps-fashion-mnist-255-800": part(165.5, 0.128)}, {}).lines
    assert "4.0 times smaller and its largest stable rate 2 times larger, so the length is not" in line.meaning
    assert not long_steps.tell(work, {"steps-mnist-126-800": part(331.0, 0.128)}, {}).lines


def test_a_rate_at_which_a_network_diverged_is_never_chosen():
    found = {
        "0.1": {"errors": [0.02, 0.03], "nll": [0.1, 0.1], "diverged": 0},
        "0.2": {"errors": [0.01], "nll": [0.1], "diverged": 1},
        "0.3": {"errors": [], "nll": [], "diverged": 2},
    }
    assert grid_winner.chosen(found) == 0.1


@pytest.mark.parametrize("name", ["mnist-table", "fashion-table"])
def test_plain_networks_and_dropout_get_as_many_settings_as_the_mixture(name):
    settings = find(name).settings("full")
    tried = {kind: len(rows) for kind, rows in settings["equal_care"]["kinds"].items()}
    assert tried == dict.fromkeys(("plain", "dropout"), len(settings["ways"]["ours"]["kinds"]["mixture"]))
    for one in settings["whole_kl"]:
        assert one["setting"]["kl"] == "uniform"
