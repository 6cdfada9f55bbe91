"""The package as others get it: one version, complete metadata, a wheel with the library alone, careful workflows."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bayesify
from bayesify.cli import main

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
LIBRARY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STUDIES = tomllib.loads((ROOT / "studies/pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
HOME = "https://github.com/bayesify/bayesify"


def script(name):
    """A module of the folder packaging/."""
    spec = importlib.util.spec_from_file_location(name, PACKAGING / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_yaml(path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install 'bayesify[dev]'")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    return {"on" if key is True else key: value for key, value in content.items()}


def test_the_version_is_the_same_everywhere(capsys):
    release = script("release_notes")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"bayesify {bayesify.__version__}"
    assert release.version() == bayesify.__version__
    assert release.cited_version() == bayesify.__version__
    assert release.latest_entry()[0] == bayesify.__version__


@pytest.mark.parametrize("project, folder", [(LIBRARY, ROOT), (STUDIES, ROOT / "studies")], ids=["library", "studies"])
def test_the_version_is_written_in_one_place(project, folder):
    assert "version" in project["project"]["dynamic"]
    assert "version" not in project["project"]
    source = folder / project["tool"]["hatch"]["version"]["path"]
    assert source.resolve() == ROOT / "src/bayesify/__init__.py"


@pytest.mark.parametrize("project", [LIBRARY, STUDIES], ids=["library", "studies"])
def test_the_metadata_says_who_where_and_for_what(project):
    about = project["project"]
    assert about["license"] == "Apache-2.0"
    assert about["authors"] == [{"name": "The bayesify developers"}]
    assert {"Homepage", "Documentation", "Source", "Changelog", "Issues"} <= about["urls"].keys()
    assert all(url.startswith(HOME) for url in about["urls"].values())
    for url in about["urls"].values():
        if part := re.search(r"/(?:tree|blob)/main/(.+)", url):
            assert (ROOT / part[1]).exists(), url
    # The licence is an SPDX expression; package indexes refuse a classifier beside it.
    assert not [line for line in about["classifiers"] if line.startswith("License ::")]
    assert pythons(about) == ["3.11", "3.12", "3.13"]
    assert about["requires-python"] == f">={pythons(about)[0]}"


def pythons(about):
    return [m[1] for line in about["classifiers"] if (m := re.fullmatch(r"Programming Language .* (3\.\d+)", line))]


def test_classifiers_are_known_ones():
    known = pytest.importorskip("trove_classifiers", reason="trove-classifiers is not installed").classifiers
    used = {*LIBRARY["project"]["classifiers"], *STUDIES["project"]["classifiers"]}
    assert {line for line in used if not line.startswith("Private ::")} <= known


def test_the_studies_are_not_for_upload():
    assert "Private :: Do Not Upload" in STUDIES["project"]["classifiers"]
    assert "Private :: Do Not Upload" not in LIBRARY["project"]["classifiers"]


def test_the_wheel_is_configured_to_hold_the_library_alone():
    assert LIBRARY["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/bayesify"]}
    assert LIBRARY["project"]["license-files"] == ["LICENSE"]
    assert "Typing :: Typed" in LIBRARY["project"]["classifiers"]
    assert (ROOT / "src/bayesify/py.typed").is_file()
    assert not [path for path in (ROOT / "src/bayesify").rglob("test*") if path.suffix == ".py"]


def test_the_wheel_holds_the_library_alone(tmp_path, monkeypatch):
    build = pytest.importorskip("hatchling.build", reason="hatchling is not installed, the wheel cannot be built here")
    monkeypatch.chdir(ROOT)
    wheel = zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path)))
    names, about = set(wheel.namelist()), f"bayesify-{bayesify.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"bayesify", about}
    assert {"bayesify/py.typed", f"{about}/licenses/LICENSE"} <= names
    modules = {f"bayesify/{path.relative_to(ROOT / 'src/bayesify')}" for path in (ROOT / "src/bayesify").rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    metadata = wheel.read(f"{about}/METADATA").decode()
    assert f"\nVersion: {bayesify.__version__}\n" in metadata
    assert f"{HOME}/blob/v{bayesify.__version__}/docs/design.md" in metadata


def test_two_wheels_of_the_same_files_are_the_same_bytes(tmp_path):
    """Built at two times, in two folders, of files with other dates and rights."""
    pytest.importorskip("hatchling.build", reason="hatchling is not installed, the wheel cannot be built here")
    built = []
    for number, mask in enumerate((0o022, 0o077)):
        tree = tmp_path / f"tree{number}"
        for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "packaging", "src"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            tree.mkdir(exist_ok=True)
            copy(source, tree / name, **({"ignore": shutil.ignore_patterns("__pycache__")} if source.is_dir() else {}))
        os.utime(tree / "src/bayesify/noise.py", (1e9 + number, 1e9 + number))
        words = f"import hatchling.build as b, os; os.umask({mask}); print(b.build_wheel('.'))"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        done = subprocess.run(
            [sys.executable, "-c", words], cwd=tree, env=environment, capture_output=True, text=True, check=True
        )
        built.append((tree / done.stdout.split()[-1]).read_bytes())
    assert built[0] == built[1]


def normal(pin):
    return re.sub(r"[._-]+", "-", pin.lower()).replace(" ", "")


@pytest.mark.parametrize("file", ["constraints-hashed.txt", "packaging/container.txt"])
def test_every_pinned_dependency_has_its_hashes(file):
    """`make hashes` writes both files. Without --require-hashes a replaced file of a dependency would be installed."""
    pinned, text = (ROOT / "constraints.txt").read_text(), (ROOT / file).read_text()
    blocks = re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]
    assert all(re.match(r"[A-Za-z0-9][\w.\-\[\]]*==", block) for block in blocks)  # no folder of a machine
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", block) for block in blocks)
    # Some pins differ by version of Python: then every one of them has hashes.
    lines = {normal(line.partition(";")[0]) for line in pinned.splitlines() if "==" in line}
    found = {normal(re.match(r"[^\s;\\]+", block)[0]) for block in blocks}
    if file == "constraints-hashed.txt":
        assert found == lines
    else:
        assert found <= lines
        wanted = [
            *LIBRARY["project"]["dependencies"],
            *LIBRARY["project"]["optional-dependencies"]["serve"],
            "hatchling",
        ]
        assert {re.match(r"[\w-]+", name)[0] for name in wanted} <= {pin.partition("==")[0] for pin in found}


def test_what_is_installed_for_the_container_is_checked_against_its_hash():
    text = (ROOT / "packaging/Containerfile").read_text()
    installs = re.findall(r"pip install .*", text.replace("\\\n", " "))
    assert "--require-hashes --requirement packaging/container.txt" in installs[0]
    assert all("--no-deps" in line for line in re.split("&&", installs[0]) if "pip install" in line)


# What conda calls a package, where it is another name than that of the package index.
CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def test_the_conda_recipe_needs_what_the_wheel_needs():
    recipe = read_yaml(PACKAGING / "conda/recipe.yaml")
    assert recipe["context"]["version"] == bayesify.__version__
    wanted = {f"python {LIBRARY['project']['requires-python']}"}
    for line in LIBRARY["project"]["dependencies"]:
        name, bound = re.fullmatch(r"([a-z0-9-]+)(>=[0-9.]+)", line).groups()
        wanted.add(f"{CONDA.get(name, name)} {bound}")
    assert set(recipe["requirements"]["run"]) == wanted
    assert LIBRARY["build-system"]["requires"][0] in recipe["requirements"]["host"]
    (command,) = recipe["build"]["python"]["entry_points"]
    assert dict([command.split(" = ")]) == LIBRARY["project"]["scripts"]
    assert recipe["about"]["license"] == LIBRARY["project"]["license"]
    assert recipe["about"]["summary"] == LIBRARY["project"]["description"]


def test_import_waits_for_nothing_heavy():
    code = """
