"""A run's own description as a configuration: the same recipe again, or one line on why it cannot be."""

import json

import pytest

from bayesify.workflows.recipe import METHOD_NAMES, make_recipe, read_config_file, settings_of_run
from bayesify.workflows.train import train

SMALL = {"data": "moons", "units": (3,), "layers": 1}
SHORT = {"hmc": {"warm_up": 20, "samples": 4, "chains": 2}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a small run by a method, trained when first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def find(method):
        if method not in made:
            recipe = make_recipe({}, {**SMALL, "method": method, **SHORT.get(method, {"epochs": 2})})
            made[method] = train(recipe, folder / method, progress=False).run
        return made[method]

    return find


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_run_by_any_method_is_a_configuration_of_the_same_run(run, method):
    again = make_recipe(read_config_file(run(method)), {})
    assert again.method == method
    for name, value in {**SMALL, **SHORT.get(method, {"epochs": 2})}.items():
        assert again.setting(name) == value, name


@pytest.mark.parametrize(
    "method, section, changed, words",
    [
        ("sgld", "settings", {"temperature": 0.5}, "temperature=0.5"),
        ("ivon", "settings", {"beta1": 0.8, "beta2": 0.9}, "beta1=0.8, beta2=0.9"),
        ("laplace", "settings", {"per_layer": True}, "per_layer=True"),
        ("swag", "settings", {"held_draws": 7}, "held_draws=7"),
        ("hmc", "plan", {"thin": 3}, "thin=3"),
        ("point", "plan", {"optimizer": "custom"}, "optimizer=a function"),
        ("point", "plan", {"schedule": "custom"}, "schedule=a function"),
        ("point", "likelihood", {"class_weights": [1.0, 2.0]}, r"class_weights=\[1.0, 2.0\]"),
    ],
)
def test_what_has_no_flag_is_not_dropped_in_silence(run, tmp_path, method, section, changed, words):
    config = json.loads((run(method) / "config.json").read_text())
    assert section != "settings" or set(changed) <= set(config["settings"])
    config[section] |= changed
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"was trained with {words}, which has no flag: repeat it in Python"):
        read_config_file(tmp_path)
    # Resuming rebuilds the method itself and needs no flags.
    assert settings_of_run(config, "run")["method"] == method
