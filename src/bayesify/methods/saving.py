"""Saving and loading: a run folder stores a method as a description and its tensors."""

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
from bayesify.methods.elbo import ELBO
from bayesify.methods.registry import METHODS
from bayesify.priors import posterior
from bayesify.runs import checkpoint
from bayesify.training.plan import History, resume_plan

if TYPE_CHECKING:
    from bayesify.methods.method import Method

OWN_FUNCTION = "a function of yours"
# Settings that matter only at the start of training, which a resumed run has passed.
_ONLY_AT_START = {"rho", "hessian_init", "initial"}

logger = logging.getLogger("bayesify")


def save(method: Method, folder: Path) -> Path:
    """Write a method into a run folder; each file is replaced only when its new version is complete."""
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
    """Read a method from a run folder, without the warning of `bayesify.load` about raw inputs."""
    folder = Path(path)
    config = runs.read_config(folder)
    if config.get("output") == OWN_FUNCTION and output is None:
        raise RunError(f"the method in {folder} picks its output by a function of yours: give output=")
    method = _rebuild(config, network, folder, output)
    if config.get("complete", True):
        tensors, _ = checkpoint.read(folder / runs.MODEL)
    else:
        saved, state = checkpoint.read(folder / runs.STATE)
        logger.warning(
            "%s was interrupted after step %d: this is its last checkpoint", folder, state["progress"]["step"]
        )
        tensors = {name.removeprefix("model/"): t for name, t in saved.items() if name.startswith("model/")}
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
    method.warnings = config.get("warnings") or {}
    method.final_elbo = ELBO(**config["elbo"]) if config.get("elbo") else None
    method.run = folder.resolve()
    return method.to(device).eval()


def to_resume(
    method: Method, folder: Path, grows: tuple[str, ...] = ()
) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """The plan, tensors and state with which a method resumes a run; a RunError where it cannot.

    Tensors whose names begin with one of `grows` may have another shape in the run.
    """
    config = runs.read_config(folder)
    if config.get("method") != method.name:
        raise RunError(
            f"{folder} is a run of {config.get('method')}, which {method.name} cannot resume: "
            f"use bayesify.load({str(folder)!r}).resume(...)"
        )
    if not (folder / runs.STATE).exists():
        raise RunError(
            f"{folder} has no checkpoint to resume from: save() writes only the result, "
            f"fit(data, run=...) writes checkpoints too"
        )
    plan, tensors, state = resume_plan(folder, method.plan_type)
    model = {name.removeprefix("model/"): tensor for name, tensor in tensors.items() if name.startswith("model/")}
    _check_tensors(method, model, folder, grows)
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
        "warnings": method.warnings,
        "elbo": None if method.final_elbo is None else method.final_elbo.to_dict(),
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
        if config.get("start") == "given":
            settings["start"] = "given"  # some methods start fresh by default, which a pretrained prior refuses
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
    """Refuse to resume with another prior, likelihood or settings than those of the run.

    The tensors would have the same shapes, so nothing else would notice the change.
    """
    here = json.loads(json.dumps(describe(method)))
    for key in ("prior", "likelihood", "settings"):
        current, saved = (value if isinstance(value, dict) else {key: value} for value in (here[key], config.get(key)))
        # Names that only one version knows are not compared.
        for name in sorted(current.keys() & saved.keys() - _ONLY_AT_START):
            if current[name] != saved[name]:
                what = name if key in {name, "settings"} else f"{key}'s {name}"
                raise RunError(
                    f"{folder} was trained with the {what} {saved[name]!r}, this method has {current[name]!r}: "
                    "resume needs the same method"
                )


def _check_tensors(method: Method, tensors: dict[str, Tensor], folder: Path, grows: tuple[str, ...] = ()) -> None:
    saved = {name: tuple(shape) for name, shape in runs.read_config(folder).get("parameters", {}).items()}
    current = {place.name: tuple(place.shape) for place in method.network.places}
    for name in sorted(saved.keys() | current.keys()):
        if saved and current.get(name) != saved.get(name):
            here, there = (shapes.get(name, "absent") for shapes in (current, saved))
            raise RunError(f"the network does not fit {folder}: {name} is {here} here and {there} in the run")
    state = method.state_dict()
    for name in sorted(state.keys() | tensors.keys()):
        if name.startswith(("kept_weights", *grows)):
            continue
        here, there = (tuple(group[name].shape) if name in group else "absent" for group in (state, tensors))
        if here != there:
            raise RunError(f"the method does not fit {folder}: {name} is {here} here and {there} in the run")


# A prior `posterior:FOLDER` reads a run, and priors cannot import from methods.
posterior.load_method = load