import sys
import bayesify
heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "typer", "rich"} & set(sys.modules)
assert not heavy, f"import bayesify imports {sorted(heavy)}"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_links_of_the_readme_work_on_a_package_index():
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    absolute = script("readme_hook").absolute
    page = "[![a](docs/a.png)](docs/a.md) [b](#b) [c](https://c.org)\n```python\nrun[0](docs)\n```\n"
    assert absolute(page, "1.2") == (
        "[![a](https://raw.githubusercontent.com/bayesify/bayesify/v1.2/docs/a.png)]"
        f"({HOME}/blob/v1.2/docs/a.md) [b](#b) [c](https://c.org)\n```python\nrun[0](docs)\n```\n"
    )


@pytest.fixture
def release(tmp_path):
    """A tree whose tag v1.2.0 may be released."""
    (tmp_path / "src/bayesify").mkdir(parents=True)
    (tmp_path / "src/bayesify/__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [1.2.0] - 2026-02-03\n\n- New.\n\n## [1.1.0] - 2026-01-02\n\n- Old.\n"
    )
    return tmp_path


def test_a_release_that_agrees_has_no_problems(release):
    notes = script("release_notes")
    assert notes.problems("v1.2.0", release) == []
    assert notes.latest_entry(release) == ("1.2.0", "2026-02-03", "- New.")


