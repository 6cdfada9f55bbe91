"""A user's own files: CSV, .npz and folders of pictures, in the shapes and with the faults that people have."""

from __future__ import annotations

import io
import itertools

import numpy as np
import PIL.Image
import pytest
import torch

from bayesify import data
from bayesify.data.targets import sorted_naturally

RANDOM = np.random.default_rng(0)


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def flowers(separator=",", decimal=".", header=True, n=60):
    lines = [separator.join(("length", "colour", "width", "kind"))] if header else []
    for row in range(n):
        numbers = [f"{value:.2f}".replace(".", decimal) for value in (row / 7, row**2 / 50)]
        lines.append(
            separator.join((numbers[0], ("red", "blue")[row % 2], numbers[1], ("iris", "rose", "tulip")[row % 3]))
        )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "name, text",
    [
        ("plain.csv", flowers()),
        ("windows.csv", flowers().replace("\n", "\r\n")),
        ("bom.csv", "\ufeff" + flowers()),
        ("semicolon.csv", flowers(";")),
        ("decimal.csv", flowers(";", ",")),
        ("tab.tsv", flowers("\t")),
        ("tab.csv", flowers("\t")),
        ("blank.csv", flowers().replace("\n", "\n\n")),
        ("spaces.csv", flowers(" , ")),
        ("quoted.csv", flowers().replace("red", '"red"')),
        ("bare.csv", flowers(header=False)),
    ],
)
def test_a_table_is_the_same_in_every_dialect(tmp_path, name, text):
    table = data.from_csv(write(tmp_path / name, text))
    assert (table.kind, table.class_names) == ("classification", ("iris", "rose", "tulip"))
    assert [len(column.categories) for column in table.columns] == [0, 2, 0]
    assert table.columns[1].categories == ("blue", "red")
    rows = torch.cat((table.train_rows, table.test_rows))
    x, y = torch.cat((table.x_train, table.x_test)), torch.cat((table.y_train, table.y_test))
    assert len(rows) == 60
    assert torch.allclose(x[:, 0], rows.double() / 7, atol=0.006)
    assert torch.equal(x[:, 1], 1.0 - rows % 2)
    assert torch.equal(y, rows % 3)
    names = [column.name for column in table.columns]
    assert names == (["column 1", "column 2", "column 3"] if name == "bare.csv" else ["length", "colour", "width"])


def test_the_target_may_be_any_column_by_name_or_number(tmp_path):
    path = write(tmp_path / "flowers.csv", flowers())
    by_name, by_number = data.from_csv(path, "length"), data.from_csv(path, 0)
    assert by_name.kind == by_number.kind == "regression"
    assert torch.equal(by_name.y_train, by_number.y_train)
    assert by_name.target_name == "length"
    assert [column.name for column in by_name.columns] == ["colour", "width", "kind"]
    assert [c.name for c in data.from_csv(path, "kind", ignore=["colour"]).columns] == ["length", "width"]
    with pytest.raises(data.DataError, match="did you mean 'length'"):
        data.from_csv(path, "lenght")
    with pytest.raises(data.DataError, match="target 4 is not among the 4 columns"):
        data.from_csv(path, 4)


@pytest.mark.parametrize(
    "targets, kind, names",
    [
        (["0", "1"] * 20, "classification", ("0", "1")),
        (["10", "9", "2", "1"] * 10, "classification", ("1", "2", "9", "10")),
        (["1.0", "2.0"] * 20, "classification", ("1", "2")),
        (["yes", "no"] * 20, "classification", ("no", "yes")),
        ([str(value) for value in range(40)], "regression", ()),
        (["0.5", "1.5"] * 20, "regression", ()),
        (["1", "a"] * 20, "classification", ("1", "a")),
    ],
)
def test_the_target_decides_between_classes_and_numbers(tmp_path, targets, kind, names):
    path = write(tmp_path / "t.csv", "x,y\n" + "".join(f"{row},{target}\n" for row, target in enumerate(targets)))
    table = data.from_csv(path)
    assert (table.kind, table.class_names) == (kind, names)


