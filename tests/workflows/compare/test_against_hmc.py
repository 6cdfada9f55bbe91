"""Every method against HMC through the command: the table, the floor, resuming, and wrong use."""

import itertools
import json
import math

import pytest
import torch

import bayesify as bf
from bayesify.cli import main
from bayesify.evaluation.predictive_distance import distance
from bayesify.evaluation.seed_statistics import estimate
from bayesify.plots.surfaces import predictive_bands, predictive_surfaces
from bayesify.workflows.compare import hmc_report
from bayesify.workflows.compare.against_hmc import compare_against
from bayesify.workflows.compare.hmc_reference import LONGEST, surroundings
from bayesify.workflows.compare.hmc_settings import CANDIDATES, SETUPS, Setup, recipe_for

TINY = ["--epochs", 4, "--warm-up", 20, "--samples", 4, "--chains", 2, "--draws", 8, "--units", 3]
FEW = {"epochs": 4, "warm_up": 20, "samples": 4, "chains": 2, "units": (3,), "seed": 3}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Less data, so that the tests are quick; everything else is the experiment's."""
    for name, options in (("moons", {"n": 60, "test": 30, "noise": 0.4}), ("gap", {"n": 40, "test": 16})):
        monkeypatch.setitem(SETUPS, name, Setup(options, SETUPS[name].model, SETUPS[name].by_method))


@pytest.fixture
def command(capsys):
    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_every_method_is_in_the_table_and_the_numbers_are_those_of_its_run(command, tmp_path):
    out = tmp_path / "moons"
    code, printed, _ = command(
        "compare", "--against", "hmc", "--data", "moons", "--seeds", 1, *TINY, "--out", out, "--json"
    )
    assert code == 0
    outcome = json.loads(printed)
    assert {row["method"] for row in outcome["rows"]} == set(bf.methods.METHODS)
    assert outcome["rows"][-1]["label"] == "HMC, half against half"
    # A few draws of two chains have not converged, and the result says so.
    assert outcome["reference"]["converged"] is False
    assert len(outcome["reference"]["diagnoses"]) == 1
    for row in outcome["rows"]:
        wanted = {"accuracy", "nll", "ece", "agreement", "total_variation", "std_ratio", "cost"}
        assert wanted <= set(row["scores"]), row["label"]
    # Numbers in the table, computed again from what is on the disk.
    data = bf.data.load("moons", seed=0, **SETUPS["moons"].options).prepare()
    truth = bf.load(out / "seed-0" / "hmc").predict(data.x_test, draws=10**6)
    # It went on sampling, four times as long as planned, before it gave up.
    assert truth.draws == 2 * 4 * LONGEST
    for row, slug in ((outcome["rows"][1], "ensemble"), (outcome["rows"][7], "swag")):
        method = bf.load(out / "seed-0" / slug)
        again = distance(method.predict(data.x_test, draws=8, seed=0), truth)
        assert row["scores"]["total_variation"]["values"][0] == pytest.approx(again.total_variation, abs=1e-6)
        assert row["scores"]["agreement"]["values"][0] == pytest.approx(again.agreement)
        assert row["scores"]["std_ratio"]["values"][0] == pytest.approx(again.std_ratio, abs=1e-5)
    costs = {row["method"]: row["scores"]["cost"]["mean"] for row in outcome["rows"]}
    assert costs["point"] == 1
    assert all((out / name).is_file() for name in ("results.json", "report.html", "probability.png", "uncertainty.png"))
    assert "HMC converged on 0 of 1 data sets" in (out / "report.html").read_text()


def test_an_interrupted_comparison_goes_on(command, tmp_path, monkeypatch):
    asked = ["compare", "--against", "hmc", "--data", "gap", "--methods", "point,ensemble", "--seeds", 2]
    asked += [*TINY, "--out", tmp_path / "gap"]
    fit, fits = bf.Ensemble.fit, []

    def interrupted(self, *arguments, **settings):
        fits.append(settings.get("run"))
        if settings.get("run") is not None and len([run for run in fits if run]) == 2:
            raise KeyboardInterrupt
        return fit(self, *arguments, **settings)

    monkeypatch.setattr(bf.Ensemble, "fit", interrupted)
    code, printed, err = command(*asked, "--json")
    assert (code, printed) == (1, "")
    assert err.splitlines()[-1] == f"bayesify: interrupted; resume {tmp_path / 'gap'} with the same command"
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "gap").rglob("metrics.json")}
    # All of the first seed, then HMC and the point estimate of the second.
    assert len(kept) == 3 + 2
    monkeypatch.setattr(bf.Ensemble, "fit", fit)
    code, printed, _ = command(*asked, "--json")
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    resumed = json.loads(printed)
    assert all(len(row["scores"]["total_variation"]["values"]) == 2 for row in resumed["rows"])
    # The result is that of a comparison that nobody interrupted.
    monkeypatch.setattr(hmc_report, "draw", lambda *_: [])
    command(*asked[:-1], tmp_path / "whole", "--json")
    whole = json.loads((tmp_path / "whole" / "results.json").read_text())
    for row, other in zip(resumed["rows"], whole["rows"], strict=True):
        for name in ("total_variation", "std_ratio", "mean_distance", "nll"):
            assert row["scores"][name]["values"] == pytest.approx(other["scores"][name]["values"], rel=1e-6), name
    assert (tmp_path / "gap" / "bands.png").is_file()


def test_more_seeds_use_those_that_are_there_and_another_question_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(hmc_report, "draw", lambda *_: [])
    few = {**FEW, "data": "gap"}
    first = compare_against(few, tmp_path / "a", methods=["point"], seeds=1, draws=8, progress=False).results
    assert "interval" not in first["rows"][0]["scores"]["nll"]
    stamp = (tmp_path / "a" / "seed-3" / "hmc" / "metrics.json").stat().st_mtime_ns
    more = compare_against(few, tmp_path / "a", methods=["point"], seeds=2, draws=8, progress=False).results
    assert more["rows"][0]["scores"]["nll"]["values"][0] == first["rows"][0]["scores"]["nll"]["mean"]
    assert (tmp_path / "a" / "seed-3" / "hmc" / "metrics.json").stat().st_mtime_ns == stamp
    with pytest.raises(ValueError, match="holds another comparison"):
        compare_against({**few, "units": (4,)}, tmp_path / "a", methods=["point"], seeds=2, draws=8, progress=False)
    other = {**few, "units": (4,)}
    again = compare_against(
        other, tmp_path / "a", methods=["point"], seeds=1, draws=8, overwrite=True, progress=False
    ).results
    assert again["recipes"]["HMC"]["units"] == [4]
    assert not (tmp_path / "a" / "seed-4").exists()


def test_wrong_use_is_answered_by_one_line(command, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" + "\n".join(f"{i},{i * i / 7}" for i in range(40)))
    for arguments, words in (
        (["--against", "nuts"], "unknown reference 'nuts'"),
        (["--against", "hmc", "--methods", "point,ensembel"], "did you mean 'ensemble'"),
        (["--against", "hmc", "--methods", "point", "--p", 0.1], "p is a setting of mc-dropout"),
        (["--against", "hmc", "--seeds", 0], "seeds must be an integer of at least 1, got 0"),
        (["--against", "hmc", "--samples", 3], "samples of hmc must be an integer of at least 4, got 3"),
        (["--against", "hmc", "--chains", 1], "chains of hmc must be an integer of at least 2, got 1"),
        (["--against", "hmc", "--prior", "log-uniform"], "needs a proper prior"),
        (["--against", "hmc", "--out", tmp_path / "full"], "holds no comparison: choose another folder"),
        (
            ["--against", "hmc", "--data", table, "--likelihood", "gaussian:learned"],
            "set likelihood to gaussian:NUMBER",
        ),
        (["--against", "hmc", "--data", "moonz"], "did you mean 'moons'"),
        (["--against", "hmc", "--patience", 3], "patience=3 needs validation examples"),
        (["--against", "hmc", "--keep", "best"], "set validation to their share, such as 0.2"),
        (["--against", "hmc", "--methods", "swag", "--patience", 3, "--validation", 0.2], "patience is a setting of "),
        (["--against", "hmc", "--methods", "hmc", "--epochs", 3], "epochs is a setting of point, ensemble, mc-dropout"),
        (["--against", "hmc", "--methods", "sgld", "--optimizer", "sgd"], "optimizer is a setting of point, ensemble"),
        (["--against", "hmc", "--split", 3], "split has no effect: moons is generated from the seed"),
    ):
        code, printed, err = command(
            "compare", *arguments, *([] if "--out" in arguments else ["--out", tmp_path / "no"])
        )
        assert (code, printed) == (2, ""), arguments
        assert len(err.splitlines()) == 1, err
        assert words in err
    assert not (tmp_path / "no").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_early_stopping_goes_by_the_validation_part_and_spares_methods_that_collect_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(hmc_report, "draw", lambda *_: [])
    settings = {**FEW, "data": "gap", "validation": 0.25, "patience": 1, "keep": "best", "epochs": 200}
    compare_against(settings, tmp_path / "a", methods=["point", "swag"], seeds=1, draws=8, progress=False)
    point, swag = (bf.load(tmp_path / "a" / "seed-3" / name) for name in ("point", "swag"))
    # 40 examples, 16 of them to test and a quarter of the others to watch by: the same for everybody.
    assert {method.notes["examples"]["validation"] for method in (point, swag)} == {6}
    scores = point.history["validation_nll"]
    assert len(scores) < 200
    # It stopped at the first epoch that was no better than those before, and no earlier.
    assert min(scores) < scores[-1]
    assert all(later < earlier for earlier, later in itertools.pairwise(scores[:-1]))
    assert len(swag.history) == 200


def test_a_table_of_numbers_has_one_model_for_all(tmp_path, monkeypatch):
    monkeypatch.setattr(hmc_report, "draw", lambda *_: [])
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" + "\n".join(f"{i},{i * i / 7}" for i in range(40)))
    few = {**FEW, "data": str(table)}
    outcome = compare_against(few, tmp_path / "a", methods=["point"], seeds=1, draws=8, progress=False)
    assert {recipe["likelihood"] for recipe in outcome.results["recipes"].values()} == {"gaussian:heteroscedastic"}


def test_a_setting_goes_to_the_methods_that_have_it():
    named = {candidate.slug: candidate for candidate in CANDIDATES}
    settings = {"data": "moons", "members": 7, "chains": 3, "epochs": 9, "prior": "laplace:1", "family": "low_rank"}
    assert recipe_for(named["ensemble"], settings).setting("members") == 7
    for name in ("hmc", "sgld"):
        assert recipe_for(named[name], settings).setting("chains") == 3
    assert recipe_for(named["hmc"], settings).epochs is None
    assert recipe_for(named["variational"], settings).setting("family") == "low_rank"
    # A variant keeps the setting that it is named for.
    assert recipe_for(named["variational-full-rank"], settings).setting("family") == "full_rank"
    assert all(recipe_for(candidate, settings).prior == "laplace:1" for candidate in CANDIDATES)
    assert all(recipe_for(candidate, {"data": "moons"}).prior == "normal:1" for candidate in CANDIDATES)
    assert recipe_for(named["sgld"], {"data": "gap"}).learning_rate == 4e-3


def test_the_conclusion_follows_the_interval_of_the_paired_difference():
    def results(values):
        rows = {"total_variation": estimate(values)}
        return {"paired": rows}

    assert "closer to HMC" in hmc_report.conclusion(results([-0.1, -0.11, -0.12]))
    assert "farther from HMC" in hmc_report.conclusion(results([0.1, 0.11, 0.12]))
    assert "no significant difference" in hmc_report.conclusion(results([0.1, -0.11, 0.02]))
    assert hmc_report.conclusion({"paired": {}}) == ""


def test_surroundings_reach_beyond_the_data_and_exist_for_one_or_two_inputs():
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    wide = surroundings(x)
    assert wide.amin(0).tolist() == pytest.approx([-0.6, -1.2])
    assert wide.amax(0).tolist() == pytest.approx([1.6, 3.2])
    assert surroundings(x[:, :1]).shape == (101, 1)
    assert surroundings(torch.zeros(4, 784)) is None


def test_surfaces_are_side_by_side_on_one_scale():
    data = bf.data.load("moons", seed=0, **SETUPS["moons"].options).prepare()
    network = bf.networks.mlp(2, 2, units=4, layers=1)
    methods = {"Plain": bf.PointEstimate(network, "categorical"), "Many": bf.Ensemble(network, "categorical")}
    for show in ("probability", "uncertainty", "entropy"):
        panels = predictive_surfaces(methods, data.x_train, data.y_train, show=show, draws=5, resolution=12)
        assert [axes.get_title(loc="left") for axes in panels] == ["Plain", "Many"]
        limits = {axes.get_images()[0].get_clim() for axes in panels}
        assert len(limits) == 1
        assert (limits == {(0.0, 1.0)}) == (show == "probability")
    values = panels[0].get_images()[0].get_array()
    assert values.shape == (12, 12)
    with pytest.raises(ValueError, match="unknown surface 'std'"):
        predictive_surfaces(methods, data.x_train, show="std")
    with pytest.raises(ValueError, match=r"surfaces need inputs \[n, 2\], got \[40, 3\]"):
        predictive_surfaces(methods, torch.zeros(40, 3))
    line = {"Plain": bf.PointEstimate(bf.networks.mlp(1, 1, units=4, layers=1), "gaussian:0.1")}
    assert len(predictive_bands(line, torch.linspace(0, 1, 9)[:, None], torch.zeros(9), resolution=11)) == 1
    with pytest.raises(ValueError, match=r"bands need inputs \[n, 1\], got \[40, 2\]"):
        predictive_bands(line, torch.zeros(40, 2))


def test_gap_has_nothing_in_its_middle():
    data = bf.data.load("gap", n=400, seed=5, noise=0.1)
    x, y = torch.cat((data.x_train, data.x_test))[:, 0], torch.cat((data.y_train, data.y_test))
    assert bool(((x.abs() >= 0.5) & (x.abs() <= 1)).all())
    assert int((x < 0).sum()) == 200
    residual = (y - torch.sin(4 * x.double())) / 0.1
    # Standard normal: mean within 4.5 standard errors, variance likewise (its standard error is sqrt(2 / n)).
    assert abs(float(residual.mean())) < 4.5 / math.sqrt(400)
    assert abs(float(residual.var()) - 1) < 4.5 * math.sqrt(2 / 400)
    assert not torch.equal(bf.data.load("gap", seed=1).y_train, bf.data.load("gap", seed=2).y_train)
    with pytest.raises(ValueError, match="noise >= 0"):
        bf.data.load("gap", noise=-1)
    with pytest.raises(ValueError, match="n must be a whole number"):
        bf.data.load("gap", n=2.5)
