"""The container file: its copies are in the tree, and its command is one that the command line takes."""

import json
import re
import tomllib
from pathlib import Path

import typer

from bayesify.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")
# Lines that end in a backslash go on.
STEPS = [line.split(maxsplit=1) for line in TEXT.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def arguments(name):
    (found,) = (json.loads(rest) for word, rest in STEPS if word == name)
    return found


def test_every_step_is_one_that_a_builder_knows():
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD", "ENV"}
    assert {word for word, _ in STEPS} <= known
    assert STEPS[0][0] == "FROM"
    version = re.match(r"python:(\d+)\.(\d+)", STEPS[0][1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (int(version[1]), int(version[2])) >= tuple(map(int, project["requires-python"].strip(">=").split(".")))


def test_it_installs_what_the_project_declares():
    (install,) = (rest for word, rest in STEPS if word == "RUN" and "pip install" in rest)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = (ROOT / re.search(r"--requirement (\S+)", install)[1]).read_text(encoding="utf-8")
    pinned = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==", listed, re.MULTILINE)}
    declared = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    assert {re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for one in declared} <= pinned
    assert "--require-hashes" in install


def test_the_command_is_taken_and_asks_for_a_token():
    words = [*arguments("ENTRYPOINT"), *arguments("CMD")]
    assert words[:2] == ["bayesify", "serve"]
    command = typer.main.get_command(app).commands["serve"]
    # Unknown options and wrong values are refused here.
    context = command.make_context("serve", words[2:])
    assert [str(run) for run in context.params["run"]] == ["/runs"]
    assert context.params["host"] == "0.0.0.0"
    assert "BAYESIFY_TOKEN" in TEXT


def test_the_health_check_and_the_port_are_those_of_the_command():
    (port,) = (rest for word, rest in STEPS if word == "EXPOSE")
    command = typer.main.get_command(app).commands["serve"]
    context = command.make_context("serve", arguments("CMD"))
    assert context.params["port"] == int(port)
    (check,) = (rest for word, rest in STEPS if word == "HEALTHCHECK")
    code = json.loads(check.removeprefix("CMD "))
    assert f"http://127.0.0.1:{port}/v2/health/ready" in code[2]
    compile(code[2], "health check", "exec")


def test_it_does_not_run_as_root():
    (user,) = (rest for name, rest in STEPS if name == "USER")
    assert user != "root"
