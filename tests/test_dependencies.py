"""Every package that the source imports is declared: in the dependencies, or in the extra that its layer belongs to."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bayesify"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The name of a module where it is not that of its package.
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}
# Where the packages of an extra may be imported.
EXTRAS = {
    "serve": ("serving", "studio", "cli"),
    "mcmc": ("methods", "evaluation", "workflows"),
    "bandits": ("decisions",),
    "torchmetrics": ("torchmetrics.py",),
    "ray": ("jobs",),
    "search": ("workflows",),
}
# What a package is certain to bring with it, or is tried and done without.
OPTIONAL = {"triton", "pandas"}


def modules_of(requirements):
    names = (re.match(r"[A-Za-z0-9._-]+", line).group().lower() for line in requirements)
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


def imported(path):
    """The top-level packages that a file imports, by line, in functions and in blocks for types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        for name in names:
            yield node.lineno, name.partition(".")[0]


def undeclared(path, source):
    declared = modules_of(PROJECT["dependencies"]) | OPTIONAL | {"bayesify"} | set(sys.stdlib_module_names)
    place = path.relative_to(source).as_posix()
    for extra, folders in EXTRAS.items():
        if place.startswith(folders):
            declared |= modules_of(PROJECT["optional-dependencies"][extra])
    return [f"{place}:{line} imports {name}" for line, name in imported(path) if name not in declared]


def test_what_is_imported_is_declared():
    missing = [line for path in sorted(SOURCE.rglob("*.py")) for line in undeclared(path, SOURCE)]
    assert not missing, "\n".join(missing)


def test_what_is_declared_is_imported():
    used = {name for path in SOURCE.rglob("*.py") for _, name in imported(path)}
    # uvicorn takes httptools by itself; scikit-learn needs scipy of a version.
    unused = modules_of(PROJECT["dependencies"]) - used - {"scipy"}
    assert not unused


@pytest.mark.parametrize("line", ["import requests_toolbelt", "def f():\n    from yaml import load", "import fastapi"])
def test_a_missing_declaration_is_found(tmp_path, line):
    (tmp_path / "data.py").write_text(line)
    assert undeclared(tmp_path / "data.py", tmp_path)


# Where the packages of an extra are used, besides the places above: by name in the source, or outside of it.
USED_IN = {
    "tables": ["src"],
    "loggers": ["src"],
    "torchmetrics": ["src"],
    "export": ["src", "tests"],
    "hub": ["src", "tests"],
    "bandits": ["src"],
    "serve": ["src"],
    "mcmc": ["src"],
    "ray": ["src"],
    "search": ["src"],
    "integrations": ["examples", "tests/integrations"],
    "docs": ["packaging", "src", "mkdocs.yml"],
}
# What a page or a message calls a package, where it is another word than its module.
WORDS = {
    "mkdocs_material": "material",
    "mlflow_skinny": "mlflow",
    "httptools": "uvicorn",
}  # uvicorn takes httptools by itself


def written(places):
    for place in places:
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            yield file.read_text(encoding="utf-8")


@pytest.mark.parametrize("extra", sorted(set(PROJECT["optional-dependencies"]) - {"dev"}))
def test_an_extra_has_only_what_is_used(extra):
    text = "\n".join(written(USED_IN[extra]))
    for module in modules_of(PROJECT["optional-dependencies"][extra]):
        assert re.search(rf"\b{WORDS.get(module, module)}\b", text), f"{extra} brings {module}, which nothing uses"


def test_every_extra_that_a_text_names_exists():
    known = set(PROJECT["optional-dependencies"])
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *SOURCE.rglob("*.py"),
        *(ROOT / "examples").glob("*.py"),
    ]
    for page in pages:
        for names in re.findall(r"bayesify\[([a-z, -]+)\]", page.read_text(encoding="utf-8")):
            assert {name.strip() for name in names.split(",")} <= known, f"{page.name} names bayesify[{names}]"


def test_the_developers_extra_has_all_others():
    (everything,) = (line for line in PROJECT["optional-dependencies"]["dev"] if line.startswith("bayesify["))
    named = set(everything.removeprefix("bayesify[").removesuffix("]").split(","))
    assert named == set(PROJECT["optional-dependencies"]) - {"dev"}
