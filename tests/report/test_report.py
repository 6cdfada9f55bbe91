"""The page is safe, self-contained and small; its twin has the same numbers; nothing is half written."""

import html
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from bayesify.errors import RunError
from bayesify.plots import style
from bayesify.report import Column, Report, Spread, formulas
from bayesify.report.figures import draw
from bayesify.report.page import columns

EVIL = "<script>alert('x')</script> & \"quotes\" ]]> $\\frac{"


class Reader(HTMLParser):
    """Tags, attributes and visible text of a page, refusing one whose tags do not match."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)

    def values(self, tag, name):
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def drawing(points=10, seed=0):
    axes = style.canvas()
    axes.plot(np.random.default_rng(seed).uniform(size=points), label=style.plain(EVIL))
    style.dress(axes, title=EVIL)
    style.legend(axes, "upper right")
    return axes


@pytest.fixture
def report():
    report = Report("A title", "a subtitle")
    report.headline("The answer.")
    report.alert("beware", "Variational", "beware_kind")
    report.section("Scores", "First.\n\nSecond.")
    columns = [Column("method"), Column("accuracy", ".2%", better="higher"), Column("cost", ".2g", "×", better="lower")]
    report.table(columns, [["plain", 0.987654, 1.0], ["ensemble", np.float32(0.5), None]], "A table.")
    report.section("Pictures")
    report.figure([drawing(), drawing(seed=1)], "Two pictures.", ["one", "two"], {"values": np.array([1.5, np.nan])})
    return report


def test_everything_said_is_on_the_page(report):
    page = Reader(report.html())
    for words in (
        "A title",
        "a subtitle",
        "The answer.",
        "Variational:",
        "beware",
        "Scores",
        "First.",
        "A table.",
        "Two pictures.",
    ):
        assert words in page.text
    assert page.values("img", "alt") == ["one", "two"]
    assert page.text.index("The answer.") < page.text.index("beware") < page.text.index("A table.")


def test_nothing_is_fetched_and_nothing_runs(report):
    text = report.html()
    page = Reader(text)
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    (policy,) = [value for value in page.values("meta", "content") if "default-src" in value]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        if name in {"src", "href", "srcset", "action"}:
            assert value.startswith("#" if tag == "a" else "data:image/")
    assert not re.search(r"url\(|@import|https?://", re.sub(r'src="[^"]*"', "", text))
    for source in page.values("img", "src"):
        drawn = unquote(source)
        assert "<script" not in drawn
        links = re.findall(r'href="([^"]*)"', drawn)
        assert all(link.startswith(("#", "data:image/")) for link in links)


def test_the_policy_comes_before_anything_it_governs(report):
    text = report.html()
    assert text.index("Content-Security-Policy") < text.index("<style")
    assert text.index("<meta charset") < text.index("Content-Security-Policy")


def test_words_from_outside_stay_words():
    report = Report(EVIL, EVIL)
    report.headline(EVIL)
    report.alert(EVIL, EVIL)
    report.section(EVIL, EVIL)
    report.table([EVIL, Column(EVIL, note=EVIL)], [[EVIL, EVIL]], EVIL)
    report.figure(drawing(), EVIL, EVIL)
    page = Reader(report.html())
    assert "script" not in page.tags
    assert page.text.count("<script>alert('x')</script>") == 15
    assert page.values("img", "alt") == [EVIL]


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_at_all_comes_back_as_it_was(words):
    report = Report(words)
    report.table(["x"], [[words]])
    text = report.html()
    assert f'<th scope="row">{escape(words)}</th>' in text
    tags = Reader(text).tags
    assert tags.count("table") == 1
    assert "script" not in tags


def test_the_twin_has_the_numbers_that_are_shown(report, tmp_path):
    path = report.write(tmp_path / "deep" / "report.html")
    twin = json.loads(path.with_suffix(".json").read_text("utf-8"))
    assert twin["format"] == "bayesify-report"
    assert (twin["title"], twin["headline"]) == ("A title", ["The answer."])
    assert twin["alerts"] == [{"about": "Variational", "kind": "beware_kind", "text": "beware"}]
    table = twin["sections"][0]["content"][1]
    assert table["rows"] == [["plain", 0.987654, 1.0], ["ensemble", 0.5, None]]
    page = path.read_text("utf-8")
    cells = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", page)]
    forms = ["{:.2%}", "{:.2g}×"]
    wanted = [
        form.format(v) if v is not None else "–"
        for row in table["rows"]
        for form, v in zip(forms, row[1:], strict=True)
    ]
    assert cells == wanted
    assert twin["sections"][1]["content"][0]["data"] == {"values": [1.5, None]}


def test_the_best_of_a_column_is_bold_and_ties_as_shown_are_both():
    report = Report("t")
    rows = [["a", 0.90001, 3.0], ["b", 0.90002, 2.0], ["c", 0.8, None]]
    report.table(["m", Column("up", ".2f", better="higher"), Column("down", ".1f", better="lower")], rows)
    assert re.findall(r"<b>(.*?)</b>", report.html()) == ["0.90", "0.90", "2.0"]
    alone = Report("t")
    alone.table(["m", Column("up", ".2f", better="higher")], [["a", 0.9]])
    assert "<b>" not in alone.html()


def test_infinity_is_shown_and_saved(tmp_path):
    report = Report("t")
    report.table(["m", Column("nll", ".2f", better="lower")], [["a", float("inf")], ["b", 1.0], ["c", float("nan")]])
    path = report.write(tmp_path / "r.html")
    assert "<td>∞</td>" in path.read_text("utf-8")
    rows = json.loads(path.with_suffix(".json").read_text("utf-8"))["sections"][0]["content"][0]["rows"]
    assert [row[1] for row in rows] == ["∞", 1.0, None]


def test_a_drawing_with_too_many_shapes_becomes_pixels():
    axes = style.canvas()
    axes.scatter(*np.random.default_rng(0).uniform(size=(2, 5000)))
    assert draw(axes.figure).kind == "png"
    assert draw(drawing().figure).kind == "svg"


def test_a_large_report_is_made_to_fit():
    report = Report("t")
    for seed in range(2):
        report.figure(drawing(4000, seed), "noise")
    whole = len(report.html().encode())
    assert whole > 100_000
    text = report.html(largest=70_000)
    assert len(text.encode()) <= 70_000
    assert len(Reader(text).values("img", "src")) == 2
    assert any(source.startswith("data:image/png;base64,") for source in Reader(text).values("img", "src"))
    with pytest.warns(UserWarning, match="more than 20,000: show fewer figures"):
        report.html(largest=20_000)


def test_the_same_report_has_the_same_bytes(report):
    assert report.html() == report.html()


def test_the_smaller_drawing_looks_like_the_original(tmp_path):
    source = unquote(re.search(r'src="data:image/svg\+xml,([^"]*)"', one_picture())[1])
    root = ET.fromstring(html.unescape(source))
    shapes = [part.get("d", "") for part in root.iter("{http://www.w3.org/2000/svg}path")]
    figure = drawing().figure
    figure.savefig(tmp_path / "whole.svg", transparent=True)
    whole = [
        part.get("d", "")
        for part in ET.parse(tmp_path / "whole.svg").getroot().iter("{http://www.w3.org/2000/svg}path")
    ]
    assert len(shapes) == len(whole)
    for ours, theirs in zip(shapes, whole, strict=True):
        numbers = [[float(n) for n in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", path)] for path in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.0101)


def one_picture():
    report = Report("t")
    report.figure(drawing(), "c")
    return report.html()


def test_nothing_is_half_written(report, tmp_path):
    with pytest.raises(ValueError, match=r"an \.html file, got 'report\.json'"):
        report.write(tmp_path / "report.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        report.write(tmp_path / "file" / "report.html")
    # The twin's place is taken by a folder: the old page must survive, and no temporary file may stay.
    (tmp_path / "r.html").write_text("old")
    (tmp_path / "r.json").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        report.write(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "r.html", "r.json"]


def test_wrong_shapes_are_refused():
    report = Report("t")
    with pytest.raises(ValueError, match="each of 2 columns, got 1"):
        report.table(["a", "b"], [["x"]])
    with pytest.raises(ValueError, match="each of 1 pictures, got 2"):
        report.figure([drawing()], "", ["a", "b"])
    with pytest.raises(TypeError, match="Figure or Axes, got str"):
        report.figure(["nothing"], "")
    with pytest.raises(ValueError, match="'higher', 'lower'"):
        Column("x", better="more")


def test_an_error_over_seeds_stands_beside_its_mean_and_in_the_twin(tmp_path):
    report = Report("t")
    columns = ["m", Column("accuracy", ".1%", better="higher"), Column("nll", ".2f", better="lower")]
    report.table(columns, [["a", Spread(0.9, 0.01), Spread(0.5)], ["b", Spread(0.8, 0.02), 0.25]])
    path = report.write(tmp_path / "r.html")
    page = path.read_text("utf-8")
    assert re.findall(r"<td>(.*?)</td>", page) == [
        "<b>90.0%</b><small>± 1.0%</small>",
        "0.50",
        "80.0%<small>± 2.0%</small>",
        "<b>0.25</b>",
    ]
    (table,) = json.loads(path.with_suffix(".json").read_text("utf-8"))["sections"][0]["content"]
    assert table["rows"] == [["a", 0.9, 0.5], ["b", 0.8, 0.25]]
    assert table["standard_errors"] == [[None, 0.01, None], [None, 0.02, None]]


def test_numbers_that_stand_out_come_before_the_sections(report, tmp_path):
    report.number("accuracy", "97.3%", "of <known>")
    page = report.html()
    assert page.index("97.3%") < page.index("<h2>Scores")
    assert "of &lt;known&gt;" in page
    assert report.to_dict()["numbers"] == [{"name": "accuracy", "value": "97.3%", "note": "of <known>"}]


def test_every_panel_may_have_a_note_of_its_own():
    report = Report("t")
    report.figure([drawing(), drawing(seed=1)], "", ["a", "b"], notes=["left <b>", "right"])
    page = Reader(report.html())
    assert "left <b>" in page.text
    assert "b" not in page.tags
    assert report.to_dict()["sections"][0]["content"][0]["notes"] == ["left <b>", "right"]
    with pytest.raises(ValueError, match="notes must have one text for each of 2 pictures, got 1"):
        report.figure([drawing(), drawing()], "", notes=["one"])


@given(st.integers(1, 12), st.integers(80, 700), st.integers(320, 1200))
def test_pictures_fill_even_rows_and_none_stands_alone_where_that_can_be_helped(count, width, room):
    chosen = columns(count, width, room)
    assert 1 <= chosen <= count
    assert chosen == 1 or chosen * 0.78 * width <= room
    possible = [n for n in range(1, count + 1) if n * 0.88 * width <= room]
    fewest = -(-count // max(possible, default=1))
    if any(-(-count // n) == fewest and (count % n != 1 or n == 1) for n in possible):
        assert count % chosen != 1 or chosen == 1
        assert -(-count // chosen) <= fewest


@pytest.mark.parametrize(
    "count, width, wanted", [(6, 221, 3), (5, 259, 3), (5, 394, 3), (2, 422, 2), (3, 355, 3), (4, 355, 2)]
)
def test_common_figures_on_a_desktop(count, width, wanted):
    assert columns(count, width, 1050) == wanted


def test_wide_tables_say_that_they_scroll():
    wide, narrow = Report("t"), Report("t")
    wide.table(list("abcdefg"), [list("1234567")])
    narrow.table(list("abc"), [list("123")])
    assert "7 columns: scroll the table sideways" in Reader(wide.html()).text
    assert "scroll the table" not in Reader(narrow.html()).text


def test_formulas_are_mathml_without_a_script():
    listed = [
        *formulas.classification(unknown=True),
        *formulas.regression(unknown=True),
        *formulas.variational(),
    ]
    report = Report("t")
    report.definitions(listed)
    page = Reader(report.html())
    assert page.tags.count("math") == len(listed)
    assert "script" not in page.tags
    known = ["math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "msub", "msup", "mfrac", "msqrt", "munder"]
    for one in listed:
        root = ET.fromstring(one.mathml)
        assert {part.tag for part in root.iter()} <= set(known)
        assert all(len(part) == 2 for part in root.iter() if part.tag in {"mfrac", "msub", "msup", "munder"})
        assert one.text
        assert len(one.words) > 30
