"""One table of defaults: Python's fit, the command line, scikit-learn, comparisons and the studio use the same settings.

Each way of fitting is called for every method and kind of problem, and stopped where training would begin: what is
compared is the plan and the method that were really made. Where a way differs on purpose, `REASONS` says why.
"""

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify import networks
from bayesify.data import Column, DataSet
from bayesify.data.dataset import assemble
from bayesify.data.images import layout_of
from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import RATE_OF_FEW_STEPS, default_settings
from bayesify.methods.method import Method
from bayesify.studio import watched_training
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.compare import comparison
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe

KINDS = ("classification", "regression", "images")
TRAINED = [name for name, card in CARDS.items() if card.optimised]
OPTIONS = ("prior_precision", "chains", "members", "estimator")
REASONS = {
    ("python", "estimator"): "any network works with drawn weights; `local` is for layers that it knows",
    ("python", "p"): "the network has its own dropout layers",
    ("compare", "prior"): "all methods of a comparison share one network and one prior",
}


class Begun(Exception):
    """Training would begin now."""


@pytest.fixture
def begun(monkeypatch):
    """Stop every fit where training would begin, and keep the method and its plan."""
    found = []

    def stop(trainer, method, examples, plan, **_):
        found.append((method, plan))
        raise Begun

    monkeypatch.setattr("bayesify.training.loop.Trainer.__init__", stop)
    return found


def examples_of(kind):
    generator = torch.Generator().manual_seed(0)
    shape = (8, 8) if kind == "images" else (6,)
    x = torch.rand(400, *shape, generator=generator)
    y = torch.randn(400, generator=generator) if kind == "regression" else torch.arange(400) % 3
    return x, y


def raw_of(kind):
    x, y = examples_of(kind)
    if kind == "images":
        x = (255 * x).to(torch.uint8)
        parts = (x[:320], y[:320], x[320:], y[320:])
        return DataSet("some", "classification", *parts, class_names=tuple("abc"), image=layout_of(x, 255.0))
    names = {"columns": tuple(Column(f"x{number}") for number in range(6))}
    names |= {} if kind == "regression" else {"class_names": tuple("abc")}
    return assemble("some", kind, x, y.double() if kind == "regression" else y, test=0.2, seed=0, **names)


def used(method, plan):
    """What a fit really uses."""
    settings = {"learning_rate": plan.learning_rate, "schedule": plan.schedule, "optimizer": plan.optimizer}
    settings |= options_of(method)
    return settings | ({"p": method.network.dropout_rate or _rate_of(method)} if method.name == "mc-dropout" else {})


def options_of(method):
    """The options of the constructor that the table has."""
    return {name: value for name, value in method.settings().items() if name in OPTIONS}


def _rate_of(method):
    return next(part.p for part in method.network.template.modules() if isinstance(part, nn.Dropout))


def stopped(begun, fit, *args, **settings):
    with pytest.raises(Begun):
        fit(*args, **settings)
    return used(*begun[-1])


def by_python(begun, name, kind):
    likelihood = "gaussian:learned" if kind == "regression" else "categorical"
    x, y = examples_of(kind)
    dropout = {"dropout": default_settings(name, _of(kind), images=kind == "images")["p"]} if "dropout" in name else {}
    network = networks.mlp(x[0].numel(), 1 if kind == "regression" else 3, units=10, **dropout)
    return stopped(begun, CARDS[name].load()(network, likelihood).fit, (x, y), epochs=3, progress=False)


def by_recipe(begun, name, kind):
    recipe = Recipe(data="digits", method=name, units=(10,))
    data = prepare_data(recipe, raw_of(kind))
    recipe = with_defaults(recipe, data)
    return stopped(begun, make_method(recipe, data).fit, data.train, progress=False, **fit_settings(recipe, 320))


def by_scikit_learn(begun, name, kind):
    if kind == "images":
        return None
    estimator = bf.sklearn.BayesianRegressor if kind == "regression" else bf.sklearn.BayesianClassifier
    x, y = (part.numpy() for part in examples_of(kind))
    found = stopped(begun, estimator(name, units=10, random_state=0).fit, x, y.astype(np.float64))
    if found["learning_rate"] is not None:
        found["learning_rate"] /= RATE_OF_FEW_STEPS.get((name, kind), 1.0)
    return found


def by_comparison(begun, name, kind):
    likelihood = "gaussian:learned" if kind == "regression" else "categorical"
    x, y = examples_of(kind)
    network = networks.mlp(x[0].numel(), 1 if kind == "regression" else 3, units=10)
    methods = [name]
    return stopped(
        begun, comparison.compare, (x, y), (x, y), network, likelihood, methods=methods, epochs=2, progress=False
    )


