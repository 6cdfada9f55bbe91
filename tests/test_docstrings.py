"""`help()` is enough: every public name has a sentence, all its arguments, what it returns, and an example that runs."""

import doctest
import inspect
import re
import types

import numpy as np
import pytest
import torch

import bayesify as bf

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example", "Examples", "Reference", "References")


def public():
    """Every public class and function, by its dotted name."""
    found = {}
    for name in (*bf.__all__, *bf._WITH_EXTRAS):
        value = getattr(bf, name)
        if isinstance(value, types.ModuleType):
            found |= {f"bf.{name}.{part}": getattr(value, part) for part in exported(value)}
        else:
            found[f"bf.{name}"] = value
    return {name: value for name, value in found.items() if inspect.isclass(value) or inspect.isfunction(value)}


def exported(module):
    """What a module lists in `__all__`, or else every public name that is written in it."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def members(kind):
    """The public methods and properties of a class that are written in this package."""
    for name, value in inspect.getmembers(kind):
        if name.startswith("_"):
            continue
        function = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(function) and function.__module__.startswith("bayesify"):
            yield name, value, function


PUBLIC = public()
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
# Methods are documented once, in the class that has them.
METHODS = {
    f"{function.__module__}.{function.__qualname__}": (value, function)
    for kind in CLASSES.values()
    for _, value, function in members(kind)
}


def section(text, title):
    """The lines of one section of a docstring, without its title."""
    others = "|".join(SECTIONS)
    match = re.search(rf"^{title}:\n(.*?)(?=^(?:{others}):\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


def missing(text, function, *, own=()):
    """The parameters of a function that a docstring does not explain."""
    explained = set(re.findall(r"^\s+\*{0,2}(\w+)(?: \([^)]*\))?:", section(text, "Args"), re.MULTILINE))
    explained |= {
        name
        for names in re.findall(r"^\s+((?:\w+, )+\w+):", section(text, "Args"), re.MULTILINE)
        for name in names.split(", ")
    }
    parameters = [name for name in inspect.signature(function).parameters if name not in {"self", "cls", *own}]
    return [name for name in parameters if name not in explained]


def returns(function):
    annotation = function.__annotations__.get("return")
    return annotation not in {None, "None", "NoReturn"}


def is_exception(kind):
    return issubclass(kind, BaseException)


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_is_documented(name):
    kind = CLASSES[name]
    text = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    assert text.split("\n")[0].endswith("."), "begins with one sentence"
    if is_exception(kind):
        return
    assert ">>>" in text, "has an example"
    takes = "__init__" in vars(kind) or any(
        "__init__" in vars(base) for base in kind.__mro__[1:-1] if base.__module__.startswith("bayesify")
    )
    if takes and not inspect.isabstract(kind):
        assert missing(text, kind) == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_is_documented(name):
    function = FUNCTIONS[name]
    text = inspect.cleandoc(function.__doc__ or "")
    assert text.split("\n\n")[0].endswith("."), "begins with one sentence"
    assert missing(text, function) == []
    assert section(text, "Returns") or section(text, "Yields") or not returns(function)
    assert ">>>" in text, "has an example"


@pytest.mark.parametrize("name", METHODS)
def test_a_public_method_is_documented(name):
    value, function = METHODS[name]
    text = inspect.cleandoc(function.__doc__ or "")
    assert text, "has a docstring"
    if not isinstance(value, property):
        assert missing(text, function) == []


def namespace():
    """What an example may use without making it: the imports, three clouds of points, a network and a fitted method."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    x = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])[y] + 0.4 * torch.randn(60, 2, generator=generator)
    torch.manual_seed(0)
    net = bf.networks.mlp(2, 3, units=8)
    bnn = bf.Variational(net, "categorical", prior="normal:1", seed=0)
    bnn.fit((x, y), epochs=5, learning_rate=0.05, progress=False)
    return {"bf": bf, "torch": torch, "np": np, "x": x, "y": y, "net": net, "bnn": bnn}


@pytest.fixture(scope="module")
def given():
    return namespace()


def examples():
    finder = doctest.DocTestFinder(recurse=False)
    everything = {**PUBLIC, **{name: function for name, (_, function) in METHODS.items()}}
    for name, value in everything.items():
        for test in finder.find(value, name, module=False, globs={}):
            if test.examples:
                yield pytest.param(test, id=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("example", list(examples()))
def test_the_examples_run(example, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    example.globs = dict(given)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = []
    runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)
