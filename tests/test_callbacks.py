"""Callbacks are called at their points, and loggers write what the history holds."""

import csv
import sys

import pytest
import torch

import bayesify as bf


def method():
    torch.manual_seed(0)
    return bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical")


SETTINGS = {"epochs": 3, "batch_size": 32, "learning_rate": 0.01, "progress": False}


class Recorder(bf.callbacks.Callback):
    def __init__(self):
        self.calls = []

    def on_fit_start(self, method, plan):
        self.calls.append(("start", plan.epochs))

    def on_step_end(self, method, step):
        self.calls.append(("step", step))

    def on_epoch_end(self, method, record):
        self.calls.append(("epoch", record["epoch"]))

    def on_fit_end(self, method, history):
        self.calls.append(("end", len(history)))


def test_hooks_are_called_in_order(blobs):
    recorder = Recorder()
    method().fit(blobs, **SETTINGS, callbacks=[recorder])
    expected = [("start", 3)]
    for epoch in range(3):
        expected += [("step", 3 * epoch + 1 + number) for number in range(3)] + [("epoch", epoch + 1)]
    assert recorder.calls == [*expected, ("end", 3)]


def test_callbacks_change_nothing(blobs):
    watched, alone = method(), method()
    watched.fit(blobs, **SETTINGS, callbacks=[Recorder()])
    alone.fit(blobs, **SETTINGS)
    assert torch.equal(watched.mu, alone.mu)


def test_the_end_is_told_where_training_fails(blobs):
    class Fails(Recorder):
        def on_epoch_end(self, method, record):
            raise RuntimeError("a mistake in the callback")

    recorder = Fails()
    with pytest.raises(RuntimeError, match="a mistake"):
        method().fit(blobs, **SETTINGS, callbacks=[recorder])
    assert recorder.calls[-1] == ("end", 1)


@pytest.mark.parametrize("hook", ["on_step_end", "on_epoch_end"])
def test_a_callback_may_end_training(blobs, hook):
    def stop(*_):
        raise bf.callbacks.StopTraining("seen enough")

    history = method().fit(blobs, **SETTINGS, callbacks=[type("Stop", (), {hook: staticmethod(stop)})()])
    assert len(history) == 1
    assert history.stopped == "seen enough"


def test_what_is_no_callback_is_refused(blobs):
    for wrong, message in ((print, "write callbacks="), ([object()], "object has none"), ([Recorder], r"Recorder\(")):
        with pytest.raises(TypeError, match=message):
            method().fit(blobs, **SETTINGS, callbacks=wrong)


def test_a_csv_file_has_the_history(blobs, tmp_path):
    file = tmp_path / "deep" / "log.csv"
    history = method().fit(blobs, **SETTINGS, validation=blobs, callbacks=[bf.callbacks.CSVLogger(file)])
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [float(row["validation_nll"]) for row in rows] == history["validation_nll"]
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3]
    with pytest.raises(ValueError, match="give another file"):
        method().fit(blobs, **SETTINGS, callbacks=[bf.callbacks.CSVLogger(file)])


def test_a_resumed_run_adds_its_rows(blobs, tmp_path):
    logger = bf.callbacks.CSVLogger(tmp_path / "log.csv")
    first = method()
    first.fit(blobs, **SETTINGS, run=tmp_path / "run", callbacks=[logger])
    bf.load(tmp_path / "run").resume(blobs, tmp_path / "run", extend=2, progress=False, callbacks=[logger])
    assert [int(row["epoch"]) for row in csv.DictReader((tmp_path / "log.csv").read_text().splitlines())] == [
        1,
        2,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("library", "logger"), [("tensorboard", "TensorBoardLogger"), ("mlflow", "MLflowLogger"), ("wandb", "WandbLogger")]
)
def test_a_missing_library_is_named(monkeypatch, library, logger):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"{logger} needs {library}: pip install {library}"):
        getattr(bf.callbacks, logger)("x")
