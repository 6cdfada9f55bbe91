"""Decide finds a threshold for an error, Understand shows the labels to ask for, Draw says what is unlike the data."""

import contextlib
import shutil

import pytest


def test_an_error_can_be_chosen_instead_of_a_threshold(visit):
    page = visit().open("?page=decide&model=variational&draws=20")
    part = page.get_by_role("region", name="Choose an error")
    part.get_by_label("Or choose the error to allow").select_option("0.05")
    part.get_by_role("button", name="Find the threshold").click()
    part.get_by_text("With 95% confidence, at most 5.0% of the accepted answers are wrong").wait_for()
    assert "threshold=" in page.url


def test_the_labels_to_ask_for_are_numbered_on_the_board(visit):
    page = visit().open("?page=understand&epochs=100&n=40")
    part = page.get_by_role("group", name="Which labels would you ask for next?")
    find = part.get_by_role("button", name="Show these places")
    # The page trains when it is opened.
    page.locator("#training-status[data-state=trained]").wait_for(timeout=300_000)
    find.click()
    part.get_by_text("It asks for labels at (").wait_for()
    assert page.locator("svg[role=application] circle.ask-ring").count() == 5


@pytest.fixture
def checked_studio(program, studio, browser, tmp_path):
    from studio_server import make_runs, serving

    from bayesify.cli import main

    run = make_runs(tmp_path / "made")["point"]
    shutil.copytree(run, tmp_path / "checked")
    with contextlib.redirect_stdout(None):
        assert main(["unknown", str(tmp_path / "checked")]) == 0
    with serving([tmp_path / "checked"], tmp_path) as address:
        yield address


def test_a_letter_is_unlike_the_training_data(browser, checked_studio):
    page = browser.new_page()
    page.goto(f"{checked_studio}/?page=draw&threshold=0")
    page.get_by_role("button", name="Letter M").click()
    page.get_by_text("unlike the training data").first.wait_for()
    assert "I do not know" in page.locator(".verdict").first.inner_text()
    page.get_by_role("button", name="Digit 0").click()
    page.locator(".verdict:not(.unsure)").wait_for()
    page.close()
