"""Each of the six pages is used as a person would use it."""

import json
import re

import pytest
from PIL import Image

pytest.importorskip("playwright", reason="playwright is not installed: pip install 'bayesify[dev]'")

from playwright.sync_api import expect

PAGES = ("draw", "decide", "understand", "weights", "results", "runs")
TOPICS = {"plane": "understand", "coin": "understand&topic=coin", "line": "understand&topic=line"}


def stroke(page, points):
    """Draw on the pad with the mouse."""
    box = page.locator(".pad").bounding_box()
    for place, (x, y) in enumerate(points):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=1 if place == 0 else 6)
        if place == 0:
            page.mouse.down()
    page.mouse.up()


def number(text):
    return float(re.search(r"-?[\d.,]+", text)[0].replace(",", ""))


def tile(page, name):
    return page.locator(".tile", has=page.get_by_text(name, exact=True)).locator("dd")


def answer(page, name):
    return page.get_by_role("article", name=name, exact=True)


# Draw


def test_every_network_answers_while_a_digit_is_drawn(visit):
    page = visit().open()
    expect(page.locator(".answers")).to_contain_text("The pad is empty")
    stroke(page, [(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)])
    expect(page.locator("article")).to_have_count(3)
    expect(answer(page, "Plain network").locator(".verdict strong")).to_have_text("7")
    card = answer(page, "Variational")
    expect(card).to_contain_text("30 draws")
    dots = card.locator(".draw-dots").first.get_attribute("d")
    assert dots.count("h0") == 30
    assert answer(page, "Ensemble").locator(".draw-dots").first.get_attribute("d").count("h0") == 3
    expect(card.get_by_role("img", name=re.compile("aleatoric.*epistemic"))).to_be_visible()
    expect(page.get_by_role("img", name="What the network sees: a picture of 8 by 8 pixels")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("Plain network: 7")
    card.get_by_text("The numbers").click()
    expect(card.get_by_role("table").get_by_role("row")).to_have_count(10)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("article")).to_have_count(0)
    expect(page.locator("#live")).to_contain_text("empty")


def test_the_threshold_decides_between_an_answer_and_i_do_not_know(visit):
    page = visit().open()
    page.get_by_role("button", name="Letter X").click()
    slider = page.get_by_role("slider", name=re.compile("at least this sure"))
    slider.fill("1")
    expect(answer(page, "Variational").locator(".verdict strong")).to_have_text("I do not know")
    expect(page.locator("#live")).to_contain_text("I do not know")
    slider.fill("0")
    expect(answer(page, "Variational").locator(".verdict strong")).not_to_have_text("I do not know")
    assert "threshold=0" in page.url


def test_a_digit_is_drawn_by_keys_alone(visit):
    page = visit().open()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "pad":
            break
    assert page.evaluate("document.activeElement.className") == "pad"
    for _ in range(8):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    expect(page.get_by_role("application", name="Drawing pad, pen down")).to_be_focused()
    for _ in range(16):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(answer(page, "Plain network").locator(".verdict strong")).to_have_text("1")
    page.keyboard.press("Delete")
    expect(page.locator("article")).to_have_count(0)


def test_what_no_network_knows_is_one_click_away(visit, tmp_path):
    page = visit().open()
    verdicts = page.locator("article .verdict")
    for name in ("Letter K", "Scribble", "Withheld 3", "Test image", "Digit 4"):
        page.get_by_role("button", name=name, exact=True).click()
        expect(verdicts).to_have_count(3)
        page.get_by_role("button", name="Clear").click()
        expect(verdicts).to_have_count(0)
    clothes = page.get_by_role("button", name="Clothes")
    if clothes.is_disabled():
        expect(page.get_by_text("For clothes, put Fashion-MNIST into $BAYESIFY_DATA")).to_be_visible()
    else:
        clothes.click()
        expect(verdicts).to_have_count(3)
    seven = Image.new("L", (90, 90), 255)
    seven.paste(0, (25, 15, 65, 25))
    seven.paste(0, (52, 15, 65, 80))
    seven.save(tmp_path / "seven.png")
    page.locator("input[type=file]").set_input_files(tmp_path / "seven.png")
    expect(verdicts).to_have_count(3)
    (tmp_path / "words.png").write_text("not a picture")
    page.locator("input[type=file]").set_input_files(tmp_path / "words.png")
    expect(page.get_by_role("alert")).to_contain_text("words.png could not be read")