def test_the_kind_can_be_forced(tmp_path):
    path = write(tmp_path / "t.csv", "x,y\n" + "".join(f"{row},{row % 3}\n" for row in range(30)))
    forced = data.from_csv(path, kind="regression")
    assert forced.kind == "regression"
    assert forced.class_names == ()
    with pytest.raises(data.DataError, match="kind must be one of"):
        data.from_csv(path, kind="ranking")
    with pytest.raises(
        data.DataError, match=r"line 2, column 'kind': the target of a regression must be a number, got 'iris'"
    ):
        data.from_csv(write(tmp_path / "f.csv", flowers()), kind="regression")


def test_categories_can_be_forced_on_a_column_of_numbers(tmp_path):
    text = "code,x,y\n" + "".join(f"{(row * 7) % 12},{row},{row % 2}\n" for row in range(48))
    table = data.from_csv(write(tmp_path / "t.csv", text), categorical=["code"])
    assert table.columns[0].categories == tuple(map(str, range(12)))
    assert table.prepare().shape == (13,)


def numbers(*lines):
    body = [f"{row},{row * 2},{row % 2}" for row in range(8)]
    return "a,b,y\n" + "\n".join([*body, *lines]) + "\n"


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "the file is empty"),
        (";;\n;;\n", "expected rows, got only empty cells"),
        ("\n \n", "the file is empty"),
        ("a,b,y\n", "expected rows below the header, got none"),
        (numbers("1,2"), "line 10: expected 3 cells as in line 1, got 2"),
        (numbers("1,2,0,4"), "line 10: expected 3 cells as in line 1, got 4"),
        (numbers("1,two,0"), "line 10, column 'b': expected a number, got 'two'"),
        (numbers("1,,0"), "line 10, column 'b': missing value; fill it in or remove the row"),
        (numbers("1,NaN,0"), r"line 10, column 'b': missing value \('NaN'\)"),
        (numbers("?,1,0"), "line 10, column 'a': missing value"),
        (numbers("1,2,"), "line 10, column 'y': missing value"),
        (numbers("1,inf,0"), "line 10, column 'b': expected a finite number, got 'inf'"),
        (numbers("1,1_000,0"), "line 10, column 'b': expected a number, got '1_000'"),
        (numbers('1,"2,0'), "line .*: not readable as CSV"),
        ("a,b,y\n" + "1,2,x\n" * 8, "column 'y': every example has the class 'x'"),
        ("a,a,y\n" + "1,2,0\n2,3,1\n" * 4, "two columns are named 'a'"),
        ("y\n1\n2\n3\n4\n5\n", "at least two columns"),
        ("a,y\n1,0\n2,1\n", "2 rows; training and testing need at least 4"),
        (
            "a,y\n" + "".join(f"{r},name{r}\n" for r in range(30)),
            "too many classes, 30 for 30 examples; is this the target",
        ),
    ],
)
def test_every_fault_in_a_csv_is_one_line_with_its_place(tmp_path, text, complaint):
    path = write(tmp_path / "mine.csv", text)
    with pytest.raises(data.DataError, match=complaint) as caught:
        data.from_csv(path, missing="refuse")
    assert "\n" not in str(caught.value)
    assert "mine.csv" in str(caught.value)


def test_files_that_are_not_text_are_refused(tmp_path):
    with pytest.raises(data.DataError, match="line 2: not UTF-8 text"):
        data.from_csv(write(tmp_path / "latin.csv", "a,b\ncafé,1\n", "latin-1"))
    with pytest.raises(data.DataError, match="not a text file in UTF-8"):
        data.from_csv(write(tmp_path / "wide.csv", numbers(), "utf-16"))
    with pytest.raises(data.DataError, match="cannot be read"):
        data.from_csv(tmp_path / "nothing.csv")
    with pytest.raises(data.DataError, match="cannot be read"):
        data.from_csv(tmp_path)


