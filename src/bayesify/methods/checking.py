"""Looking before leaping: one small pass shows a mismatch of data, network and likelihood as one clear error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.interface import count
from bayesify.priors import Hyperprior, Learned, Normal, WeightPrior
from bayesify.training.examples import Examples, LoaderExamples, take, to_device

if TYPE_CHECKING:
    from bayesify.network import Network

Shapes = list[list[int]]


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


def try_network(network: Network, x: Any) -> Tensor:
    """The network's output for x, or one line on why it has none."""
    try:
        with torch.no_grad():
            output = network.call(network.unflatten(network.initial), x)[0]
    except (TypeError, ValueError) as problem:
        raise type(problem)(f"the network cannot take these inputs: {first_line(problem)}") from problem
    except Exception as problem:
        shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(x)]
        kinds = [str(leaf.dtype).removeprefix("torch.") for leaf in pytree.tree_leaves(x)]
        raise ValueError(
            f"the network cannot take inputs of shape {shapes} and type {kinds}: {first_line(problem)}"
        ) from problem
    if output.dim() == 0 or output.shape[0] != count(x):
        raise ValueError(
            f"the network gives shape {tuple(output.shape)} for {count(x)} examples: the first axis must be the batch"
        )
    return output


def check_last_batch(network: Network, examples: Examples, batch_size: int) -> None:
    """Refuse a last batch of one example where the network cannot train on one (batch normalisation)."""
    if examples.n_data % batch_size != 1 or isinstance(examples, LoaderExamples) or examples.n_data == 1:
        return
    one = to_device(take(examples.first()[0], slice(1)), network.initial.device)
    try:
        with torch.no_grad():
            network.call(network.unflatten(network.initial), one, train=True)
    except Exception as problem:
        raise ValueError(
            f"the last batch of an epoch would be a single example, which the network cannot train on "
            f"({first_line(problem)}): choose another batch_size than {batch_size}"
        ) from problem


def same_kind(x: Any, trained_on: Shapes) -> bool:
    """Whether inputs have the shapes seen in training; a wrong number of axes or of features is an error.

    A length that varies (sequences, image sizes) is the network's own business, so it is not an error here.
    """
    given = shapes_of(x)
    axes = [len(shape) for shape in given] == [len(shape) for shape in trained_on]
    table = all(len(shape) == 1 for shape in given)
    if not axes or (table and given != trained_on):
        raise ValueError(f"inputs have shape {_text(given)}, the network was trained on {_text(trained_on)}")
    return given == trained_on


def _text(shapes: Shapes) -> str:
    return " and ".join(f"[n{''.join(f', {size}' for size in shape)}]" for shape in shapes)
