"""Give the package index a README whose links work there: relative ones become absolute ones to this version's tag."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = "https://github.com/bayesify/bayesify/blob/v{version}/"
IMAGES = "https://raw.githubusercontent.com/bayesify/bayesify/v{version}/"
RELATIVE = r"(?!https?://|mailto:|#)"


def absolute(text: str, version: str) -> str:
    """The text with each relative link or image of Markdown made absolute.

    Args:
        text: a page in Markdown.
        version: the version whose tag the links point to.

    Returns:
        The same page; absolute links, links inside the page and blocks of code are left alone.

    Example:
        >>> absolute("[why](docs/design.md), [below](#notes)", "1.0")
        '[why](https://github.com/bayesify/bayesify/blob/v1.0/docs/design.md), [below](#notes)'

    """
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)  # every second part is a block of code
    return "".join(part if number % 2 else _absolute_links(part, version) for number, part in enumerate(parts))


def _absolute_links(text: str, version: str) -> str:
    # Images come first: what they become is absolute and no longer matches the second pattern.
    text = re.sub(rf"(!\[[^\]]*\]\(){RELATIVE}", rf"\g<1>{IMAGES.format(version=version)}", text)
    return re.sub(rf"(\]\(){RELATIVE}", rf"\g<1>{SOURCE.format(version=version)}", text)


class ReadmeHook(MetadataHookInterface):
    """Hatchling calls `update` when it collects the metadata of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README of the package."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["version"])}