def test_a_quoted_cell_over_two_lines_keeps_the_line_numbers_right(tmp_path):
    text = 'a,b,y\n"one\ntwo",1,0\n' + "one,2,1\n" * 9 + "one,x,1\n"
    with pytest.raises(data.DataError, match="line 13, column 'b'"):
        data.from_csv(write(tmp_path / "t.csv", text))


def test_later_rows_are_encoded_like_the_training_rows(tmp_path):
    table = data.from_csv(write(tmp_path / "flowers.csv", flowers())).prepare()
    preparation = table.preparation
    named = write(tmp_path / "new.csv", "width,extra,colour,length\n2.5,9,red,1.5\n")
    bare = io.StringIO("1.5,red,2.5\n")
    expected = torch.tensor([[1.5, 1.0, 2.5]], dtype=torch.float64)
    assert torch.equal(data.rows_from_csv(named, preparation), expected)
    assert torch.equal(data.rows_from_csv(bare, preparation), expected)
    assert torch.equal(data.rows_from_csv(io.StringIO("1.5,red,2.5,iris\n"), preparation, target="kind"), expected)
    for text, complaint in (
        ("1.5,green,2.5\n", "line 1, column 'column 2': unknown category 'green'; known: blue, red"),
        ("1.5,red\n", "expected a header .* exactly 3 columns: length, colour, width; got 2"),
        # A cell more could be an id that was left out in training: a guess would shift every other column.
        ("7,1.5,red,2.5\n", "expected a header .* exactly 3 columns: .* got 4 columns"),
        ("width,colour\n1,red\n", "no column 'length'"),
        ("1.5,red,x\n1.5,red,1\n", "line 1, column 'column 3': expected a number, got 'x'"),
    ):
        with pytest.raises(data.DataError, match=complaint):
            data.rows_from_csv(io.StringIO(text), preparation)
    with pytest.raises(data.DataError, match="this data is images"):
        data.rows_from_csv(named, data.load("digits").prepare().preparation)


@pytest.mark.parametrize("header", ["LENGTH,COLOUR,WIDTH", "long,tint,wide", "LENGTH,COLOUR,WIDTH,KIND"])
def test_a_header_without_any_training_column_is_not_an_example(header, tmp_path):
    table = data.from_csv(write(tmp_path / "flowers.csv", flowers())).prepare()
    text = f"{header}\n" + ("1.5,red,2.5,iris" if header.endswith("KIND") else "1.5,red,2.5") + "\n"
    target = "kind" if header.endswith("KIND") else None
    with pytest.raises(data.DataError, match=r"the first row, .* looks like a header, and has none of .*: length"):
        data.rows_from_csv(io.StringIO(text), table.preparation, target=target)


def test_a_single_later_row_of_categories_alone_is_not_taken_for_a_header(tmp_path):
    text = "shape,colour,kind\n" + "".join(f"{'rs'[r % 2]},{'ab'[r // 2 % 2]},{'xy'[r % 2]}\n" for r in range(20))
    preparation = data.from_csv(write(tmp_path / "t.csv", text)).prepare().preparation
    assert data.rows_from_csv(io.StringIO("s,b\n"), preparation).tolist() == [[1.0, 1.0]]
    assert data.rows_from_csv(io.StringIO("colour,shape\nb,r\n"), preparation).tolist() == [[0.0, 1.0]]


X, Y = RANDOM.normal(size=(30, 4)), np.arange(30) % 3


def test_later_rows_without_a_header_leave_out_the_target_wherever_it_was(tmp_path):
    table = data.from_csv(write(tmp_path / "t.csv", "".join(f"{i},{i % 7},{i / 3}\n" for i in range(30))), 0)
    preparation, later = table.prepare().preparation, "100,5,0.5\n101,6,0.25\n"
    rows = data.rows_from_csv(io.StringIO(later), preparation, target=table.target_name)
    assert rows.tolist() == [[5.0, 0.5], [6.0, 0.25]]


