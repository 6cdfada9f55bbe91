"""Defaults that depend on the method's family and on the width of the network."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from bayesify.methods.defaults import units_for_tables
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


def test_large_tables_of_numbers_have_wider_networks():
    assert units_for_tables("regression", 4999) == (10,)
    assert units_for_tables("regression", 5000) == (50,)
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
