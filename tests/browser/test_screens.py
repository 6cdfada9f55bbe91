"""Every page at three widths, light and dark, with a run of every method: nothing fails, nothing is cut, all can be read."""

import base64
import json
import re

import pytest
from PIL import Image

pytest.importorskip("playwright", reason="playwright is not installed: pip install 'bayesify[dev]'")

from playwright.sync_api import expect

from bayesify.methods.cards import CARDS

PAGES = ("draw", "decide", "understand", "weights", "results", "runs")
# One look at each width, phone first; light and dark in turn.
SCREENS = [(390, 844, "light"), (390, 844, "dark"), (768, 1024, "dark"), (1440, 900, "light")]
READY = {
    "draw": "article",
    "decide": "[data-gallery]",
    "understand": "[data-state='trained']",
    "weights": ".ridge",
    "results": ".empty",
    "runs": ".runs-table",
}


@pytest.fixture(scope="module")
def studio(program, every_run, tmp_path_factory):
    from studio_server import serving

    with serving([every_run], tmp_path_factory.mktemp("results")) as address:
        yield address


def shown(visited, name):
    page = visited.open(f"?page={name}{'&epochs=20&n=20&units=4&method=point' if name == 'understand' else ''}")
    if name == "draw":
        page.get_by_role("button", name="Digit 7", exact=True).click()
    page.locator(READY[name]).first.wait_for(state="attached")
    return page


FOUR = ("point", "ensemble", "mc-dropout", "variational")
SMALL_TEXT = """() => [...document.querySelectorAll("svg text")].filter((text) => text.checkVisibility() && text.getBBox().width)
  .map((text) => [text.textContent, parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)])
  .filter(([, size]) => size < 11.9)"""
SMALL_BUTTONS = """() => [...document.querySelectorAll("button:not(.word), select, input[type=text], nav a, .brand, .runs-table a, .cards a, summary")].filter((button) => button.checkVisibility())
  .map((button) => [button.textContent.slice(0, 30), Math.round(button.getBoundingClientRect().height)]).filter(([, height]) => height < 40)"""
