"""Callbacks of `fit`: an end by the ELBO, and loggers for CSV files, TensorBoard, MLflow and Weights & Biases.

    bnn.fit(data, callbacks=[bf.callbacks.CSVLogger("log.csv")])

A logger writes the numbers of each epoch: `loss`, `nll`, `kl`, `learning_rate`, `seconds`, and with validation data
`validation_nll`. It writes to files on this machine alone, unless the library it uses is set up otherwise.
"""

from __future__ import annotations

import csv
import importlib
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.training.callbacks import Callback, StopTraining
from bayesify.training.elbo_slope import StopAtELBO

if TYPE_CHECKING:
    from bayesify.training.plan import History, Plan
    from bayesify.training.trainable import Trainable

__all__ = ["CSVLogger", "Callback", "MLflowLogger", "StopAtELBO", "StopTraining", "TensorBoardLogger", "WandbLogger"]


class CSVLogger(Callback):
    """Write one row per epoch to a CSV file.

    Args:
        path: the file. Rows are added where it exists with the same columns, as when a run is resumed.

    Raises:
        ValueError: the file exists and has other columns.

    Examples:
        >>> method = bf.PointEstimate(net, "categorical")
        >>> history = method.fit((x, y), epochs=2, callbacks=[bf.callbacks.CSVLogger("log.csv")], progress=False)
        >>> open("log.csv").readline().strip()
        'epoch,step,loss,nll,kl,learning_rate,seconds'

    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_epoch_end(self, method: Trainable, record: dict[str, Any]) -> None:
        """Add the row of an epoch.

        Args:
            method: the method in training.
            record: the numbers of the epoch.

        """
        numbers = numbers_of(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists() or self.path.stat().st_size == 0
        if not new:
            with self.path.open(encoding="utf-8", newline="") as file:
                columns = next(csv.reader(file), [])
            if columns != list(numbers):
                raise ValueError(
                    f"{self.path} has the columns {', '.join(columns)}, this training has {', '.join(numbers)}: give "
                    "another file"
                )
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(numbers))
            if new:
                writer.writeheader()
            writer.writerow(numbers)


class TensorBoardLogger(Callback):
    """Write the numbers of each epoch for TensorBoard (`pip install bayesify[loggers]`).

    Args:
        folder: where TensorBoard's files go: `tensorboard --logdir folder` shows them.

    Examples:
        >>> logger = bf.callbacks.TensorBoardLogger("runs/board")  # doctest: +SKIP

    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        _library("tensorboard", "TensorBoardLogger")
        self._writer: Any = None

    def on_fit_start(self, method: Trainable, plan: Plan) -> None:
        """Open the files.

        Args:
            method: the method in training.
            plan: the settings of the training.

        """
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder))
        self._writer.add_text("plan", "\n\n".join(f"{name}: {value}" for name, value in asdict(plan).items()))

    def on_epoch_end(self, method: Trainable, record: dict[str, Any]) -> None:
        """Write the numbers of an epoch.

        Args:
            method: the method in training.
            record: the numbers of the epoch.

        """
        for name, value in numbers_of(record, ("epoch", "step")).items():
            self._writer.add_scalar(name, value, record["step"])

    def on_fit_end(self, method: Trainable, history: History) -> None:
        """Close the files.

        Args:
            method: the method in training.
            history: what was recorded.

        """
        if self._writer is not None:
            self._writer.close()


class MLflowLogger(Callback):
    """Write settings and numbers to an MLflow run (`pip install bayesify[loggers]`).

    It uses the active run, where there is one, and else makes a run of its own.

    Args:
        experiment: the name of the experiment; None is MLflow's default.
        tracking_uri: where MLflow keeps its runs, such as `sqlite:///mlflow.db` or `file:mlruns`. None is MLflow's own
            setting.
        run_name: the name of a new run.

    Examples:
        >>> logger = bf.callbacks.MLflowLogger("digits", tracking_uri="sqlite:///mlflow.db")  # doctest: +SKIP

    """

    def __init__(
        self, experiment: str | None = None, *, tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        self._mlflow = _library("mlflow", "MLflowLogger")
        self.experiment, self.tracking_uri, self.run_name = experiment, tracking_uri, run_name
        self._own = False

    def on_fit_start(self, method: Trainable, plan: Plan) -> None:
        """Start a run, where none is active, and write the settings.

        Args:
            method: the method in training.
            plan: the settings of the training.

        """
        mlflow = self._mlflow
        if self.tracking_uri is not None:
            mlflow.set_tracking_uri(self.tracking_uri)
        if self.experiment is not None:
            mlflow.set_experiment(self.experiment)
        self._own = mlflow.active_run() is None
        if self._own:
            mlflow.start_run(run_name=self.run_name)
        mlflow.log_params({"method": method.name, **asdict(plan)})

    def on_epoch_end(self, method: Trainable, record: dict[str, Any]) -> None:
        """Write the numbers of an epoch.

        Args:
            method: the method in training.
            record: the numbers of the epoch.

        """
        self._mlflow.log_metrics(numbers_of(record, ("epoch", "step")), step=record["step"])

    def on_fit_end(self, method: Trainable, history: History) -> None:
        """End the run that this logger started.

        Args:
            method: the method in training.
            history: what was recorded.

        """
        if self._own and self._mlflow.active_run() is not None:
            self._mlflow.end_run()


class WandbLogger(Callback):
    """Write settings and numbers to a Weights & Biases run (`pip install bayesify[loggers]`).

    It uses the active run, where there is one, and else makes a run of its own.

    Args:
        project: the name of the project.
        mode: `offline` writes to a folder that `wandb sync` uploads; `online` uploads at once.
        folder: where the files go; None is the current folder.
        **more: further arguments of `wandb.init`.

    Examples:
        >>> logger = bf.callbacks.WandbLogger("digits")  # doctest: +SKIP

    """

    def __init__(
        self, project: str | None = None, *, mode: str = "offline", folder: str | Path | None = None, **more: Any
    ) -> None:
        self._wandb = _library("wandb", "WandbLogger")
        self.project, self.mode, self.folder, self.more = project, mode, folder, more
        self._own = False

    def on_fit_start(self, method: Trainable, plan: Plan) -> None:
        """Start a run, where none is active, and write the settings.

        Args:
            method: the method in training.
            plan: the settings of the training.

        """
        wandb = self._wandb
        self._own = wandb.run is None
        settings = {"method": method.name, **asdict(plan)}
        if self._own:
            folder = None if self.folder is None else str(self.folder)
            wandb.init(project=self.project, mode=self.mode, dir=folder, config=settings, **self.more)
        else:
            wandb.config.update(settings, allow_val_change=True)

    def on_epoch_end(self, method: Trainable, record: dict[str, Any]) -> None:
        """Write the numbers of an epoch.

        Args:
            method: the method in training.
            record: the numbers of the epoch.

        """
        self._wandb.log(numbers_of(record, ("step",)), step=record["step"])

    def on_fit_end(self, method: Trainable, history: History) -> None:
        """End the run that this logger started.

        Args:
            method: the method in training.
            history: what was recorded.

        """
        if self._own and self._wandb.run is not None:
            self._wandb.finish()


def numbers_of(record: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, float]:
    """The numbers of a record, without its histograms and without numbers that are not finite."""
    return {
        name: value
        for name, value in record.items()
        if isinstance(value, int | float) and name not in without and math.isfinite(value)
    }


def _library(name: str, logger: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{logger} needs {name}: pip install {name}, or pip install 'bayesify[loggers]'") from None
