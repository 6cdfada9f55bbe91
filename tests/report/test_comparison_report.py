"""The comparison: the numbers of the evaluations, the examples it says, and every way that something can be missing."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import bayesify as bf
from bayesify.evaluation import score
from bayesify.evaluation.pruning import PruningCurve
from bayesify.report import MethodResult, comparison_report, hero_figure
from bayesify.report.posterior import _how_far
from bayesify.report.shown_examples import easiest_known, gallery, most_telling_unknown, surest_unknown

NAMES = ["<script>alert(1)</script>", "a name that is much too long to fit anywhere $x^2$", "c"]


def result(method, label, x, y, unknown=None, **settings):
    known, other = method.predict(x, draws=10), None if unknown is None else method.predict(unknown, draws=10)
    return MethodResult(
        method.name, label, method, score(known, y, other), known, y, other, history=method.history, **settings
    )


@pytest.fixture(scope="module")
def images():
    """Three kinds of 6 x 6 image that networks learn, and one kind that they never see."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.rand(4, 6, 6, generator=generator)
    labels = torch.arange(120) % 4
    shown = kinds[labels] + 0.35 * torch.randn(120, 6, 6, generator=generator)
    return shown[labels < 3], labels[labels < 3], shown[labels == 3]


@pytest.fixture(scope="module")
def results(images):
    x, y, unknown = images
    torch.manual_seed(0)
    network = bf.networks.mlp(36, 3, units=12, layers=1)
    methods = {
        "Plain network": bf.PointEstimate(network, "categorical"),
        "MC dropout": bf.MCDropout(network, "categorical", p=0.3),
        "Variational": bf.Variational(network, "categorical"),
    }
    for method in methods.values():
        method.fit((x, y), epochs=6, batch_size=30, learning_rate=0.01, progress=False)
    return [result(method, label, x, y, unknown, cost=1.0) for label, method in methods.items()]


@pytest.fixture(scope="module")
def whole(results, images, tmp_path_factory):
    x, y, unknown = images
    path = tmp_path_factory.mktemp("report") / "report.html"
    comparison_report(
        results, path=path, title="Kinds", class_names=NAMES, known=(x, y), unknown=unknown, unknown_name="the 4th kind"
    )
    return path.read_text("utf-8"), json.loads(path.with_suffix(".json").read_text("utf-8"))


def blocks(twin, kind):
    return [block for part in twin["sections"] for block in part["content"] if block["type"] == kind]


def numbers(x):
    rng = np.random.default_rng(0)
    return x, (np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=len(x))).astype(np.float32)


def test_the_table_is_the_evaluations(whole, results):
    page, twin = whole
    table, *_ = blocks(twin, "table")
    assert table["columns"][:6] == ["method", "accuracy", "NLL", "ECE", "AUROC", "accuracy at 90%"]
    for row, each in zip(table["rows"], results, strict=True):
        e = each.evaluation
        assert row[:6] == [each.label, e.accuracy, e.nll, e.ece, e.auroc, e.accuracy_at_90]
        sure = float((each.unknown.confidence >= 0.9).double().mean())
        assert row[6:] == [sure, 1.0]
        for text in (f"{e.accuracy:.2%}", f"{e.nll:.3f}", f"{e.auroc:.3f}", f"{sure:.1%}"):
            assert re.search(rf"<td>(<b>)?{re.escape(text)}(</b>)?</td>", page)


def test_the_headline_names_the_best_and_how_sure_that_is(whole, results):
    _, twin = whole
    best = max(results, key=lambda each: each.evaluation.auroc)
    assert best.label in twin["headline"][0]
    assert f"AUROC {best.evaluation.auroc:.3f}, 95% interval" in twin["headline"][0]
    assert all(each.label in twin["headline"][1] for each in results)


def test_the_page_is_safe_and_small(whole):
    page, _ = whole
    assert len(page.encode()) < 2_000_000
    assert "<script" not in page
    assert "Content-Security-Policy" in page


