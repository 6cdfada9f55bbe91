"""Checks before training: one small pass turns a mismatch of data, network and likelihood into one clear error."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import BayesifyWarning, counted, first_line
from bayesify.functional import look_ups
from bayesify.functional.inputs import InterfaceError, check_names, count, listed
from bayesify.functional.precision import decided
from bayesify.functional.trace_recorders import EscapedWeightsError
from bayesify.likelihoods import Gaussian, Likelihood
from bayesify.likelihoods.noise_prior import NoisePrior
from bayesify.priors import Flat, Hyperprior, Learned, Normal, Pretrained, Prior, WeightPrior
from bayesify.priors.assignment import read_patterns
from bayesify.training.batches import Examples, take, to_device
from bayesify.training.users_data import LoaderExamples

if TYPE_CHECKING:
    from bayesify.functional.network import Network

Shapes = list[list[int]]
# Examples that are looked at to explain an error.
_EXPLAINED = 10_000


def check_likelihood(likelihood: Any) -> None:
    """Refuse anything but an instance of `Likelihood`."""
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        name = likelihood.__name__
        raise TypeError(f"likelihood must be an instance, got the class {name}: write {name}()")
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood must be one of bayesify.likelihoods, got {type(likelihood).__name__}")


def check_classes(network: Any, prior: Any) -> None:
    """Refuse the class of a network or of a prior where an instance is needed.

    A class of networks that needs no arguments is as good as a function that makes one.
    """
    if isinstance(prior, type):
        example = f"{prior.__name__}({'1.0' if prior.__name__ != 'Flat' else ''})"
        raise TypeError(f"prior must be an instance, got the class {prior.__name__}: write {example}")
    if not isinstance(network, type):
        return
    try:
        inspect.signature(network).bind()
    except TypeError as problem:
        name = network.__name__
        raise TypeError(
            f"network must be an instance, got the class {name}, which needs arguments ({first_line(problem)}): "
            f"write {name}(...)"
        ) from None
    except ValueError:  # a class without a signature
        return


def check_trained_weights(prior: Prior | str | Mapping[str, Prior | str] | None, who: str, cure: str) -> None:
    """Refuse a prior around trained weights where a network starts with random ones.

    Args:
        prior: as the user gave it.
        who: starts with random weights, such as `this estimator`.
        cure: what to do.

    """
    if prior is None or (isinstance(prior, str) and Pretrained.name not in prior):
        return
    found = next((one for one in read_patterns(prior).values() if isinstance(one, Pretrained)), None)
    if found is not None:
        raise ValueError(f"the prior {found.text} needs trained weights, {who} starts with random ones: {cure}")


def check_noise(method: str, kind: str | None, likelihood: Likelihood) -> None:
    """Refuse a noise that has a prior where a method can neither sample nor learn it (`kind` is None)."""
    prior = noise_prior_of(likelihood)
    if prior is not None and kind is None:
        raise ValueError(
            f"{method} does not infer the noise, {likelihood.name}:{prior.text}: use hmc, sghmc or variational, or "
            "give the noise as a number or 'learned'"
        )


def noise_prior_of(likelihood: Likelihood) -> NoisePrior | None:
    """The prior of a likelihood's noise; None where the noise has none."""
    return likelihood.noise_prior if isinstance(likelihood, Gaussian) else None