@pytest.mark.parametrize(
    "tag, file, old, new, problem",
    [
        ("v1.2.1", None, "", "", "the tag must be v1.2.0"),
        ("1.2.0", None, "", "", "the tag must be v1.2.0"),
        ("v1.2.0", "CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.1.0", "CITATION.cff must say version: 1.2.0"),
        ("v1.2.0", "CHANGELOG.md", "[1.2.0]", "[1.3.0]", r"must be \[1.2.0\], it is \[1.3.0\]"),
        ("v1.2.0", "CHANGELOG.md", "2026-02-03", "unreleased", "must have a date such as 2026-01-31"),
    ],
)
def test_a_release_that_disagrees_is_refused(release, tag, file, old, new, problem):
    if file is not None:
        (release / file).write_text((release / file).read_text().replace(old, new))
    (sentence,) = script("release_notes").problems(tag, release)
    assert re.search(problem, sentence)


def test_a_changelog_without_a_version_is_refused(release):
    (release / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(ValueError, match=r"must have a heading like"):
        script("release_notes").latest_entry(release)


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} >= {"tests", "wheel", "docs", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_ends(path):
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "group" in workflow["concurrency"]
    # Code of a pull request must never run with the rights of the repository.
    assert "pull_request_target" not in workflow["on"]
    writing = {
        (name, right)
        for name, job in workflow["jobs"].items()
        for right, level in job.get("permissions", {}).items()
        if level != "read"
    }
    assert writing == ({("publish", "id-token"), ("announce", "contents")} if path.stem == "release" else set())
    for name, job in workflow["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 120, name
        for step in job["steps"]:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(release/)?v\d+", step.get("uses", "a/b@v1")), step
            # Values from outside reach a shell as environment variables, not as text inside the script.
            assert "${{" not in step.get("run", ""), step
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False, step


def test_each_supported_version_is_tested():
    matrix = read_yaml(ROOT / ".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == pythons(LIBRARY["project"])
    assert read_yaml(ROOT / ".github/workflows/wheel.yml")["jobs"]["smoke"]["strategy"]["matrix"] == {
        "python": pythons(LIBRARY["project"])
    }
    (oldest,) = (line[len("torch>=") :] for line in LIBRARY["project"]["dependencies"] if line.startswith("torch>="))
    assert f"torch=={oldest}.0/" in (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")


def test_the_short_form_of_the_faults_is_repeated_as_the_page_of_reliability_says():
    page = " ".join((ROOT / "docs/reliability.md").read_text(encoding="utf-8").split())
    assert "`make faults SHORT=1` repeats a few of each, as continuous integration does" in page
    steps = read_yaml(ROOT / ".github/workflows/tests.yml")["jobs"]["faults"]["steps"]
    assert any(step.get("run", "").startswith("make faults SHORT=1") for step in steps)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_something(path):
    form = read_yaml(path)
    assert form["name"]
    assert form["description"]
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(names) == len(set(names))
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_smoke_test_knows_every_command(capsys):
    smoke = script("smoke_test")
    assert main(["--help"]) == 0
    text = capsys.readouterr().out.partition("Commands")[2]
    listed = set(re.findall(r"^\W*([a-z][a-z-]*)  ", text, re.MULTILINE))
    assert listed - smoke.COMMANDS_OF_STUDIES == smoke.COMMANDS