def test_no_row_of_the_data_is_in_the_twin(whole, images):
    _, twin = whole
    lists = [
        part for block in blocks(twin, "figure") for part in re.findall(r"\[[^\[\]]*\]", json.dumps(block["data"]))
    ]
    assert lists
    assert max(len(json.loads(part)) for part in lists) < len(images[0])


def test_the_numbers_behind_the_figures_are_those_of_the_methods(whole, results):
    _, twin = whole
    data = {key: value for block in blocks(twin, "figure") for key, value in block["data"].items()}
    for each in results:
        curve = bf.risk_coverage(each.predictive, each.targets)
        assert data["risk_coverage"][each.label]["aurc"] == pytest.approx(curve.aurc)
        assert data["risk_coverage"][each.label]["error"][-1] == pytest.approx(each.evaluation.error)
        assert data["auroc"][each.label]["value"] == pytest.approx(each.evaluation.auroc)
        low, high = data["accuracy"][each.label]["low"], data["accuracy"][each.label]["high"]
        assert low <= each.evaluation.accuracy <= high
    variational = results[-1]
    assert data["pruning"]["error"][0] == pytest.approx(variational.evaluation.error)  # nothing pruned, the same draws


def test_alerts_come_first(whole):
    page, twin = whole
    assert {alert["about"] for alert in twin["alerts"]} >= {"Variational"}
    assert page.index("Before you trust this") < page.index("<table")


def test_the_shown_images_are_the_ones_described(results):
    plain, *others = results
    surest = surest_unknown(results)
    assert float(plain.unknown.confidence[surest]) == float(plain.unknown.confidence.max())
    index = most_telling_unknown(results, 0.6)
    sure = plain.unknown.confidence >= 0.6
    doubt = torch.stack([other.unknown.confidence for other in others]).mean(0)
    assert bool(sure[index])
    assert float(doubt[index]) == pytest.approx(float(doubt[sure].min()))
    assert most_telling_unknown(results, 1.0) == surest  # no one is that sure
    index = easiest_known(results)
    assert all(int(each.predictive.labels[index]) == int(each.targets[index]) for each in results)


def test_galleries_hold_the_least_sure_and_the_surest_mistakes(results, images):
    shown = images[0].numpy()
    plain = results[0]
    _, least = gallery(plain, shown, NAMES, mistakes=False)
    others = np.delete(plain.predictive.confidence.numpy(), least)
    assert plain.predictive.confidence.numpy()[least].max() <= others.min()
    flipped = replace(plain, targets=(plain.targets + 1) % 3)
    _, wrong = gallery(flipped, shown, NAMES, mistakes=True)
    assert all(int(plain.predictive.labels[i]) != int(flipped.targets[i]) for i in wrong)
    confidence = plain.predictive.confidence[wrong]
    assert (confidence[:-1] >= confidence[1:]).all()
    right = replace(plain, targets=plain.predictive.labels)
    assert gallery(right, shown, NAMES, mistakes=True) == (None, [])


def test_the_hero_shows_every_method_on_one_unknown_image(results, images):
    figure = hero_figure(results, images[2], index=3, title="Who knows?", at_least=0.9)
    pictures, *bars = figure.axes
    assert len(bars) == 3
    assert len(pictures.images) == 1
    for axes, each in zip(bars, results, strict=True):
        heights = [bar.get_height() for bar in axes.patches]
        assert heights == pytest.approx(each.unknown.probs[3].tolist(), abs=1e-6)
        assert axes.get_title(loc="left") == each.label
        refused = float(each.unknown.confidence[3]) < 0.9
        assert ("I do not know" in axes.texts[0].get_text()) == refused
    with pytest.raises(ValueError, match="no unknown inputs"):
        hero_figure([replace(results[0], unknown=None)], images[2])


