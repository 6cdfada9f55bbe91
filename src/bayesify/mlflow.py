"""MLflow models: a run as an MLflow model, whose `predict` returns the prediction and its uncertainties.

The flavour is called `bayesify`. Its `python_function` flavour takes a pandas frame or an array of raw inputs, as
`bayesify predict` does, and returns a pandas frame.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify import runs
from bayesify.errors import RunError
from bayesify.methods import Method, saving
from bayesify.workflows.build import user_factory
from bayesify.workflows.prepare_inputs import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR_NAME = "bayesify"
_RUN, _MODEL = "run", "MLmodel"


def save_model(
    bnn: Method,
    path: str | Path,
    mlflow_model: Any = None,
    *,
    draws: int = 100,
    seed: int = 0,
    at_least: float | None = None,
    at_most: float | None = None,
) -> None:
    """Write a fitted method as an MLflow model.

    Args:
        bnn: a fitted method.
        path: the folder to write; it must not exist.
        mlflow_model: the description that `log_model` begins; None begins a new one.
        draws: of the weights, for each prediction.
        seed: of the draws.
        at_least: the least confidence that is accepted, for classes.
        at_most: the largest width of the 95% interval that is accepted, for numbers.

    Raises:
        RunError: the folder exists.
        ValueError: a threshold of the wrong kind.
        ImportError: MLflow is not installed.

    Examples:
        >>> bf.mlflow.save_model(bnn, "clouds", at_least=0.9)
        >>> frame = bf.mlflow.load_model("clouds").predict(x).to_pandas()
        >>> len(frame)
        60

    """
    mlflow = _library()
    numbers = bnn.likelihood.kind == "regression"
    if (at_least is not None and numbers) or (at_most is not None and not numbers):
        raise ValueError("at_least is a confidence, for classes; at_most is a width, for numbers")
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty: an MLflow model is written into a new folder")
    kept = bnn.run
    try:
        bnn.save(folder / _RUN)
    finally:
        bnn.run = kept  # the method still belongs to its own run
    model = mlflow.models.Model() if mlflow_model is None else mlflow_model
    settings = {"draws": draws, "seed": seed, "at_least": at_least, "at_most": at_most}
    versions = runs.versions()
    model.add_flavor(FLAVOR_NAME, data=_RUN, bayesify_version=versions["bayesify"], settings=settings)
    mlflow.pyfunc.add_to_model(model, loader_module="bayesify.mlflow", data=_RUN, model_config=settings)
    torch = versions["torch"].partition("+")[0]
    wanted = [] if versions["bayesify"] == "unknown" else [f"bayesify=={versions['bayesify']}"]
    (folder / "requirements.txt").write_text("\n".join([*wanted, f"torch=={torch}", "pandas", ""]), encoding="utf-8")
    model.save(str(folder / _MODEL))


def log_model(bnn: Method, name: str = "model", **options: Any) -> Any:
    """Write a fitted method as a model of the active MLflow run; one is started where none is.

    Args:
        bnn: a fitted method.
        name: of the model.
        **options: of `save_model`, and `registered_model_name` or others of `mlflow.models.Model.log`.

    Returns:
        MLflow's description of the model, with its `model_uri`.

    Raises:
        ImportError: MLflow is not installed.

    Examples:
        >>> bf.mlflow.log_model(bnn, "clouds").model_uri  # doctest: +SKIP
        'models:/m-1f0e...'

    """
    mlflow = _library()
    return mlflow.models.Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], bnn=bnn, **options)


def load_model(model_uri: str | Path, *, network: Any = None, device: str = "cpu") -> Method:
    """Read the method of an MLflow model.

    Args:
        model_uri: a folder, `models:/NAME/VERSION`, `runs:/RUN/NAME`, or another address of MLflow.
        network: the module, or a function that makes it, for a network that is not built in.
        device: where to put the method.

    Returns:
        The method, in evaluation mode. It takes inputs as in training; `bf.prepare` makes them from raw ones.

    Raises:
        RunError: it is no model of bayesify, or needs `network`.
        ImportError: MLflow is not installed.

    Examples:
        >>> bf.mlflow.save_model(bnn, "other-clouds")
        >>> type(bf.mlflow.load_model("other-clouds")).__name__
        'Variational'

    """
    folder = Path(model_uri)
    if not folder.is_dir():
        folder = Path(_library().artifacts.download_artifacts(artifact_uri=str(model_uri)))
    if not (folder / _MODEL).is_file() or not (folder / _RUN).is_dir():
        raise RunError(f"{model_uri} is no MLflow model of bayesify")
    return saving.load(folder / _RUN, network, device)


class PredictsFrames:
    """What `mlflow.pyfunc.load_model` returns inside: `predict` from raw inputs to a frame.

    The frame has the columns of `Predictive.to_pandas` and `accepted`; a row of a table that training never saw is not
    accepted and has the `reason`.

    Args:
        method: the method.
        settings: `draws`, `seed`, `at_least`, `at_most`.

    """

    def __init__(self, method: Method, settings: Mapping[str, Any]) -> None:
        self.method, self.settings = method, dict(settings)

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Predict raw inputs.

        Args:
            model_input: a frame, an array, or a list of dictionaries, as `bf.prepare` takes them; for a method that was
                fitted in Python, inputs as its network takes them.
            params: replaces settings: `draws`, `seed`, `at_least`, `at_most`.

        Returns:
            A pandas frame with a row for each input.

        """
        unknown = set(params or {}) - set(self.settings)
        if unknown:
            raise ValueError(f"unknown params {', '.join(sorted(unknown))}; known: {', '.join(self.settings)}")
        settings = self.settings | dict(params or {})
        reasons: list[str | None] | None = None
        index = getattr(model_input, "index", None)
        if self.method.notes.get("preparation"):
            inputs, reasons = prepare(self.method, model_input, reasons=True)
        else:
            inputs = model_input.to_numpy() if hasattr(model_input, "to_numpy") else model_input
        predictive = self.method.predict(inputs, draws=int(settings["draws"]), seed=int(settings["seed"]))
        frame = predictive.to_pandas(index if not callable(index) else None)
        at_least, at_most = settings["at_least"], settings["at_most"]
        frame["accepted"] = True
        if at_least is not None or at_most is not None:
            frame["accepted"] = predictive.accept(at_least=at_least, at_most=at_most).tolist()
        if reasons is not None and any(reasons):
            frame["reason"] = reasons
            frame.loc[[reason is not None for reason in reasons], "accepted"] = False
        return frame


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> PredictsFrames:
    """What MLflow calls; `model_config={"network": "module:factory"}` names a network that is not built in."""
    settings = {"draws": 100, "seed": 0, "at_least": None, "at_most": None} | dict(model_config or {})
    name, folder = settings.pop("network", None), Path(path)
    if name is None:
        return PredictsFrames(saving.load(folder), settings)
    # The name comes from the caller, never from the folder.
    shapes = runs.read_config(folder).get("input_shapes") or [None]
    factory = user_factory(name, None if shapes[0] is None else tuple(shapes[0]), None)
    return PredictsFrames(saving.load(folder, network=factory), settings)


def _library() -> Any:
    try:
        for part in ("mlflow.artifacts", "mlflow.models", "mlflow.pyfunc"):
            importlib.import_module(part)  # by name: most programs that use this package never need MLflow
    except ImportError as problem:
        raise ImportError(f"bf.mlflow needs {problem.name}: pip install 'bayesify[loggers,tables]'") from None
    return importlib.import_module("mlflow")
