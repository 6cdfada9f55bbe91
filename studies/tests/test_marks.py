"""Marks on a page: only what is between them changes."""

import pytest

from bayesify_studies import marks


def test_what_is_between_marks_is_replaced_and_the_rest_stays():
    page = "It took <!-- a -->9<!-- end --> s,\n<!-- b -->\nold\n<!-- end of b -->\nthen <!-- a -->8<!-- end --> s."
    new = marks.filled(page, {"a": "7"})
    assert new == page.replace(">9<", ">7<").replace(">8<", ">7<")
    assert marks.filled(page, {"b": "\nnew\n"}) == page.replace("old", "new")
    assert marks.names(page) == ["a", "b", "a"]


@pytest.mark.parametrize("broken", ["none", "<!-- end --> <!-- a -->", "<!-- a --> <!-- b --> <!-- end -->"])
def test_a_page_without_a_mark_or_its_end_is_refused(broken):
    with pytest.raises(ValueError, match="needs <!-- a -->"):
        marks.filled(broken, {"a": "1"})