def check_prior(
    method: str,
    kind: str,
    prior: WeightPrior | None,
    *,
    hyperpriors: bool = False,
    learned_scales: bool = False,
    start: str = "given",
) -> None:
    """Refuse a prior that a method's mathematics or its start does not allow, before any work starts."""
    if prior is not None and prior.pretrained and start != "given":
        raise ValueError(
            f"the prior {prior.spec()} is centred on the given weights, which start={start!r} discards: "
            "use start='given'"
        )
    for name, density in {} if prior is None else prior.assignments.items():
        text, scale = density.text, density.scale
        if isinstance(scale, Learned) and not learned_scales:
            raise ValueError(
                f"{method} cannot learn a scale, {text} on {name!r}: use variational, or a number as the scale"
            )
        if isinstance(scale, Hyperprior) and not scale.learned and not hyperpriors:
            raise ValueError(
                f"{method} does not infer scales, {text} on {name!r}: use variational, or a number as the scale"
            )
        if kind == "proper_or_flat" and not density.proper and not isinstance(density, Flat):
            raise ValueError(f"{method} needs a proper prior or flat, got {text} on {name!r}: use normal:1")
        if kind == "proper" and not density.proper:
            raise ValueError(f"{method} needs a proper prior, {text} on {name!r} is improper: use normal:1")
        if kind == "gaussian" and not isinstance(density, Normal):
            raise ValueError(f"{method} needs Gaussian priors, got {text} on {name!r}: use normal:SCALE")


def few(network: Network, x: Any) -> Any:
    """The first two examples, on the device of the network."""
    return to_device(take(x, slice(2)), network.device)


def shapes_of(x: Any) -> Shapes:
    """The shape of one example, leaf by leaf."""
    return [list(leaf.shape[1:]) for leaf in pytree.tree_leaves(x)]


def names_of(x: Any) -> list[str] | None:
    """The names of inputs that have names."""
    return list(x) if isinstance(x, Mapping) else None


class InputError(ValueError):
    """The network cannot take these inputs; the message says why."""


def try_network(network: Network, x: Any) -> Tensor:
    """The output of the network for the first two examples; an error of one line about x where it fails."""
    with explained(network, x), torch.no_grad():
        first = few(network, x)
        output = network.call(network.unflatten(network.initial), first)[0]
    if output.dim() == 0 or output.shape[0] != count(first):
        raise ValueError(
            f"the network gives shape {tuple(output.shape)} for {counted(count(first), 'example')}: "
            "the first axis must be the batch"
        )
    return output


def check_indices(network: Network, x: Any, *, wait: bool) -> None:
    """Refuse inputs with an index that the embedding which looks them up does not have.

    Args:
        network: a network that takes the first two examples of x.
        x: inputs.
        wait: whether to look at inputs on an accelerator too, which waits for it.

    """
    leaves = pytree.tree_leaves(x)
    tables = look_ups.tables_of(network, few(network, x)) if network.tables is None else network.tables
    for number, rows in tables.items():
        problem = look_ups.outside(rows, leaves[number]) if wait or leaves[number].device.type == "cpu" else None
        if problem is not None:
            raise InputError(f"the network cannot take {_described(x)}: {problem}")


@contextmanager
def explained(network: Network, x: Any) -> Iterator[None]:
    """Turn any error of a network inside the block into one line about its inputs."""
    try:
        yield
    except (InterfaceError, EscapedWeightsError, torch.OutOfMemoryError, MemoryError):
        raise  # the inputs are not the reason, or the error is one clear line already
    except Exception as problem:
        raise _refusal(network, x, problem) from problem


def check_precision(network: Network, precision: str) -> None:
    """Refuse training passes in bfloat16 where the device has none, or autocast would not change the weights' own."""
    if precision == "full":
        return
    if network.dtype != torch.float32:
        raise ValueError(f"precision='bfloat16' needs weights in float32, the network has {network.dtype}")
    decided(precision, network.device, network.dtype)


def check_last_batch(network: Network, examples: Examples, batch_size: int, accumulate: int = 1) -> None:
    """Refuse batches of one example where the network cannot train on one (batch normalisation)."""
    if isinstance(examples, LoaderExamples):
        # From the attribute: a pass over the loader could change the order of the next one.
        single = getattr(examples.loader, "batch_size", None) == 1
        which, remedy = "each batch of this loader is", "make them larger"
    elif accumulate > 1 and 0 < (examples.n_data % batch_size or batch_size) < 2 * accumulate:
        # `tensor_split` makes parts whose sizes differ by one at most.
        single, which, remedy = True, f"with accumulate={accumulate} a part of a batch would be", "choose fewer parts"
    elif batch_size == 1:
        single, which, remedy = True, "with batch_size=1 every batch is", "choose a larger one"
    else:
        single = examples.n_data % batch_size == 1
        which, remedy = "the last batch of an epoch would be", f"choose another batch_size than {batch_size}"
    if not single or examples.n_data == 1:
        return
    first = to_device(take(examples.first()[0], slice(1)), network.device)
    try:
        with torch.no_grad():
            network.call(network.unflatten(network.initial), first, train=True)
    except Exception as problem:
        raise ValueError(
            f"{which} a single example, which the network cannot train on ({first_line(problem)}): {remedy}"
        ) from problem