def test_one_run_alone_is_not_compared_with_others(results, images, tmp_path):
    x, y, unknown = images
    known = {"known": (x, y), "unknown": unknown, "class_names": NAMES}
    comparison_report(results[-1:], path=tmp_path / "r.html", title="One", at_least=0.1, **known)
    words = (tmp_path / "r.html").read_text("utf-8")
    assert f"Chosen because {results[-1].label} is most confidently wrong on it" in words
    assert "others" not in words
    twin = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert twin["headline"][1].startswith(
        "No label is right for the unknown class. Share of these inputs with at least"
    )
    # The columns of a single run say once what they are.
    assert words.count(">recall<") == 1


def test_one_run_without_unknown_inputs_images_or_mistakes(results, images, tmp_path):
    x, _, _ = images
    only = results[0]
    targets = only.predictive.labels
    alone = replace(only, unknown=None, cost=None, targets=targets, evaluation=score(only.predictive, targets))
    comparison_report([alone], path=tmp_path / "r.html", title="One", known=(x, targets))
    twin = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert "100.0%" in twin["headline"][0]
    table, *_ = blocks(twin, "table")
    e = alone.evaluation
    assert [row[:2] for row in table["rows"]] == [
        ["accuracy", e.accuracy],
        ["NLL", e.nll],
        ["ECE", e.ece],
        ["accuracy at 90%", e.accuracy_at_90],
    ]
    assert all(len(row[2]) > 20 for row in table["rows"])  # what it is, in words
    assert any("No method made a mistake" in block["text"] for block in blocks(twin, "text"))


def test_two_examples_are_enough(results, tmp_path):
    few = []
    for each in results[:2]:
        known, other = each.predictive[:2], each.unknown[:1]
        few.append(
            replace(
                each,
                predictive=known,
                unknown=other,
                targets=each.targets[:2],
                evaluation=score(known, each.targets[:2], other),
            )
        )
    comparison_report(few, path=tmp_path / "r.html", title="Few")
    assert "<table" in (tmp_path / "r.html").read_text("utf-8")


def test_a_table_of_two_inputs_gets_surfaces(blobs, tmp_path):
    x, y = blobs
    method = bf.Ensemble(bf.networks.mlp(2, 3, units=8, layers=1), "categorical", members=2)
    method.fit((x, y), epochs=2, progress=False)
    comparison_report([result(method, "Ensemble", x, y)], path=tmp_path / "r.html", title="Blobs", known=(x, y))
    twin = json.loads((tmp_path / "r.json").read_text("utf-8"))
    titles = [part["title"] for part in twin["sections"]]
    assert "Over the plane of the two inputs" in titles
    assert "One image at a time" not in titles


def test_a_regression_has_intervals_and_bands(tmp_path):
    x, y = numbers(np.linspace(-1, 1, 60, dtype=np.float32)[:, None])
    method = bf.Variational(bf.networks.mlp(1, 1, units=8, layers=1), bf.likelihoods.Gaussian(noise=0.2))
    method.fit((x, y), epochs=2, progress=False)
    given = result(method, "Variational", torch.tensor(x), torch.tensor(y))
    comparison_report([given], path=tmp_path / "r.html", title="Line", known=(x, y))
    twin = json.loads((tmp_path / "r.json").read_text("utf-8"))
    wanted = ["Scores", "Predicted against true", "Do the intervals hold?", "The fit"]
    assert [part["title"] for part in twin["sections"]][:4] == wanted
    e = given.evaluation
    scores = {row[0]: row[1] for row in blocks(twin, "table")[0]["rows"]}
    assert scores == {"RMSE": e.rmse, "MAE": e.mae, "NLL": e.nll, "CRPS": e.crps, "95% intervals": e.coverage_95}
    inside = blocks(twin, "figure")[1]["data"]["Variational"]["inside"]
    assert inside[-1] == pytest.approx(e.coverage_95, abs=1e-9)


