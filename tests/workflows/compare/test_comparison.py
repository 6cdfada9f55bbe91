"""Equal budgets, equal scoring, and a table that says what was measured."""

import io
import math

import numpy as np
import pytest
import scipy.stats
import torch
from rich.console import Console

import bayesify as bf
from bayesify.workflows.compare.candidates import USUAL, Candidate
from bayesify.workflows.compare.comparison import (
    Spread,
    compare,
    compare_seeds,
    read_methods,
    summarise,
    table,
)

FEW = {"epochs": 10, "batch_size": 32, "learning_rate": 1e-2, "draws": 20, "progress": False}


def network():
    return bf.networks.mlp(2, 3, units=8, layers=1)


@pytest.fixture(scope="module")
def clouds():
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    y = torch.arange(160) % 3
    x = centres[y] + 0.8 * torch.randn(160, 2, generator=generator)
    far = torch.randn(30, 2, generator=generator)
    return (x[:96], y[:96]), (x[96:], y[96:]), far


@pytest.fixture(scope="module")
def results(clouds):
    train, test, far = clouds
    twice = Candidate("Two draws", "variational", {"estimator": "local"}, {"draws": 2})
    return compare(train, test, network, "categorical", unknown=far, methods=[*USUAL, twice], **FEW)


def test_a_budget_is_the_same_number_of_example_gradients(results):
    spent = {result.label: result.example_gradients for result in results}
    budget = 96 * 10
    assert spent == {
        "Plain network": budget,
        "Ensemble of 5": 5 * budget,
        "Ensemble of 5, shared budget": budget,
        "MC dropout": budget,
        "Variational": budget,
        "Two draws": budget,
    }
    epochs = {result.label: len(result.history) for result in results}
    assert epochs["Two draws"] == 5
    assert epochs["Ensemble of 5, shared budget"] == 2


def test_every_method_is_scored_as_evaluate_scores_it(results, clouds):
    _, test, far = clouds
    for result in results:
        again = bf.evaluate(result.method, test, ood=far, draws=FEW["draws"], seed=0)
        assert result.evaluation == again, result.label
        assert torch.equal(result.targets, test[1])


def test_cost_is_training_time_over_the_plain_networks(results):
    plain = results[0]
    assert plain.cost == 1
    for result in results:
        assert result.cost == pytest.approx(result.seconds / plain.seconds)


def test_cost_is_unknown_without_a_plain_network(clouds):
    train, test, _ = clouds
    (alone,) = compare(train, test, network, "categorical", methods=["variational"], **FEW)
    assert alone.cost is None
    assert alone.unknown is None
    assert "cost" not in summarise([[alone]])[0].scores


def test_cost_does_not_depend_on_where_the_plain_network_stands(clouds):
    train, test, _ = clouds
    first, second = compare(train, test, network, "categorical", methods=["variational", "point"], **FEW)
    assert first.cost == pytest.approx(first.seconds / second.seconds)
    assert second.cost == 1


def test_a_result_does_not_depend_on_who_else_takes_part(results, clouds):
    train, test, _ = clouds
    (alone,) = compare(train, test, network, "categorical", methods=["variational"], **FEW)
    together = next(result for result in results if result.label == "Variational")
    assert torch.equal(alone.predictive.outputs, together.predictive.outputs)


def test_methods_start_from_the_same_weights(clouds):
    train, test, _ = clouds
    compared = compare(train, test, network, "categorical", methods=["point", "variational"], seed=3, **FEW)
    assert torch.equal(compared[0].method.network.initial, compared[1].method.network.initial)


def test_notes_travel_with_every_method(clouds):
    train, test, _ = clouds
    notes = {"class_names": ["a", "b", "c"]}
    compared = compare(train, test, network, "categorical", methods=["point"], notes=notes, **FEW)
    assert set(compared[0].predictive.names) <= {"a", "b", "c"}


def test_callbacks_see_every_method_in_order(clouds):
    train, test, _ = clouds
    seen = []
    compare(
        train, test, network, "categorical", methods=["point", "mc-dropout"],
        on_start=lambda candidate, place, total: seen.append((candidate.name, place, total)),
        on_finish=lambda result: seen.append((result.name, result.cost is not None)),
        **FEW,
    )  # fmt: skip
    assert seen == [("point", 0, 2), ("point", True), ("mc-dropout", 1, 2), ("mc-dropout", True)]


