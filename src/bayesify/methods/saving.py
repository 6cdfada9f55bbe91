"""Saving and loading: a run folder stores a method as a description and its tensors."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import likelihoods, networks, priors, runs
from bayesify.errors import RunError, first_line, nearest
from bayesify.files import reason, write_text
from bayesify.functional.selection import select
from bayesify.methods import adapter
from bayesify.methods.after_fit import Checked
from bayesify.methods.elbo import ELBO
from bayesify.methods.registry import METHODS
from bayesify.predictive import recalibration
from bayesify.priors import posterior
from bayesify.runs import checkpoint, guarantees, pair, tensor_files
from bayesify.training.plan import History, resume_plan
from bayesify.training.warnings import without_warnings

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting
    from bayesify.methods.method import Method

OWN_FUNCTION = "a function of yours"
# Settings that matter only at the start of training, which a resumed run has passed.
_ONLY_AT_START = {"rho", "hessian_init", "warm_up", "initial"}
# Settings that are None until `fit` finds them.
_FOUND_BY_FIT = {"adam_share", "short_memory"}
# Numbers of which the tensors may have fewer than the description says, before a run is refused unbuilt.
_ALWAYS_ALLOWED = 1 << 22
_MOST_LAYERS = 10_000
# What a description that was not written by `describe` makes constructors raise.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)

logger = logging.getLogger("bayesify")


def save(method: Method, folder: Path, *, base: bool = True) -> Path:
    """Write a method into a run folder; each file is replaced only when its new version is complete.

    Without `base` the frozen weights of the network are left out, and their checksum is written instead.
    """
    about, tensors = describe(method), dict(method.state_dict())
    if not base:
        about, tensors = adapter.without_base(method, about, tensors)
    runs.check_no_other_content(folder)
    runs.use(folder)
    if method.run != folder.resolve():
        if (folder / runs.CONFIG).exists():
            logger.warning("%s held another run, which is replaced", folder)
        runs.clear(folder)
        method.run = folder.resolve()
    pair.write(folder, about, tensors, {"method": method.name})
    save_guarantees(method, folder)
    if method.history.records:
        write_text(folder / runs.HISTORY, method.history.to_jsonl())
    return folder


def save_guarantees(method: Method, folder: Path) -> None:
    """Write the recalibration and the guarantees of a method beside its model; those for other weights are dropped."""
    content = dict(method.guarantees)
    if method.recalibration is not None:
        content["recalibration"] = method.recalibration.to_dict()
    weights = weights_digest(method) if content else ""
    stale = [name for name, promise in method.guarantees.items() if promise.get("weights", weights) != weights]
    if stale:
        logger.warning("the weights have changed since %s was guaranteed: it is not saved", ", ".join(stale))
        content = {name: promise for name, promise in content.items() if name not in stale}
    guarantees.write(folder, content, weights)


def weights_digest(method: Method) -> str:
    """A digest of every tensor of a method."""
    return tensor_files.digest(dict(method.state_dict()))


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
    complete = config.get("complete", True)
    file = folder / (runs.MODEL if complete else runs.STATE)
    shapes = tensor_files.shapes(file) if complete else checkpoint.shapes(folder)
    _check_sizes(config, shapes, file, folder / runs.CONFIG, own_network=network is not None)
    method = _rebuild(config, network, folder, output)
    tensors, state = tensor_files.read(file) if complete else checkpoint.read(folder)
    if not complete:
        try:
            step = int(state["progress"]["step"])
        except (LookupError, TypeError, ValueError):
            raise RunError(f"{file} is damaged: it does not say after which step it was written") from None
        logger.warning("%s was interrupted after step %d: this is its last checkpoint", folder, step)
        tensors = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    if config.get("base") is not None:
        tensors |= adapter.base_of(method, config["base"], folder)
    _check_tensors(method, tensors, folder)
    try:
        method.load_state_dict(tensors)
    except RuntimeError as problem:
        raise RunError(f"{file} does not fit {folder / runs.CONFIG}: {reason(problem)}") from None
    try:
        method.plan = method.plan_type(**config["plan"]) if config.get("plan") else None
    except _DAMAGE as problem:
        raise RunError(
            f"{folder / runs.CONFIG} was written by another version or is damaged: {first_line(problem)}"
        ) from None
    method.notes = config.get("data") or {}
    method.input_shapes = config.get("input_shapes")
    method.input_names, method.column_names = config.get("input_names"), config.get("column_names")
    method.history = History(runs.read_history(folder), config.get("stopped") or "", method.name)
    method.seed = method.plan.seed if method.plan else config.get("seed", 0)
    method.start = config.get("start", method.start)
    method.complete = config.get("complete", True)
    method.warnings = config.get("warnings") or {}
    method.chosen = config.get("chosen")
    method.final_elbo = _elbo_of(config, folder)
    method.checked = _checked_of(config, folder)
    method.run = folder.resolve()
    _load_guarantees(method, folder)
    return method.to(device).eval()


def _load_guarantees(method: Method, folder: Path) -> None:
    saved = guarantees.read(folder)
    if saved is None:
        return
    content, weights = saved
    if weights != weights_digest(method):
        raise RunError(
            f"{folder / runs.GUARANTEES} was written for other weights than {folder / runs.MODEL}: certify the run "
            f"again, or delete the file"
        )
    plain = content.pop("recalibration", None)
    try:
        method.recalibration = None if plain is None else recalibration.from_dict(plain)
    except RunError as problem:
        raise RunError(f"{folder / runs.GUARANTEES}: {problem}") from None
    method.guarantees = content


def _elbo_of(config: dict[str, Any], folder: Path) -> ELBO | None:
    try:
        return ELBO(**config["elbo"]) if config.get("elbo") else None
    except TypeError as problem:
        raise RunError(f"{folder / runs.CONFIG} is damaged: elbo: {first_line(problem)}") from None


def _checked_of(config: dict[str, Any], folder: Path) -> Checked | None:
    try:
        return Checked(**config["checked"]) if config.get("checked") else None
    except TypeError as problem:
        raise RunError(f"{folder / runs.CONFIG} is damaged: checked: {first_line(problem)}") from None


def to_resume(
    method: Fitting, folder: Path, grows: tuple[str, ...] = (), *, in_parts: bool = False
) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """The plan, tensors and state with which a method resumes a run; a RunError where it cannot.

    Tensors whose names begin with one of `grows` may have another shape in the run. Where the method is to be held in
    parts, the tensors are left out: each process reads its own later.
    """
    config = runs.read_config(folder)
    runs.use(folder)
    if config.get("method") != method.name:
        raise RunError(
            f"{folder} is a run of {config.get('method')}, which {method.name} cannot resume: "
            f"use bayesify.load({str(folder)!r}).resume(...)"
        )
    if not checkpoint.exists(folder):
        raise RunError(
            f"{folder} has no checkpoint to resume from: save() writes only the result, "
            f"fit(data, run=...) writes checkpoints too"
        )
    plan, tensors, state = resume_plan(folder, method.plan_type, tensors=not in_parts)
    if config.get("complete", True) and _steps(state) == 0:
        raise RunError(
            f"{folder} was about to be replaced by another training when that was killed: its model is still the old "
            "one, its checkpoint is not; train again with overwrite (overwrite=True, --overwrite)"
        )
    if in_parts:
        _check_model(method, config, folder)
        return plan, tensors, state
    model = {name.removeprefix("model/"): tensor for name, tensor in tensors.items() if name.startswith("model/")}
    _check_tensors(method, model, folder, grows)
    _check_model(method, config, folder)
    return plan, tensors, state


def _steps(state: dict[str, Any]) -> Any:
    progress = state.get("progress")
    return progress.get("step") if isinstance(progress, dict) else None


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
        "output": _output(method),
        "parameters": {place.name: list(place.shape) for place in network.places},
        "prior": None if method.prior is None else method.prior.spec(),
        "likelihood": method.likelihood.spec(),
        "start": method.start,
        "seed": method.seed,
        "complete": method.complete,
        "input_shapes": method.input_shapes,
        "input_names": method.input_names,
        "column_names": method.column_names,
        "data": method.notes or None,
        "plan": None if method.plan is None else asdict(method.plan),
        "versions": runs.versions(),
        "threads": torch.get_num_threads(),
        "device": str(next(method.parameters()).device),
        "warnings": method.warnings,
        "checked": None if method.checked is None else method.checked.to_dict(),
        "chosen": method.chosen,
        "stopped": method.history.stopped or None,
        "elbo": None if method.final_elbo is None else method.final_elbo.to_dict(),
    }


def _output(method: Method) -> str | int | None:
    """What picks the network's output; several likelihoods pick theirs by name."""
    output = method.network.output
    if isinstance(method.likelihood, likelihoods.Several):
        return None
    return OWN_FUNCTION if callable(output) else output