def test_an_archive_with_x_and_y_is_split_and_one_with_both_parts_is_not(tmp_path):
    np.savez(tmp_path / "whole.npz", X=X.astype(np.float32), Y=Y)
    whole = data.from_npz(tmp_path / "whole.npz", seed=4)
    assert (len(whole.x_train), len(whole.x_test), whole.class_names) == (24, 6, ("0", "1", "2"))
    assert np.array_equal(whole.x_test.numpy().astype(np.float32), X[whole.test_rows.numpy()].astype(np.float32))
    assert torch.bincount(whole.y_test).tolist() == [2, 2, 2]
    np.savez(tmp_path / "parts.npz", x_train=X[:20], y_train=X[:20, :1], x_test=X[20:], y_test=X[20:, 0])
    parts = data.from_npz(tmp_path / "parts.npz")
    assert parts.kind == "regression"
    assert parts.split_seed is None
    assert np.array_equal(parts.x_test.numpy(), X[20:])
    assert np.array_equal(parts.y_train.numpy(), X[:20, 0])
    np.savez(tmp_path / "mixed.npz", x=X[:20], y=X[:20, 0], x_test=X[20:], y_test=X[20:, 0])
    mixed = data.from_npz(tmp_path / "mixed.npz")
    assert np.array_equal(mixed.x_train.numpy(), X[:20])
    assert np.array_equal(mixed.y_test.numpy(), X[20:, 0])


def test_images_in_an_archive_are_put_channels_first(tmp_path):
    images = RANDOM.integers(0, 256, (30, 7, 5, 3), np.uint8)
    np.savez(tmp_path / "last.npz", x=images, y=Y, class_names=np.array(["cat", "dog", "elephant"]))
    last = data.from_npz(tmp_path / "last.npz")
    assert last.class_names == ("cat", "dog", "elephant")
    assert last.image.raw_shape == (3, 7, 5)
    assert np.array_equal(last.x_train.numpy(), images.transpose(0, 3, 1, 2)[last.train_rows.numpy()])
    np.savez(tmp_path / "grey.npz", x=images[..., :1] / 255, y=np.array(["b", "a", "c"] * 10))
    grey = data.from_npz(tmp_path / "grey.npz")
    assert (grey.image.raw_shape, grey.image.maximum, grey.class_names) == ((7, 5), 1.0, ("a", "b", "c"))
    assert grey.prepare("255").x_train.max() <= 1


def with_nan():
    damaged = X.copy()
    damaged[7, 2] = np.nan
    return damaged


@pytest.mark.parametrize(
    "arrays, complaint",
    [
        ({"a": X}, "expected arrays x and y, or x_train.*found a"),
        ({"x": X, "y": Y[:-1]}, r"x must have one example per target, got \[30, 4\] for 29 targets"),
        ({"x": X, "y": np.eye(30)}, r"y must be one target per example, \[n\], got shape \[30, 30\]"),
        ({"x": with_nan(), "y": Y}, "x has NaN or infinity, first in row 7"),
        ({"x": X, "y": with_nan()[:, 2]}, "y has NaN or infinity, first in row 7"),
        ({"x": X[:0], "y": Y[:0]}, "x is empty"),
        ({"x": X, "y": Y * 0}, "every example has the class '0'"),
        ({"x": X.astype(complex), "y": Y}, "x must hold numbers, got complex128"),
        ({"x": np.array([{}] * 30, dtype=object), "y": Y}, "holds Python objects, which are never loaded"),
        ({"x": X, "y": Y, "class_names": np.array(["a", "b"])}, "labels 0 to 1, the positions in class_names"),
        ({"x": np.zeros((30, 1, 1, 1, 1)), "y": Y}, "must be a table or images"),
        ({"x": np.full((30, 8, 8), -1.5), "y": Y}, "levels 0 to 255, or 0 to 1, got -1.5 to -1.5; rescale them"),
        ({"x": np.full((30, 8, 8), 4000, np.uint16), "y": Y}, "levels 0 to 255, or 0 to 1, got 4000 to 4000"),
        ({"x": np.zeros((30, 0)), "y": Y}, "must have values in each example"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, r"the same shape, got \[4\] and \[2\]"),
        ({"x_train": X, "y_train": Y * 0, "x_test": X, "y_test": Y}, "every training example has the class '0'"),
    ],
)
def test_every_fault_in_an_archive_is_one_line(tmp_path, arrays, complaint):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(data.DataError, match=complaint) as caught:
        data.from_npz(tmp_path / "mine.npz")
    assert "\n" not in str(caught.value)


