"""What an installation brings along: `python packaging/bill_of_materials.py build/sbom.json docs/licences.md`.

The first file is a software bill of materials (CycloneDX 1.6, JSON), the second a table of licences. Both list the
installed packages that bayesify and its extra `serve` require, directly or not; packages of other extras are left out.
Run it with the Python that has them installed.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT, _EXTRAS = "bayesify", ("serve",)
# Packages that only some machines install: which of them are here says nothing about another machine.
_OF_SOME_MACHINES = ("nvidia", "cuda", "triton")


def installed(root: str = _ROOT, extras: tuple[str, ...] = _EXTRAS) -> dict[str, Distribution]:
    """The installed packages that a package requires, by their normal names.

    Args:
        root: the package.
        extras: its extras.

    Returns:
        Packages by name, the root left out.

    """
    found: dict[str, Distribution] = {}
    waiting = [(root, extras)]
    while waiting:
        name, wanted = waiting.pop()
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            if not any(_applies(requirement, extra) for extra in ("", *wanted)):
                continue
            key = canonicalize_name(requirement.name)
            if key in found or key.startswith(_OF_SOME_MACHINES):
                continue
            try:
                found[key] = distribution(requirement.name)
            except PackageNotFoundError:
                continue
            waiting.append((requirement.name, tuple(requirement.extras)))
    found.pop(canonicalize_name(root), None)
    return dict(sorted(found.items()))


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def licence(package: Distribution) -> str:
    """The licence that a package states, in one line.

    Args:
        package: an installed package.

    Returns:
        An SPDX expression where it has one, else what its classifiers or its licence field say.

    """
    metadata = package.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return expression
    stated = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    first = (metadata.get("License") or "").strip().partition("\n")[0]
    return ", ".join(stated) or (first if 0 < len(first) < 60 else "see its files")


def bill(packages: dict[str, Distribution]) -> dict[str, Any]:
    """The bill of materials.

    Args:
        packages: by name.

    Returns:
        A CycloneDX document.

    """
    root = distribution(_ROOT)
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{package.version}",
            "purl": f"pkg:pypi/{name}@{package.version}",
            "name": name,
            "version": package.version,
            "licenses": [{"license": {"name": licence(package)}}],
        }
        for name, package in packages.items()
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": _ROOT, "version": root.version}},
        "components": components,
    }


def table(packages: dict[str, Distribution]) -> str:
    """The page of licences.

    Args:
        packages: by name.

    Returns:
        Markdown.

    """
    lines = [f"| {name} | {licence(package)} |" for name, package in packages.items()]
    head = (
        "# Licences\n\nbayesify is under the Apache licence 2.0. This is what `pip install 'bayesify[serve]'` brings "
        "along, as stated by\neach package; CUDA libraries of torch are left out. "
        "`python packaging/bill_of_materials.py build/sbom.json docs/licences.md`\nwrites this page and a software "
        "bill of materials (CycloneDX).\n\n| package | licence |\n| --- | --- |\n"
    )
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    here = installed()
    materials, licences = map(Path, sys.argv[1:])
    materials.parent.mkdir(parents=True, exist_ok=True)
    materials.write_text(json.dumps(bill(here), indent=1) + "\n", encoding="utf-8")
    licences.write_text(table(here), encoding="utf-8")