CUT = """() => [...document.querySelectorAll("main *")].filter((element) => element.checkVisibility() && !element.closest(".scroll, svg, .unseen, nav"))
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1).map((element) => element.outerHTML.slice(0, 90))"""


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_every_page_can_be_read_at_every_width(visit, width, height, scheme):
    visited = visit(width=width, height=height, scheme=scheme, has_touch=width < 1000)
    for name in PAGES:
        page = shown(visited, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(CUT) == [], name
        assert page.evaluate(SMALL_TEXT) == [], name
        if width < 1000:
            assert page.evaluate(SMALL_BUTTONS) == [], name
        folded = page.locator("details.fold")
        if folded.count():
            assert folded.first.evaluate("fold => fold.open") == (width > 700), f"settings of {name}"


def test_every_method_is_shown_on_every_page(visit, every_run):
    visited = visit(width=1440)
    page = shown(visited, "draw")
    expect(page.locator("article")).to_have_count(len(CARDS))
    for name in (*CARDS, "gap"):
        page = visited.open(f"?page=weights&model={name}")
        expect(page.get_by_role("combobox", name="Run").locator("option")).to_have_count(len(CARDS) + 1)
        expect(page.get_by_role("img", name=re.compile("^Densities of the weights"))).to_be_visible()
        if name in {"variational", "gap"}:
            expect(page.get_by_role("img", name=re.compile("drawn connections left"))).to_be_visible()
        else:
            expect(page.locator("[data-why]")).to_contain_text("has no posterior width for each weight")
        expect(page.get_by_role("alert")).to_have_count(0)
    for name in CARDS:
        page = visited.open(f"?page=decide&model={name}")
        expect(page.locator("[data-gallery]")).to_have_count(4)
        page = visited.open(f"?page=runs&own={name}")
        expect(page.get_by_role("region", name="Least sure", exact=True)).to_be_visible()
    page = visited.open("?page=runs&own=gap")
    expect(page.get_by_role("region", name="Least sure", exact=True)).to_contain_text("95% from")


# Draw


def test_pad_and_verdicts_are_on_one_screen(visit):
    for width, height in ((390, 844), (768, 1024), (1440, 900)):
        visited = visit(width=width, height=height, has_touch=width < 1000)
        page = visited.page

        def only_four(route):
            found = route.fetch().json()
            route.fulfill(json={**found, "models": [model for model in found["models"] if model["name"] in FOUR]})

        page.route("**/studio/api/models", only_four)
        page = shown(visited, "draw")
        page.evaluate("scrollTo(0, 0)")
        boxes = [page.locator(".pad").bounding_box(), *(each.bounding_box() for each in page.locator(".verdict").all())]
        assert len(boxes) == 5
        for box in boxes:
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= height, (width, box)
        if width == 1440:
            assert len({box["y"] // 40 for box in boxes[1:]}) == 1, "four cards stand in one row"
        page.unroute_all(behavior="ignoreErrors")


def test_confident_mistakes_are_counted(visit):
    page = shown(visit(width=1440), "draw")
    threshold = page.get_by_role("slider", name=re.compile("at least this sure"))
    threshold.fill("0")
    labels = [each.inner_text() for each in page.locator(".verdict strong").all()]
    names = [each.get_attribute("data-model") for each in page.locator("article").all()]
    for name, label in zip(names, labels, strict=True):
        wrong = page.locator(f"[data-model='{name}'] .fooled")
        expect(wrong).to_have_text(f"Sure but wrong: {int(label != '7')} of 1")
    # A letter is none of the classes: at a threshold of zero every network is wrong.
    page.get_by_role("button", name="Letter K").click()
    expect(page.locator(".fooled").first).to_contain_text("of 2")
    page.get_by_role("button", name="None of these", exact=True).get_attribute("aria-pressed")
    expect(page.get_by_role("region", name="Fool it")).to_contain_text("Drawings counted: 2.")
    threshold.fill("1")
    for each in page.locator(".fooled").all():
        expect(each).to_have_text("Sure but wrong: 0 of 2")
    page.get_by_role("button", name="Start counting again").click()
    expect(page.get_by_role("region", name="Fool it")).to_contain_text("Nothing counted yet")


def test_a_card_to_share_has_its_size_and_its_drawing(visit, tmp_path):
    visited = visit(width=1440)

    def refused(route):
        found = route.fetch().json()
        four = [answer for answer in found["answers"] if answer["method"] in FOUR]
        route.fulfill(json={**found, "answers": [{**answer, "known": False} for answer in four]})

    visited.page.route("**/studio/api/draw", refused)
    page = shown(visited, "draw")
    page.evaluate(
        """() => {
          window.written = [];
          const kind = OffscreenCanvasRenderingContext2D.prototype, write = kind.fillText;
          kind.fillText = function (text, ...rest) { window.written.push(text); return write.call(this, text, ...rest); };
        }"""
    )
    with page.expect_download() as card:
        page.get_by_role("button", name="Save a card to share").click()
    card.value.save_as(tmp_path / "card.png")
    image = Image.open(tmp_path / "card.png").convert("L")
    assert image.size == (1200, 630)
    drawing = image.crop((55, 125, 465, 535))
    dark = sum(drawing.histogram()[:80]) / (410 * 410)
    assert 0.03 < dark < 0.5, "the seven is on it"
    assert sum(image.crop((520, 120, 1150, 540)).histogram()[:120]) > 2000, "so are the verdicts"
    written = page.evaluate("written")
    assert written.count("unlike the training data") == 4
    assert [text for text in written if "…" in text] == [], "nothing is cut off"
    page.unroute_all(behavior="ignoreErrors")


# Colours


def test_a_network_keeps_its_colour_whichever_is_chosen(visit):
    visited = visit(width=1440)

    def colours(chosen):
        page = visited.open(f"?page=decide&model={chosen}")
        # The curves of the others arrive one by one.
        expect(page.locator("figure").first.locator("path.series")).to_have_count(len(CARDS))
        lines = "figure => [...figure.querySelectorAll('line.series')].map((line) => getComputedStyle(line).stroke)"
        names = "figure => [...figure.querySelectorAll('text.direct')].map((text) => text.textContent)"
        figure = page.locator("figure").first
        return dict(zip(figure.evaluate(names), figure.evaluate(lines), strict=True))

    first, second = colours("variational"), colours("point")
    assert first == second
    assert len(set(first.values())) >= min(8, len(CARDS))


# Understand


def test_all_methods_train_beside_hmc(visit):
    visited = visit(width=1440)
    page = visited.page
    page.route("**/understand/options", lambda route: route.fulfill(json=few(route.fetch().json())))
    visited.open("?page=understand&epochs=20&n=20&units=4&method=point&all=1")
    tiles = page.locator(".tile-grid li")
    expect(tiles).to_have_count(3, timeout=300_000)
    expect(page.locator("#ten-status")).to_contain_text("Closest to HMC on these points", timeout=300_000)
    assert tiles.first.get_attribute("data-method") == "hmc"
    expect(tiles.first).to_contain_text("the reference")
    for place in (1, 2):
        expect(tiles.nth(place)).to_contain_text(re.compile(r"\d+\.\d% from HMC · [\d.]+\ss"))
    assert "all=1" in page.url


def few(options):
    return {**options, "methods": [each for each in options["methods"] if each["name"] in {"point", "laplace", "hmc"}]}


def test_training_is_played_again_step_by_step(visit):
    visited = visit(width=1440)
    page = visited.page
    side = 56
    zeros = base64.b64encode(bytes(side * side)).decode()
    surface = dict.fromkeys(("probs", "aleatoric", "epistemic"), zeros)
    frame = {"epochs": 40, "low": [-1, -1], "high": [1, 1], "side": side, **surface, "accuracy": 1.0, "nll": 0.1}
    frame |= {"most_epistemic": 0.1, "draws": 5, "ask": None}
    events = []
    for step in range(1, 5):
        told = {"share": step / 4, "epoch": 10 * step, "seconds": float(step), "left": 4.0 - step}
        events.append(("frame", {**frame, **told, "losses": [[k, 5.0 - k] for k in range(1, step + 1)]}))
    events.append(("done", {"trained": "x"}))
    body = "".join(f"event: {kind}\ndata: {json.dumps(content)}\n\n" for kind, content in events)
    page.route("**/understand/train", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    visited.open("?page=understand&n=20")
    player = page.get_by_role("group", name="Training, frame by frame")
    expect(player).to_contain_text("frame 4 of 4, epoch 40")
    scrubber = player.get_by_role("slider")
    scrubber.fill("0")
    expect(player).to_contain_text("frame 1 of 4, epoch 10")
    player.get_by_role("button", name="Step").click()
    expect(player).to_contain_text("frame 2 of 4, epoch 20")
    player.get_by_role("button", name="Play").click()
    expect(player).to_contain_text("frame 4 of 4")
    expect(page.get_by_role("img", name="Training loss from 4 to 1 nats per example.")).to_be_visible()


# Weights


def test_edges_dissolve_while_the_slider_moves(visit):
    page = shown(visit(width=1440), "weights")
    graph = page.locator(".graph")

    def left():
        return int(re.search(r"with (\d+) of", graph.get_attribute("aria-label"))[1])

    slider = page.get_by_role("slider", name=re.compile("Remove this share"))
    counts = []
    for share in ("0", "0.5", "0.95"):
        slider.fill(share)
        counts.append(left())
    assert counts[0] > counts[1] > counts[2] > 0
    assert counts[1] / counts[0] == pytest.approx(0.5, abs=0.15)
    expect(page.locator(".large").first).to_contain_text("%")
    expect(page.locator(".large").nth(1)).to_contain_text("5%")


# The tour, and what visitors bring


def test_the_tour_goes_through_six_steps(visit):
    page = visit(width=1440).open("?page=draw&tour=1")
    tour = page.locator(".tour")
    for step, name in enumerate(("draw", "draw", "decide", "understand", "understand", "weights"), start=1):
        expect(tour).to_contain_text(f"{step} of 6")
        expect(page.locator(f"#page-{name}")).to_be_visible()
        for word in tour.locator(".word").all():
            word.hover()
            expect(page.locator(".looked-at").first).to_be_attached()
        tour.get_by_role("button", name="Next" if step < 6 else "Finish").click()
    expect(tour).to_have_count(0)
    assert "tour" not in page.url


def test_the_words_of_a_step_do_not_wait_for_its_page(visit):
    """Else Next is pressed again while a slow page predicts, and starts it anew."""
    visited = visit(width=1440)
    page = visited.page
    page.route("**/decide?*", lambda route: None)
    visited.open("?page=draw&tour=2")
    tour = page.locator(".tour")
    tour.get_by_role("button", name="Next").click()
    expect(tour).to_contain_text("3 of 6")
    expect(page.locator("#page-decide")).to_contain_text("predicts every test example")
    tour.get_by_role("button", name="Next").click()
    expect(tour).to_contain_text("4 of 6")
    expect(page.locator("[data-state='trained']")).to_be_attached()
    page.unroute_all(behavior="ignoreErrors")


def test_a_run_folder_is_brought(visit, every_run):
    visited = visit(width=1440)
    page = shown(visited, "runs")
    page.locator("input[webkitdirectory]").set_input_files(every_run / "swag")
    expect(page.get_by_role("region", name="Least sure", exact=True)).to_be_visible()
    expect(page.locator(".runs-table")).to_contain_text("swag-")
    page.get_by_role("link", name="Weights", exact=True).first.click()
    expect(page.get_by_role("combobox", name="Run").locator("option")).to_have_count(len(CARDS) + 2)
    page = shown(visited, "runs")
    page.locator("input[type=file]:not([webkitdirectory])").set_input_files(
        {"name": "one.csv", "mimeType": "text/csv", "buffer": b"nothing"}
    )
    expect(page.get_by_role("alert")).to_contain_text("one.csv")
    visited.complaints = [line for line in visited.complaints if "422" not in line]
