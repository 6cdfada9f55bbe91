"""The documentation site builds without a warning, asks nothing of the outside, and the code on its pages runs."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("start.md", "training.md", "own-loop.md", "scale.md")
PAGES = [*sorted((ROOT / "docs" / "maths").glob("*.md")), *(ROOT / "docs" / name for name in NAMES)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Loaded(HTMLParser):
    """Addresses that a browser would fetch on opening a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        loads = tag in {"script", "img", "iframe", "source"} or (tag == "link" and named.get("rel") == "stylesheet")
        address = named.get("src") or (named.get("href") if tag == "link" else None)
        if loads and address:
            self.found.append(address)


def test_no_page_fetches_anything_from_outside(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        assert [address for address in parser.found if re.match(r"(https?:)?//", address)] == [], page


def test_formulas_are_drawn_and_no_tex_is_left(site):
    text = (site / "maths" / "objective" / "index.html").read_text(encoding="utf-8")
    assert text.count("<math") > 10
    assert "arithmatex" not in text
    assert "\\frac" not in text


def test_the_reference_has_every_method(site):
    from bayesify.methods.cards import CARDS

    text = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for card in CARDS.values():
        assert f'id="bayesify.methods.{card.path.replace(":", ".")}"' in text, card.name


def test_the_reference_has_what_all_methods_share(site):
    """`Method` has it from its base classes."""
    text = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for name in ("fit", "resume", "finish", "predict", "loss", "save"):
        assert f'id="bayesify.methods.method.Method.{name}"' in text, name


def test_the_reference_has_a_page_for_each_module(site):
    menu = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for name in ("priors", "metrics", "decisions"):
        text = (site / "reference" / name / "index.html").read_text(encoding="utf-8")
        assert f'id="bayesify.{name}.' in text
        assert f'href="{name}/"' in menu


def test_pages_of_the_menu_are_all_pages(site):
    """A page that no menu lists is found by nobody."""
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in docs.rglob("*.md")]
    assert [page for page in pages if f" {page}\n" not in menu] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page):
    known = {}
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        above = "\n" * text[: block.start(1)].count("\n")
        exec(compile(above + block[1], str(page), "exec"), known)


def test_the_numbers_beside_the_code_are_right(capsys):
    """What the comments of the maths pages promise."""
    import math

    import bayesify as bf

    assert math.isclose(bf.exact.Coin(1.0, 1.0).observe(heads=7, tails=3).mean, 8 / 12)
    assert math.ceil(math.log(0.05) / math.log(0.99)) == 299
    namespace = {}
    text = (ROOT / "docs" / "maths" / "sampling.md").read_text(encoding="utf-8")
    exec(re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1], namespace)
    assert math.isclose(namespace["w"].var().item(), 1 / (1 - namespace["h"] / 4), rel_tol=0.02)