def test_a_linear_regression_reaches_least_squares_and_its_scores():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 + 0.5 * generator.normal(size=400)
    design = np.column_stack((x, np.ones(400)))
    weights, *_ = np.linalg.lstsq(design[:300], y[:300], rcond=None)
    error = y[300:] - design[300:] @ weights
    data = [torch.tensor(array, dtype=torch.float32) for array in (x[:300], y[:300], x[300:], y[300:])]
    likelihood = bf.likelihoods.Gaussian(noise="learned")
    before = {name: tensor.clone() for name, tensor in likelihood.state_dict().items()}
    compared = compare(
        (data[0], data[1]), (data[2], data[3]), lambda: bf.networks.mlp(3, 1, layers=0), likelihood,
        methods=["point", ("Wide prior", "variational", {"prior": "normal:10"})],
        epochs=80, batch_size=50, learning_rate=3e-2, schedule="cosine", draws=50, progress=False,
    )  # fmt: skip
    rmse = math.sqrt(np.mean(error**2))
    sigma = math.sqrt(np.mean((y[:300] - design[:300] @ weights) ** 2))
    nll = -scipy.stats.norm(0, sigma).logpdf(error).mean()
    for result in compared:
        assert result.evaluation.rmse == pytest.approx(rmse, rel=0.02), result.label
        assert result.evaluation.nll == pytest.approx(nll, abs=0.02), result.label
        # 100 targets in 95% intervals: four standard deviations are 0.087.
        assert result.evaluation.coverage_95 == pytest.approx(0.95, abs=0.087)
    # The noise that one method learns is not another's, nor the caller's.
    noises = [next(iter(result.method.likelihood.state_dict().values())) for result in compared]
    assert not torch.equal(*noises)
    assert all(torch.equal(before[name], tensor) for name, tensor in likelihood.state_dict().items())
    assert list(summarise([compared])[0].scores) == ["rmse", "nll", "crps", "coverage_95", "cost", "seconds"]
    assert "RMSE" in _drawn(summarise([compared]))


def test_seeds_give_the_mean_and_its_standard_error(clouds):
    train, test, far = clouds
    runs = compare_seeds(
        [0, 1, 2], train, test, network, "categorical", unknown=far, methods=["point", "mc-dropout"], **FEW
    )
    rows = summarise(runs)
    assert [row.label for row in rows] == ["Plain network", "MC dropout"]
    for place, row in enumerate(rows):
        values = [run[place].evaluation.nll for run in runs]
        assert len(set(values)) == 3
        assert row.seeds == 3
        assert row.scores["nll"].mean == pytest.approx(np.mean(values))
        assert row.scores["nll"].standard_error == pytest.approx(scipy.stats.sem(values))
    record = rows[1].to_dict()
    assert record["nll"] == rows[1].scores["nll"].mean
    assert record["standard_errors"]["auroc"] == rows[1].scores["auroc"].standard_error
    assert "±" in _drawn(rows)


def test_one_seed_has_no_standard_error(results):
    row = summarise([results])[0]
    assert row.scores["accuracy"] == Spread(results[0].evaluation.accuracy)
    assert "standard_errors" not in row.to_dict()
    drawn = _drawn(summarise([results]))
    assert "±" not in drawn
    assert all(heading in drawn for heading in ("accuracy", "NLL", "ECE", "AUROC", "at 90%", "cost"))
    assert "1.0×" in drawn


def test_an_ensemble_is_shown_with_the_whole_and_with_a_shared_budget():
    assert [(candidate.label, candidate.share) for candidate in read_methods(["ensemble"])] == [
        ("Ensemble of 5", 1.0),
        ("Ensemble of 5, shared budget", 0.2),
    ]
    four = read_methods([("Four", "ensemble", {"members": 4})])
    assert [candidate.share for candidate in four] == [1.0, 0.25]
    candidates = [
        Candidate("Half", "ensemble", {"members": 2}, share=0.5),
        Candidate("Whole", "ensemble", {"members": 2}),
    ]
    assert read_methods(candidates) == candidates
    assert len(read_methods([("One", "ensemble", {"members": 1})])) == 1


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (["variatonal"], "unknown method 'variatonal'; did you mean 'variational'?"),
        ([], "a comparison needs at least one method, got none"),
        (["point", "point"], "methods must have different labels, got Plain network, Plain network"),
        ([("Mine", "pointt", {})], "unknown method 'pointt'; did you mean 'point'?"),
    ],
)
def test_impossible_methods_are_refused_in_one_line(methods, words):
    with pytest.raises(ValueError) as problem:
        read_methods(methods)
    assert str(problem.value) == words


def test_impossible_budgets_are_refused_before_training(clouds):
    train, test, _ = clouds
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1, got 0"):
        compare(train, test, network, "categorical", epochs=0)
    with pytest.raises(ValueError, match="draws must be an integer of at least 1, got 0"):
        compare(train, test, network, "categorical", draws=0)
    with pytest.raises(ValueError, match=r"share of the budget must be above 0 and up to 1, got 1\.5"):
        Candidate("More", "point", share=1.5)
    with pytest.raises(ValueError, match="Long: the budget decides the epochs"):
        Candidate("Long", "point", training={"epochs": 7})
    with pytest.raises(ValueError, match="seeds must be one or more different numbers"):
        compare_seeds([1, 1], train, test, network, "categorical")
    with pytest.raises(ValueError, match="same methods for every seed"):
        summarise([])


def test_the_names_are_those_of_the_methods():
    assert [candidate.name for candidate in read_methods(list(bf.methods.METHODS))[2:]] == list(bf.methods.METHODS)[1:]
    assert list(USUAL) == ["point", "ensemble", "mc-dropout", "variational"]


def _drawn(rows):
    console = Console(width=200, file=io.StringIO())
    console.print(table(rows))
    return console.file.getvalue()
