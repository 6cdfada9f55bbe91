"""Real tables: gaps, dates, ids, spellings, hashed text, splits, and every format with the same rows."""

import datetime as dt
import gzip
import io
import sqlite3
import warnings

import numpy as np
import pytest
import torch

from bayesify import data
from bayesify.errors import BayesifyWarning

pytestmark = pytest.mark.filterwarnings("ignore::bayesify.errors.BayesifyWarning")


def people(count=60):
    """Rows with an id, a number, a date, a boolean in several spellings and a target; some cells are missing."""
    rows = []
    for number in range(count):
        rows.append(
            {
                "person_id": 1000 + 7 * number,
                "age": None if number % 11 == 3 else 20 + number % 37,
                "since": dt.date(2020, 1, 1) + dt.timedelta(days=13 * number),
                "member": ["True", "False", "yes", "no"][number % 4],
                "plan": None if number % 13 == 5 else ["basic", "plus"][number % 2],
                "left": ["stay", "leave"][(number // 3) % 2],
            }
        )
    return rows


def csv(rows, separator=","):
    lines = [separator.join(rows[0])]
    lines += [separator.join("" if value is None else str(value) for value in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


def test_columns_are_what_they_look_like_and_each_decision_is_said():
    with pytest.warns(BayesifyWarning) as caught:
        table = data.from_table(people(), "left")
    assert [(column.name, column.kind) for column in table.columns] == [
        ("age", "number"),
        ("since", "date"),
        ("member", "category"),
        ("plan", "category"),
    ]
    said = " | ".join(str(warning.message) for warning in caught)
    assert tuple(str(warning.message) for warning in caught) == table.notices
    for words in ("age (6)", "plan (5)", "'person_id' looks like an id", "no is False, yes is True"):
        assert words in said
    assert table.columns[2].categories == ("False", "True")
    assert table.columns[3].categories == ("basic", "plus", "")


def test_gaps_become_the_median_of_training_and_an_indicator():
    table = data.from_table(
        [{"a": value, "y": number % 2} for number, value in enumerate([1, 2, None, 4, 100])], test=1
    )
    prepared = table.prepare("none")
    raw = table.x_train[:, 0]
    median = raw[~raw.isnan()].median()
    expected = torch.stack((torch.where(raw.isnan(), median, raw), raw.isnan().double()), 1).float()
    assert torch.equal(prepared.x_train, expected)
    # A run's configuration has it all.
    again = data.Preparation.from_dict(prepared.preparation.to_dict())
    assert again == prepared.preparation
    assert torch.equal(again.apply(table.x_train), prepared.x_train)


def test_dates_have_their_cycles():
    dates = [dt.date(2020, 1, 1) + dt.timedelta(days=number) for number in range(800)]
    table = data.from_table([{"day": day, "y": day.weekday() % 2} for day in dates], "y")
    (column,) = table.columns
    assert column.cycles == ("year", "week")
    preparation = table.prepare().preparation
    later = [{"day": day} for day in ("2023-03-06", "2023-03-13", "2024-03-04", "2023-03-07")]
    inputs = preparation.apply(data.encode_rows(later, preparation).raw)
    assert inputs.shape == (4, 5)
    # Three Mondays are the same day of the week, and near each other in the year; a Tuesday is not a Monday.
    np.testing.assert_allclose(inputs[0, 3:], inputs[1, 3:], atol=1e-5)
    np.testing.assert_allclose(inputs[0, 3:], inputs[2, 3:], atol=1e-5)
    np.testing.assert_allclose(inputs[0, 1:3], inputs[2, 1:3], atol=0.05)
    assert (inputs[0, 3:] - inputs[3, 3:]).norm() == pytest.approx(2 * np.sin(np.pi / 7), abs=1e-4)


@pytest.mark.parametrize(
    "texts, how",
    [
        (["2024-01-31", "2024-02-01"], "iso"),
        (["2024-01-31T08:15:00Z", "2024-02-01T10:15:00+02:00"], "iso"),
        (["31.01.2024", "01.02.2024 08:15"], "day first"),
        (["31/01/2024", "01/02/2024"], "day first"),
        (["01/31/2024", "02/01/2024"], "month first"),
        (["2024/01/31", "2024/02/01"], "year first"),
        (["08:15", "23:59"], "clock"),
    ],
)
def test_dates_are_read_in_the_usual_ways(texts, how):
    table = data.from_table([{"when": texts[n % 2], "y": n % 2} for n in range(8)], "y")
    assert table.columns[0].date == how
    if how in {"iso", "day first", "month first", "year first"}:
        seconds = sorted(set(torch.cat((table.x_train, table.x_test)).flatten().tolist()))
        assert [dt.datetime.fromtimestamp(value, dt.UTC).date().isoformat() for value in seconds] == [
            "2024-01-31",
            "2024-02-01",
        ]


def test_a_day_that_may_be_a_month_is_not_guessed():
    rows = [{"when": text, "y": n % 2} for n, text in enumerate(["03/04/2024", "05/06/2024"] * 4)]
    with pytest.raises(data.DataError, match="'03/04/2024' may be a day and a month or a month and a day"):
        data.from_table(rows, "y")
    assert data.from_table(rows, "y", categorical=["when"]).columns[0].kind == "category"
    rows[0]["when"] = "2024-13-45"
    rows += [{"when": f"2024-03-{day:02}", "y": day % 2} for day in range(1, 30)]
    with pytest.raises(data.DataError, match=r"expected a date|may be"):
        data.from_table([*rows[8:], rows[0]], "y")


def test_much_text_is_hashed_and_free_text_left_out():
    rows = [{"city": f"city {n % 90}", "note": f"note {n}", "x": n % 5, "y": n % 2} for n in range(400)]
    table = data.from_table(rows, "y")
    assert [column.kind for column in table.columns] == ["hashed", "number"]
    said = " ".join(table.notices)
    assert "'city' has 90 different texts: they are hashed into 32 inputs" in said
    assert "'note' has a different text in almost every row" in said
    assert "'city' makes 32 of the 33 inputs" in said
    preparation = table.prepare().preparation
    rows = data.encode_rows([{"city": "city 3", "x": 1}, {"city": "never seen", "x": 1}], preparation)
    assert rows.reasons == [None, None]
    inputs = preparation.apply(rows.raw)[:, :32]
    assert (inputs.abs().sum(1) == 1).all()


def test_what_training_never_saw_is_a_reason_and_the_file_goes_through():
    preparation = data.from_table(people(), "left").prepare().preparation
    good = {"age": None, "since": "2021-05-05", "member": "no", "plan": "plus"}
    rows = [
        good,
        good | {"plan": "gold"},
        good | {"member": "Y"},
        good | {"since": None},
        good | {"age": "old"},
        good | {"since": "yesterday"},
        good | {"plan": "PLUS", "member": "TRUE"},
    ]
    encoded = data.encode_rows(rows, preparation)
    assert encoded.reasons[0] is None
    assert encoded.reasons[6] is None  # capitals do not make another category
    for reason, words in zip(
        encoded.reasons[1:6],
        (
            "column 'plan': unknown category 'gold'; known: basic, plus",
            "column 'member': unknown category 'Y'; known: False, True (write True if that is meant)",
            "column 'since': missing value, which training never had",
            "column 'age': expected a number, got 'old'",
            "column 'since': expected a date as in training, got 'yesterday'",
        ),
        strict=True,
    ):
        assert reason == words
    with pytest.raises(data.DataError, match="row 5, column 'age': expected a number, got 'old'"):
        data.rows_from_csv(rows, preparation)


def test_every_format_has_the_same_rows(tmp_path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    from pyarrow import feather, parquet

    rows = people()
    frame, arrow = pandas.DataFrame(rows), pyarrow.Table.from_pylist(rows)
    parquet.write_table(arrow, tmp_path / "t.parquet")
    feather.write_feather(arrow, tmp_path / "t.feather")
    with pyarrow.ipc.new_stream(tmp_path / "t.arrow", arrow.schema) as writer:
        writer.write_table(arrow)
    (tmp_path / "t.csv").write_text(csv(rows))
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(csv(rows, "\t").encode()))
    connection = sqlite3.connect(tmp_path / "t.db")
    connection.execute("CREATE TABLE people (person_id, age, since, member, plan, left_)")
    listed = [tuple(str(v) if isinstance(v, dt.date) else v for v in row.values()) for row in rows]
    connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)", listed)
    connection.commit()
    query = "SELECT person_id, age, since, member, plan, left_ AS left FROM people"
    sources = [
        frame,
        polars.DataFrame(rows),
        arrow,
        *(tmp_path / f"t.{end}" for end in ("parquet", "feather", "arrow")),
    ]
    sources += [tmp_path / "t.csv", tmp_path / "t.tsv.gz", f"sqlite:///{tmp_path / 't.db'}?query={query}"]
    expected = data.from_table(rows, "left")
    tables = [
        data.open_data(source, target="left") if isinstance(source, str) else data.from_table(source, "left")
        for source in sources
    ]
    tables.append(data.from_sql(connection, query, "left"))
    connection.close()
    for table in tables:
        assert table.columns == expected.columns
        assert torch.equal(table.x_train.nan_to_num(-1), expected.x_train.nan_to_num(-1))
        assert torch.equal(table.y_test, expected.y_test)


@pytest.mark.parametrize(
    "source, complaint",
    [
        ("sqlite:///nowhere.db?query=SELECT 1", "there is no such file"),
        ("sqlite:///t.db", "expected sqlite:///FILE.query=QUERY"),
        ("sqlite:///t.db?query=SELECT thing FROM nowhere", "the query failed: no such table"),
        ("sqlite:///t.db?query=CREATE TABLE other (a)", "the query failed: attempt to write a readonly database"),
        ("t.parquet", "truncated or damaged"),
    ],
)
def test_a_wrong_query_or_file_is_one_line(tmp_path, monkeypatch, source, complaint):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    sqlite3.connect("t.db").close()
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing here")
    with pytest.raises(data.DataError, match=complaint) as caught:
        data.open_data(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, names",
    [
        ("2019,2020,2021,kind\n1.5,2,3,a\n2.5,3,4,b\n", ("2019", "2020", "2021", "kind")),
        ("2019,2020,2021\n1.5,2,3\n2.5,3,4\n", ("2019", "2020", "2021")),
        ("0,1,2\n5,6,7\n0,1,3\n", ("0", "1", "2")),
        (",0,1,2\n0,5,6,7\n1,0,1,3\n", ("column 1", "0", "1", "2")),
        ("5.1,3.5,setosa\n4.9,3.1,setosa\n", ("column 1", "column 2", "column 3")),
        ("7,unknown,3.5\n4,2,3\n", ("column 1", "column 2", "column 3")),
        ("1,2,0\n3,4,1\n5,6,0\n", ("column 1", "column 2", "column 3")),
        ('"a|b"|c\n1|2\n', ("a|b", "c")),
    ],
)
def test_a_header_of_numbers_is_told_from_a_row(text, names):
    from bayesify.data.delimited import read_delimited

    assert read_delimited(io.StringIO(text)).names == names


def test_rows_without_a_target_are_left_out_and_refused_where_asked():
    rows = people()
    rows[4]["left"] = None
    table = data.from_table(rows, "left")
    assert len(table.x_train) + len(table.x_test) == 59
    assert table.notices[0] == "rows without a target are left out: 1"
    with pytest.raises(data.DataError, match="row 5, column 'left': missing value"):
        data.from_table(rows, "left", missing="refuse")
    with pytest.raises(data.DataError, match="column 'age': missing value"):
        data.from_table(people(), "left", missing="refuse")


# Splits.


def test_groups_stay_together_and_time_goes_on():
    rows = [{"group": n % 12, "day": (n * 37) % 120, "x": n, "y": n % 2} for n in range(120)]
    table = data.from_table(rows, "y", group_by="group", test=0.25)
    assert [column.name for column in table.columns] == ["day", "x"]
    tested = {int(row) % 12 for row in table.x_test[:, 1]}
    trained = {int(row) % 12 for row in table.x_train[:, 1]}
    assert not tested & trained
    assert 30 <= len(table.x_test) <= 40
    inside = table.hold_out(0.3)
    assert not {int(row) % 12 for row in inside.x_test[:, 1]} & {int(row) % 12 for row in inside.x_train[:, 1]}
    ordered = data.from_table(rows, "y", order_by="day", ignore=["group"], test=20)
    assert ordered.x_test[:, 0].min() > ordered.x_train[:, 0].max()
    assert ordered.hold_out(10).x_test[:, 0].min() > ordered.hold_out(10).x_train[:, 0].max()
    for settings, complaint in (
        ({"group_by": "group", "order_by": "day"}, "exclude each other"),
        ({"order_by": "nowhere"}, "unknown column to order by"),
        ({"test": 120}, "a number below 120"),
    ):
        with pytest.raises(data.DataError, match=complaint):
            data.from_table(rows, "y", **settings)


def test_folds_test_every_row_once_and_never_the_past():
    rows = [{"group": n % 12, "day": (n * 37) % 120, "x": n, "y": n % 2} for n in range(120)]
    table = data.from_table(rows, "y", ignore=["group"])
    tested = torch.cat([fold.x_test[:, 1] for fold in table.folds(5)])
    assert sorted(tested.tolist()) == list(range(120))
    assert all(int(fold.y_test.sum()) == 12 for fold in table.folds(5))
    for fold in data.from_table(rows, "y", group_by="group").folds(4):
        assert not {int(row) % 12 for row in fold.x_test[:, 1]} & {int(row) % 12 for row in fold.x_train[:, 1]}
    for fold in data.from_table(rows, "y", order_by="day").folds(4):
        assert fold.x_test[:, 1].min() > fold.x_train[:, 1].max()
    with pytest.raises(data.DataError, match="folds must be from 2"):
        next(table.folds(1))


def test_all_rows_train_or_a_file_of_ones_own_tests(tmp_path):
    rows = people()
    everything = data.from_table(rows, "left", test=None)
    assert len(everything.x_train) == 60
    assert len(everything.x_test) == 0
    later = people(20)
    later[3]["plan"], later[5]["left"] = "gold", None
    (tmp_path / "later.csv").write_text(csv(later))
    table = data.from_table(rows, "left", test=tmp_path / "later.csv")
    assert (len(table.x_train), len(table.x_test)) == (60, 18)
    assert table.columns == everything.columns
    assert any("1 of 19 rows have what training never saw" in notice for notice in table.notices)
    later[0]["left"] = "maybe"
    (tmp_path / "later.csv").write_text(csv(later))
    with pytest.raises(data.DataError, match="a class 'maybe' that was not in training"):
        data.from_table(rows, "left", test=tmp_path / "later.csv")


def test_a_clean_table_says_nothing():
    rows = [{"x": n / 7, "kind": "ab"[n % 2], "y": n % 3 == 0} for n in range(30)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.from_table(rows, "y").notices == ()


def test_a_column_with_one_number_is_named_and_kept():
    rows = [{"x": n / 7, "version": 3, "y": n % 3 == 0} for n in range(30)]
    with pytest.warns(BayesifyWarning, match="column 'version' has the same number in every row") as said:
        dataset = data.from_table(rows, "y")
    assert [column.name for column in dataset.columns] == ["x", "version"]
    assert len(said) == 1


def test_a_table_without_a_usable_column_says_why_each_is_left_out():
    rows = [{"review": f"guest {number} said so", "stars": ["good", "bad"][number % 2]} for number in range(40)]
    with pytest.raises(data.DataError, match=r"no column is left for the inputs; column 'review' has a different text"):
        data.from_table(rows, "stars")


def test_a_column_of_numbers_that_cannot_be_squared_is_refused_by_its_name(tmp_path):
    file = tmp_path / "large.csv"
    for column, size in (("x", 1e300), ("y", 1e300), ("y", 1e38)):
        rows = [{"x": n / 7, "y": n / 3 + 0.1} for n in range(30)]
        file.write_text(csv([{**row, column: row[column] * size} for row in rows]))
        with pytest.raises(data.DataError, match=rf"large.csv, column '{column}': numbers up to .* rescale it"):
            data.from_table(file, "y")
        file.write_text(csv([{**row, "x": row["x"] * 1e100, "y": row["y"] * 1e30} for row in rows]))
        data.from_table(file, "y")


def test_a_typo_in_a_target_of_numbers_is_named_by_its_line(tmp_path):
    file = tmp_path / "typo.csv"
    rows = [{"x": n, "y": n / 7 + 0.5} for n in range(120)]
    file.write_text(csv([{**row, "y": "oops" if row["x"] == 5 else row["y"]} for row in rows]))
    with pytest.raises(data.DataError, match=r"typo.csv, line 7, column 'y': expected a number, got 'oops'$"):
        data.from_table(file, "y")
    with pytest.raises(data.DataError, match="too many classes, 120 for 120 examples"):
        data.from_table(file, "y", kind="classification")


def test_a_date_is_no_target(tmp_path):
    rows = [{"x": n / 7, "y": f"2020-{1 + n // 28:02d}-{1 + n % 28:02d}"} for n in range(120)]
    with pytest.raises(data.DataError, match="column 'y': the target is a date, such as '2020-01-01': write it as a"):
        data.from_table(rows, "y")


def test_copies_of_rows_are_told_where_rows_would_not_agree_by_chance(recwarn):
    rows = [{"a": 0.1 * n, "b": n % 3, "y": float(n)} for n in range(40)]
    data.from_table(rows, "y")
    data.from_table([{"b": n % 3, "y": n % 2} for n in range(40)], "y")  # categories agree
    assert not [one for one in recwarn if "copies" in str(one.message)]
    with pytest.warns(BayesifyWarning, match=r"^40 rows are copies of other rows.*--group-by"):
        data.from_table(rows * 2, "y")
    data.from_table([{**row, "who": n % 40} for n, row in enumerate(rows * 2)], "y", group_by="who")
    assert not [one for one in recwarn if "copies" in str(one.message)]
