"""The page of licences lists every package that the library and its server require."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_requirement_is_listed_with_a_licence(tmp_path):
    script = ROOT / "packaging" / "bill_of_materials.py"
    subprocess.run([sys.executable, script, tmp_path / "sbom.json", tmp_path / "licences.md"], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    names = {re.match(r"[\w-]+", text)[0] for text in required}
    bill = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    assert names <= {component["name"] for component in bill["components"]}
    assert all(component["licenses"][0]["license"]["name"] != "see its files" for component in bill["components"])
    # Versions change from day to day; the packages of the page are those that are required.
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    assert names <= set(re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE))
