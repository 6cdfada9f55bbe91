"""The published experiments as the Results page shows them: a question each, an answer, and a picture that can be read."""

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install 'bayesify[dev]'")

from playwright.sync_api import expect

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
PAGES = sorted(file.stem for file in PUBLISHED.glob("*.md") if file.with_suffix(".json").is_file())
# Pixels: what the page may be high at 1440, and how wide a picture of three panels must be for its words.
HIGHEST, WIDEST = 12_000, 560


@pytest.fixture(scope="module")
def studio(program, tmp_path_factory):
    from studio_server import make_runs, serving

    runs = make_runs(tmp_path_factory.mktemp("runs"))
    with serving([runs["point"]], PUBLISHED) as address:
        yield address


def gallery(visited):
    page = visited.open("?page=results")
    page.locator(".cards img").first.wait_for()
    # Without its picture an image is as wide as its words.
    page.wait_for_function(
        "() => [...document.querySelectorAll('.cards img')].every((image) => image.naturalWidth > 0)"
    )
    return page


def test_every_page_is_in_the_gallery_with_a_question_and_an_answer(visit):
    page = gallery(visit(width=1440))
    shown = {card.get_attribute("data-result"): card for card in page.locator(".cards > li").all()}
    assert set(shown) == set(PAGES)
    for name, card in shown.items():
        assert "?" in card.locator(".asked").inner_text(), name
        assert len(card.locator(".told, .plain-cover").inner_text()) > 2, name
    assert page.evaluate("document.documentElement.scrollHeight") <= HIGHEST


def test_pictures_are_large_enough_to_be_read(visit):
    page = gallery(visit(width=1440))
    boxes = page.evaluate("[...document.querySelectorAll('.cards img')].map((image) => image.offsetWidth)")
    assert len(boxes) > 20
    assert min(boxes) >= WIDEST


def test_a_wide_picture_scrolls_on_a_phone(visit):
    page = visit(width=390, height=844, has_touch=True).open("?page=results&of=paper-grid")
    picture = page.locator("figure img").first
    expect(picture).not_to_have_js_property("naturalWidth", 0)
    assert picture.bounding_box()["width"] > 600
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    frame = page.get_by_role("region").first
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