def test_damaged_archives_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, x=X, y=Y)
    whole = path.read_bytes()
    middle = len(whole) // 3
    for content in (b"", b"hello", whole[:-30], whole[:middle] + b"\xff\x00" * 20 + whole[middle + 40 :]):
        path.write_bytes(content)
        with pytest.raises(
            data.DataError,
            match=r"mine.npz: .*(truncated or damaged|the file is empty|holds Python objects.*or is no .npz)",
        ):
            data.from_npz(path)
    with pytest.raises(data.DataError, match="cannot be read"):
        data.from_npz(tmp_path / "nothing.npz")
    with path.open("wb") as stream:
        np.save(stream, X)
    with pytest.raises(data.DataError, match="holds a single array"):
        data.from_npz(path)


def picture_folder(root, names=("2", "10"), count=10, size=(6, 8), mode="L"):
    for number, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for index in range(count):
            levels = np.full(size, 100 * number + index, np.uint8)
            suffix = ".png" if index % 2 == 0 else ".PNG"
            PIL.Image.fromarray(levels).convert(mode).save(root / name / f"{index}{suffix}", format="PNG")
    return root


def test_a_folder_of_pictures_has_a_class_per_sub_folder(tmp_path):
    root = picture_folder(tmp_path / "mine")
    (root / "10" / "notes.txt").write_text("not a picture")
    (root / ".hidden").mkdir()
    mine = data.from_folder(root)
    assert (mine.name, mine.class_names, mine.image.raw_shape) == ("mine", ("2", "10"), (6, 8))
    assert (len(mine.x_train), len(mine.x_test)) == (16, 4)
    assert torch.equal(mine.x_train[:, 0, 0] >= 100, mine.y_train == 1)
    levels = torch.cat((mine.x_train, mine.x_test))[:, 0, 0]
    assert sorted(levels.tolist()) == [*range(10), *range(100, 110)]


def test_train_and_test_folders_are_kept_apart(tmp_path):
    root = tmp_path / "mine"
    picture_folder(root / "train", ("cat", "dog"), 6)
    picture_folder(root / "test", ("dog",), 2)
    mine = data.from_folder(root)
    assert mine.class_names == ("cat", "dog")
    assert (len(mine.x_train), mine.y_test.tolist()) == (12, [1, 1])
    picture_folder(root / "test", ("dgo",), 2)
    with pytest.raises(data.DataError, match="'dgo'; did you mean 'dog'"):
        data.from_folder(root)


@pytest.mark.parametrize("other", ["val", "Validation", "TEST"])
def test_parts_under_other_names_are_not_taken_for_classes(tmp_path, other):
    for part in ("train", other):
        picture_folder(tmp_path / part, ("cat", "dog"), 2)
    with pytest.raises(data.DataError, match=f"train and {other} look like parts of the data, not classes"):
        data.from_folder(tmp_path)


def test_classes_of_one_number_have_one_order_in_every_process(tmp_path):
    names = ("2", "1", "01", "1.0", "001")
    picture_folder(tmp_path, names[:3], 2)
    assert data.from_folder(tmp_path).class_names == ("01", "1", "2")
    # The order of a set is that of its process: without a rule for ties, one of these would differ.
    orders = {tuple(sorted_naturally(dict.fromkeys(order))) for order in itertools.permutations(names)}
    assert orders == {("001", "01", "1", "1.0", "2")}


