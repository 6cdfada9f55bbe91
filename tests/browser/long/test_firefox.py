"""Every page in Debian's Firefox at three widths, light and dark: it opens, complains of nothing, and answers a drawing."""

from urllib.parse import urlsplit

import firefox
import pytest

PAGES = {
    "draw": ".pad",
    "decide": "[data-gallery]",
    "understand&epochs=20&n=20&units=4&method=point": "[data-state='trained']",
    "understand&topic=coin": "figure svg",
    "understand&topic=line": "figure svg",
    "weights": ".ridge",
    "results": ".empty, .cards",
    "runs": ".runs-table",
}
SCREENS = ((390, 844), (768, 1024), (1440, 900))
SEVEN = ((0.3, 0.2), (0.5, 0.2), (0.7, 0.2), (0.6, 0.5), (0.5, 0.75), (0.46, 0.84))
# Nothing until the pad is there: on a slow machine Firefox may still show the page before when it says that it has opened.
PAD = """(() => { const box = document.querySelector('.pad')?.getBoundingClientRect(); return box ? [box.x, box.y, box.width, box.height] : null })()"""


@pytest.fixture(scope="module", params=["light", "dark"])
def fox(request, studio):
    found = firefox.program()
    if found is None:
        pytest.skip("no Firefox on this machine: apt-get install firefox-esr")
    started = firefox.Firefox(found, request.param)
    started.scheme = request.param
    yield started
    started.close()


@pytest.fixture(autouse=True)
def quiet(fox, studio):
    """Nothing may be complained of, nor asked for elsewhere."""
    fox.complaints.clear()
    fox.asked.clear()
    yield
    assert fox.complaints == []
    hosts = {urlsplit(url).netloc for url in fox.asked if url.startswith("http")}
    assert hosts == {urlsplit(studio).netloc}


@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_every_page_opens_and_fits(fox, studio, width, height):
    fox.size(width, height)
    for query, ready in PAGES.items():
        fox.open(f"{studio}/?page={query}")
        fox.until(f"document.querySelector({ready!r}) !== null && document.querySelector('h1') !== null")
        assert fox.evaluate("[...document.querySelectorAll('[role=alert]')].map((each) => each.textContent)") == [], (
            query
        )
        # A scroll bar of the page itself takes a part of the window.
        assert fox.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, query
    assert fox.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (fox.scheme == "dark")


@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_a_stroke_is_answered(fox, studio, width, height):
    fox.size(width, height)
    fox.open(f"{studio}/?page=draw&threshold=0")
    left, top, side, _ = fox.until(PAD)
    fox.stroke([(left + x * side, top + y * side) for x, y in SEVEN])
    fox.until("document.querySelectorAll('article').length === 3")
    # Parts of the stroke are answered before all of it is.
    fox.until("document.querySelector('.verdict strong').textContent === '7'")
    assert fox.evaluate("document.querySelector('.answers').getBoundingClientRect().top") < height


def test_the_keys_draw(fox, studio):
    fox.size(1440, 900)
    fox.open(f"{studio}/?page=draw&threshold=0")
    fox.until("document.querySelector('.pad') !== null")
    fox.evaluate("document.querySelector('.pad').focus()")
    fox.press(*["\ue013"] * 8, " ", *["\ue015"] * 16, " ")  # arrow up, pen down, arrow down, pen up
    fox.until("document.querySelector('.verdict strong')?.textContent === '1'")
    fox.press("\ue017")  # delete
    fox.until("document.querySelectorAll('article').length === 0")
