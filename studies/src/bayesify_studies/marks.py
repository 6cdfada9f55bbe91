"""Text between two marks of a page, `<!-- name -->1.5<!-- end -->`: a script writes it, the words around it are free.

The second mark may repeat the name, `<!-- end of name -->`, where it stands far below the first one.
"""

import re
from collections.abc import Mapping

_START = r"<!-- (?P<name>[\w-]+) -->"
_END = r"<!-- end(?: of (?P=name))? -->"
_MARKED = re.compile(rf"{_START}(?P<text>(?:(?!<!--).)*){_END}", re.DOTALL)


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Write texts between the marks of a page.

    Args:
        page: the page.
        texts: what stands between the marks, by their name; the page must have each name at least once.

    Returns:
        The page with these texts; what other marks enclose is left as it is.

    Example:
        >>> filled("It took <!-- ratio -->9.9<!-- end --> times.", {"ratio": "1.5"})
        'It took <!-- ratio -->1.5<!-- end --> times.'

    """
    if missing := sorted(texts.keys() - set(names(page))):
        raise ValueError(f"a page needs <!-- {missing[0]} --> and, after it, <!-- end -->")

    def new(found: re.Match[str]) -> str:
        start, end = found.start("text") - found.start(), found.end("text") - found.start()
        return found[0][:start] + texts.get(found["name"], found["text"]) + found[0][end:]

    return _MARKED.sub(new, page)


def names(page: str) -> list[str]:
    """The names of all marks of a page that have an end, in their order."""
    return [found["name"] for found in _MARKED.finditer(page)]