def test_a_picture_can_be_dropped_on_the_pad(visit):
    page = visit().open()
    page.locator(".pad").wait_for()
    page.evaluate(
        """async () => {
          const canvas = new OffscreenCanvas(60, 60);
          const context = canvas.getContext("2d");
          context.fillStyle = "#fff"; context.fillRect(0, 0, 60, 60);
          context.fillStyle = "#000"; context.fillRect(26, 8, 9, 44);
          const transfer = new DataTransfer();
          transfer.items.add(new File([await canvas.convertToBlob()], "one.png", { type: "image/png" }));
          document.querySelector(".pad-frame").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }"""
    )
    expect(answer(page, "Plain network").locator(".verdict strong")).to_have_text("1")


def test_a_finger_draws_too(visit):
    page = visit(has_touch=True, width=400).open()
    box = page.locator(".pad").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("article")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than a phone"


def test_a_link_shows_the_same_drawing_and_controls_can_be_hidden(visit):
    first = visit().open()
    first.get_by_role("button", name="Digit 5").click()
    first.get_by_role("slider", name=re.compile("Posterior draws")).fill("12")
    expect(answer(first, "Variational")).to_contain_text("12 draws")
    expect(first).to_have_url(re.compile("strokes="))
    shown = answer(first, "Variational").locator(".verdict").inner_text()
    second = visit().open(first.url.partition("/?")[2].join(["?", "&controls=0"]))
    expect(answer(second, "Variational")).to_contain_text("12 draws")
    assert answer(second, "Variational").locator("strong").inner_text() == shown.splitlines()[0]
    expect(second.get_by_role("slider")).to_have_count(0)
    for name in ("Undo", "Clear", "Digit 1"):
        expect(second.get_by_role("button", name=name, exact=True)).to_have_count(0)
    second.get_by_role("link", name="Decide").click()
    expect(second).to_have_url(re.compile("controls=0"))


def taken(page, folder, name):
    """The data of what is shown."""
    with page.expect_download() as data:
        page.get_by_role("button", name="Data").click()
    data.value.save_as(folder / name)
    return json.loads((folder / name).read_text())


def link_of(page):
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name=re.compile("Copied|address bar"))).to_be_visible()
    return page.url.partition("/?")[2].join(["?", ""])


def test_a_link_holds_every_bit_of_a_drawing_by_hand(visit, tmp_path):
    first = visit().open()
    stroke(first, [(0.301, 0.2037), (0.7013, 0.2111), (0.4507, 0.8523)])
    expect(first.locator("article")).to_have_count(3)
    second = visit().open(link_of(first))
    expect(second.locator("article")).to_have_count(3)
    assert taken(second, tmp_path, "second.json") == taken(first, tmp_path, "first.json")


def test_a_link_shows_the_same_image_and_says_what_it_cannot_carry(visit, tmp_path):
    first = visit().open()
    for name in ("Test image", "Withheld 3"):
        first.get_by_role("button", name=name).click()
        # At once: what is being fetched is what the link is for.
        second = visit().open(link_of(first))
        expect(second.locator("article")).to_have_count(3)
        expect(first.locator("article")).to_have_count(3)
        assert taken(second, tmp_path, "second.json") == taken(first, tmp_path, "first.json")
    Image.new("L", (30, 30), 200).save(tmp_path / "grey.png")
    first.locator("input[type=file]").set_input_files(tmp_path / "grey.png")
    expect(first).to_have_url(re.compile("image=own"))
    link = link_of(first)
    expect(first.locator(".export")).to_contain_text("does not include your own picture")
    expect(visit().open(link).get_by_role("alert")).to_contain_text("A link cannot include it")


