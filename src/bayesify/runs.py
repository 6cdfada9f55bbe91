"""A run is a folder, version 1: what was trained, how, and on what; readable without running any code in it.

`config.json` describes the method, the network and the data; `model.safetensors` holds the tensors; `checkpoint/` lets
training go on; `history.jsonl` and `metrics.json` say how it went. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import likelihoods, networks, priors
from bayesify.errors import RunError, nearest
from bayesify.methods import METHODS, Method
from bayesify.training import checkpoint
from bayesify.training.loop import History, Plan

VERSION = 1
CONFIG, MODEL, HISTORY, METRICS = "config.json", "model.safetensors", "history.jsonl", "metrics.json"


def save(method: Method, folder: Path) -> Path:
    """Write a method into a run folder; what is already there stays until the new files are whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    checkpoint.write(folder / MODEL, dict(method.state_dict()), {"method": method.name})
    checkpoint.write_json(folder / CONFIG, describe(method))
    if method.history.records:
        (folder / HISTORY).write_text(method.history.to_jsonl(), encoding="utf-8")
    return folder


def load(path: str | Path, network: Any = None, device: torch.device | str = "cpu") -> Method:
    """Read a method from a run folder.

    Args:
        path: the folder.
        network: the module (or a function that makes it) for networks that are not ours.
        device: where to put it.

    """
    folder = Path(path)
    config = read_config(folder)
    method = _rebuild(config, network, folder)
    tensors, _ = checkpoint.read(folder / MODEL)
    _check_tensors(method, tensors, folder)
    method.load_state_dict(tensors)
    method.plan = Plan(**config["plan"]) if config.get("plan") else None
    method.notes = config.get("data") or {}
    method.input_shapes = config.get("input_shapes")
    method.history = History(read_history(folder))
    method.seed = method.plan.seed if method.plan else 0
    return method.to(device).eval()


def claim(folder: Path, *, overwrite: bool) -> Path:
    """Make a folder ready for a new run, refusing one that already holds something."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if not overwrite:
                raise RunError(f"{folder} is not empty: resume the run, choose another folder, or allow overwriting")
            if not (folder / CONFIG).exists():
                raise RunError(f"{folder} holds something that is not a run: it will not be overwritten")
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return folder


def describe(method: Method) -> dict[str, Any]:
    """Everything that rebuilds a method, and what it was trained with."""
    network = method.network
    return {
        "version": VERSION,
        "format": "bayesify-run",
        "method": method.name,
        "settings": method.settings(),
        "network": network.spec,
        "bayesian": network.bayesian if isinstance(network.bayesian, str) else list(network.bayesian),
        "output": network.output if isinstance(network.output, str | int) else None,
        "parameters": {place.name: list(place.shape) for place in network.places},
        "prior": None if method.prior is None else method.prior.spec(),
        "likelihood": method.likelihood.spec(),
        "start": method.start,
        "input_shapes": method.input_shapes,
        "data": method.notes or None,
        "plan": None if method.plan is None else asdict(method.plan),
        "versions": _versions(),
        "threads": torch.get_num_threads(),
        "device": str(next(method.parameters()).device),
    }


def read_config(folder: Path) -> dict[str, Any]:
    """A run's description, or one clear line on why the folder is not a run that we can read."""
    if not folder.exists():
        raise RunError(f"there is no run at {folder}")
    if not folder.is_dir():
        raise RunError(f"{folder} is a file, not a run folder")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run: it has no {CONFIG}") from None
    except (OSError, ValueError) as problem:
        raise RunError(f"{folder / CONFIG} is damaged: {str(problem).splitlines()[0]}") from None
    if not isinstance(config, dict) or config.get("format") != "bayesify-run":
        raise RunError(f"{folder} was not written by bayesify")
    if not isinstance(config.get("version"), int) or config["version"] > VERSION:
        raise RunError(
            f"{folder} is a run of version {config.get('version')}, this bayesify reads up to {VERSION}: upgrade it"
        )
    if not (folder / MODEL).exists():
        raise RunError(f"{folder} is half written: {MODEL} is missing")
    return config


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The records of `history.jsonl`, as far as they are whole."""
    records: list[dict[str, Any]] = []
    path = folder / HISTORY
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def _rebuild(config: dict[str, Any], network: Any, folder: Path) -> Method:
    kind = METHODS.get(config.get("method", ""))
    if kind is None:
        raise RunError(
            f"unknown method {config.get('method')!r} in {folder}{nearest(str(config.get('method')), METHODS)}"
        )
    if network is None:
        if config.get("network") is None:
            raise RunError(f"the network in {folder} is one of yours: load it with bayesify.load(path, network=...)")
        network = networks.build(config["network"])
    try:
        settings = dict(config["settings"])
        added = settings.pop("added_dropout", None)
        prior = config["prior"]
        method = kind(
            network,
            likelihoods.from_spec(config["likelihood"]),
            prior=None if prior is None else priors.parse_mapping(prior),
            bayesian=config["bayesian"],
            output=config["output"],
            **settings,
        )
    except (KeyError, TypeError) as problem:
        raise RunError(f"{folder / CONFIG} does not describe a method: {problem}") from None
    if added:
        method.network.add_dropout_to(added, settings["p"])
    return method


def _check_tensors(method: Method, tensors: dict[str, Tensor], folder: Path) -> None:
    own = method.state_dict()
    for name, tensor in own.items():
        if name == "kept_weights":
            continue
        if name not in tensors or tensors[name].shape != tensor.shape:
            found = "missing" if name not in tensors else f"of shape {tuple(tensors[name].shape)}"
            raise RunError(f"the network does not fit {folder}: {name} should be {tuple(tensor.shape)}, it is {found}")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        found["bayesify"] = version("bayesify")
    except PackageNotFoundError:
        found["bayesify"] = "unknown"
    return found
