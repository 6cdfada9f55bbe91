"""A run is a folder, version 1: what was trained, how, and on what; readable without running any code in it.

`config.json` describes the method, the network and the data; `model.safetensors` holds the tensors; `checkpoint/` lets
training go on; `history.jsonl` and `metrics.json` say how it went. Nothing is pickled.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import likelihoods, networks, priors
from bayesify.errors import RunError, first_line, nearest
from bayesify.methods import METHODS, Method
from bayesify.training import checkpoint
from bayesify.training.loop import History, resume_plan

VERSION = 1
FORMAT = "bayesify-run"
CONFIG, MODEL, HISTORY, METRICS = "config.json", "model.safetensors", "history.jsonl", "metrics.json"
_PARTS = {CONFIG, MODEL, HISTORY, METRICS, "checkpoint", "report.html", "report.json"}
CARD, CARD_MARK = "README.md", "library_name: bayesify"
OWN_FUNCTION = "a function of yours"

logger = logging.getLogger("bayesify")
_ONLY_AT_START = {"rho", "hessian_init", "initial"}


def save(method: Method, folder: Path) -> Path:
    """Write a method into a run folder; files of its own that are there are replaced one by one, each when whole."""
    _check_ours(folder)
    if method.run != folder.resolve():
        clear(folder)
        method.run = folder.resolve()
    checkpoint.write(folder / MODEL, dict(method.state_dict()), {"method": method.name})
    checkpoint.write_json(folder / CONFIG, describe(method))
    if method.history.records:
        checkpoint.write_text(folder / HISTORY, method.history.to_jsonl())
    return folder


def load(
    path: str | Path,
    network: Any = None,
    device: torch.device | str = "cpu",
    output: Callable[[Any], Tensor] | None = None,
) -> Method:
    """Read a method from a run folder: `bayesify.load` for who prepares inputs as the run does."""
    folder = Path(path)
    config = read_config(folder)
    if config.get("output") == OWN_FUNCTION and output is None:
        raise RunError(f"the method in {folder} picks its output by a function of yours: give output=")
    method = _rebuild(config, network, folder, output)
    if config.get("complete", True):
        tensors, _ = checkpoint.read(folder / MODEL)
    else:
        held, state = checkpoint.read(folder / "checkpoint" / "state.safetensors")
        logger.warning(
            "%s was interrupted after step %d: this is its last checkpoint", folder, state["progress"]["step"]
        )
        tensors = {name.removeprefix("model/"): t for name, t in held.items() if name.startswith("model/")}
    _check_tensors(method, tensors, folder)
    method.load_state_dict(tensors)
    try:
        method.plan = method.plan_type(**config["plan"]) if config.get("plan") else None
    except TypeError as problem:
        raise RunError(f"{folder / CONFIG} was written by another version: {first_line(problem)}") from None
    method.notes = config.get("data") or {}
    method.input_shapes = config.get("input_shapes")
    method.input_names = config.get("input_names")
    method.history = History(read_history(folder), method=method.name)
    method.seed = method.plan.seed if method.plan else config.get("seed", 0)
    method.start = config.get("start", method.start)
    method.complete = config.get("complete", True)
    method.run = folder.resolve()
    return method.to(device).eval()


def to_resume(
    method: Method, folder: Path, grows: tuple[str, ...] = ()
) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """The plan, tensors and state with which a method goes on with a run, or one line on why it cannot.

    Tensors whose names begin with one of `grows` may have another shape in the run.
    """
    config = read_config(folder)
    if config.get("method") != method.name:
        raise RunError(
            f"{folder} is a run of {config.get('method')}, which {method.name} cannot go on with: "
            f"bayesify.load({str(folder)!r}) gives the method that can"
        )
    if not (folder / "checkpoint" / "state.safetensors").exists():
        raise RunError(
            f"{folder} has no checkpoint to go on from: save() keeps the result alone, "
            f"fit(data, run=...) also what resume needs"
        )
    plan, tensors, state = resume_plan(folder)
    held = {name.removeprefix("model/"): tensor for name, tensor in tensors.items() if name.startswith("model/")}
    _check_tensors(method, held, folder, grows)
    _check_model(method, config, folder)
    return plan, tensors, state


def claim(folder: Path, *, overwrite: bool) -> Path:
    """Make sure that a folder can take a new run; nothing in it is touched."""
    try:
        if folder.is_dir() and any(folder.iterdir()) and not overwrite:
            raise RunError(f"{folder} is not empty: choose another folder, or replace it (overwrite=True, --overwrite)")
        _check_ours(folder)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return folder


def clear(folder: Path) -> None:
    """Take away what an earlier run left beside its model: a checkpoint, scores and pages that are no longer true."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    (folder / HISTORY).unlink(missing_ok=True)
    forget_scores(folder)