def test_colour_is_kept_where_there_is_any(tmp_path):
    root = picture_folder(tmp_path / "mine")
    PIL.Image.new("RGB", (8, 6), (200, 10, 30)).save(root / "2" / "99.png")
    mine = data.from_folder(root, test=2)
    assert mine.image.raw_shape == (3, 6, 8)
    whole = torch.cat((mine.x_train, mine.x_test))
    assert [200, 10, 30] in whole[:, :, 0, 0].tolist()
    assert [109, 109, 109] in whole[:, :, 0, 0].tolist()
    assert data.from_folder(root, colour="grey").image.raw_shape == (6, 8)
    with pytest.raises(data.DataError, match="colour must be one of"):
        data.from_folder(root, colour="blue")


def test_pictures_of_other_sizes_are_named_or_resized(tmp_path):
    root = picture_folder(tmp_path / "mine", ("cat", "dog"))
    PIL.Image.new("L", (9, 6)).save(root / "dog" / "77.jpg")
    with pytest.raises(data.DataError, match=r"dog/77.jpg is 6x9, cat/0.png is 6x8; resize them with size=6"):
        data.from_folder(root)
    assert data.from_folder(root, size=4).image.raw_shape == (4, 4)
    assert data.from_folder(root, size=(3, 5)).image.raw_shape == (3, 5)
    with pytest.raises(data.DataError, match="size must be at least 1"):
        data.from_folder(root, size=0)


def test_faulty_folders_are_refused(tmp_path):
    with pytest.raises(data.DataError, match="there is no such folder"):
        data.from_folder(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(data.DataError, match="expected one sub-folder of PNG or JPEG images per class"):
        data.from_folder(tmp_path / "empty")
    with pytest.raises(data.DataError, match="one class only, 'cat'"):
        data.from_folder(picture_folder(tmp_path / "single", ("cat",)))
    root = picture_folder(tmp_path / "mine", ("cat", "dog"))
    (root / "dog" / "3.PNG").write_bytes((root / "dog" / "3.PNG").read_bytes()[:50])
    with pytest.raises(data.DataError, match=r"3.PNG: the image is truncated or damaged"):
        data.from_folder(root)
    (root / "fox").mkdir()
    with pytest.raises(data.DataError, match="fox: no PNG or JPEG images for this class"):
        data.from_folder(root)


def test_one_entry_point_opens_names_files_and_folders(tmp_path, monkeypatch):
    assert data.open_data("moons", n=100, noise=None).name == "moons"
    table = write(tmp_path / "flowers.csv", flowers())
    assert data.open_data(str(table), target="length", seed=None).kind == "regression"
    assert data.open_data(write(tmp_path / "f.tsv", flowers("\t"))).kind == "classification"
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    assert len(data.open_data(tmp_path / "mine.npz", test=10).x_test) == 10
    assert data.open_data(str(picture_folder(tmp_path / "pets", ("cat", "dog")))).class_names == ("cat", "dog")
    # A known name wins over a folder of that name, unless it is written as a path.
    monkeypatch.chdir(tmp_path)
    picture_folder(tmp_path / "digits", ("cat", "dog"))
    assert data.open_data("digits").classes == 10
    assert data.open_data("./digits").classes == 2


def test_what_cannot_be_opened_is_one_line(tmp_path):
    with pytest.raises(data.DataError, match="did you mean 'digits'"):
        data.open_data("digit")
    with pytest.raises(data.DataError, match=r"nothing.csv: there is no such file"):
        data.open_data("nothing.csv")
    with pytest.raises(data.DataError, match=r"cannot read a .xlsx file"):
        data.open_data(write(tmp_path / "mine.xlsx", "x"))
    with pytest.raises(data.DataError, match=r"unknown option .*'taget'; did you mean 'target'"):
        data.open_data(write(tmp_path / "f.csv", flowers()), taget="kind")
