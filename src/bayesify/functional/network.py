"""A network's weights as one flat vector, and the network as a function of many such vectors.

The user's module is copied, never edited. Every trained tensor gets a place in a vector `theta` of length P, the random
ones first; tensors that are frozen, and buffers, stay beside it. `Network.outputs(theta, x)` then evaluates the module
at each row of `theta [draws, P]` and returns `[draws, batch, ...]`, by the best of the tiers in `tiers.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from bayesify.functional import chain, tiers
from bayesify.functional.copying import Lock, as_module, fill, hollow
from bayesify.functional.dropout import DropoutBefore, KeyedDropout, NoDropout
from bayesify.functional.initialisation import seeded_torch
from bayesify.functional.inputs import bind, count, pick
from bayesify.functional.layout import check_trainable, common_dtype, lay_out, main_dtype
from bayesify.functional.recording import EscapedWeightsError, ReadRecorder
from bayesify.functional.selection import select
from bayesify.functional.tiers import LOOP_FROM_WEIGHTS
from bayesify.functional.tracing import Trace, restore_state, state_of, trace_network
from bayesify.priors import Weight, fan_in

__all__ = ["LOOK_UPS", "LOOP_FROM_WEIGHTS", "WEIGHT_LAYERS", "Network"]

WEIGHT_LAYERS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.modules.rnn.RNNBase)
LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)


class Network(nn.Module):
    """A copy of a module that takes its trained weights as an argument.

    Args:
        module: a `torch.nn.Module`, or a function without arguments that makes one.
        bayesian: which weights are random: "all" (normalisation layers excepted), "last_layer", or name patterns.
        output: picks the tensor where the module returns more: a key, an index, an attribute or a function.
        seed: of a module that a function makes.

    """

    def __init__(
        self,
        module: nn.Module | Callable[[], nn.Module],
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.factory = None if isinstance(module, nn.Module) else module
        original = as_module(module, seed)
        trained = {name: tensor for name, tensor in original.named_parameters() if tensor.requires_grad}
        check_trainable(trained)
        random_names = select(original, list(trained), bayesian)
        self.bayesian = bayesian
        self.output = output
        self.spec = _spec_of(original)
        self.places = lay_out(trained, random_names)
        self.size = self.places[-1].stop
        self.random_size = max((place.stop for place in self.places if place.random), default=0)
        self.dtype = common_dtype(trained)
        self.input_dtype = main_dtype(original)
        self.initial: Tensor
        flat = torch.cat([trained[place.name].detach().to(self.dtype).reshape(-1) for place in self.places])
        self.register_buffer("initial", flat, persistent=False)
        self._kept = {}
        for kind, named in (("frozen", original.named_parameters()), ("buffer", original.named_buffers())):
            for name, tensor in named:
                if name not in trained:
                    slot = f"{kind}_{name.replace('.', '/')}"
                    self.register_buffer(slot, tensor.detach().clone())
                    self._kept[name] = slot
        self.buffer_names = [name for name, slot in self._kept.items() if slot.startswith("buffer_")]
        # A list hides the template from nn.Module. It is code only: every tensor it needs is passed in.
        self._template = [hollow(original)]
        self._chain = chain.plan(self.template)
        self._recurrent = [place.name for place in self.places if _is_recurrent(self.template, place.name)]
        self.signature = inspect.signature(self.template.forward)
        self.lock = Lock()
        self._trace: Trace | None = None
        # Whether vmap can do it, by (train, each, stochastic), as far as it was tried.
        self.probed: dict[tuple[bool, bool, bool], tuple[str, str]] = {}
        self.dropout_rate: float | None = None
        self.dropout_always = False
        self.added_dropout: list[str] = []

    @property
    def template(self) -> nn.Module:
        """The module's code; its tensors have shapes and no values."""
        return self._template[0]

    @property
    def weights(self) -> list[Weight]:
        """The random tensors, as priors see them."""
        return [
            Weight(place.name, tuple(place.shape), place.start, fan_in(self.template, place.name))
            for place in self.places
            if place.random
        ]

    def module(self, theta: Tensor | None = None) -> nn.Module:
        """A module that stands on its own, with the weights `theta [P]` (as they were given, by default)."""
        tensors = self.unflatten(self.initial if theta is None else theta)
        return fill(self.template, {**tensors, **self.kept()})

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Split `[..., P]` into the module's tensors by name, each `[..., *shape]` (cast where dtypes differ)."""
        # One split, not a slice per tensor: its gradient is one concatenation.
        parts = torch.split(theta, [place.shape.numel() for place in self.places], -1)
        tensors = {
            place.name: part.reshape((*theta.shape[:-1], *place.shape)).to(place.dtype)
            for place, part in zip(self.places, parts, strict=True)
        }
        if theta.is_cuda:
            # A place inside the vector, or inside each row of several, need not be aligned: cuDNN's recurrent kernels
            # insist on it, and the fast batched products do not take what is not aligned.
            several = theta[..., 0].numel() > 1 or torch._C._functorch.is_batchedtensor(theta)
            unaligned = list(tensors) if several else self._recurrent
            tensors |= {name: tensors[name].clone(memory_format=torch.contiguous_format) for name in unaligned}
        return tensors

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The inverse of `unflatten` for one set of weights."""
        return torch.cat([tensors[place.name].to(self.dtype).reshape(-1) for place in self.places])

    def kept(self) -> dict[str, Tensor]:
        """Frozen tensors and buffers by their names in the module."""
        return {name: getattr(self, slot) for name, slot in self._kept.items()}

    def frozen(self) -> dict[str, Tensor]:
        """Tensors that are not trained, by their names in the module."""
        return {name: tensor for name, tensor in self.kept().items() if name not in self.buffer_names}

    def __getstate__(self) -> dict[str, Any]:
        # A factory is often a lambda, which Python cannot pickle; it has done its work.
        return {**self.__dict__, "factory": None}

    def traced(self, x: Any) -> Trace:
        """What a first batch revealed about the module: its layers' use and its dropout; computed once."""
        if self._trace is None:
            self.arguments(x)  # names that do not fit say nothing about the network
            with self.lock:
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
        """One pass at one set of tensors: the output, and the buffers as a training pass that changes them left them.

        `dropout` is a key `[2]`; without one there is no dropout. `fixed_mask` makes all inputs share the mask.
        """
        trace = self.traced(x)
        state = {**tensors, **self.kept(), **(kept or {})}
        if trace.updates_buffers if train else trace.buffers_in_evaluation:
            state |= {name: state[name].clone() for name in self.buffer_names}
        if trace.changes_weights:
            state |= {name: tensor.clone() for name, tensor in tensors.items()}
        if trace.changes_inputs:
            x = pytree.tree_map_only(Tensor, torch.clone, x)
        positional, named = self.arguments(x)
        with self.lock, ExitStack() as contexts:
            masked = dropout is not None and (trace.dropout_sites is None or bool(trace.dropout_sites))
            self.set_mode(train=train, switched=trace.switched if masked else ())
            if masked:
                contexts.enter_context(
                    KeyedDropout(
                        dropout,
                        trace.dropout_sites if train else trace.prediction_sites,
                        inputs=count(x) if fixed_mask else None,
                        rate=self.dropout_rate,
                        always=self.dropout_always,
                    )
                )
            elif trace.drops_in_evaluation or (train and trace.dropout_sites):
                contexts.enter_context(NoDropout())
            if trace.uses_generator:
                contexts.enter_context(seeded_torch(*(() if dropout is None else dropout.tolist())))
            if trace.problem is not None:
                contexts.enter_context(ReadRecorder({}, (*self.template.parameters(), *self.template.buffers())))
            if trace.keeps_state:
                contexts.callback(restore_state, state_of(self.template))
            try:
                result = functional_call(self.template, state, positional, named)
            except Exception as problem:
                self._explain(problem, trace)
                raise
        left = {name: state[name] for name in self.buffer_names} if train and trace.updates_buffers else {}
        return self.pick(result), left

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
        return tiers.evaluate(self, theta, x, train=train, dropout=dropout, fixed_mask=fixed_mask, each=each, kept=kept)

    def tier(self, draws: int, x: Any, *, train: bool, each: bool = False, stochastic: bool = False) -> tuple[str, str]:
        """The tier for this many draws, and why."""
        return tiers.best_tier(self, draws, x, train=train, each=each, stochastic=stochastic)

    def arguments(self, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How the module takes x: a mapping as keywords and a tuple as positions where its `forward` allows it."""
        return bind(self.signature, x, self.input_dtype)

    def set_mode(self, *, train: bool, switched: Iterable[str] = ()) -> None:
        """Put the copy into training or evaluation, the modules in `switched` alone into training."""
        self.template.train(train)
        for name in switched:
            self.template.get_submodule(name).training = True

    def add_dropout(self, rate: float, x: Any) -> None:
        """Put dropout before every weight layer of the copy but the first that runs on x."""
        trace = self.traced(x)
        if trace.problem is not None:
            raise ValueError(f"dropout cannot be added: the network could not be traced ({trace.problem})")
        kinds = {name: self.template.get_submodule(name) for name, use in trace.layers.items() if use.calls}
        layers = [name for name, layer in kinds.items() if isinstance(layer, (*WEIGHT_LAYERS, *LOOK_UPS))]
        layers.sort(key=lambda name: trace.layers[name].position)
        later = [name for name in layers[1:] if not isinstance(kinds[name], LOOK_UPS)]
        if not later:
            raise ValueError("dropout cannot be added: the network has fewer than two weight layers")
        self.add_dropout_to(later, rate)

    def add_dropout_to(self, layers: Sequence[str], rate: float) -> None:
        """Put dropout before these layers of the copy."""
        for name in layers:
            self.template.get_submodule(name).register_forward_pre_hook(DropoutBefore(rate), with_kwargs=True)
        self.added_dropout = list(layers)
        self._trace, self._chain, self.probed = None, None, {}

    def pick(self, result: Any) -> Tensor:
        """The output tensor of a pass."""
        output = pick(result, self.output)
        if output.is_meta:
            raise EscapedWeightsError
        # Likelihoods need more digits than half-precision weights have.
        return output.to(self.dtype) if output.is_floating_point() and output.element_size() < 4 else output

    @property
    def convolves(self) -> bool:
        """Whether there are convolutions in the module."""
        return any(isinstance(part, nn.modules.conv._ConvNd) for part in self.template.modules())

    @property
    def is_chain(self) -> bool:
        """Whether the module is a plain chain of known layers."""
        return self._chain is not None

    def chained(self, tensors: dict[str, Tensor], x: Any) -> Tensor:
        """A plain chain at many draws: tensors `[draws, *shape]` by name, inputs that all draws share."""
        return self.pick(chain.run(self._chain, tensors, x))

    def _explain(self, problem: Exception, trace: Trace) -> None:
        if trace.problem is not None:
            # Perhaps the inputs were at fault and not the network: the next ones deserve a look of their own.
            self._trace = None
        if re.search(r"\bmeta\b", str(problem)):
            raise EscapedWeightsError from problem


def _spec_of(module: nn.Module) -> dict[str, Any] | None:
    from bayesify.networks import spec_of

    return spec_of(module) if type(module) is nn.Sequential else None


def _is_recurrent(module: nn.Module, name: str) -> bool:
    return isinstance(module.get_submodule(name.rpartition(".")[0]), nn.modules.rnn.RNNBase)