def forget_scores(folder: Path) -> None:
    """Take away what was said of a model that training now changes: its scores, its pages and its card."""
    for name in _PARTS - {CONFIG, MODEL, HISTORY, "checkpoint"}:
        (folder / name).unlink(missing_ok=True)
    # A model card of ours goes too; a README that somebody wrote stays.
    card = folder / CARD
    if card.is_file() and CARD_MARK in card.read_text(encoding="utf-8", errors="replace")[:2000]:
        card.unlink()


def describe(method: Method) -> dict[str, Any]:
    """Everything that rebuilds a method, and what it was trained with."""
    network = method.network
    return {
        "version": VERSION,
        "format": FORMAT,
        "method": method.name,
        "settings": method.settings(),
        "network": network.spec,
        "bayesian": network.bayesian if isinstance(network.bayesian, str) else list(network.bayesian),
        "output": OWN_FUNCTION if callable(network.output) else network.output,
        "parameters": {place.name: list(place.shape) for place in network.places},
        "prior": None if method.prior is None else method.prior.spec(),
        "likelihood": method.likelihood.spec(),
        "start": method.start,
        "seed": method.seed,
        "complete": method.complete,
        "input_shapes": method.input_shapes,
        "input_names": method.input_names,
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
        raise RunError(f"{folder / CONFIG} is damaged: {first_line(problem)}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise RunError(f"{folder} was not written by bayesify")
    if not isinstance(config.get("version"), int) or config["version"] > VERSION:
        raise RunError(
            f"{folder} is a run of version {config.get('version')}, this bayesify reads up to {VERSION}: upgrade it"
        )
    if not (folder / MODEL).exists():
        raise RunError(f"{folder} is half written: {MODEL} is missing")
    return config


def _check_ours(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder")
    found = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.is_dir() else set()
    if not found:
        return
    try:
        held = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if CONFIG in found else {}
        ours = held.get("format") == FORMAT if CONFIG in found else found <= _PARTS
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise RunError(f"{folder} holds something that is not a run: it will not be overwritten")


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


def _rebuild(
    config: dict[str, Any], network: Any, folder: Path, output: Callable[[Any], Tensor] | None = None
) -> Method:
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
            output=config["output"] if output is None else output,
            **settings,
        )
    except (KeyError, TypeError) as problem:
        raise RunError(f"{folder / CONFIG} does not describe a method: {problem}") from None
    if added:
        method.network.add_dropout_to(added, settings["p"])
    return method


def _check_model(method: Method, config: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with a prior, a likelihood or settings that the run was not trained with.

    Their tensors have the same shapes, so nothing else would notice, and the run would be half of each.
    """
    here = json.loads(json.dumps(describe(method)))
    for part in ("prior", "likelihood", "settings"):
        found, wanted = (one if isinstance(one, dict) else {part: one} for one in (here[part], config.get(part)))
        # What another version does not name is not compared, nor is where training starts, which it has left behind.
        for name in sorted(found.keys() & wanted.keys() - _ONLY_AT_START):
            if found[name] != wanted[name]:
                what = name if part in {name, "settings"} else f"{part}'s {name}"
                raise RunError(
                    f"{folder} was trained with the {what} {wanted[name]!r}, this method has {found[name]!r}: "
                    "resume needs the same method"
                )


def _check_tensors(method: Method, tensors: dict[str, Tensor], folder: Path, grows: tuple[str, ...] = ()) -> None:
    there = {name: tuple(shape) for name, shape in read_config(folder).get("parameters", {}).items()}
    here = {place.name: tuple(place.shape) for place in method.network.places}
    for name in sorted(there.keys() | here.keys()):
        if there and here.get(name) != there.get(name):
            found, wanted = (shapes.get(name, "absent") for shapes in (here, there))
            raise RunError(f"the network does not fit {folder}: {name} is {found} here and {wanted} in the run")
    own = method.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        if name.startswith(("kept_weights", *grows)):
            continue
        found, wanted = (tuple(part[name].shape) if name in part else "absent" for part in (own, tensors))
        if found != wanted:
            raise RunError(f"the method does not fit {folder}: {name} is {found} here and {wanted} in the run")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        found["bayesify"] = version("bayesify")
    except PackageNotFoundError:
        found["bayesify"] = "unknown"
    return found
