"""Methods in run folders: a method is written as a description and its tensors, and built again from both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import likelihoods, networks, priors, runs
from bayesify.errors import RunError, first_line, nearest
from bayesify.files import write_json, write_text
from bayesify.methods.registry import METHODS
from bayesify.priors import posterior
from bayesify.runs import checkpoint
from bayesify.training.plan import History, resume_plan

if TYPE_CHECKING:
    from bayesify.methods.method import Method

OWN_FUNCTION = "a function of yours"
# What decides only where training starts: a resumed run has left it behind.
_ONLY_AT_START = {"rho", "hessian_init", "initial"}

logger = logging.getLogger("bayesify")


def save(method: Method, folder: Path) -> Path:
    """Write a method into a run folder; files of its own that are there are replaced one by one, each when whole."""
    runs.check_no_other_content(folder)
    if method.run != folder.resolve():
        runs.clear(folder)
        method.run = folder.resolve()
    checkpoint.write(folder / runs.MODEL, dict(method.state_dict()), {"method": method.name})
    write_json(folder / runs.CONFIG, describe(method))
    if method.history.records:
        write_text(folder / runs.HISTORY, method.history.to_jsonl())
    return folder


def load(
    path: str | Path,
    network: Any = None,
    device: torch.device | str = "cpu",
    output: Callable[[Any], Tensor] | None = None,
) -> Method:
    """Read a method from a run folder: `bayesify.load` for who prepares inputs as the run does."""
    folder = Path(path)
    config = runs.read_config(folder)
    if config.get("output") == OWN_FUNCTION and output is None:
        raise RunError(f"the method in {folder} picks its output by a function of yours: give output=")
    method = _rebuild(config, network, folder, output)
    if config.get("complete", True):
        tensors, _ = checkpoint.read(folder / runs.MODEL)
    else:
        held, state = checkpoint.read(folder / runs.STATE)
        logger.warning(
            "%s was interrupted after step %d: this is its last checkpoint", folder, state["progress"]["step"]
        )
        tensors = {name.removeprefix("model/"): t for name, t in held.items() if name.startswith("model/")}
    _check_tensors(method, tensors, folder)
    method.load_state_dict(tensors)
    try:
        method.plan = method.plan_type(**config["plan"]) if config.get("plan") else None
    except TypeError as problem:
        raise RunError(f"{folder / runs.CONFIG} was written by another version: {first_line(problem)}") from None
    method.notes = config.get("data") or {}
    method.input_shapes = config.get("input_shapes")
    method.input_names = config.get("input_names")
    method.history = History(runs.read_history(folder), method=method.name)
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
    config = runs.read_config(folder)
    if config.get("method") != method.name:
        raise RunError(
            f"{folder} is a run of {config.get('method')}, which {method.name} cannot go on with: "
            f"bayesify.load({str(folder)!r}) gives the method that can"
        )
    if not (folder / runs.STATE).exists():
        raise RunError(
            f"{folder} has no checkpoint to go on from: save() keeps the result alone, "
            f"fit(data, run=...) also what resume needs"
        )
    plan, tensors, state = resume_plan(folder, method.plan_type)
    held = {name.removeprefix("model/"): tensor for name, tensor in tensors.items() if name.startswith("model/")}
    _check_tensors(method, held, folder, grows)
    _check_model(method, config, folder)
    return plan, tensors, state


def describe(method: Method) -> dict[str, Any]:
    """Everything that rebuilds a method, and what it was trained with."""
    network = method.network
    return {
        "version": runs.VERSION,
        "format": runs.FORMAT,
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
        "versions": runs.versions(),
        "threads": torch.get_num_threads(),
        "device": str(next(method.parameters()).device),
    }


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
        raise RunError(f"{folder / runs.CONFIG} does not describe a method: {problem}") from None
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
    there = {name: tuple(shape) for name, shape in runs.read_config(folder).get("parameters", {}).items()}
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


# A prior `posterior:FOLDER` reads a run, and priors cannot import what stands above them.
posterior.load_method = load