def _rebuild(
    config: dict[str, Any], network: Any, folder: Path, output: Callable[[Any], Tensor] | None = None
) -> Method:
    kind = METHODS.get(config.get("method", ""))
    if kind is None:
        raise RunError(
            f"unknown method {config.get('method')!r} in {folder}{nearest(str(config.get('method')), METHODS)}"
        )
    if network is None and config.get("base") is not None:
        raise RunError(
            f"{folder} holds an adapter without its base: load it with bayesify.load(path, network=the base)"
        )
    if network is None and config.get("network") is None:
        raise RunError(f"the network in {folder} is one of yours: load it with bayesify.load(path, network=...)")
    try:
        network = networks.build(config["network"]) if network is None else network
        settings = dict(config["settings"])
        added = settings.pop("added_dropout", None)
        prior = config["prior"]
        if config.get("start") == "given":
            settings["start"] = "given"  # some methods start fresh by default, which a pretrained prior refuses
        with without_warnings():  # what the prior may do was said when the method was first made
            method = kind(
                network,
                likelihoods.from_spec(config["likelihood"]),
                prior=None if prior is None else priors.parse_mapping(prior),
                bayesian=config["bayesian"],
                output=config["output"] if output is None else output,
                **settings,
            )
        if added:
            method.network.add_dropout_to(added, settings["p"])
    except RunError:
        raise
    except _DAMAGE as problem:
        raise RunError(f"{folder / runs.CONFIG} does not describe a method: {reason(problem)}") from None
    return method


