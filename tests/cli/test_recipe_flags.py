"""Every setting of a recipe and every option of a method has a flag, and `train` and `compare` show it."""

import re

import pytest

from bayesify.cli import main
from bayesify.cli.recipe_flags import FLAGS
from bayesify.methods.cards import CARDS, OPTIONS
from bayesify.workflows.recipe import SETTINGS, Recipe, make_recipe, owners_of

# A comparison has --methods instead, and --draws of its own.
NOT_COMPARED = {"dropout", "method", "time", "bayesian", "start"}


def test_settings_and_options_are_the_flags():
    assert set(SETTINGS) & set(OPTIONS) == set()
    assert set(FLAGS) == {*SETTINGS, *OPTIONS}


def test_options_are_those_of_the_cards():
    assert {name for card in CARDS.values() for name in card.options} == set(OPTIONS)
    assert all(set(card.of_fit) <= set(card.options) for card in CARDS.values())


@pytest.mark.parametrize(("command", "left_out"), [("train", set()), ("compare", NOT_COMPARED)])
def test_the_help_shows_every_flag(capsys, monkeypatch, command, left_out):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    shown = set(re.findall(r"--([a-z][a-z-]*)", text))
    assert {name.replace("_", "-") for name in FLAGS if name not in left_out} <= shown
    # A colon on both sides of a word would be shown as an emoji.
    assert "module:factory" in text


@pytest.mark.parametrize("name", OPTIONS)
def test_the_help_of_an_option_names_its_methods(name):
    assert FLAGS[name].help.startswith(f"For {owners_of(name)}: ")


@pytest.mark.parametrize("name", CARDS)
def test_every_option_of_a_card_reaches_the_recipe(name):
    values = {"family": "low_rank"}
    other_family = {"transitions", "paths"}
    options = {
        option: values.get(option, OPTIONS[option].kind(1))
        for option in CARDS[name].options
        if option not in other_family
    }
    recipe = make_recipe({}, {"method": name, **options})
    assert recipe.options == options
    assert recipe.to_dict() == {**({} if name == Recipe.method else {"method": name}), **options}
