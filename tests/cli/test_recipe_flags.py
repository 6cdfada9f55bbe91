"""Every setting of a recipe and every option of a method has a flag, and `train` and `compare` show it."""

import ast
import re
from pathlib import Path

import pytest

import bayesify
from bayesify.cli import main
from bayesify.cli.recipe_flags import FLAGS, in_flags
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


def test_the_help_of_the_learning_rate_tells_images_from_tables():
    for card in (card for card in CARDS.values() if card.own_rate and not card.finds_rate):
        pictures, rows = (card.settings_for("classification", images=flag)["learning_rate"] for flag in (True, False))
        assert f"{card.name} {pictures:g}" in FLAGS["learning_rate"].help
        assert pictures == rows or f"with tables {rows:g}" in FLAGS["learning_rate"].help


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


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("with more warm_up= and samples=, or another prior", "with more --warm-up and --samples, or another prior"),
        ("smaller steps, target_accept=0.95, or", "smaller steps, --target-accept 0.95, or"),
        ("(validation=, patience= and keep='best'), or", "(--validation, --patience and --keep best), or"),
        ("train longer (epochs=200 or more)", "train longer (--epochs 200 or more)"),
        ("learning_rate is 1e-09, the default is 0.01", "--learning-rate is 1e-09, the default is 0.01"),
        ("use likelihood='student-t', or", "use --likelihood student-t, or"),
        ("use likelihood='gaussian:learned'", "use --likelihood gaussian:learned"),
        ("ten times as large: prior='pretrained:SCALE'", "ten times as large: --prior pretrained:SCALE"),
        ("samples and draws of the prior, a rank of 3", "samples and draws of the prior, a rank of 3"),
        ("Gaussian(..., location=float(y.mean()))", "Gaussian(..., location=float(y.mean()))"),
    ],
)
def test_arguments_of_python_become_flags(sentence, expected):
    assert in_flags(sentence) == expected


# What warns after a fit, and the cures that it names; other functions of these files raise errors.
WARNING = {
    "training/warnings.py": None,
    "methods/after_fit.py": None,
    "methods/agreement.py": None,
    "methods/before_fit.py": None,
    "methods/hmc/hmc.py": "own_checks",
    "methods/sgmcmc/chains.py": "own_checks",
    "methods/swag.py": "own_checks",
    "report/alerts.py": None,
}
# The command line takes the units of targets and the numbers of classes from the data.
ONLY_IN_PYTHON = {"location", "scale", "return_inverse"}


def sentences(file, function):
    """The texts of a file that are no docstrings; what is filled in is a number."""
    tree = ast.parse((Path(bayesify.__file__).parent / file).read_text(encoding="utf-8"))
    roots = [node for node in ast.walk(tree) if getattr(node, "name", None) == function] if function else [tree]
    for node in (node for root in roots for node in ast.walk(root)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "3" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            yield node.value


def test_every_cure_of_a_warning_names_flags_that_exist():
    found, options = set(), {f"--{name.replace('_', '-')}" for name in FLAGS}
    for file, function in WARNING.items():
        for sentence in sentences(file, function):
            said = in_flags(sentence)
            assert set(re.findall(r"\b([a-z_]+)=(?!=)", said)) <= ONLY_IN_PYTHON, (file, said)
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", said))
            assert named <= options, (file, said)
            found |= named
    assert {"--warm-up", "--samples", "--target-accept", "--every", "--validation", "--epochs"} <= found
