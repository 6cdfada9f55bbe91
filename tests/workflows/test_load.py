"""In Python a run of the command line gives the command's answers, and says what inputs it takes."""

import json
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_diabetes, load_digits

import bayesify as bf
from bayesify.cli import main
from bayesify.data import DataError
from bayesify.methods import checks
from bayesify.workflows import load as loading
from bayesify.workflows import prepare_inputs

DIABETES = load_diabetes(scaled=False)
NAMES = [*DIABETES.feature_names]


def write(path, names, rows):
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs of the command on numbers, on categories and on pictures, with what they were trained on."""
    folder = tmp_path_factory.mktemp("prepared")
    write(
        folder / "diabetes.csv",
        [*NAMES, "progression"],
        [[*x.tolist(), y] for x, y in zip(DIABETES.data, DIABETES.target, strict=True)],
    )
    random = np.random.default_rng(0)
    size, kind = random.uniform(30, 200, 80).round(1), random.choice(["1", "a flat", "a, b"], 80)
    rows = [[s, f'"{k}"', 1000 * s + 9000 * (k == "1")] for s, k in zip(size, kind, strict=True)]
    write(folder / "houses.csv", ["size", "kind", "price"], rows)
    for data, more in (
        ("diabetes.csv", ["--epochs", "20"]),
        ("houses.csv", ["--epochs", "20"]),
        ("digits", ["--epochs", "2"]),
    ):
        where = data if data == "digits" else str(folder / data)
        run = str(folder / data.removesuffix(".csv"))
        assert main(["train", "--data", where, "--method", "point", "--out", run, "--json", *more]) == 0
    return folder


def asked(capsys, run, *inputs):
    capsys.readouterr()
    assert main(["predict", str(run), *map(str, inputs), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["predictions"]


def test_prepared_inputs_give_the_answers_of_the_command_in_the_targets_units(place, capsys):
    pandas = pytest.importorskip("pandas")
    run = place / "diabetes"
    expected = [row["value"] for row in asked(capsys, run, place / "diabetes.csv")]
    frame = pandas.read_csv(place / "diabetes.csv")
    method = bf.load(run)
    for raw in (
        place / "diabetes.csv",
        str(place / "diabetes.csv"),
        frame,
        frame[frame.columns[::-1]],
        frame.rename(columns={"bmi": " bmi"}),
        DIABETES.data,
        DIABETES.data.tolist(),
        torch.tensor(DIABETES.data),
    ):
        for source in (run, str(run), method):
            assert method.predict(bf.prepare(source, raw)).mean.tolist() == expected
    # Without it the answers are those of other patients: the mean progression is 152.
    assert np.abs(np.array(expected) - DIABETES.target).mean() < 60
    assert (method.predict(DIABETES.data).mean - torch.tensor(expected)).abs().mean() > 300


def test_categories_are_found_by_their_names(place, capsys):
    pandas = pytest.importorskip("pandas")
    run = place / "houses"
    expected = [row["value"] for row in asked(capsys, run, place / "houses.csv")]
    frame = pandas.read_csv(place / "houses.csv", dtype={"kind": str})
    ones = frame["kind"] == "1"
    method = bf.load(run)

    def answers(raw):
        return method.predict(bf.prepare(run, raw)).mean.tolist()

    assert answers(frame) == expected
    assert answers(frame[["size", "kind"]].to_numpy()) == expected
    assert answers(frame[["size", "kind"]].to_numpy()[0]) == pytest.approx(expected[:1], rel=1e-6)
    # Read by itself a column of such names is one of numbers; it is the name all the same, not the code.
    numbers = frame[ones].assign(kind=1)
    chosen = [value for value, is_one in zip(expected, ones, strict=True) if is_one]
    assert answers(numbers) == pytest.approx(chosen, rel=1e-6)
    with pytest.raises(DataError, match="row 1, column 'kind': unknown category 'castle'; known: 1, a flat, a, b"):
        bf.prepare(run, frame.assign(kind="castle"))
    with pytest.raises(DataError, match="column 'kind': missing value"):
        bf.prepare(run, frame.assign(kind=None))


def test_pictures_come_as_files_as_pillows_or_as_pixels(place, capsys, tmp_path):
    run = place / "digits"
    levels = load_digits().images[:3]
    for number, image in enumerate(levels):
        Image.fromarray((255 * (1 - image / 16)).round().astype(np.uint8)).resize((40, 40)).save(
            tmp_path / f"{number}.png"
        )
    files = [tmp_path / f"{number}.png" for number in range(3)]
    expected = [list(row["probs"].values()) for row in asked(capsys, run, *files)]
    method = bf.load(run)
    for raw in (files, tmp_path, [Image.open(file) for file in files]):
        assert method.predict(bf.prepare(run, raw)).probs.tolist() == expected
    dataset = bf.data.load("digits")
    prepared = dataset.prepare("255").x_test
    for raw in (dataset.x_test, dataset.x_test.numpy(), dataset.x_test.flatten(1)):
        assert torch.equal(bf.prepare(run, raw), prepared)


@pytest.mark.parametrize(
    "raw, problem, words",
    [
        ({"bmi": 1.0}, TypeError, "an array or a tensor, got dict"),
        (None, TypeError, "got NoneType"),
        ([[1.0, 2.0], [3.0]], TypeError, "equal length"),
        (np.zeros((3, 11)), DataError, r"must be \[10\] or \[n, 10\], got \[3, 11\]"),
        (np.full((3, 10), np.nan), DataError, "NaN"),
        ("nowhere.csv", DataError, "no such file"),
        ([], DataError, "holds no numbers"),
    ],
)
def test_what_cannot_be_prepared_is_one_clear_line(place, raw, problem, words):
    with pytest.raises(problem, match=words) as caught:
        bf.prepare(place / "diabetes", raw)
    assert "\n" not in str(caught.value)


def test_a_frame_without_a_column_names_it(place):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(DIABETES.data, columns=NAMES)
    with pytest.raises(DataError, match="there is no column 'bmi'; did you mean 'bmx'"):
        bf.prepare(place / "diabetes", frame.rename(columns={"bmi": "bmx"}))
    with pytest.raises(DataError, match="two columns are named 'bmi'"):
        bf.prepare(place / "diabetes", frame.rename(columns={"age": "bmi"}))
    # Numbers for names are places.
    assert len(bf.prepare(place / "diabetes", pandas.DataFrame(DIABETES.data))) == 442


def test_a_run_of_tensors_has_nothing_to_prepare(blobs, tmp_path):
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical")
    method.fit(blobs, epochs=1, progress=False, run=tmp_path / "run")
    for run in (tmp_path / "run", method):
        with pytest.raises(bf.RunError, match="was trained on tensors"):
            bf.prepare(run, blobs[0])
    with pytest.raises(TypeError, match="run must be a run folder or a loaded method, got list"):
        bf.prepare([1], blobs[0])


def test_a_prediction_of_a_loaded_run_warns_unless_inputs_were_prepared_and_commands_do_not(
    place, blobs, tmp_path, monkeypatch, recwarn
):
    monkeypatch.setattr(checks, "PREPARED", prepared := set())
    monkeypatch.setattr(prepare_inputs, "PREPARED", prepared)
    warnings.simplefilter("always")
    loading.load_run(place / "diabetes").predict(torch.zeros(2, 10))
    assert main(["predict", str(place / "diabetes"), str(place / "diabetes.csv"), "--json"]) == 0
    assert not recwarn
    prepared.clear()
    for name, columns in (("diabetes", 10), ("houses", 4), ("digits", 64)):
        method = bf.load(place / name)
        assert not recwarn
        with pytest.warns(bf.BayesifyWarning, match=r"bayesify\.prepare\(run, raw_inputs\)"):
            method.predict(torch.zeros(2, columns))
        method.predict(torch.zeros(2, columns))  # said once
    for run in (place / "digits", bf.load(place / "digits")):
        prepared.clear()
        method = bf.load(place / "digits")
        method.predict(bf.prepare(run, torch.zeros(2, 8, 8)))
    assert not recwarn
    bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical").save(tmp_path / "plain")
    bf.load(tmp_path / "plain").predict(torch.zeros(2, 2))
    flags = ["--normalise", "none", "--method", "point", "--epochs", "1", "--out", str(tmp_path / "none"), "--json"]
    assert main(["train", "--data", str(place / "diabetes.csv"), *flags]) == 0
    bf.load(tmp_path / "none").predict(torch.zeros(2, 10))
    assert not recwarn