@pytest.mark.parametrize(
    "errors, words",
    [([0.1, 0.1, 0.105, 0.5], "90% of"), ([0.1, 0.2, 0.1, 0.1], "as soon as"), ([0.0, 0.0, 0.0, 0.0], "95% of")],
)
def test_how_far_pruning_goes_is_told_step_by_step(errors, words):
    assert words in _how_far(PruningCurve("snr", "draws", [0.0, 0.5, 0.9, 0.95], errors, errors))


def test_what_cannot_be_compared_is_refused(results, images, tmp_path):
    x, y, unknown = images
    settings = {"path": tmp_path / "r.html", "title": "t"}
    with pytest.raises(ValueError, match="at least one result"):
        comparison_report([], **settings)
    with pytest.raises(ValueError, match="different labels"):
        comparison_report([results[0], results[0]], **settings)
    with pytest.raises(ValueError, match=r"sets of \[5, 90\] examples"):
        comparison_report([results[0], replace(results[1], predictive=results[1].predictive[:5])], **settings)
    with pytest.raises(ValueError, match="each of 3 classes, got 2"):
        comparison_report(results, class_names=["a", "b"], **settings)
    with pytest.raises(ValueError, match="each of 90 predictions, got 3"):
        comparison_report(results, known=(x[:3], y[:3]), **settings)
    with pytest.raises(ValueError, match="30 images like its predictive, got 2"):
        comparison_report(results, known=(x, y), unknown=unknown[:2], **settings)
    with pytest.raises(ValueError, match="at_least"):
        comparison_report(results, at_least=1.5, **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_lead_that_chance_could_make_is_not_called_one(monkeypatch):
    from types import SimpleNamespace

    from bayesify.report import headlines

    class Named(SimpleNamespace):
        __hash__ = object.__hash__

    generator = torch.Generator().manual_seed(0)
    known, unknown = torch.randn(200, generator=generator), torch.randn(60, generator=generator) + 2
    by = {"Plain": unknown - 1.6, "Sharp": unknown, "Rival": unknown + 0.1 * torch.randn(60, generator=generator)}
    results = [
        Named(label=label, method=Named(name="point" if label == "Plain" else "other"), uncertainties=(known, scores))
        for label, scores in by.items()
    ]
    monkeypatch.setattr(headlines, "uncertainties", lambda result: result.uncertainties)
    text = headlines._notices_best(results, "the digit 3")
    assert "no significant difference from Rival" in text or "no significant difference from Sharp" in text
    assert "from Plain" not in text


def test_methods_that_are_level_as_printed_are_all_in_the_headline(monkeypatch):
    from types import SimpleNamespace

    from bayesify.report import headlines

    class Named(SimpleNamespace):
        __hash__ = object.__hash__

    generator = torch.Generator().manual_seed(0)
    known, unknown = torch.randn(200, generator=generator), torch.randn(60, generator=generator) + 2

    def headline(by):
        results = [
            Named(label=label, method=Named(name="point" if label == "Plain" else "other"), uncertainties=(known, part))
            for label, part in by.items()
        ]
        return headlines._notices_best(results, "the digit 3")

    monkeypatch.setattr(headlines, "uncertainties", lambda result: result.uncertainties)
    text = headline({"Plain": unknown - 1.6, "Sharp": unknown, "Rival": unknown.clone()})
    assert text.startswith("Sharp and Rival notice the digit 3 best (AUROC 0.")
    assert "95% intervals" in text
    level = headline({"Plain": unknown.clone(), "Sharp": unknown})
    assert level.startswith("No method notices the digit 3 better than Plain (AUROC 0.")


def test_methods_that_are_level_in_accuracy_are_all_in_the_headline():
    from bayesify.evaluation.results import Spread
    from bayesify.report.headlines import _best_as_shown

    shares = {"One": Spread.of([0.9]), "Two": Spread.of([0.90001]), "Three": Spread.of([0.8])}
    assert _best_as_shown(shares) == (["One", "Two"], "90.0%")
