"""A network's weights as one flat vector, and the network as a function of many such vectors.

The user's module is copied, never edited. Every trained tensor gets a place in a vector `theta` of length P, the random
ones first; tensors that are frozen, and buffers, stay beside it. `Network.outputs(theta, x)` then evaluates the module
at each row of `theta [draws, P]` and returns `[draws, batch, ...]`, by the best of three tiers:

- batched: a plain chain of known layers, its products batched by hand (`chain.py`);
- vmap: `torch.func.vmap` over `functional_call`;
- loop: one call per draw, for whatever the others cannot do, and for large products, where it is the faster one.
"""

from __future__ import annotations

import copy
import fnmatch
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from bayesify import chain, initialisation
from bayesify.dropout import KeyedDropout
from bayesify.errors import nearest
from bayesify.priors import Weight, fan_in
from bayesify.tracing import Trace, trace_network

WEIGHT_LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.modules.rnn.RNNBase)
NORMALISATION = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)
# Above this many weights one product per draw keeps the cores busy by itself, and batching only adds traffic
# (`benchmarks/tiers.py`).
LOOP_FROM_WEIGHTS = 100_000


@dataclass(frozen=True)
class Place:
    """Where one trained tensor lives in the flat vector."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int
    random: bool

    @property
    def stop(self) -> int:
        return self.start + self.shape.numel()


class Network(nn.Module):
    """A copy of a module that takes its trained weights as an argument.

    Args:
        module: a `torch.nn.Module`, or a function without arguments that makes one.
        bayesian: which weights are random: "all" (normalisation layers excepted), "last_layer", or name patterns.
        output: picks the tensor where the module returns more: a key, an index, or a function.

    """

    def __init__(
        self,
        module: nn.Module | Callable[[], nn.Module],
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        factory = None if isinstance(module, nn.Module) else module
        original = initialisation.make(factory, seed) if factory is not None else module
        if not isinstance(original, nn.Module):
            raise TypeError(
                f"network must be a torch.nn.Module or a function that returns one, got {type(original).__name__}"
            )
        template = copy.deepcopy(original)
        trained = {name: tensor for name, tensor in template.named_parameters() if tensor.requires_grad}
        _check_trainable(trained)
        random_names = select(template, list(trained), bayesian)
        self.bayesian = bayesian
        self.output = output
        self.factory = factory
        self.spec: dict[str, Any] | None = getattr(original, "spec", None)
        self.places = _lay_out(trained, random_names)
        self.size = self.places[-1].stop
        self.random_size = max((place.stop for place in self.places if place.random), default=0)
        self.dtype = _common_dtype(trained)
        self.initial: Tensor
        flat = torch.cat([trained[place.name].detach().to(self.dtype).reshape(-1) for place in self.places])
        self.register_buffer("initial", flat, persistent=False)
        self._kept = {}
        for kind, named in (("frozen", template.named_parameters()), ("buffer", template.named_buffers())):
            for name, tensor in named:
                if name not in trained:
                    slot = f"{kind}_{name.replace('.', '/')}"
                    self.register_buffer(slot, tensor.detach().clone())
                    self._kept[name] = slot
        self._buffers_of_module = [name for name, slot in self._kept.items() if slot.startswith("buffer_")]
        # A list hides the template from nn.Module: it is code only, every tensor it needs is passed in.
        self._template = [template]
        self._trace: Trace | None = None
        self._tiers: dict[bool, tuple[str, str]] = {}
        self._chain = chain.plan(template)
        self.dropout_rate: float | None = None
        self.dropout_always = False
        self.added_dropout: list[str] = []

    @property
    def template(self) -> nn.Module:
        return self._template[0]

    @property
    def weights(self) -> list[Weight]:
        """The random tensors, as priors see them."""
        return [
            Weight(place.name, tuple(place.shape), place.start, fan_in(self.template, place.name))
            for place in self.places
            if place.random
        ]

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Split `[..., P]` into the module's tensors by name, each `[..., *shape]` (views, cast where dtypes differ)."""
        return {
            place.name: theta[..., place.start : place.stop]
            .reshape(*theta.shape[:-1], *place.shape)
            .to(place.dtype)
            for place in self.places
        }

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The inverse of `unflatten` for one set of weights."""
        return torch.cat([tensors[place.name].to(self.dtype).reshape(-1) for place in self.places])

    def kept(self) -> dict[str, Tensor]:
        """Frozen tensors and buffers by their names in the module."""
        return {name: getattr(self, slot) for name, slot in self._kept.items()}

    def traced(self, x: Any) -> Trace:
        """What a first batch revealed about the module: its layers' use and its dropout; computed once."""
        if self._trace is None:
            self._trace = trace_network(self, x)
        return self._trace

    def call(
        self,
        tensors: Mapping[str, Tensor],
        x: Any,
        *,
        train: bool = False,
        dropout: Tensor | None = None,
        fixed_mask: bool = False,
        kept: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One pass at one set of tensors: the output, and the buffers as the pass left them.

        `dropout` is a key `[2]`; without one, dropout does what the module's mode says it should, which in evaluation
        is nothing. `fixed_mask` makes all inputs share the mask.
        """
        kept = dict(self.kept() if kept is None else kept)
        if train:
            for name in self._buffers_of_module:
                kept[name] = kept[name].clone()
        self.template.train(train)
        positional, named = self.arguments(x)
        masks: AbstractContextManager[Any] = nullcontext()
        if dropout is not None:
            sites = self.traced(x).dropout_sites
            if sites is None or sites:
                masks = KeyedDropout(
                    dropout, sites, fixed=fixed_mask, rate=self.dropout_rate, always=self.dropout_always
                )
                self._keep_attention_dropout()
        with masks:
            result = functional_call(self.template, {**tensors, **kept}, positional, named)
        return self.pick(result), {name: kept[name] for name in self._buffers_of_module}

    def outputs(
        self,
        theta: Tensor,
        x: Any,
        *,
        train: bool = False,
        dropout: Tensor | None = None,
        fixed_mask: bool = False,
        each: bool = False,
        kept: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Evaluate at each row of `theta [draws, P]`: outputs `[draws, batch, ...]` and each draw's buffers.

        `dropout` holds one key per draw, `[draws, 2]`; with `each`, x (and `kept`) carry their own draws axis.
        """
        tier = self.tier(theta.shape[0], x, train=train, each=each, stochastic=dropout is not None)[0]
        if tier == "batched":
            return chain.run(self._chain, self.unflatten(theta), x), {}
        if tier == "vmap":
            return self._vmapped(theta, x, train, dropout, fixed_mask, each, kept)
        results = []
        for draw in range(theta.shape[0]):
            results.append(
                self.call(
                    self.unflatten(theta[draw]),
                    _row(x, draw) if each else x,
                    train=train,
                    dropout=None if dropout is None else dropout[draw],
                    fixed_mask=fixed_mask,
                    kept=_row(kept, draw) if each and kept is not None else kept,
                )
            )
        buffers = {name: torch.stack([b[name] for _, b in results]) for name in results[0][1]} if train else {}
        if len(results) == 1:
            return results[0][0].unsqueeze(0), buffers
        return torch.stack([output for output, _ in results]), buffers

    def tier(
        self, draws: int, x: Any, *, train: bool, each: bool = False, stochastic: bool = False
    ) -> tuple[str, str]:
        """The tier for this many draws, and why."""
        if draws == 1:
            return "loop", "one draw is one call"
        if self.size >= LOOP_FROM_WEIGHTS:
            return "loop", "large products are faster one draw at a time"
        if train and self.traced(_row(x, 0) if each else x).updates_buffers:
            return "loop", "running statistics change in training"
        if self._chain is not None and not each and not stochastic:
            return "batched", "a plain chain of known layers"
        if train not in self._tiers:
            self._tiers[train] = self._probe_vmap(_row(x, 0) if each else x, train=train)
        return self._tiers[train]

    def arguments(self, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How the module takes x: a mapping as keywords and a tuple as positions where its `forward` allows it."""
        signature = inspect.signature(self.template.forward)
        if isinstance(x, Mapping) and _binds(signature, (), x):
            return (), dict(x)
        if isinstance(x, list | tuple) and _binds(signature, tuple(x), {}):
            return tuple(x), {}
        return (x,), {}

    def add_dropout(self, rate: float, x: Any) -> None:
        """Put dropout before every weight layer of the copy but the first that runs on x."""
        uses = self.traced(x).layers
        layers = [name for name in uses if isinstance(self.template.get_submodule(name), WEIGHT_LAYERS) and uses[name].calls]
        layers.sort(key=lambda name: uses[name].position)
        if len(layers) < 2:
            raise ValueError("dropout cannot be added: the network has fewer than two weight layers")
        self.add_dropout_to(layers[1:], rate)

    def add_dropout_to(self, layers: Sequence[str], rate: float) -> None:
        """Put dropout before these layers of the copy."""
        for name in layers:
            self.template.get_submodule(name).register_forward_pre_hook(_DropoutBefore(rate))
        self.added_dropout = list(layers)
        self._trace, self._chain, self._tiers = None, None, {}

    def _keep_attention_dropout(self) -> None:
        # Attention zeroes its rate by its own mode before it calls dropout; the flag does nothing else there.
        if self.dropout_always:
            for part in self.template.modules():
                if isinstance(part, nn.MultiheadAttention):
                    part.training = True

    def pick(self, result: Any) -> Tensor:
        """The output tensor of a pass."""
        if callable(self.output):
            result = self.output(result)
        elif self.output is not None:
            try:
                result = (
                    getattr(result, self.output)
                    if isinstance(self.output, str) and hasattr(result, self.output)
                    else result[self.output]
                )
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"output={self.output!r} is not in what the network returns") from None
        if not isinstance(result, Tensor):
            raise TypeError(
                f"the network returns {type(result).__name__}, not a tensor: pick one with output=, a key, an index or a function"
            )
        return result

    def _vmapped(
        self,
        theta: Tensor,
        x: Any,
        train: bool,
        dropout: Tensor | None,
        fixed_mask: bool,
        each: bool,
        kept: Mapping[str, Tensor] | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        tensors = self.unflatten(theta)
        shared = self.kept() if kept is None or not each else {}
        own = dict(kept) if kept is not None and each else {}

        def one(tensors: dict[str, Tensor], x: Any, key: Tensor | None, own: dict[str, Tensor]) -> Any:
            return self.call(
                tensors, x, train=train, dropout=key, fixed_mask=fixed_mask, kept={**shared, **own}
            )

        axes = (0, 0 if each else None, None if dropout is None else 0, 0)
        outputs, buffers = vmap(one, in_dims=axes, randomness="error")(tensors, x, dropout, own)
        return outputs, buffers if train else {}

    def _probe_vmap(self, x: Any, *, train: bool) -> tuple[str, str]:
        theta = torch.stack((self.initial, self.initial * 0.5))
        few = first_rows(x, 2)
        try:
            with torch.no_grad():
                together = self._vmapped(theta, few, train, None, False, False, None)[0]
                apart = torch.stack([self.call(self.unflatten(t), few, train=train)[0] for t in theta])
        except Exception as problem:  # noqa: BLE001 -- whatever stops vmap, the loop still works
            return "loop", f"vmap cannot: {str(problem).strip().splitlines()[0][:80]}"
        if not torch.allclose(together, apart, rtol=1e-3, atol=1e-4):
            return "loop", "vmap gives other numbers than one call per draw"
        return "vmap", "vmap over functional_call"


class _DropoutBefore:
    """A forward pre-hook: dropout on a layer's first input."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (F.dropout(inputs[0], self.rate, layer.training), *inputs[1:])


def select(module: nn.Module, trained: Sequence[str], bayesian: str | Sequence[str]) -> set[str]:
    """Names of the tensors that `bayesian=` makes random."""
    owners = {name: module.get_submodule(name.rpartition(".")[0]) for name in trained}
    weighted = [name for name in trained if not isinstance(owners[name], NORMALISATION)]
    if isinstance(bayesian, str):
        if bayesian == "all":
            return set(weighted)
        if bayesian == "none":
            return set()
        if bayesian == "last_layer":
            if not weighted:
                raise ValueError('bayesian="last_layer" needs a layer with trained weights, the network has none')
            prefix = weighted[-1].rpartition(".")[0]
            return {name for name in weighted if name.rpartition(".")[0] == prefix}
        known = ["all", "last_layer"]
        if not any(symbol in bayesian for symbol in "*?[.") and bayesian not in trained:
            raise ValueError(
                f'bayesian must be "all", "last_layer" or a list of name patterns, got {bayesian!r}{nearest(bayesian, known)}'
            )
        bayesian = [bayesian]
    chosen: set[str] = set()
    for pattern in bayesian:
        matched = fnmatch.filter(trained, pattern)
        if not matched:
            raise ValueError(f"bayesian pattern {pattern!r} matches no trained tensor{nearest(pattern, trained)}")
        chosen.update(matched)
    return chosen


def first_rows(x: Any, count: int) -> Any:
    """The first `count` examples of a pytree of `[batch, ...]` tensors."""
    return pytree.tree_map_only(Tensor, lambda t: t[:count], x)


def _row(x: Any, index: int) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t[index], x)


def _binds(signature: inspect.Signature, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True


def _check_trainable(trained: Mapping[str, Tensor]) -> None:
    if not trained:
        raise ValueError("the network has no trained parameters: there is nothing to be Bayesian about")
    for name, tensor in trained.items():
        if isinstance(tensor, nn.parameter.UninitializedParameter):
            raise ValueError(f"parameter {name} has no shape yet: run the network once on a batch before wrapping it")
        if not tensor.is_floating_point():
            raise ValueError(f"parameter {name} is {tensor.dtype}: only real floating-point weights can be random")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"parameter {name} of the network holds NaN or infinity")


def _lay_out(trained: Mapping[str, Tensor], random_names: set[str]) -> list[Place]:
    places, start = [], 0
    for random in (True, False):
        for name, tensor in trained.items():
            if (name in random_names) == random:
                places.append(Place(name, tensor.shape, tensor.dtype, start, random))
                start += tensor.numel()
    return places


def _common_dtype(trained: Mapping[str, Tensor]) -> torch.dtype:
    # Half-precision weights are kept in float32: a posterior narrower than their spacing would be lost.
    dtype = torch.float32
    for tensor in trained.values():
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype
