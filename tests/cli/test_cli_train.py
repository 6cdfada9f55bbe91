"""`bayesify train`: what its flags do, configuration files, the run that it leaves."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bayesify
from bayesify.cli.train import _still_falling
from bayesify.training.plan import TIME_OVER, History
from bayesify.workflows.recipe import METHOD_NAMES

QUICK = ["--units", 8, "--layers", 1, "--epochs", 1]
TINY_HMC = ["--method", "hmc", "--units", 3, "--layers", 1, "--chains", 2, "--warm-up", 20, "--samples", 5]


def config_of(run):
    return json.loads((run / "config.json").read_text())


def test_a_run_knows_its_data(digits_run):
    data = config_of(digits_run)["data"]
    assert data["name"] == "digits"
    assert data["withheld"] == ["9"]
    assert data["class_names"] == list("012345678")
    assert data["examples"]["unknown"] == 54
    assert data["preparation"]["normalise"] == "255"
    assert data["split_seed"] == 0
    assert len(data["test_rows"]) == 539  # of all ten classes, before any is withheld
    assert bayesify.load(digits_run).notes["class_names"] == list("012345678")


def test_flags_reach_the_run(call, tmp_path):
    run = tmp_path / "run"
    flags = [
        "--data",
        "moons",
        "--units",
        "7,5",
        "--activation",
        "tanh",
        "--prior",
        "laplace:0.5",
        "--estimator",
        "local",
    ]
    flags += ["--rho", "-4", "--bayesian", "last_layer", "--epochs", 2, "--batch-size", 50, "--learning-rate", 0.02]
    flags += [
        "--optimizer",
        "sgd:momentum=0.9",
        "--schedule",
        "linear",
        "--draws",
        2,
        "--kl",
        "reweighted",
        "--seed",
        3,
    ]
    assert call("train", *flags, "--normalise", "symmetric", "--out", run).code == 0
    config = config_of(run)
    assert config["network"]["units"] == [7, 5]
    assert config["network"]["activation"] == "tanh"
    assert config["prior"] == "laplace:0.5"
    settings = {name: config["settings"][name] for name in ("family", "estimator", "rho")}
    assert settings == {"family": "mean_field", "estimator": "local", "rho": -4.0}
    assert config["bayesian"] == "last_layer"
    plan = {name: config["plan"][name] for name in ("epochs", "batch_size", "learning_rate", "optimizer", "schedule")}
    wanted = {"epochs": 2, "batch_size": 50, "learning_rate": 0.02, "optimizer": "sgd:momentum=0.9"}
    assert plan == wanted | {"schedule": "linear"}
    assert (config["plan"]["draws"], config["plan"]["kl"], config["plan"]["seed"]) == (2, "reweighted", 3)
    assert config["data"]["preparation"]["normalise"] == "symmetric"


@pytest.mark.parametrize(
    ("method", "extra"), [("point", []), ("ensemble", ["--members", 2]), ("mc-dropout", ["--p", 0.3])]
)
def test_every_method_trains_and_answers_with_the_uncertainty_that_it_has(call, tmp_path, method, extra):
    assert call("train", "--data", "moons", "--method", method, *extra, *QUICK, "--out", tmp_path / "run").code == 0
    scores = call("evaluate", tmp_path / "run", "--draws", 10, "--json").json
    assert scores["draws"] == {"point": 1, "ensemble": 2, "mc-dropout": 10}[method]
    assert (scores["epistemic"] > 1e-6) == (method != "point")


def test_the_config_of_a_run_runs_it_again_to_the_same_bits(call, tmp_path):
    flags = ["--withhold", "2", "--withhold", "5", "--validation", 0.2, "--label-noise", "1,7=0.3", "--split", 4]
    assert call("train", *flags, *QUICK, "--out", tmp_path / "first").code == 0
    assert call("train", "--config", tmp_path / "first" / "config.json", "--out", tmp_path / "second").code == 0
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert config_of(tmp_path / "first")["data"] == config_of(tmp_path / "second")["data"]


def test_flags_win_over_a_config_file_and_take_what_depends_on_them(call, tmp_path):
    (tmp_path / "mine.toml").write_text('data = "moons"\nepochs = 3\nunits = [6, 4]\nestimator = "flipout"\nseed = 9\n')
    out = call("train", "--config", tmp_path / "mine.toml", "--epochs", 1, "--out", tmp_path / "a", "--json").json
    assert out["epochs"] == 1
    assert config_of(tmp_path / "a")["settings"]["estimator"] == "flipout"
    assert config_of(tmp_path / "a")["network"]["units"] == [6, 4]
    plain = call("train", "--config", tmp_path / "a" / "config.json", "--method", "point", "--out", tmp_path / "b")
    assert plain.code == 0, plain.err  # the estimator goes with the method that it belonged to
    assert config_of(tmp_path / "b")["prior"] is None
    assert config_of(tmp_path / "b")["plan"]["seed"] == 9


def test_extending_a_run_adds_epochs_and_a_complete_run_is_not_resumed(call, refused, tmp_path):
    run = tmp_path / "run"
    assert call("train", "--data", "moons", *QUICK, "--out", run).code == 0
    refused(["train", "--resume", run], "is complete", "--extend")
    assert call("train", "--resume", run, "--extend", 2, "--json").json["epochs"] == 3
    assert len((run / "history.jsonl").read_text().splitlines()) == 3
    refused(["train", "--resume", run, "--epochs", 9], "--epochs cannot change", "--extend")
    refused(["train", "--resume", run, "--prior", "normal:2"], "--prior cannot change")


@pytest.mark.parametrize("more", [QUICK, TINY_HMC], ids=["variational", "hmc"])
def test_what_was_said_of_a_run_goes_when_it_is_extended(call, tmp_path, more):
    run = tmp_path / "run"
    assert call("train", "--data", "moons", *more, "--out", run).code == 0
    assert call("report", run, "--draws", 5).code == 0
    assert {"metrics.json", "report.html", "report.json", "README.md"} <= {path.name for path in run.iterdir()}
    assert call("train", "--resume", run, "--extend", 2).code == 0
    left = {path.name for path in run.iterdir()}
    assert left == {"checkpoint", "config.json", "history.jsonl", "model.safetensors"}


def test_early_stopping_keeps_the_best_and_says_so(call, tmp_path):
    flags = ["--data", "moons", "--method", "point", "--units", 64, "--epochs", 200, "--learning-rate", 0.1]
    flags += ["--validation", 0.2, "--patience", 2, "--keep", "best", "--out", tmp_path / "run"]
    out = call("train", *flags, "--json").json
    assert out["epochs"] < 200
    assert "not improved" in out["stopped"]
    assert call("evaluate", tmp_path / "run").code == 0  # a run that stopped early is complete
    assert bayesify.load(tmp_path / "run").history.stopped == out["stopped"]


@pytest.mark.parametrize(("stopped", "told"), [("", 1), (TIME_OVER, 1), ("validation NLL has not improved", 0)])
def test_longer_training_is_no_advice_after_early_stopping(stopped, told):
    history = History([{"epoch": epoch, "loss": 1 - epoch / 50} for epoch in range(1, 40)], stopped)
    trained = SimpleNamespace(method=SimpleNamespace(name="point", history=history), run="runs/mine")
    assert len(_still_falling(trained)) == told


def test_label_noise_swaps_training_labels_only(tmp_path):
    from bayesify.workflows.prepare import prepare_data
    from bayesify.workflows.recipe import Recipe

    clean, noisy = prepare_data(Recipe()), prepare_data(Recipe(label_noise="1,7=0.3"))
    changed = clean.train[1] != noisy.train[1]
    among = (clean.train[1] == 1) | (clean.train[1] == 7)
    assert not bool(changed[~among].any())
    n, swapped = int(among.sum()), int(changed.sum())
    assert abs(swapped - 0.3 * n) < 4 * np.sqrt(n * 0.3 * 0.7)  # four standard deviations of a binomial
    assert torch.equal(clean.test[1], noisy.test[1])


def test_a_run_s_likelihood_is_run_again_as_it_was(tmp_path):
    from bayesify.likelihoods import from_spec
    from bayesify.workflows.build import make_likelihood
    from bayesify.workflows.prepare import prepare_data
    from bayesify.workflows.recipe import Recipe, settings_of_run

    rows = "\n".join(f"{n},{n % 7}.5" for n in range(40))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}\n")
    for text in ("gaussian:learned,0.1", "gaussian:0.25", "gaussian:heteroscedastic", "poisson"):
        recipe = Recipe(data=str(tmp_path / "t.csv"), likelihood=text)
        first = make_likelihood(recipe, prepare_data(recipe)).spec()
        again = settings_of_run({"data": {"name": "t", "path": recipe.data}, "likelihood": first}, "run")
        second = make_likelihood(Recipe(**again), prepare_data(recipe)).spec()
        assert from_spec(second).spec() == first


def test_small_differences_between_large_targets_survive_preparation(tmp_path):
    from bayesify.workflows.build import make_likelihood
    from bayesify.workflows.prepare import prepare_data
    from bayesify.workflows.recipe import Recipe

    # Around ten million float32 has steps of one: these targets would all become the same two numbers.
    rows = "\n".join(f"{n},{10_000_000 + 0.01 * (n % 10)}" for n in range(60))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}\n")
    prepared = prepare_data(Recipe(data=str(tmp_path / "t.csv"), validation=0.2))
    for _, y in (prepared.train, prepared.validation, prepared.test):
        hundredths = (y - 10_000_000) * 100
        torch.testing.assert_close(hundredths, hundredths.round(), rtol=0, atol=1e-5)
        assert len(hundredths.round().unique()) > 5
    likelihood = make_likelihood(Recipe(), prepared)
    y = likelihood.prepare(prepared.train[1])
    # Outputs of zero announce the mean, and learned noise starts at the spread: NLL of a standard normal, in units.
    got = -likelihood.log_prob(torch.zeros(1, len(y), 1), y).mean().detach()
    expected = 0.5 + 0.5 * np.log(2 * np.pi) + np.log(prepared.target_scale)
    assert float(got) == pytest.approx(expected, abs=1e-4)


def test_validation_examples_and_the_preparation_come_from_training_alone():
    from bayesify.workflows.prepare import prepare_data
    from bayesify.workflows.recipe import Recipe

    prepared = prepare_data(Recipe(data="moons", validation=0.25))
    assert (len(prepared.train[0]), len(prepared.validation[0]), len(prepared.test[0])) == (525, 175, 300)
    assert prepared.train[0].mean(0).abs().max() < 1e-6  # standardised by these 525, not by all 700
    assert set(prepared.notes["validation_rows"]).isdisjoint(prepared.notes["test_rows"])


def test_regression_is_in_the_units_of_the_table(call, houses_run, place):
    scores = call("evaluate", houses_run, "--json").json
    prices = np.loadtxt(place / "houses.csv", delimiter=",", skiprows=1, usecols=3)
    assert 2000 < scores["rmse"] < 0.4 * prices.std()  # the noise is 3000
    assert 0.7 < scores["coverage_95"] <= 1
    # NLL of a Gaussian of that width, in log price units: standardised targets would give about 10.6 less.
    assert abs(scores["nll"] - np.log(scores["rmse"] * np.sqrt(2 * np.pi * np.e))) < 1


def test_a_folder_of_pictures_and_a_convolutional_network(call, refused, place, tmp_path):
    flags = ["train", "--data", place / "photos", "--network", "cnn", "--method", "point", "--epochs", 15]
    flags += ["--batch-size", 32, "--size", 16, "--out", tmp_path / "run"]
    assert call(*flags).code == 0
    assert call("evaluate", tmp_path / "run", "--json").json["accuracy"] > 0.8
    answer = call("predict", tmp_path / "run", place / "0.png", "--json").json
    assert answer["label"] == "class 0"
    assert call("predict", tmp_path / "run", place / "photos" / "class 1", "--csv").out.count("\n") > 40


FACTORY = """
import torch
def make(input_shape, outputs):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(input_shape[-1] * input_shape[-2], outputs))
def plain():
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
def broken():
    raise KeyError("oops")
