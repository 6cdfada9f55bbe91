"""The loggers write to the libraries themselves, on this machine alone."""

import time

import pytest
import torch

import bayesify as bf

pytestmark = pytest.mark.filterwarnings("ignore")
SETTINGS = {"epochs": 3, "batch_size": 32, "learning_rate": 0.01, "progress": False}


def needs(library):
    return pytest.importorskip(library, reason=f"{library} is not installed: pip install 'bayesify[loggers]'")


def method():
    torch.manual_seed(0)
    return bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")


def test_tensorboard_reads_the_history(blobs, tmp_path):
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = bf.callbacks.TensorBoardLogger(tmp_path)
    history = method().fit(blobs, **SETTINGS, validation=blobs, callbacks=[logger])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("nll")] == [3, 6, 9]
    assert [event.value for event in events.Scalars("validation_nll")] == pytest.approx(history["validation_nll"])


def test_mlflow_has_settings_and_numbers(blobs, tmp_path, monkeypatch):
    mlflow = needs("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "mlruns").as_uri()
    logger = bf.callbacks.MLflowLogger("digits", tracking_uri=place)
    history = method().fit(blobs, **SETTINGS, callbacks=[logger])
    assert mlflow.active_run() is None
    client = mlflow.MlflowClient(place)
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert run.data.params["method"] == "point"
    assert run.data.params["learning_rate"] == "0.01"
    values = [metric.value for metric in client.get_metric_history(run.info.run_id, "nll")]
    assert values == pytest.approx(history["nll"])


def test_weights_and_biases_writes_offline(blobs, tmp_path, monkeypatch):
    wandb = needs("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = bf.callbacks.WandbLogger("digits", folder=tmp_path)
    runs = []

    class Watch(bf.callbacks.Callback):
        def on_epoch_end(self, method, record):
            runs.append(wandb.run)

    history = method().fit(blobs, **SETTINGS, callbacks=[logger, Watch()])
    assert wandb.run is None  # the logger ended the run that it started
    assert runs[0].settings.mode == "offline"
    assert dict(runs[0].config)["method"] == "point"
    (file,) = tmp_path.rglob("*.wandb")
    # A process of wandb's writes the file, and may end a moment later.
    until = time.monotonic() + 120
    while time.monotonic() < until and str(history["nll"][-1])[:10].encode() not in file.read_bytes():
        time.sleep(0.1)
    assert all(str(nll)[:10].encode() in file.read_bytes() for nll in history["nll"])