def by_studio(begun, name, kind):
    if kind != "classification":
        return None
    points = [(float(a), float(b), int(a > 0)) for a, b in torch.randn(20, 2).tolist()]
    request = watched_training.TrainingRequest(method=name, points=points, prior="normal:1")
    made = watched_training.build(request)
    # The rate is on the page, for the visitor to change.
    return options_of(made)


def _of(kind):
    return "classification" if kind == "images" else kind


WAYS = {
    "python": by_python,
    "command line": by_recipe,
    "scikit-learn": by_scikit_learn,
    "compare": by_comparison,
    "studio": by_studio,
}


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TRAINED)
def test_every_way_to_fit_uses_the_settings_of_the_table(begun, name, kind):
    table = default_settings(name, _of(kind), images=kind == "images")
    wanted = {"learning_rate": table["learning_rate"], "schedule": table["schedule"], "optimizer": "adam"}
    wanted |= {setting: table[setting] for setting in ("estimator", "p", "prior_precision") if table.get(setting)}
    for way, fit in WAYS.items():
        found = fit(begun, name, kind)
        if found is None:
            continue
        checked = {key: value for key, value in wanted.items() if key in found and (way, key) not in REASONS}
        assert checked or way == "studio"
        assert {key: found[key] for key in checked} == checked, way
        assert found.get("members", 5) == 5, way
        assert found.get("chains", 4) == 4, way


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_a_large_network_has_one_chain_however_it_is_given(name):
    def make():
        return networks.mlp(784, 10, units=130)  # 103,360 weights

    for network in (make, make()):
        assert CARDS[name].load()(network, "categorical").chains == 1


def test_a_given_rate_or_optimiser_keeps_its_own_schedule(begun):
    x, y = examples_of("classification")
    point = bf.PointEstimate(networks.mlp(6, 3, units=10), "categorical")
    for given, rate in (({"learning_rate": 0.2}, 0.2), ({"optimizer": "sgd"}, 1e-3)):
        found = stopped(begun, point.fit, (x, y), progress=False, **given)
        assert (found["learning_rate"], found["schedule"]) == (rate, "constant")
    assert stopped(begun, point.fit, (x, y), schedule="linear", progress=False)["learning_rate"] == 1e-2


def test_whole_numbers_loaders_and_large_networks_are_no_table(begun):
    x, y = examples_of("classification")
    rows = torch.utils.data.TensorDataset(x, y)
    small = networks.mlp(6, 3, units=10)
    large = networks.mlp(6, 3, units=300, layers=2)  # 93,303 + 903 weights with biases of the first layer
    words = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(24, 3))
    for network, data, rate in (
        (small, rows, 1e-2),
        (small, (x.numpy(), y.numpy()), 1e-2),
        (small, torch.utils.data.DataLoader(rows, batch_size=20), 1e-3),
        (networks.mlp(6, 3, units=400, layers=2), (x, y), 1e-3),
        (words, (torch.zeros(400, 6, dtype=torch.long), y), 1e-3),
    ):
        found = stopped(begun, bf.PointEstimate(network, "categorical").fit, data, progress=False)
        assert found["learning_rate"] == rate
    assert networks.count_weights(large) < 100_000
    # The same rule on the command line.
    recipe = Recipe(data="digits", method="point", units=(400, 400))
    data = prepare_data(recipe, raw_of("classification"))
    assert with_defaults(recipe, data).learning_rate == 1e-3


def test_an_estimator_has_the_width_and_the_prior_of_the_command_line(begun):
    x, y = examples_of("regression")
    for name in ("point", "ensemble", "variational", "ivon", "sghmc"):
        recipe = Recipe(data="digits", method=name)
        data = prepare_data(recipe, raw_of("regression"))
        stopped(begun, make_method(with_defaults(recipe, data), data).fit, data.train, progress=False, epochs=2)
        first: Method = begun[-1][0]
        rows = x[:320].numpy(), y[:320].numpy()
        stopped(begun, bf.sklearn.BayesianRegressor(name, random_state=0).fit, *rows)
        second: Method = begun[-1][0]
        # The estimators have one hidden layer, the command line two.
        width = [next(part for part in one.network.template if isinstance(part, nn.Linear)) for one in (first, second)]
        assert width[0].out_features == width[1].out_features, name
        assert str(first.prior) == str(second.prior), name
