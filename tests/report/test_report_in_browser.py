"""The page in a real browser: opened from a file, it asks for nothing, says nothing to the console, and can be read.

Needs Playwright for Python and a Chromium; without them these tests are skipped.
"""

import shutil

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
PAGES = ["one", "several"]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def show(browser, runs):
    """Opens a report; gives the page, the addresses that it asked for and what it said to the console."""
    contexts = []

    def open_report(name, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page, asked, said = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda problem: said.append(str(problem)))
        page.goto((runs / name / "report.html").as_uri())
        page.wait_for_load_state("load")
        return page, asked, said

    yield open_report
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_asked_for_and_nothing_goes_wrong(show, name):
    page, asked, said = show(name)
    assert [address for address in asked if not address.startswith("data:")] == [page.url]
    assert page.url.startswith("file://")
    assert said == []
    broken = page.evaluate("[...document.images].filter(i => !(i.complete && i.naturalWidth > 0)).length")
    assert broken == 0
    assert page.evaluate("document.images.length") >= 5


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_never_scrolls_sideways_and_tables_can(show, name, width):
    page, _, _ = show(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overflowing = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => "
        "getComputedStyle(e).overflowX)"
    )
    assert set(overflowing) <= {"auto"}
    hints = page.locator(".hint")
    for place in range(hints.count()):
        assert hints.nth(place).is_visible() == (width < 688)


@pytest.mark.parametrize("name", PAGES)
def test_on_a_desktop_no_panel_stands_alone_in_its_row(show, name):
    page, _, _ = show(name)
    rows = page.evaluate(
        "[...document.querySelectorAll('.card')].map(card => [...card.children].map(e => e.offsetTop))"
    )
    assert rows
    for tops in rows:
        counts = [tops.count(top) for top in set(tops)]
        assert len(tops) == 1 or min(counts) > 1, tops


def pixels(page, selector):
    from io import BytesIO

    import numpy as np
    from PIL import Image

    shot = page.locator(selector).first.screenshot()
    return np.asarray(Image.open(BytesIO(shot)).convert("L"), dtype=float)


def test_a_figure_is_dark_on_light_and_light_on_dark(show):
    selector = "section:has(h2:text('Training')) .card img"
    day, night = (pixels(show("one", scheme=scheme)[0], selector) for scheme in ("light", "dark"))
    assert float(sorted(day.reshape(-1))[day.size // 2]) > 240
    assert float(sorted(night.reshape(-1))[night.size // 2]) < 40
    # Ink is there in both: something far from the paper, on more than one pixel in two hundred.
    assert (day < 120).mean() > 0.005
    assert (night > 140).mean() > 0.005


def test_print_is_light_whatever_the_screen(show):
    page, _, _ = show("one", scheme="dark")
    page.emulate_media(media="print", color_scheme="light")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden()
    assert len(page.pdf(format="A4")) > 10_000


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_no_picture_lies_over_another(show, name):
    page, _, _ = show(name, width=700)
    page.emulate_media(media="print")
    cards = page.evaluate(
        "[...document.querySelectorAll('.card')].map(card => [...card.querySelectorAll('img')].map(e => {"
        " const { left, right, top, bottom } = e.getBoundingClientRect(); return [left, right, top, bottom] }))"
    )
    assert any(len(boxes) > 1 for boxes in cards)
    for boxes in cards:
        for place, (left, right, top, bottom) in enumerate(boxes):
            assert left >= -1, boxes
            assert right <= 701, boxes
            for other in boxes[:place]:
                assert left > other[1] - 2 or right < other[0] + 2 or top > other[3] - 2 or bottom < other[2] + 2, boxes


def test_formulas_are_shown_as_formulas(show):
    page, _, _ = show("one")
    sizes = page.evaluate("[...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().height)")
    assert len(sizes) >= 5
    assert min(sizes) > 10
    # A fraction is taller than a line of text.
    assert max(sizes) > 24


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_accessible(show, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page, _, _ = show(name, scheme=scheme)
    # The policy forbids scripts in the page: the checker runs from outside of it.
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", PAGES)
def test_the_contents_can_be_used_by_keyboard(show, name):
    page, _, _ = show(name)
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.getAttribute('href')")
    assert first.startswith("#")
    page.keyboard.press("Enter")
    assert page.url.endswith(first)
