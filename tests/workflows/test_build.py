"""Defaults that depend on the method's family and on the width of the network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_friedman1

from bayesify.data import Column, DataSet
from bayesify.methods.defaults import units_for_tables
from bayesify.workflows.auto.recipe_choice import resolve
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe, make_recipe


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "friedman.csv"
    x, y = make_friedman1(60, random_state=0)
    rows = ["a,b,c,d,e,f,g,h,i,j,y", *(",".join(map(str, [*row, target])) for row, target in zip(x, y, strict=True))]
    file.write_text("\n".join(rows))
    return str(file)


def filled(**settings):
    recipe = make_recipe({}, {"method": "variational", **settings})
    prepared = prepare_data(recipe)
    return with_defaults(recipe, prepared), prepared


def test_a_small_full_rank_network_is_left_to_natural_gradients():
    recipe, prepared = filled(data="moons", family="full_rank", units=5, layers=1)
    assert (recipe.learning_rate, recipe.schedule, recipe.optimizer) == (None, None, None)
    method = make_method(recipe, prepared)
    method.fit(prepared.train, progress=False, **{**fit_settings(recipe, 100), "epochs": 1})
    assert (method.plan.optimizer, method.plan.learning_rate) == ("natural", 1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "full_rank", "units": 50},
        {"family": "full_rank", "units": 5, "optimizer": "adam"},
        {"family": "annealed", "units": 5},
        {"units": 5},
    ],
)
def test_other_variational_networks_have_the_default_rate_of_adam(settings):
    recipe, _ = filled(data="moons", layers=1, **settings)
    assert (recipe.learning_rate, recipe.schedule) == (0.01, "cosine")


def test_the_annealed_family_fits_its_gaussian_by_the_default_estimator():
    assert filled(data="moons", family="annealed", units=5)[0].setting("estimator") == "local"
    assert filled(data="moons", family="full_rank", units=5)[0].setting("estimator") is None


def test_wide_regressions_alone_have_a_prior_by_fan_in(table):
    assert filled(data=table, units=200)[0].prior == "normal:fan_in"
    assert filled(data=table, units=200, prior="normal:1")[0].prior == "normal:1"
    assert filled(data=table, units=50)[0].prior is None
    assert filled(data=table, units=200, method="ivon")[0].prior is None
    assert filled(data="moons", units=200)[0].prior is None


@pytest.mark.parametrize(
    ("option", "family"), [("rank", "low_rank"), ("transitions", "annealed"), ("paths", "annealed")]
)
def test_a_setting_of_another_family_is_refused(option, family):
    with pytest.raises(ValueError, match=f"{option} is a setting of family {family}, the family is mean_field"):
        make_recipe({}, {"method": "variational", option: 20})


def test_map_methods_have_a_prior_on_tables_of_numbers_and_chains_have_that_of_auto(table):
    for method in ("point", "ensemble", "mc-dropout", "swag", "laplace"):
        assert filled(data=table, method=method)[0].prior == "normal:fan_in"
    recipe = make_recipe({}, {"data": "digits", "method": "point"})
    for rows, columns, prior in ((300, 4, "normal:fan_in"), (50, 4, "normal:fan_in"), (300, 3, "normal:1")):
        assert with_defaults(recipe, prepare_data(recipe, table_of(rows, columns))).prior == prior
    recipe = replace(recipe, method="ivon")
    for rows, prior in ((299, None), (300, "normal:fan_in"), (500, None)):
        assert with_defaults(recipe, prepare_data(recipe, table_of(rows, 4))).prior == prior
    assert filled(data=table, method="sghmc")[0].prior == "1.*=normal:1;*=normal:fan_in"
    assert filled(data=table, method="point", prior="normal:2")[0].prior == "normal:2"
    assert filled(data="moons", method="point")[0].prior is None


def test_hmc_has_the_network_the_prior_and_the_plan_of_auto(table):
    recipe, _ = filled(data=table, method="hmc")
    by_auto = resolve(Recipe(data=table), prepare_data(Recipe(data=table))).recipe
    assert by_auto.method == "hmc"
    for name in ("units", "layers", "activation", "prior"):
        assert getattr(recipe, name) == getattr(by_auto, name)
    assert recipe.options == by_auto.options
    # A network of the user's keeps the method's prior, and has a plan for its size.
    own, _ = filled(data=table, method="hmc", units=5)
    assert own.prior is None
    assert own.options["chains"] > recipe.options["chains"]


def test_large_tables_of_numbers_are_trained_for_longer():
    recipe = make_recipe({}, {"data": "digits", "method": "point"})
    data = prepare_data(recipe, table_of(6000, 2))
    # 47 batches of 128 an epoch.
    assert with_defaults(recipe, data).epochs == -(-6000 // 47)
    assert with_defaults(replace(recipe, epochs=3), data).epochs == 3


def table_of(rows, columns):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    names = tuple(Column(f"x{number}") for number in range(columns))
    return DataSet("made", "regression", x, x[:, 0].double(), x[:9], x[:9, 0].double(), columns=names)


def test_laplace_is_of_the_last_layer_where_a_classifier_is_large():
    def bayesian(**settings):
        recipe, _ = filled(method="laplace", **settings)
        return recipe.bayesian, recipe.prior

    assert bayesian(data="digits") == (("last_layer",), "normal:fan_in")
    assert bayesian(data="moons") == (("all",), None)
    assert bayesian(data="moons", units=200, layers=2) == (("last_layer",), "normal:fan_in")
    assert bayesian(data="digits", prior="normal:1") == (("all",), "normal:1")
    assert bayesian(data="digits", bayesian="*")[0] == ("*",)


def test_large_tables_of_numbers_have_wider_networks():
    assert units_for_tables("regression", 299) == (10,)
    assert units_for_tables("regression", 300) == (50,)
    assert units_for_tables("regression", 4999, "variational") == (10,)
    assert units_for_tables("regression", 5000, "variational") == (50,)
    assert units_for_tables("classification", 100) == (50,)


def test_hmc_starts_where_the_posterior_is_finite_on_a_table_of_numbers(tmp_path):
    # With the noise as an output of the network, many starts have an infinite log posterior here.
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 13))
    y = 20 + 9 * (x[:, 0] * x[:, 1] + x[:, 2] + 0.2 * generator.normal(size=300))
    file = tmp_path / "table.csv"
    np.savetxt(file, np.column_stack((x, y)), delimiter=",", header=",".join("abcdefghijklmn"), comments="")
    recipe = Recipe(data=str(file), method="hmc", seed=0, options={"chains": 4})
    data = prepare_data(recipe)
    method = make_method(with_defaults(recipe, data), data)
    assert method.likelihood.spec()["noise"] == f"half-cauchy({data.target_scale:.6g})"
    method.fit(data.train, warm_up=200, samples=40, max_leapfrogs=40, seed=0, progress=False)
    spread = float(data.test[1].std())
    assert float((method.predict(data.test[0]).mean - data.test[1]).square().mean().sqrt()) < 0.9 * spread