# Runs for which `bayesify.prepare` has made inputs in this process.
PREPARED: set[Path] = set()


def warn_of_raw_inputs(run: Path) -> None:
    """Warn of inputs that `bayesify.prepare` has not made: it was not called for the run."""
    if run not in PREPARED:
        warnings.warn(
            f"{run} takes inputs scaled and encoded as in training: unless yours are, the predictions mean nothing; "
            "call predict(bayesify.prepare(run, raw_inputs))",
            BayesifyWarning,
            stacklevel=5,
        )


def same_kind(x: Any, trained_on: Shapes) -> bool:
    """Whether inputs have the shapes seen in training; a wrong number of axes or of features is an error.

    A length that varies (sequences, image sizes) is no error here: the network may support it. Rows of integers may be
    texts.
    """
    shapes = shapes_of(x)
    axes = [len(shape) for shape in shapes] == [len(shape) for shape in trained_on]
    leaves = pytree.tree_leaves(x)
    table = all(len(leaf.shape) == 2 and leaf.is_floating_point() for leaf in leaves)
    if not axes or (table and shapes != trained_on):
        now, then = (_text(each, names_of(x)) for each in (shapes, trained_on))
        if len(leaves) == 1 and [list(leaves[0].shape)] == [list(shape) for shape in trained_on]:
            raise ValueError(
                f"inputs have shape {list(leaves[0].shape)}, a single input, the network was trained on {then}: give "
                "a batch of one, x[None]"
            )
        raise ValueError(f"inputs have shape {now}, the network was trained on {then}")
    return shapes == trained_on


def _refusal(network: Network, x: Any, problem: Exception) -> Exception:
    if isinstance(x, Mapping):
        if isinstance(problem, KeyError) and problem.args and problem.args[0] not in x:
            return ValueError(f"the network needs an input {problem}, the inputs are {listed(x)}")
        if len(network.signature.parameters) > 1 and set(x) & set(network.signature.parameters):
            try:
                check_names(network.signature, x)
            except InterfaceError as misnamed:
                return misnamed
    if isinstance(problem, TypeError | ValueError):
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        return kind(f"the network cannot take these inputs: {first_line(problem)}")
    reason = _index_outside(network, x) if isinstance(problem, IndexError) else None
    return InputError(f"the network cannot take {_described(x)}: {reason or first_line(problem)}")


def _index_outside(network: Network, x: Any) -> str | None:
    """The index that an embedding does not have; of inputs that are looked up as they are, the largest of all."""
    first = few(network, x)
    for part in (first, to_device(take(x, slice(_EXPLAINED)), network.device)):
        reason = look_ups.first_outside(network, part)
        if reason is not None:
            leaves, tables = pytree.tree_leaves(x), look_ups.tables_of(network, first)
            of_all = (look_ups.outside(rows, leaves[place]) for place, rows in tables.items())
            return next((found for found in of_all if found is not None), reason)
    return None


def _described(x: Any) -> str:
    leaves = pytree.tree_leaves(x)
    kinds = [str(leaf.dtype).removeprefix("torch.") for leaf in leaves]
    return f"inputs of shape {[tuple(leaf.shape) for leaf in leaves]} and type {kinds}"


def _text(shapes: Shapes, names: list[str] | None) -> str:
    texts = [f"[n{''.join(f', {size}' for size in shape)}]" for shape in shapes]
    if names is not None and len(names) == len(texts):
        texts = [f"{name} {text}" for name, text in zip(names, texts, strict=True)]
    return " and ".join(texts)
