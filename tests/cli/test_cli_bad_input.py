"""What cannot be done is said in one line, with exit code 2, and leaves nothing behind."""

import json
import shutil

import numpy as np
import pytest
from driving import picture, shell, write_rows
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

HEADER = ["a", "b", "y"]
GOOD = [[str(i), str(i % 7), "yes" if i % 2 else "no"] for i in range(40)]
QUICK = ["--epochs", 1, "--units", 4, "--layers", 1]


def table(change):
    """Rows of a good table after `change(rows)`."""
    rows = [list(row) for row in GOOD]
    change(rows)
    return rows


TABLES = {
    "text where a number should be": (table(lambda rows: rows[3].__setitem__(0, "many")), ["line 5", "'a'", "many"]),
    "missing value": (table(lambda rows: rows[3].__setitem__(1, "")), ["line 5", "missing"]),
    "ragged": (table(lambda rows: rows[4].append("9")), ["line 6", "3 cells", "got 4"]),
    "infinite": (table(lambda rows: rows[0].__setitem__(0, "inf")), ["line 2", "finite"]),
    "one class": (table(lambda rows: [row.__setitem__(2, "no") for row in rows]), ["'no'", "two or more"]),
    "two rows": (GOOD[:2], ["at least 4"]),
    "no rows": ([], ["rows below the header"]),
    "a class for each row": (
        table(lambda rows: [row.__setitem__(2, f"n{i}") for i, row in enumerate(rows)]),
        ["classes"],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_be_trained_on(refused, tmp_path, name):
    rows, words = TABLES[name]
    write_rows(tmp_path / "bad.csv", HEADER, rows)
    command = ["train", "--data", tmp_path / "bad.csv", "--missing", "refuse", *QUICK]
    refused([*command, "--out", tmp_path / "new" / "run"], "bad.csv", *words)
    assert not (tmp_path / "new").exists()


def test_files_that_are_not_what_they_are_called(refused, tmp_path):
    def train(name, *words):
        refused(["train", "--data", tmp_path / name, *QUICK, "--out", tmp_path / "run"], name, *words)

    train("nowhere.csv", "no such file")
    train("nowhere.npz", "no such file")
    (tmp_path / "empty.csv").write_text("")
    train("empty.csv", "empty")
    (tmp_path / "bytes.csv").write_bytes(bytes(range(256)))
    train("bytes.csv", "UTF-8")
    (tmp_path / "latin.csv").write_bytes("größe,y\n1,a\n".encode("latin-1"))
    train("latin.csv", "UTF-8")
    (tmp_path / "column.csv").write_text("a\n1\n2\n3\n4\n")
    train("column.csv", "two columns")
    (tmp_path / "empty.npz").write_bytes(b"")
    train("empty.npz")
    np.savez(tmp_path / "good.npz", x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)
    whole = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    train("cut.npz")
    (tmp_path / "flipped.npz").write_bytes(whole[:60] + bytes(20) + whole[80:])
    train("flipped.npz")
    np.savez(tmp_path / "names.npz", inputs=np.zeros((4, 2)))
    train("names.npz", "expected arrays x and y")
    np.savez(tmp_path / "lengths.npz", x=np.zeros((4, 2)), y=np.zeros(5))
    train("lengths.npz", "5 targets")
    np.savez(tmp_path / "objects.npz", x=np.array([{}, {}], dtype=object), y=np.zeros(2))
    train("objects.npz")
    np.savez(tmp_path / "nan.npz", x=np.full((4, 2), np.nan), y=np.arange(4) % 2)
    train("nan.npz", "NaN")
    (tmp_path / "thing.xlsx").write_bytes(b"PK")
    train("thing.xlsx", ".csv")
    assert not (tmp_path / "run").exists()


def test_folders_of_pictures_that_cannot_be_trained_on(refused, tmp_path):
    def train(name, *words):
        refused(["train", "--data", tmp_path / name, *QUICK, "--out", tmp_path / "run"], name, *words)

    images = load_digits().images
    (tmp_path / "nothing").mkdir()
    train("nothing", "sub-folder")
    for kind in ("one", "odd", "torn", "text"):
        for label in range(1 if kind == "one" else 2):
            (tmp_path / kind / f"class{label}").mkdir(parents=True)
            for number in range(4):
                picture(images[number]).save(tmp_path / kind / f"class{label}" / f"{number}.png")
    train("one", "one class")
    picture(images[0]).resize((20, 30)).save(tmp_path / "odd/class1/2.png")
    train("odd", "same size", "30x20", "size=40")
    whole = (tmp_path / "torn/class0/1.png").read_bytes()
    (tmp_path / "torn/class0/1.png").write_bytes(whole[: len(whole) // 2])
    train("torn", "1.png", "truncated")
    (tmp_path / "text/class0/1.png").write_text("not a picture")
    train("text", "1.png")
    assert not (tmp_path / "run").exists()


SETTINGS = {
    ("--data", "digitz"): "did you mean 'digits'",
    ("--method", "variatonal"): "did you mean 'variational'",
    ("--network", "mpl"): "did you mean 'mlp'",
    ("--prior", "norml:1"): "did you mean 'normal'",
    ("--prior", "scale-mixture:0.5"): "scale-mixture:",
    ("--estimator", "locl"): "did you mean 'local'",
    ("--activation", "rellu"): "did you mean 'relu'",
    ("--optimizer", "adm"): "did you mean 'adam'",
    ("--schedule", "cosin"): "did you mean 'cosine'",
    ("--kl", "unifrom"): "did you mean 'uniform'",
    ("--likelihood", "categoricl"): "did you mean 'categorical'",
    ("--likelihood", "poisson"): "regression",
    ("--normalise", "125"): "normalise",
    ("--keep", "worst"): "keep",
    ("--device", "cuda:99"): "cannot use device",
    ("--device", "toaster"): "cannot use device",
    ("--withhold", "elephant"): "unknown class",
    ("--withhold", "0,1,2,3,4,5,6,7,8"): "keep at least 2",
    ("--label-noise", "1,7"): "1,7=0.3",
    ("--label-noise", "1,70=0.5"): "unknown class '70'",
    ("--label-noise", "1,7=2"): "[0, 1]",
    ("--validation", "1.5"): "between 0 and 1",
    ("--patience", "3"): "validation",
    ("--target", "y"): "target",
    ("--split", "x"): "--split",
    ("--epochs", "0"): "epochs",
    ("--epochs", "ten"): "--epochs",
    ("--batch-size", "0"): "batch_size",
    ("--learning-rate", "-1"): "learning_rate",
    ("--units", "many"): "units must be a whole number",
    ("--units", "8,8", "--layers", "3"): "2 widths",
    ("--dropout", "1"): "dropout",
    ("--rho", "wide"): "wide",
    ("--start", "hot"): "hot",
    ("--bayesian", "first*"): "first*",
    ("--method", "variational", "--members", "3"): "members is a setting of ensemble",
    ("--method", "variational", "--p", "0.5"): "p is a setting of mc-dropout",
    ("--members", "3", "--structure", "full"): "no method takes all of epochs and members and structure",
    ("--method", "variational", "--time", "3"): "time is a setting of method auto, the method is variational",
    ("--time", "0"): "time must be a finite number above 0, got 0.0",
    ("--method", "point", "--draws", "2"): "draws is a setting of variational",
    ("--method", "ensemble", "--members", "0"): "members",
    ("--method", "mc-dropout", "--p", "1.5"): "p must be a dropout rate between 0 and 1, got 1.5",
    ("--method", "mc-dropout", "--p", "0"): "p must be a dropout rate between 0 and 1, got 0.0",
    ("--network", "cnn", "--units", "9"): "units is a setting of mlp",
    ("--network", "cnn", "--data", "moons"): "needs images",
    ("--network", "cnn", "--preset", "lenett"): "did you mean 'lenet'",
    ("--preset", "lenet"): "preset is a setting of cnn",
    ("--extend", "3"): "--resume",
    ("--config", "nowhere.json"): "nowhere.json",
    ("--resume", "nowhere"): "no run at nowhere",
    ("--epoch", "3"): "did you mean '--epochs'?",
    ("--unit", "3"): "did you mean '--units'?",
    ("--nonsense", "3"): "there is no option --nonsense; see --help",
    ("--learning-rate", "abc"): "--learning-rate must be a number, got 'abc'",
}


@pytest.mark.parametrize("flags", SETTINGS, ids=" ".join)
def test_settings_that_make_no_sense(refused, tmp_path, flags):
    names = {flag for flag in flags if flag.startswith("--")}
    cheap = [] if names & {"--network", "--units", "--preset", "--resume"} else ["--units", "4"]
    cheap += [] if names & {"--epochs", "--resume", "--epoch"} else ["--epochs", "1"]
    out = [] if "--resume" in names else ["--out", tmp_path / "deep" / "run"]
    refused(["train", *flags, *cheap, *out], SETTINGS[flags])
    assert not (tmp_path / "deep").exists()


def test_commands_that_do_not_exist(refused):
    refused(["trian"], "no command 'trian'", "did you mean 'train'?")
    refused(["evaluate"], "missing argument")
    refused(["bench", "stp"], "unknown benchmark 'stp'", "did you mean 'step'?")


def test_configuration_files(refused, tmp_path):
    def train(name, text, *words):
        (tmp_path / name).write_text(text)
        refused(["train", "--config", tmp_path / name, "--out", tmp_path / "run"], *words)

    train("a.json", "{", "a.json", "not a readable")
    train("b.json", "[1]", "b.json", "list")
    train("c.json", '{"epoch": 3}', "unknown setting 'epoch'", "did you mean 'epochs'")
    train("d.json", '{"epochs": "ten"}', "epochs must be a whole number", "ten")
    train("e.toml", "epochs = ", "e.toml")
    train("f.json", '{"format": "bayesify-run", "version": 1}', "does not say what data")
    assert not (tmp_path / "run").exists()


def test_folders_that_cannot_be_written(refused, call, digits_run, tmp_path):
    (tmp_path / "file").write_text("x")
    refused(["train", *QUICK, "--out", tmp_path / "file" / "run"], "cannot write")
    refused(["train", *QUICK, "--out", tmp_path / "file"], "is a file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("dear")
    refused(["train", *QUICK, "--out", tmp_path / "full"], "not empty")
    refused(["train", *QUICK, "--out", tmp_path / "full", "--overwrite"], "not a run")
    assert (tmp_path / "full" / "thesis.txt").read_text() == "dear"
    refused(["train", *QUICK, "--out", digits_run], "not empty")
    refused(["prune", digits_run, "--out", tmp_path / "file" / "small"], "cannot write")
    refused(["compare", "--out", tmp_path / "file" / "c"], "cannot write")
    refused(["demo", "--out", tmp_path / "file" / "d"], "cannot write")


def test_run_folders_that_cannot_be_read(refused, digits_run, tmp_path):
    def broken(name):
        shutil.copytree(digits_run, tmp_path / name)
        return tmp_path / name

    def refuse(run, *words):
        for command in (["evaluate", run], ["predict", run, "x.png"], ["prune", run], ["train", "--resume", run]):
            refused(command, *words)

    refuse(tmp_path / "nowhere", "no run at")
    (tmp_path / "file").write_text("")
    refuse(tmp_path / "file", "not a run folder")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "not a run", "config.json")
    torn = broken("torn")
    (torn / "config.json").write_text((torn / "config.json").read_text()[:200])
    refuse(torn, "config.json is damaged")
    foreign = broken("foreign")
    (foreign / "config.json").write_text('{"model": "bert"}')
    refuse(foreign, "not written by bayesify")
    newer = broken("newer")
    config = json.loads((newer / "config.json").read_text())
    (newer / "config.json").write_text(json.dumps(config | {"version": 99}))
    refuse(newer, "version 99", "upgrade")
    half = broken("half")
    (half / "model.safetensors").unlink()
    refuse(half, "incomplete", "model.safetensors")


def test_models_that_are_damaged(call, refused, digits_run, place, tmp_path):
    def broken(name):
        return shutil.copytree(digits_run, tmp_path / name)

    cut = broken("cut")
    whole = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(["evaluate", cut], "model.safetensors is damaged")
    other = broken("other")
    config = json.loads((other / "config.json").read_text())
    config["network"]["units"] = [9, 9]
    (other / "config.json").write_text(json.dumps(config))
    refused(["predict", other, place / "0.png"], "does not fit")
    plain = broken("plain")
    save_file(load_file(plain / "model.safetensors"), plain / "model.safetensors")
    refused(["evaluate", plain], "not a checkpoint written by bayesify")
    unknown = broken("unknown")
    config = json.loads((unknown / "config.json").read_text())
    (unknown / "config.json").write_text(json.dumps(config | {"method": "oracle"}))
    refused(["evaluate", unknown], "unknown method 'oracle'")
    checkpoint = broken("checkpoint")
    (checkpoint / "checkpoint" / "state.safetensors").write_bytes(b"junk")
    refused(["train", "--resume", checkpoint, "--extend", 1], "state.safetensors", "damaged")
    assert call("predict", checkpoint, place / "0.png").code == 0  # the model itself is whole


def test_inputs_that_cannot_be_answered(refused, digits_run, place, tmp_path):
    def predict(name, *words):
        refused(["predict", digits_run, tmp_path / name], *words)

    image = load_digits().images[0]
    predict("nowhere.png", "no such file")
    (tmp_path / "torn.png").write_bytes((place / "3.png").read_bytes()[:60])
    predict("torn.png", "torn.png")
    (tmp_path / "empty.jpg").write_bytes(b"")
    predict("empty.jpg", "empty.jpg")
    (tmp_path / "words.png").write_text("seven")
    predict("words.png", "words.png", "not a PNG or JPEG")
    (tmp_path / "seven.tiff").write_bytes(b"II*")
    predict("seven.tiff", ".tiff", ".png")
    np.save(tmp_path / "shape.npy", np.zeros((3, 5)))
    predict("shape.npy", "[8, 8]", "[3, 5]")
    np.save(tmp_path / "whole.npy", image)
    (tmp_path / "torn.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:200])
    predict("torn.npy", "torn.npy", "damaged")
    (tmp_path / "empty.npy").write_bytes(b"")
    predict("empty.npy", "the file is empty")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    predict("objects.npy", "Python objects")
    np.save(tmp_path / "texts.npy", np.array(["seven"]))
    predict("texts.npy", "numbers")
    np.save(tmp_path / "nan.npy", np.full((8, 8), np.nan))
    predict("nan.npy", "NaN")
    np.save(tmp_path / "bright.npy", image * 15)
    predict("bright.npy", "0 to 16")
    np.savez(tmp_path / "two.npz", a=image, b=image)
    predict("two.npz", "expected an array x", "a, b")
    (tmp_path / "words.csv").write_text("one,two\nthree,four\n")
    predict("words.csv", "expected a number")
    (tmp_path / "folder").mkdir()
    predict("folder", "expected PNG or JPEG images")
    good = tmp_path / "whole.npy"
    refused(["predict", digits_run, good, tmp_path / "nan.npy"], "nan.npy")  # all or nothing
    refused(["predict", digits_run, good, "--at-least", 95], "from 0 to 1")
    refused(["predict", digits_run, good, "--at-most", 1], "--at-least")
    refused(["predict", digits_run, good, "--draws", 0], "draws")
    refused(["predict", digits_run, good, "--by", "meen"], "did you mean 'mean'")
    refused(["predict", digits_run, good, "--json", "--csv"], "choose one")


def test_rows_that_cannot_be_answered(refused, houses_run, iris_run, place):
    def predict(run, text, *words):
        refused(["predict", run, "-"], "standard input", *words, stdin=text)

    predict(houses_run, "", "empty")
    predict(houses_run, "area,rooms\n100,3\n", "no column 'kind'")
    predict(houses_run, "100,3\n", "2 columns", "exactly 3 columns")
    predict(houses_run, '{"area": 100}\n', "no 'rooms'")
    predict(houses_run, '{"area": [1], "rooms": 3, "kind": "flat"}\n', "'area': expected a number")
    predict(houses_run, f'{{"area": 1{"0" * 400}, "rooms": 3, "kind": "flat"}}\n', "'area' is a number too large")
    predict(houses_run, f"[1{'0' * 400}, 3, 0]\n", "expected a list of numbers")
    predict(houses_run, '{"area": \n', "line 1", "JSON")
    predict(houses_run, "[1, 2]\n", "line 1", "[3]")
    predict(houses_run, "[[1, 2, 0], [1, 2, 1]]\n", "one example per line")
    refused(["predict", iris_run, place / "0.png"], "table")


def test_data_that_does_not_fit_a_run(refused, digits_run, iris_run, place):
    refused(["evaluate", digits_run, "--data", "moons"], "moons")
    refused(["evaluate", digits_run, "--ood", place / "iris.csv"], "takes images")
    refused(["evaluate", iris_run, "--ood", "digits"], "columns")
    refused(["evaluate", digits_run, "--ood", "fashon"], "did you mean 'fashion'")
    refused(["evaluate", digits_run, "--draws", 0], "draws")


def test_a_person_sees_one_line_and_no_traceback(tmp_path):
    outcome = shell("train", "--data", "digitz", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("bayesify: unknown data set 'digitz'")
    assert outcome.err.count("\n") == 1
    outcome = shell(
        "data", "mnist", "--download", cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "no" / "cache"), **OFFLINE
    )
    assert (outcome.code, outcome.out) == (1, "")  # a valid request that failed
    assert "could not download" in outcome.err
    assert outcome.err.count("\n") == 1


# A proxy that nobody runs: the same "no connection" with and without a network.
OFFLINE = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_PROXY": "", "no_proxy": ""}