def test_a_drawing_is_still_there_after_a_look_at_another_page(visit):
    page = visit().open()
    page.get_by_role("button", name="Digit 7", exact=True).click()
    expect(page.locator("article")).to_have_count(3)
    page.get_by_role("link", name="Weights").click()
    expect(page.locator("#page-weights")).to_be_visible()
    page.get_by_role("link", name="Draw").click()
    expect(answer(page, "Plain network").locator(".verdict strong")).to_have_text("7")


def test_what_is_shown_can_be_taken_away(visit, tmp_path):
    page = visit().open()
    page.get_by_role("button", name="Digit 2", exact=True).click()
    expect(page.locator("article")).to_have_count(3)
    with page.expect_download() as data:
        page.get_by_role("button", name="Data").click()
    data.value.save_as(tmp_path / "data.json")
    assert len(json.loads((tmp_path / "data.json").read_text())["answers"]) == 3
    with page.expect_download() as picture:
        page.get_by_role("button", name="Picture", exact=True).click()
    picture.value.save_as(tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text()
    assert "Variational" in drawn
    assert drawn.count("<image") >= 2
    page.get_by_role("button", name="Python").click()
    expect(page.get_by_role("dialog").locator("code")).to_contain_text("bf.load(")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


# Decide


def test_the_threshold_trades_coverage_for_errors(visit):
    page = visit().open("?page=decide")
    slider = page.get_by_role("slider", name=re.compile("confidence is at least"))
    slider.fill("0")
    expect(tile(page, "Coverage")).to_contain_text("100.0%")
    every = number(tile(page, "Error of what is accepted").inner_text())
    wrong = number(tile(page, "Wrong but accepted").inner_text())
    expect(page.locator("[data-gallery^='Wrong'] li")).to_have_count(min(30, int(wrong)))
    slider.focus()
    for _ in range(9):
        page.keyboard.press("PageUp")
    assert number(tile(page, "Coverage").inner_text()) < 100
    assert number(tile(page, "Error of what is accepted").inner_text()) <= every
    assert (
        int(number(tile(page, "Wrong but accepted").inner_text())) == page.locator("[data-gallery^='Wrong'] li").count()
    )
    refused = int(number(tile(page, "Refused").inner_text()))
    expect(page.locator("[data-gallery^='Refused'] li")).to_have_count(min(30, refused))
    expect(page.locator("[data-gallery^='Unknown']")).to_be_visible()
    dot = page.locator("circle.mark")
    before = dot.get_attribute("cx")
    slider.fill("0.5")
    assert dot.get_attribute("cx") != before, "the curve follows the threshold"
    page.get_by_role("combobox", name="Confidence measured by").select_option("epistemic")
    expect(page.get_by_role("slider", name=re.compile("epistemic uncertainty is at most"))).to_be_visible()
    page.get_by_role("combobox", name="Run").select_option("point")
    expect(page).to_have_url(re.compile("model=point"))
    expect(page.get_by_role("img", name=re.compile("Risk against coverage for point"))).to_be_visible()


def test_a_run_without_unknown_inputs_has_no_tile_for_them(visit):
    page = visit().open()

    def without(route):
        table = route.fetch().json()
        route.fulfill(json={**table, "unknown": None})

    page.route("**/studio/api/decide?*", without)
    page.get_by_role("link", name="Decide").click()
    expect(tile(page, "Coverage")).to_contain_text("%")
    expect(page.locator(".tile")).to_have_count(4)
    assert "null" not in page.locator("#main").inner_text()
    # The curves of other runs may still be on their way.
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize("name", ["decide", "weights"])
def test_a_link_to_a_run_that_is_not_here_says_so(visit, name):
    page = visit().open(f"?page={name}&model=elsewhere")
    expect(page.get_by_role("alert")).to_contain_text("elsewhere, which is not loaded here. Variational is shown")


# Understand


def test_a_link_to_a_trained_surface_trains_it_again(visit):
    # The page says which state it is in: however slow the machine, there is nothing to guess.
    patient = {"timeout": 300_000}
    page = visit().open("?page=understand&epochs=20&n=20&units=4&method=point")
    status = page.locator("#training-status")
    # The page opens with something trained.
    expect(status).to_have_attribute("data-state", "trained", **patient)
    expect(page).to_have_url(re.compile("trained=1"))
    again = visit().open(f"?{page.url.partition('/?')[2]}")
    expect(again.locator("#training-status")).to_have_attribute("data-state", "trained", **patient)
    said = [re.sub(r"in [0-9.]+\s(s|min)", "", each.locator("#training-status").inner_text()) for each in (page, again)]
    assert said[0] == said[1]
    # Points that have changed are no longer those of the link.
    again.get_by_role("radio", name="Remove").check()
    board = again.get_by_role("application", name="Points and posterior surface")
    board.press("Delete")
    expect(again.locator("#training-status")).to_have_attribute("data-state", "stale")
    expect(again).not_to_have_url(re.compile("trained=1"))


def no_training(page, part='event: problem\ndata: {"detail": "not now"}\n\n'):
    """Every training ends at once with these events."""
    page.route("**/understand/train", lambda route: route.fulfill(body=part, content_type="text/event-stream"))


def test_training_waits_for_its_points_and_the_last_ones_asked_for_count(visit):
    visited, held = visit(), []
    page = visited.page

    def hold(route):
        held.append(route)

    page.route("**/understand/points?*", hold)
    no_training(page)
    visited.open("?page=understand&n=20")
    train = page.get_by_role("button", name="Train", exact=True)
    expect(train).to_be_disabled()
    page.get_by_role("combobox", name="Data", exact=True).select_option("circles")
    while len(held) < 2:
        page.wait_for_timeout(20)
    first, last = held
    last.continue_()
    expect(train).to_be_enabled()
    expect(page.get_by_text("20 points")).to_be_visible()
    board = page.get_by_role("application", name="Points and posterior surface")
    circles = board.inner_html()
    with page.expect_response("**/understand/points?data=moons*"):
        first.continue_()
    page.wait_for_timeout(200)
    assert board.inner_html() == circles


def test_a_stream_that_is_cut_off_is_said_to_be(visit):
    visited = visit()
    page = visited.page
    no_training(page, 'event: frame\ndata: {"share": 0.1}\n\n')
    visited.open("?page=understand&n=20")
    expect(page.get_by_role("alert")).to_contain_text("is bayesify serve still running?")
    expect(page.locator("#training-status")).to_contain_text("did not finish")


def test_training_streams_into_surfaces_and_asks_for_the_next_label(visit):
    page = visit().open("?page=understand&epochs=120&n=40&units=8")
    expect(page.get_by_text("40 points")).to_be_visible()
    status = page.locator("#training-status")
    expect(status).to_contain_text("would teach it most")
    colours = page.evaluate(
        "() => new Set(document.querySelector('.surface canvas').getContext('2d').getImageData(0, 0, 448, 448).data).size"
    )
    assert colours > 50
    page.get_by_role("button", name="Six posterior draws").click()
    expect(page.get_by_role("img", name=re.compile("Posterior draw"))).to_have_count(6)
    page.get_by_role("button", name="Hidden units").click()
    expect(page.get_by_role("img", name=re.compile("Hidden unit"))).to_have_count(8)
    expect(page.get_by_role("img", name=re.compile("Training loss from"))).to_be_visible()
    page.get_by_role("button", name="Label it ▲").click()
    expect(page.get_by_text("41 points")).to_be_visible()
    expect(status).to_contain_text("trained in")
    page.get_by_role("combobox", name="Method").select_option("point")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(status).to_contain_text("does not suggest a label")


def test_points_are_added_moved_and_removed_by_mouse_and_by_keys(visit):
    page = visit().open("?page=understand&n=20")
    expect(page.get_by_text("20 points", exact=True)).to_be_visible()
    board = page.get_by_role("application", name="Points and posterior surface")
    board.scroll_into_view_if_needed()
    box = board.bounding_box()
    page.mouse.click(box["x"] + 12, box["y"] + 12)
    expect(page.get_by_text("21 points", exact=True)).to_be_visible()
    page.mouse.move(box["x"] + 12, box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 30, steps=4)
    page.mouse.up()
    expect(page.get_by_text("21 points", exact=True)).to_be_visible()
    page.get_by_role("radio", name="Remove").check()
    box = board.bounding_box()
    page.mouse.click(box["x"] + 40, box["y"] + 30)
    expect(page.get_by_text("20 points", exact=True)).to_be_visible()
    board.focus()
    page.keyboard.press("b")
    expect(page.get_by_text("21 points", exact=True)).to_be_visible()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.press("Delete")
    expect(page.get_by_text("20 points", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("points="))


def test_what_cannot_be_trained_is_said_in_words(visit):
    visited = visit()
    page = visited.open("?page=understand&n=20&prior=normal&scale=-1")
    expect(page.get_by_role("alert")).to_contain_text("scale")
    visited.complaints = [line for line in visited.complaints if "422" not in line]


def test_the_coin_against_its_grid(visit):
    page = visit().open("?page=understand&topic=coin")
    expect(tile(page, "Next toss is heads (exact)")).to_contain_text("0.8000")
    expect(tile(page, "On a grid of 19")).to_contain_text("0.7793")
    tails = page.get_by_role("slider", name=re.compile("^Tails"))
    tails.focus()
    page.keyboard.press("ArrowRight")
    expect(tile(page, "Next toss is heads (exact)")).to_contain_text("0.6667")
    assert "tails=1" in page.url


def test_the_points_of_the_line_are_dragged(visit):
    page = visit().open("?page=understand&topic=line")
    slope = tile(page, "Slope (exact)")
    expect(slope).to_contain_text("2.920")
    handle = page.locator("[data-point='3']").bounding_box()
    page.mouse.move(handle["x"] + 8, handle["y"] + 8)
    page.mouse.down()
    page.mouse.move(handle["x"] + 8, handle["y"] - 60, steps=5)
    page.mouse.up()
    expect(slope).not_to_contain_text("2.920")
    dragged = number(slope.inner_text())
    assert dragged > 3
    page.locator("[data-point='0']").focus()
    page.keyboard.press("ArrowDown")
    expect(slope).not_to_contain_text(f"{dragged:.3f}")
    page.keyboard.press("Delete")
    expect(page.locator("[data-point]")).to_have_count(3)
    page.get_by_role("button", name="Start over").click()
    expect(slope).to_contain_text("2.920")


# Weights


def test_the_pruning_slider_shows_the_error_it_costs(visit):
    page = visit().open("?page=weights&fraction=0.5")
    expect(tile(page, "What it costs")).to_contain_text("points")
    removed = number(tile(page, "Weights removed").inner_text())
    slider = page.get_by_role("slider", name=re.compile("Remove this share"))
    slider.focus()
    page.keyboard.press("End")
    expect(tile(page, "Error after pruning")).to_contain_text("%")
    assert number(tile(page, "Weights removed").inner_text()) > removed
    before, after = (number(tile(page, name).inner_text()) for name in ("Error without pruning", "Error after pruning"))
    assert after > before + 10, "99% of the weights are missed"
    expect(page.get_by_role("img", name=re.compile("Histogram of signal-to-noise; 99%"))).to_be_visible()
    page.get_by_role("combobox", name="Run").select_option("point")
    expect(page.locator(".empty")).to_contain_text("has no posterior width for each weight")


def test_a_slider_that_still_moves_is_not_measured_on_the_next_run(visit):
    visited = visit()
    page = visited.open("?page=weights&fraction=0.5")
    expect(tile(page, "What it costs")).to_contain_text("points")
    expect(page.get_by_role("combobox", name="Run")).to_be_visible()
    # Both in one turn of the page, so that the slider has not rested; then longer than it would wait.
    page.evaluate(
        """() => {
          const slider = document.querySelector("[data-tour=prune] input[type=range]");
          slider.value = 0.6;
          slider.dispatchEvent(new Event("input", { bubbles: true }));
          const run = [...document.querySelectorAll("select")].find((one) => [...one.options].some(({ value }) => value === "point"));
          run.value = "point";
          run.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
    )
    expect(page.locator(".empty")).to_contain_text("has no posterior width for each weight")
    page.wait_for_timeout(400)
    assert not [url for url in visited.asked if "weights/pruned" in url and "model=point" in url]


def test_scores_are_compared_only_on_the_same_data(visit):
    def two_kinds(route):
        runs = route.fetch().json()["runs"]
        known = {"title": "accuracy", "better": "higher", "sentence": ""}
        error = {"rmse": {"value": 0.1, "text": "0.1", "title": "RMSE", "better": "lower", "sentence": ""}}
        others = [{**runs[0], "name": "numbers", "data": "houses", "kind": "regression", "scores": error}]
        for run, value in zip(runs, (0.9, 0.8, 0.7), strict=True):
            run["scores"] = {"accuracy": {**known, "value": value, "text": f"{value:.0%}"}}
        alone = {
            **runs[0],
            "name": "alone",
            "data": "other",
            "scores": {"accuracy": {**known, "value": 1.0, "text": "100%"}},
        }
        route.fulfill(json={"runs": [*runs, alone, *others]})

    visited = visit(width=1440)
    visited.page.route("**/studio/api/runs", two_kinds)
    table = visited.open("?page=runs").locator(".runs-table")
    expect(table.locator("td strong")).to_have_text(["90%"])
    expect(table.get_by_role("columnheader", name="RMSE")).to_be_visible()
    # However many scores there are, the links of each run are in sight, on a small screen with the first score.
    for link in table.get_by_role("link", name="Answers").all():
        expect(link).to_be_in_viewport(ratio=1)
    visited.page.set_viewport_size({"width": 390, "height": 844})
    expect(table.get_by_role("link", name="Answers").first).to_be_in_viewport(ratio=1)
    expect(table.locator("td strong")).to_be_in_viewport(ratio=1)
    visited.page.unroute_all(behavior="ignoreErrors")


def test_numbers_of_an_axis_leave_room_for_its_name(visit):
    def tiny_losses(route):
        runs = route.fetch().json()["runs"][:1]
        route.fulfill(json={"runs": [{**runs[0], "curves": {"loss": [[1, 30.0], [2, 1e-5]]}}]})

    visited = visit(width=390, height=844)
    visited.page.route("**/studio/api/runs", tiny_losses)
    page = visited.open("?page=runs")
    expect(page.get_by_role("heading", name="1 run", exact=True)).to_be_visible()
    number = page.locator("figure svg text", has_text="0.00001").bounding_box()
    name = page.locator("figure svg text.axis-name", has_text="log scale").bounding_box()
    assert name["x"] + name["width"] <= number["x"]
    visited.page.unroute_all(behavior="ignoreErrors")


# Results


def test_results_are_shown_or_honestly_missing(visit, reproduced_results):
    expect(visit().open("?page=results").locator(".empty")).to_contain_text("No reproduced experiments yet")
    table = {"error": {"mean": 0.0152, "standard_error": 0.0003}}
    (reproduced_results / "mnist.json").write_text(
        json.dumps({"command": "bayesify reproduce mnist", "summary": table})
    )
    Image.new("L", (40, 30), 128).save(reproduced_results / "mnist.png")
    try:
        page = visit().open("?page=results")
        card = page.locator("[data-result='mnist']")
        expect(card.get_by_role("img")).to_be_visible()
        card.get_by_role("link", name="mnist: numbers and command").click()
        expect(card).to_contain_text("bayesify reproduce mnist")
        card.get_by_text("All numbers").click()
        card.get_by_text("summary", exact=True).click()
        expect(card).to_contain_text("0.0152 ± 0.0003")
        expect(card.get_by_role("img")).to_be_visible()
        # An image has its place before it has its picture, which must not be taken away from under it.
        expect(card.get_by_role("img")).to_have_js_property("naturalWidth", 40)
    finally:
        for file in list(reproduced_results.iterdir()):
            file.unlink()


# All of them


# A phone hides words that name a link elsewhere.
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_no_page_has_an_accessibility_violation(visit, scheme, width):
    Axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe
    ready = {
        "decide": "[data-gallery]",
        "weights": ".ridge",
        "plane": ".point-0",
        "coin": ".histogram",
        "line": ".handle",
    }
    visited = visit(scheme=scheme, width=width)
    found = {}
    for name, query in {**{name: name for name in PAGES}, **TOPICS}.items():
        page = visited.open(f"?page={query}")
        if name in ready:
            page.locator(ready[name]).first.wait_for(state="attached")
        if name == "draw":
            page.get_by_role("button", name="Letter A").click()
            page.locator("article").first.wait_for()
        report = Axe().run(page, options={"resultTypes": ["violations"]})
        for broken in report.response["violations"]:
            found.setdefault(name, []).append((broken["id"], [node["html"][:120] for node in broken["nodes"][:3]]))
    assert found == {}


def test_pages_are_reached_and_left_by_keys(visit):
    page = visit().open()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for name in PAGES[1:]:
        page.get_by_role("link", name=name.capitalize(), exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator(f"#page-{name}")).to_be_visible()
        expect(page).to_have_title(re.compile(name.capitalize()))
        assert page.evaluate("document.activeElement.id") == "main"
    page.go_back()
    expect(page.locator("#page-results")).to_be_visible()


def test_a_server_that_is_gone_is_said_to_be_gone(visit):
    visited = visit()
    page = visited.open()
    page.route("**/studio/api/draw", lambda route: route.abort())
    page.get_by_role("button", name="Digit 1", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    visited.complaints = [line for line in visited.complaints if "ERR_FAILED" not in line]


def test_a_page_that_cannot_be_fetched_says_the_same(visit):
    visited = visit()
    page = visited.open()
    page.route("**/pages/decide.js", lambda route: route.abort())
    page.get_by_role("link", name="Decide").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer: is bayesify serve still running?")
    visited.complaints = [line for line in visited.complaints if "ERR_FAILED" not in line]


def test_a_wrong_token_is_said_to_be_wrong(visit):
    visited = visit()
    page = visited.page

    def guarded(route):
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_(headers={k: v for k, v in route.request.headers.items() if k != "authorization"})
        else:
            route.fulfill(status=401, json={"error": "this server needs its token"})

    page.route("**/studio/api/**", guarded)
    visited.open()
    dialog = page.get_by_role("dialog")
    for token, words in (("wrong", "Token of this server"), ("right", "The token is wrong")):
        expect(dialog).to_contain_text(words)
        dialog.locator("input").fill(token)
        dialog.get_by_role("button").click()
    expect(page.locator(".pad")).to_be_visible()
    visited.complaints = [line for line in visited.complaints if "401" not in line]


def test_charts_are_drawn_at_the_width_they_have(visit):
    for width in (380, 1600):
        page = visit(width=width).open("?page=understand&topic=coin")
        chart = page.locator("figure svg")
        expect(chart).to_be_visible()
        page.wait_for_function(
            "() => { const svg = document.querySelector('figure svg');"
            " return Math.abs(svg.viewBox.baseVal.width - svg.getBoundingClientRect().width) < 1.5; }"
        )
