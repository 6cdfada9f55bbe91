"""Looking before leaping: one small pass shows a mismatch of data, network and likelihood as one clear error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.functional.inputs import InterfaceError, check_names, count, listed
from bayesify.functional.recording import EscapedWeightsError
from bayesify.likelihoods import Likelihood
from bayesify.priors import Hyperprior, Learned, Normal, WeightPrior
from bayesify.training.examples import Examples, LoaderExamples, take, to_device

if TYPE_CHECKING:
    from bayesify.functional.network import Network

Shapes = list[list[int]]


def check_likelihood(given: Any) -> None:
    """Refuse what is no likelihood."""
    if isinstance(given, type) and issubclass(given, Likelihood):
        raise TypeError(f"likelihood must be made, got the class {given.__name__}: write {given.__name__}()")
    if not isinstance(given, Likelihood):
        raise TypeError(f"likelihood must be one of bayesify.likelihoods, got {type(given).__name__}")


def check_prior(
    method: str, kind: str, prior: WeightPrior | None, *, hyperpriors: bool = False, learned_scales: bool = False
) -> None:
    """Refuse a prior that a method's mathematics does not cover, before any work starts."""
    for name, one in {} if prior is None else prior.assignments.items():
        if isinstance(one.scale, Learned) and not learned_scales:
            raise ValueError(
                f"{method} cannot learn a scale, {one.text} on {name!r}: use variational, or a number as the scale"
            )
        if isinstance(one.scale, Hyperprior) and not one.scale.learned and not hyperpriors:
            raise ValueError(
                f"{method} does not infer scales, {one.text} on {name!r}: use variational, or a number as the scale"
            )
        if kind == "proper" and not one.proper:
            raise ValueError(f"{method} needs a proper prior, {one.text} on {name!r} is improper: use normal:1")
        if kind == "gaussian" and not isinstance(one, Normal):
            raise ValueError(f"{method} needs Gaussian priors, got {one.text} on {name!r}: use normal:SCALE")


def few(network: Network, x: Any) -> Any:
    """Two examples where the network is."""
    return to_device(take(x, slice(2)), network.initial.device)


def shapes_of(x: Any) -> Shapes:
    """The shape of one example, leaf by leaf."""
    return [list(leaf.shape[1:]) for leaf in pytree.tree_leaves(x)]


def names_of(x: Any) -> list[str] | None:
    """The names of inputs that have names."""
    return list(x) if isinstance(x, Mapping) else None


def try_network(network: Network, x: Any) -> Tensor:
    """The network's output for x, or one line on why it has none."""
    with explained(network, x), torch.no_grad():
        output = network.call(network.unflatten(network.initial), x)[0]
    if output.dim() == 0 or output.shape[0] != count(x):
        raise ValueError(
            f"the network gives shape {tuple(output.shape)} for {count(x)} examples: the first axis must be the batch"
        )
    return output


@contextmanager
def explained(network: Network, x: Any) -> Iterator[None]:
    """Turn what a network says of inputs that it cannot take into one line about them."""
    try:
        yield
    except (InterfaceError, EscapedWeightsError, torch.OutOfMemoryError, MemoryError):
        raise  # inputs are not at fault, or the line says it all
    except Exception as problem:
        raise _refusal(network, x, problem) from problem


def check_last_batch(network: Network, examples: Examples, batch_size: int) -> None:
    """Refuse batches of one example where the network cannot train on one (batch normalisation)."""
    if isinstance(examples, LoaderExamples):
        # Asked, not read: a pass over a user's loader may change the order of the next.
        single = getattr(examples.loader, "batch_size", None) == 1
        which, remedy = "each batch of this loader is", "make them larger"
    elif batch_size == 1:
        single, which, remedy = True, "with batch_size=1 every batch is", "choose a larger one"
    else:
        single = examples.n_data % batch_size == 1
        which, remedy = "the last batch of an epoch would be", f"choose another batch_size than {batch_size}"
    if not single or examples.n_data == 1:
        return
    one = to_device(take(examples.first()[0], slice(1)), network.initial.device)
    try:
        with torch.no_grad():
            network.call(network.unflatten(network.initial), one, train=True)
    except Exception as problem:
        raise ValueError(
            f"{which} a single example, which the network cannot train on ({first_line(problem)}): {remedy}"
        ) from problem


def same_kind(x: Any, trained_on: Shapes) -> bool:
    """Whether inputs have the shapes seen in training; a wrong number of axes or of features is an error.

    A length that varies (sequences, image sizes) is the network's own business, so it is not an error here.
    """
    given = shapes_of(x)
    axes = [len(shape) for shape in given] == [len(shape) for shape in trained_on]
    table = all(len(shape) == 1 for shape in given)
    if not axes or (table and given != trained_on):
        now, then = (_text(shapes, names_of(x)) for shapes in (given, trained_on))
        raise ValueError(f"inputs have shape {now}, the network was trained on {then}")
    return given == trained_on


def _refusal(network: Network, x: Any, problem: Exception) -> Exception:
    if isinstance(x, Mapping):
        if isinstance(problem, KeyError) and problem.args and problem.args[0] not in x:
            return ValueError(f"the network asks for an input {problem} that is not there: given are {listed(x)}")
        if len(network.signature.parameters) > 1 and set(x) & set(network.signature.parameters):
            try:
                check_names(network.signature, x)
            except InterfaceError as misnamed:
                return misnamed
    if isinstance(problem, TypeError | ValueError):
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        return kind(f"the network cannot take these inputs: {first_line(problem)}")
    shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(x)]
    kinds = [str(leaf.dtype).removeprefix("torch.") for leaf in pytree.tree_leaves(x)]
    return ValueError(f"the network cannot take inputs of shape {shapes} and type {kinds}: {first_line(problem)}")


def _text(shapes: Shapes, names: list[str] | None) -> str:
    texts = [f"[n{''.join(f', {size}' for size in shape)}]" for shape in shapes]
    if names is not None and len(names) == len(texts):
        texts = [f"{name} {text}" for name, text in zip(names, texts, strict=True)]
    return " and ".join(texts)
