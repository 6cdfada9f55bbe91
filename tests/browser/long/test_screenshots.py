"""Every page at three widths, light and dark, looks as it did: small grey pictures compared with a tolerance.

A screen is reduced to a tenth, so that a time of training changes little, and a card that is missing, moved or of the
wrong colour changes much. All text is in one font, DejaVu Sans, so that it does not matter which other fonts a machine
has. After a change that is meant: `make browsers RENEW=1`, look, and commit.
"""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REFERENCES = Path(__file__).parent / "references"
RENEW = bool(os.environ.get("RENEW"))
SCREENS = [
    (width, height, scheme) for width, height in ((390, 844), (768, 1024), (1440, 900)) for scheme in ("light", "dark")
]
REDUCED = 10
# Levels of 255: by how much a pixel may differ before it counts, and the share of pixels that may.
LEVELS, SHARE = 6, 0.025
FONT = '* { font-family: "DejaVu Sans" !important }'
TRAINED = "understand&epochs=40&n=40&units=4&method=point"
PAGES = {
    "draw": "article",
    "decide": "[data-gallery]",
    TRAINED: "[data-state='trained']",
    "understand&topic=coin": "figure svg",
    "weights": ".ridge",
    "results": ".empty",
    "runs": "figure path.series",
}


def settle(page):
    """Wait until the page looks the same twice."""
    last = None
    for _ in range(40):
        now = page.screenshot(animations="disabled", caret="hide")
        if now == last:
            return now
        last = now
        page.wait_for_timeout(250)
    return last


def reduced(content):
    image = Image.open(io.BytesIO(content)).convert("L")
    return image.resize((image.width // REDUCED, image.height // REDUCED), Image.Resampling.BOX)


def difference(one, other):
    """The share of pixels that differ by more than is allowed; a shift by one pixel is not a difference."""
    a, b = (np.asarray(image, dtype=np.int16) for image in (one, other))
    padded = np.pad(b, 1, mode="edge")
    shifted = [
        padded[1 + dy : 1 + dy + b.shape[0], 1 + dx : 1 + dx + b.shape[1]] for dy in (-1, 0, 1) for dx in (-1, 0, 1)
    ]
    return float((np.min([np.abs(a - each) for each in shifted], axis=0) > LEVELS).mean())


def add_style(page, style):
    page.evaluate(
        """(style) => {
            const sheet = new CSSStyleSheet();
            sheet.replaceSync(style);
            document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
        }""",
        style,
    )


def look(visited, query, ready):
    page = visited.open(f"?page={query}")
    if query == "draw":
        page.get_by_role("button", name="Digit 7", exact=True).click()
    page.locator(ready).first.wait_for(state="attached")
    add_style(page, FONT)
    page.evaluate("scrollTo(0, 0)")
    return reduced(settle(page))


def sheet(images):
    whole = Image.new("L", (sum(image.width + 4 for image in images), images[0].height), 128)
    left = 0
    for image in images:
        whole.paste(image, (left, 0))
        left += image.width + 4
    return whole


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_every_page_looks_as_it_did(visit, width, height, scheme, tmp_path):
    visited = visit(width=width, height=height, scheme=scheme, has_touch=width < 1000)
    images = {query: look(visited, query, ready) for query, ready in PAGES.items()}
    kept = REFERENCES / f"{width}-{scheme}.png"
    if RENEW:
        REFERENCES.mkdir(exist_ok=True)
        sheet(list(images.values())).save(kept, optimize=True)
        return
    with Image.open(kept) as opened:
        known = opened.convert("L")
    sheet(list(images.values())).save(tmp_path / kept.name)
    left, changed = 0, {}
    for query, image in images.items():
        share = difference(image, known.crop((left, 0, left + image.width, image.height)))
        left += image.width + 4
        if share > SHARE:
            changed[query] = f"{share:.1%} differs"
    assert changed == {}, (
        f"compare {tmp_path / kept.name} with {kept}; after a change that is meant: make browsers RENEW=1"
    )


def test_a_page_that_lost_a_part_is_noticed(visit):
    visited = visit(width=1440, height=900)
    before = look(visited, "decide", PAGES["decide"])
    assert difference(look(visited, "decide", PAGES["decide"]), before) <= SHARE / 4
    for style in (
        ".tiles { display: none }",
        "body { background: #14181b }",
        ".card { border: 0; transform: translateX(60px) }",
    ):
        look(visited, "decide", PAGES["decide"])
        add_style(visited.page, style)
        assert difference(reduced(settle(visited.page)), before) > SHARE, style
    dark = look(visit(width=1440, height=900, scheme="dark"), "decide", PAGES["decide"])
    assert difference(dark, before) > 0.5