def number():
    return 3
def sized(inputs, outputs):
    width = inputs if isinstance(inputs, int) else inputs[0] * inputs[1] * inputs[2]
    assert isinstance(inputs, int) or len(inputs) == 3
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(width, outputs))
def needy(inputs, depth):
    return torch.nn.Linear(inputs, depth)
class Heads(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.one = torch.nn.Linear(inputs, outputs)
    def forward(self, x):
        return {"a": self.one(x), "b": x}
"""


def test_a_network_of_the_users_runs_only_when_they_name_it(call, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_networks.py").write_text(FACTORY)
    assert call("train", "--network", "my_networks:make", "--epochs", 2, "--out", "run").code == 0
    refused(["evaluate", "run"], "--network my_networks:make")
    scores = call("evaluate", "run", "--network", "my_networks:make", "--json")
    assert scores.code == 0, scores.err
    flags = ["--data", "moons", "--method", "mc-dropout", "--p", 0.3, "--network", "my_networks:plain"]
    assert call("train", *flags, "--epochs", 1, "--out", "dropped").code == 0
    assert call("evaluate", "dropped", "--network", "my_networks:plain", "--json").json["epistemic"] > 1e-6
    refused(["train", "--network", "nowhere:make", "--out", "x"], "no module 'nowhere'")
    refused(["train", "--network", "my_networks:mkae", "--out", "x"], "has no 'mkae'")
    refused(["train", "--network", "my_networks:broken", "--out", "x"], "cannot be made", "oops")
    refused(["train", "--network", "my_networks:number", "--out", "x"], "torch.nn.Module", "int")
    assert not (tmp_path / "x").exists()


def test_a_factory_is_given_what_it_names(call, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_sizes.py").write_text(FACTORY)
    for data in ("moons", "digits"):
        assert call("train", "--data", data, "--network", "my_sizes:sized", "--epochs", 1, "--out", data).code == 0
        refused(["evaluate", data], "--network my_sizes:sized")
        assert call("evaluate", data, "--network", "my_sizes:sized", "--json").code == 0
    moons = ["train", "--data", "moons", "--epochs", 1, "--out", "x", "--network"]
    refused([*moons, "my_sizes:needy"], "needs 'depth'", "gets only inputs and outputs")
    # The command line has no output=, so it does not advise one without saying where.
    refused([*moons, "my_sizes:Heads"], "returns dict", "make its forward return one tensor", "in Python")
    words = " ".join(call("train", "--help").out.replace("│", " ").split())
    for phrase in ("a function that returns an nn.Module", "current folder", "it gets them", "need --network too"):
        assert phrase in words


def test_options_of_other_data_are_named_for_what_they_are_for(refused, place, tmp_path):
    out = ["--out", tmp_path / "x"]
    refused(["train", "--data", place / "iris.csv", "--size", 12, *out], "size is for a folder of images", "a table")
    np.savez(tmp_path / "a.npz", x=np.eye(8), y=np.arange(8) % 2)
    refused(["train", "--data", tmp_path / "a.npz", "--target", "y", *out], "target is for a .csv", "a file of arrays")
    refused(["train", "--data", "digits", "--ignore", "id", *out], "ignore is for a .csv", "a known data set")
    refused(["train", "--data", place / "photos", "--target", "y", *out], "target is for a .csv", "a folder")


def test_a_prior_around_trained_weights_needs_a_network_that_has_them(call, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("trained_networks.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef make():\n    torch.manual_seed(5)\n"
        "    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))\n\n\n"
        "def untrained():\n    torch.manual_seed(6)\n"
        "    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))\n"
    )
    flags = ["--data", "moons", "--method", "variational", "--prior", "2.*=normal:1;*=pretrained:0.03"]
    refused(["train", *flags, "--out", "no"], "needs trained weights, the network 'mlp'", "--network module:factory")
    own = ["--network", "trained_networks:make"]
    sgld = [*flags[:2], "--method", "sgld", *flags[4:]]
    refused(["train", *sgld, *own, "--out", "no"], "which start='fresh' discards", "start='given'")
    assert not Path("no").exists()
    assert call("train", *flags, *own, "--epochs", 2, "--out", "run").code == 0
    scores = [
        call("evaluate", "run", "--network", f"trained_networks:{name}", "--json").json["nll"]
        for name in ("make", "untrained")
    ]
    assert scores[0] == scores[1]
    network = importlib.import_module("trained_networks").make()
    method = bayesify.load("run", network=importlib.import_module("trained_networks").untrained())
    assert torch.equal(method.prior.means()[:12].float(), network[0].weight.detach().flatten())


def test_small_data_gets_enough_steps_by_default():
    from bayesify.workflows.build import epochs_for
    from bayesify.workflows.recipe import Recipe

    assert epochs_for(Recipe(), 60000) == 10
    assert epochs_for(Recipe(), 128) == 2000
    assert epochs_for(Recipe(epochs=3), 128) == 3


def test_training_that_diverges_fails_with_its_reason(refused, tmp_path):
    flags = ["--data", "moons", "--method", "variational", "--optimizer", "sgd", "--learning-rate", 1e30]
    flags += [*QUICK, "--epochs", 3]
    refused(["train", *flags, "--out", tmp_path / "run"], "diverged", "learning_rate", code=1)
    # Nothing was learnt: nothing stays in the way of the next try.
    assert not (tmp_path / "run").exists()


def test_each_of_the_ten_methods_trains_answers_and_says_what_it_is(call, tmp_path):
    more = {
        "hmc": ["--warm-up", 20, "--samples", 10, "--chains", 4],
        "sgld": ["--samples", 10],
        "sghmc": ["--samples", 10],
    }
    for name in METHOD_NAMES:
        quick = more.get(name, []) if name == "hmc" else [*more.get(name, []), "--epochs", 4]
        out = tmp_path / name
        flags = ["--data", "moons", "--units", 6, "--layers", 1, "--method", name, "--out", out]
        assert call("train", *flags, *quick, "--json").json["method"] == name
        assert 0 < call("evaluate", out, "--draws", 8, "--json").json["accuracy"] <= 1


def test_what_suits_one_method_is_refused_for_another_in_one_line(refused, tmp_path):
    out = ["--data", "moons", "--out", tmp_path / "x"]
    refused(["train", "--method", "hmc", "--epochs", 3, *out], "epochs is a setting of optimisation", "warm_up")
    refused(["train", "--method", "hmc", "--batch-size", 5, *out], "batch_size is a setting of optimisation")
    plain = ["train", "--method", "variational"]
    refused([*plain, "--rank", 5, *out], "rank is a setting of family low_rank, the family is mean_field")
    refused([*plain, "--chains", 5, *out], "chains is a setting of sgld, sghmc and hmc")
    refused(["train", "--method", "laplace", "--prior", "cauchy:1", *out], "laplace needs Gaussian priors")
    refused(["train", "--method", "hmc", "--prior", "log-uniform", *out], "hmc needs a proper prior")


def test_hmc_is_interrupted_resumed_and_extended_like_the_others(call, tmp_path):
    # Of two short chains the mean prediction is uncertain by 0.42 predictive standard deviations; 0.25 gives the alarm.
    flags = ["--data", "moons", "--units", 4, "--layers", 1, "--method", "hmc", "--chains", 2, "--warm-up", 20]
    first = call("train", *flags, "--samples", 10, "--out", tmp_path / "h", "--json").json
    assert any("the 2 chains disagree on predictions" in alert for alert in first["alerts"])
    printed = call("train", "--resume", tmp_path / "h", "--extend", 5).out
    assert "weights, 35 iterations in " in printed
    assert bayesify.load(tmp_path / "h").store.drawn == 15


def test_a_good_fit_of_a_sampler_raises_no_alarm_and_a_flat_prior_raises_one(call, tmp_path):
    flags = ["train", "--data", "moons", "--units", 5, "--activation", "tanh", "--method", "hmc"]
    printed = call(*flags, "--warm-up", 150, "--samples", 150, "--out", tmp_path / "good").out
    assert "before you trust it" not in printed  # its largest R-hat is above 1.01, as almost always
    assert "R-hat of predictions" in str(bayesify.load(tmp_path / "good").summary())
    quick = ["--warm-up", 30, "--samples", 30, "--prior", "flat", "--json"]
    alerts = call(*flags, *quick, "--out", tmp_path / "flat").json["alerts"]
    assert any("the posterior may be improper too" in alert for alert in alerts)


def test_tables_of_numbers_have_defaults_that_work_for_every_family_and_for_hmc(call, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a,y\n" + "".join(f"{i / 50},{(i / 50) ** 2 + 0.01 * (i % 7)}\n" for i in range(60)))
    for number, flags in enumerate(
        (["--family", "full_rank", "--epochs", 2], ["--gradient", "stick_the_landing", "--epochs", 2])
    ):
        assert call("train", "--data", file, *flags, "--out", tmp_path / str(number), "--json").code == 0
    hmc = ["--method", "hmc", "--units", 3, "--layers", 1, "--chains", 2, "--warm-up", 20, "--samples", 5]
    assert call("train", "--data", file, *hmc, "--out", tmp_path / "h", "--json").code == 0


def test_without_a_method_one_is_chosen_recorded_and_used_like_any_other(call, refused, tmp_path):
    run = tmp_path / "run"
    flags = ["--data", "moons", "--units", 4, "--layers", 1, "--warm-up", 60, "--samples", 20, "--max-leapfrogs", 20]
    out = call("train", *flags, "--out", run, "--json").json
    assert out["method"] == "hmc"
    assert out["chosen"].startswith("HMC for 700 examples of 2 inputs and 22 weights: the posterior itself")
    config = config_of(run)
    assert (config["method"], config["chosen"]) == ("hmc", out["chosen"])
    assert config["plan"]["max_leapfrogs"] == 20
    assert call("evaluate", run, "--json").json["accuracy"] > 0.8
    again = call("train", "--config", run, "--out", tmp_path / "again", "--json").json
    assert (again["method"], again["chosen"]) == ("hmc", None)
    first, second = (load_file(folder / "model.safetensors") for folder in (run, tmp_path / "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    trained = call("train", "--data", "moons", "--epochs", 2, "--time", 60, "--out", tmp_path / "e")
    assert "epochs is no setting of HMC" in trained.out
    assert config_of(tmp_path / "e")["data"]["validation"] == 0.1
    refused(["train", "--data", "moons", "--method", "autoo", "--out", tmp_path / "x"], "did you mean 'auto'?")


def test_an_elbo_below_that_of_a_constant_is_a_note_wherever_the_run_is_shown(call, tmp_path):
    run = tmp_path / "run"
    told = call("train", "--data", "moons", "--method", "variational", "--epochs", 2, "--out", run).out
    note = "note: the ELBO of -"
    assert note in told
    assert note in call("evaluate", run, "--draws", 3, "--no-baselines").out
    assert call("report", run, "--draws", 3).code == 0
    assert "- The ELBO of -" in (run / "README.md").read_text("utf-8").replace("\\", "")
    twin = json.loads((run / "report.json").read_text("utf-8"))
    assert "Note on Variational: the ELBO of -" in json.dumps(twin)
    assert not [alert for alert in twin["alerts"] if "ELBO" in alert["text"]]


def test_a_report_counts_the_members_of_an_ensemble(call, tmp_path):
    run = tmp_path / "run"
    call("train", "--data", "moons", "--method", "ensemble", "--members", 2, "--epochs", 1, "--out", run)
    assert call("report", run).code == 0
    assert json.loads((run / "report.json").read_text("utf-8"))["subtitle"].endswith("; 2 draws")


def test_the_acceptance_of_hmc_is_a_flag_and_its_warnings_name_flags(call, refused, tmp_path):
    run = tmp_path / "run"
    found = call("train", "--data", "moons", *TINY_HMC, "--target-accept", 0.3, "--out", run, "--json").json
    assert config_of(run)["plan"]["target_accept"] == 0.3
    assert "--target-accept 0.95" in " ".join(found["alerts"])
    assert "_accept=" not in " ".join(found["alerts"])
    refused(["train", "--data", "moons", *TINY_HMC, "--target-accept", 1.5], "target_accept must lie strictly between")