def _check_sizes(
    config: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], file: Path, path: Path, *, own_network: bool
) -> None:
    """Refuse a description that needs more numbers than the file of its tensors holds, before anything is built."""
    held = max(sum(map(math.prod, shapes.values())), _ALWAYS_ALLOWED)
    try:
        weights, random = _sizes(config, held, own_network=own_network)
        settings = {name: value for name, value in config.get("settings", {}).items() if type(value) is int}
        copies = max(settings.get("members", 1), settings.get("chains", 1))
        rows = max(settings.get("samples", 1), settings.get("rank", 1))
        needed = max(weights, random * copies * rows, math.prod(config.get("settings", {}).get("judged") or [0]))
        # The room for draws may have grown since the last checkpoint.
        needed = max(needed, random * copies * settings.get("stored", 1) // 16)
        if "full_rank" in config.get("settings", {}).values() or "full" in config.get("settings", {}).values():
            needed = max(needed, random * (random - 1) // 2)
    except RunError:
        raise
    except _DAMAGE as problem:
        raise RunError(f"{path} does not describe a method: {reason(problem)}") from None
    if needed > held:
        raise RunError(
            f"{path} does not belong to {file.name}: it describes a model of at least {needed:,} numbers, "
            f"the file holds {sum(map(math.prod, shapes.values())):,}"
        )


def _sizes(config: Mapping[str, Any], most: int, *, own_network: bool) -> tuple[int, int]:
    """The number of weights and of random weights that a configuration describes, without allocating them."""
    spec = config.get("network")
    if spec is None or own_network:
        size = sum(map(math.prod, config.get("parameters", {}).values()))
        return size, 0
    # A network of at least one weight for each unit, layer and pixel: larger numbers are absurd without building it.
    numbers = [value for item in spec.values() for value in (item if isinstance(item, list) else [item])]
    largest = max((value for value in numbers if type(value) is int), default=0)
    layers = spec.get("layers")
    deepest = max(len(numbers), layers if type(layers) is int else 0)
    if largest > most or deepest > _MOST_LAYERS:
        return max(largest, most + 1), 0
    with torch.device("meta"):
        network = networks.build(spec)
    sizes = {name: tensor.numel() for name, tensor in network.named_parameters()}
    if sum(sizes.values()) > most:
        return sum(sizes.values()), 0
    return sum(sizes.values()), sum(sizes[name] for name in select(network, list(sizes), config["bayesian"]))


def _check_model(method: Fitting, config: dict[str, Any], folder: Path) -> None:
    """Refuse to resume with another prior, likelihood or settings than those of the run.

    The tensors would have the same shapes, so nothing else would notice the change. Where a setting was left to `fit`
    to find, the method takes what the run found.
    """
    prior = None if method.prior is None else method.prior.spec()
    about = {"prior": prior, "likelihood": method.likelihood.spec(), "settings": method.settings()}
    for key, here in json.loads(json.dumps(about)).items():
        current, saved = (value if isinstance(value, dict) else {key: value} for value in (here, config.get(key)))
        # Names that only one version knows are not compared.
        for name in sorted(current.keys() & saved.keys() - _ONLY_AT_START):
            if name in _FOUND_BY_FIT and current[name] is None:
                setattr(method, name, saved[name])
            elif current[name] != saved[name]:
                what = name if key in {name, "settings"} else f"{key}'s {name}"
                raise RunError(
                    f"{folder} was trained with the {what} {saved[name]!r}, this method has {current[name]!r}: "
                    "resume needs the same method"
                )


def _check_tensors(method: Fitting, tensors: dict[str, Tensor], folder: Path, grows: tuple[str, ...] = ()) -> None:
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
