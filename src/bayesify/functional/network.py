"""A network's weights as one flat vector, and the network as a function of many such vectors.

The user's module is copied, never edited. Every trained tensor gets a place in a vector `theta` of length P, the random
ones first. Frozen tensors and buffers stay outside it. `Network.outputs(theta, x)` evaluates the module at each row of
`theta [draws, P]` and returns `[draws, batch, ...]`, by the best of the tiers in `batched_draws.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.functional import batched_draws, layer_chain
from bayesify.functional.batched_draws import LOOP_FROM_WEIGHTS
from bayesify.functional.copying import Lock, as_module, fill, hollow
from bayesify.functional.dropout import DropoutBefore, KeyedDropout, NoDropout
from bayesify.functional.initialisation import seeded_torch
from bayesify.functional.inputs import InterfaceError, bind, count, pick
from bayesify.functional.layout import Place, check_trainable, common_dtype, lay_out, main_dtype
from bayesify.functional.lower_precision import lower_runs
from bayesify.functional.recomputing import NOT_REPEATABLE, recomputing, second_runs
from bayesify.functional.selection import as_texts, select
from bayesify.functional.swapping import Swapping
from bayesify.functional.trace_recorders import EscapedWeightsError, ReadRecorder
from bayesify.functional.tracing import (
    Trace,
    check_random_weights_matter,
    restore_state,
    state_of,
    trace_network,
)
from bayesify.priors import Weight, fan_in

__all__ = ["LOOK_UPS", "LOOP_FROM_WEIGHTS", "WEIGHT_LAYERS", "Network"]

WEIGHT_LAYERS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.modules.rnn.RNNBase)
LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)


class Network(nn.Module):
    """A copy of a module as a function of its weights: `outputs(theta, x)` for vectors `theta [draws, P]`.

    Args:
        module: a `torch.nn.Module`, or a function without arguments that makes one. It is copied, never changed.
        bayesian: which weights are random: `"all"` (except normalisation layers), `"last_layer"`, `"last_block"`,
            `"lora"`, `"none"`, a class of modules, name patterns such as `["fc1", "encoder.*.bias"]`, or a list such as
            `["all", "norms", "!biases"]`.
        output: picks the tensor where the module returns several: a key, an index, an attribute or a function.
        seed: seed of torch's generator while a function makes the module.

    Attributes:
        size: P, the number of trained weights.
        random_size: R, the number of random weights, which come first in `theta`.
        places: name, shape, dtype and position in `theta` of each trained tensor.
        dtype: precision of `theta`.
        empty: a tensor without numbers, in the precision and on the device of the network.
        chain: the layers in order, by name, where the module is a plain chain of known layers; otherwise None.
        trace: what the first batch revealed about the module; None before it.
        training_precision: of passes in training mode: `full`, or `bfloat16` by autocast, with weights as they are.

    Raises:
        TypeError: if the module cannot be copied or run with other weights.
        ValueError: if it has no trained weights, or `bayesian` matches none of them.

    Examples:
        >>> network = bf.Network(net, bayesian="last_layer")
        >>> network.size, network.random_size
        (123, 27)
        >>> theta = network.initial.expand(4, -1)
        >>> outputs, buffers = network.outputs(theta, x)
        >>> outputs.shape
        torch.Size([4, 60, 3])
        >>> torch.allclose(outputs[0], net(x))
        True

    """

    def __init__(
        self,
        module: nn.Module | Callable[[], nn.Module],
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.factory = None if isinstance(module, nn.Module) else module
        original = as_module(module, seed)
        trained = {name: tensor for name, tensor in original.named_parameters() if tensor.requires_grad}
        check_trainable(trained)
        random_names = select(original, list(trained), bayesian)
        self.bayesian = as_texts(bayesian)
        self.output = output
        self.spec = _spec_of(original)
        self.places = lay_out(trained, random_names)
        self.size = self.places[-1].stop
        self.random_size = max((place.stop for place in self.places if place.random), default=0)
        self.dtype = common_dtype(trained)
        self._several_dtypes = any(place.dtype != self.dtype for place in self.places)
        self.input_dtype = main_dtype(original)
        flat = torch.cat([trained[place.name].detach().to(self.dtype).reshape(-1) for place in self.places])
        self._given = flat.cpu()
        self.empty: Tensor
        self.register_buffer("empty", flat.new_empty(0), persistent=False)
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
        self._swapping: Swapping | None = None
        self._mode: tuple[Any, list[tuple[dict[str, Any], bool]]] | None = None
        self.chain = layer_chain.plan(self.template)
        self._recurrent = [place.name for place in self.places if _is_recurrent(self.template, place.name)]
        self.signature = inspect.signature(self.template.forward)
        self.lock = Lock()
        self.trace: Trace | None = None
        # The rows of the tables that look inputs up, by the number of the input; None before the first batch.
        self.tables: dict[int, int] | None = None
        # Whether vmap works, by (train, each, stochastic), as far as it was tried.
        self.probed: dict[tuple[bool, bool, bool], tuple[str, str]] = {}
        self.training_precision = "full"
        self._held: tuple[Tensor, list[dict[str, Tensor]]] | None = None
        self._runs: list[tuple[list[Place], bool]] | None = None
        self.shares_prefix = False
        self.recomputed: list[str] = []
        self.dropout_rate: float | None = None
        self.dropout_always = False
        self.added_dropout: list[str] = []

    @property
    def template(self) -> nn.Module:
        """The module's code; its tensors have shapes and no values."""
        return self._template[0]

    @property
    def initial(self) -> Tensor:
        """The weights of the module as it was given, `[P]`.

        Training does not need them: they stay in the host's memory and are copied to the device where they are read.
        """
        return self._given.to(self.empty)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.empty.device

    @property
    def weights(self) -> list[Weight]:
        """The random tensors, as priors see them."""
        return [
            Weight(place.name, tuple(place.shape), place.start, fan_in(self.template, place.name))
            for place in self.places
            if place.random
        ]

    def module(self, theta: Tensor | None = None) -> nn.Module:
        """An independent copy of the module with given weights.

        Args:
            theta: weights `[P]`; None has those of the original module.

        Returns:
            A module of the user's type that shares no memory with this network.

        """
        tensors = self.unflatten(self.initial if theta is None else theta)
        return fill(self.template, {**tensors, **self.kept()})

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Split weights into the module's tensors.

        Args:
            theta: weights `[..., P]`.

        Returns:
            Tensors `[..., *shape]` by name, in the dtype of the module's own.

        """
        # One split, not a slice per tensor: its gradient is one concatenation.
        parts = torch.split(theta, [place.shape.numel() for place in self.places], -1)
        tensors = {
            place.name: part.reshape((*theta.shape[:-1], *place.shape))
            for place, part in zip(self.places, parts, strict=True)
        }
        if self._several_dtypes or theta.dtype != self.dtype:
            tensors = {place.name: tensors[place.name].to(place.dtype) for place in self.places}
        if theta.is_cuda:
            several = theta[..., 0].numel() > 1 or torch._C._functorch.is_batchedtensor(theta)
            return self._aligned(tensors, several=several)
        return tensors

    def aligned(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor of one draw that is part of a vector, in memory that the kernels of its layer accept.

        Args:
            name: of the tensor.
            tensor: its values.

        Returns:
            The tensor, or a copy of it.

        """
        unaligned = tensor.is_cuda and name in self._recurrent
        return tensor.clone(memory_format=torch.contiguous_format) if unaligned else tensor

    def _aligned(self, tensors: dict[str, Tensor], *, several: bool) -> dict[str, Tensor]:
        """A slice of the vector need not be aligned, as cuDNN's recurrent kernels and fast batched products require."""
        unaligned = list(tensors) if several else self._recurrent
        return tensors | {name: tensors[name].clone(memory_format=torch.contiguous_format) for name in unaligned}

    @contextmanager
    def same_weights(self, theta: Tensor) -> Iterator[None]:
        """Inside this context, passes at these weights split them once, and cast them once where autocast would.

        Args:
            theta: weights `[draws, P]`, which must not change.

        Yields:
            Nothing.

        """
        self._held = (theta, [])
        try:
            yield
        finally:
            self._held = None

    def each_unflattened(self, theta: Tensor, x: Any, *, train: bool = False) -> list[dict[str, Tensor]]:
        """The module's tensors for each draw, in the precision in which autocast will run their layers.

        Args:
            theta: weights `[draws, P]`.
            x: a batch of inputs.
            train: whether for passes in training mode.

        Returns:
            Tensors by name, for one draw after the other.

        """
        held, kind = None if train else self._held, self.device.type
        kept = held is not None and held[0] is theta
        if held is not None and kept and held[1]:
            return held[1]
        # In evaluation mode casting in advance pays where several batches share the weights.
        lower = self.training_precision == "bfloat16" if train else kept and torch.is_autocast_enabled(kind)
        if lower and not train:
            lower = torch.get_autocast_dtype(kind) == torch.bfloat16
        lower = lower and theta.dtype == torch.float32 and not self._several_dtypes
        found = [self._unflatten_lower(row, x) if lower else self.unflatten(row) for row in theta.unbind()]
        if held is not None and kept:
            held[1].extend(found)
        return found

    def _unflatten_lower(self, theta: Tensor, x: Any) -> dict[str, Tensor]:
        """One draw's tensors, cast to bfloat16 in few pieces where autocast would cast them one by one."""
        if self._runs is None:
            self._runs = lower_runs(self, self.traced(x))
        tensors: dict[str, Tensor] = {}
        # One split, whose gradient is one concatenation.
        pieces = torch.split(theta, [sum(place.shape.numel() for place in places) for places, _ in self._runs])
        for (places, lower), piece in zip(self._runs, pieces, strict=True):
            flat = piece.to(torch.bfloat16) if lower else piece
            parts = flat.split([place.shape.numel() for place in places]) if len(places) > 1 else (flat,)
            tensors |= {place.name: part.view(place.shape) for place, part in zip(places, parts, strict=True)}
        return self._aligned(tensors, several=False) if theta.is_cuda else tensors

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Join one set of tensors into a vector: the inverse of `unflatten`.

        Args:
            tensors: the trained tensors by name, each in its shape.

        Returns:
            Weights `[P]`.

        """
        return torch.cat([tensors[place.name].to(self.dtype).reshape(-1) for place in self.places])

    def kept(self) -> dict[str, Tensor]:
        """Frozen tensors and buffers by name: what the module needs besides its trained weights."""
        return {name: getattr(self, slot) for name, slot in self._kept.items()}

    def frozen(self) -> dict[str, Tensor]:
        """Frozen parameters by name."""
        return {name: tensor for name, tensor in self.kept().items() if name not in self.buffer_names}

    def __getstate__(self) -> dict[str, Any]:
        # A factory is often a lambda, which Python cannot pickle, and is no longer needed.
        return {**self.__dict__, "factory": None, "_swapping": None, "_mode": None, "_held": None}

    def traced(self, x: Any) -> Trace:
        """What a first batch reveals about the module: the use of its layers, its dropout, its side effects.

        Args:
            x: a batch of inputs; only the first call runs the module on it.

        Returns:
            The trace, computed once.

        """
        if self.trace is None:
            self.arguments(x)  # an error about wrong input names must not become part of the trace
            with self.lock:
                self.trace = trace = trace_network(self, x)
                try:
                    check_random_weights_matter(self, x)
                except InterfaceError:
                    self.trace = None
                    raise
            return trace
        return self.trace

    def call(
        self,
        tensors: Mapping[str, Tensor],
        x: Any,
        *,
        train: bool = False,
        dropout: Tensor | None = None,
        fixed_mask: bool = False,
        kept: Mapping[str, Tensor] | None = None,
        around: AbstractContextManager[Any] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One pass of the module at one set of tensors.

        Args:
            tensors: the trained tensors by name, as `unflatten` gives them for one draw.
            x: a batch of inputs.
            train: run in training mode.
            dropout: key `[2]` of the dropout masks; None switches dropout off.
            fixed_mask: all inputs share one mask, as when predicting; otherwise each input has its own.
            kept: frozen tensors and buffers that replace the network's, by name.
            around: a context of the pass that changes how layers run or where their tensors come from.

        Returns:
            The output `[batch, ...]`, and the buffers that a training pass changed, by name.

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
            self._swapping = self._swapping or Swapping(self.template)
            mode: KeyedDropout | None = None
            masked = dropout is not None and (trace.dropout_sites is None or bool(trace.dropout_sites))
            switched = trace.switched if masked else ()
            self.set_mode(train=train, switched=switched)
            if masked:
                mode = KeyedDropout(
                    dropout,
                    trace.dropout_sites if train else trace.prediction_sites,
                    inputs=count(x) if fixed_mask else None,
                    rate=self.dropout_rate,
                    always=self.dropout_always,
                )
            elif trace.drops_in_evaluation or (train and trace.dropout_sites):
                mode = NoDropout()
            if mode is not None:
                contexts.enter_context(mode)
            if trace.uses_generator:
                contexts.enter_context(seeded_torch(*(() if dropout is None else dropout.tolist())))
            if trace.problem is not None:
                contexts.enter_context(ReadRecorder({}, (*self.template.parameters(), *self.template.buffers())))
            contexts.enter_context(self.pass_context(train=train))
            if torch.is_grad_enabled():
                names = [*tensors, *self.kept()]
                again = _refuse_second_run if around is not None else self._again(names, mode, trace, train, switched)
                contexts.enter_context(second_runs(again))
            if train and self.recomputed:
                contexts.enter_context(recomputing(self.template, self.recomputed))
            if trace.keeps_state:
                contexts.callback(restore_state, state_of(self.template))
            if around is not None:
                contexts.enter_context(around)
            try:
                result = self._swapping.call(state, positional, named)
            except Exception as problem:
                self._explain(problem, trace)
                raise
        left = {name: state[name] for name in self.buffer_names} if train and trace.updates_buffers else {}
        return self.pick(result), left

    def _again(
        self, names: Sequence[str], mode: KeyedDropout | None, trace: Trace, train: bool, switched: Sequence[str]
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """How a checkpointed function runs in the backward pass: with the tensors, masks and modes of this pass."""
        part, recomputed = noise.same_part(), self.recomputed if train else []

        def again(function: Callable[..., Any]) -> Callable[..., Any]:
            assert self._swapping is not None
            swapping, masks = self._swapping, None if mode is None else mode.from_here()
            tensors = swapping.now(names)
            # The second run must not update running statistics again.
            buffers = {name: tensors[name].clone() for name in self.buffer_names if trace.updates_buffers}

            def run(*positional: Any, **named: Any) -> Any:
                mode = None if masks is None else masks.from_here()
                own = {name: tensor.clone() for name, tensor in buffers.items()}
                if trace.changes_weights:
                    own = {name: tensor.clone() for name, tensor in (tensors | own).items()}
                with self.lock, ExitStack() as contexts:
                    self.set_mode(train=train, switched=switched)
                    if mode is not None:
                        contexts.enter_context(mode)
                    for context in (
                        part(),
                        swapping.placed({**tensors, **own}),
                        # Checkpoints inside this one.
                        second_runs(self._again(names, mode, trace, train, switched)),
                        recomputing(self.template, recomputed),
                    ):
                        contexts.enter_context(context)
                    if trace.keeps_state:
                        contexts.callback(restore_state, state_of(self.template))
                    return function(*positional, **named)

            return run

        return again

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
        """Evaluate the module at several sets of weights.

        Args:
            theta: weights `[draws, P]`.
            x: a batch of inputs that all draws share, or one per draw (see `each`).
            train: run in training mode.
            dropout: keys `[draws, 2]` of the dropout masks; None switches dropout off.
            fixed_mask: all inputs of a draw share one mask, so that a draw is one function.
            each: x and `kept` have a leading axis of draws.
            kept: frozen tensors and buffers that replace the network's, by name.

        Returns:
            Outputs `[draws, batch, ...]`, and the buffers `[draws, *shape]` that training passes changed, by name.

        """
        return batched_draws.evaluate(
            self, theta, x, train=train, dropout=dropout, fixed_mask=fixed_mask, each=each, kept=kept
        )

    def tier(self, draws: int, x: Any, *, train: bool, each: bool = False, stochastic: bool = False) -> tuple[str, str]:
        """How `outputs` evaluates several draws: `batched`, `vmap` or `loop`.

        Args:
            draws: number of draws.
            x: a batch of inputs.
            train: whether in training mode.
            each: whether x has a leading axis of draws.
            stochastic: whether dropout is on.

        Returns:
            The tier, and the reason in words.

        """
        return batched_draws.best_tier(self, draws, x, train=train, each=each, stochastic=stochastic)

    def arguments(self, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the module's `forward` for inputs x.

        Args:
            x: a tensor, a tuple (positional arguments) or a mapping (keywords), where `forward` accepts them.

        Returns:
            Positional arguments, and keyword arguments by name.

        """
        return bind(self.signature, x, self.input_dtype)

    def set_mode(self, *, train: bool, switched: Iterable[str] = ()) -> None:
        """Put the copy into training or evaluation mode.

        Args:
            train: whether in training mode.
            switched: names of modules that are in training mode in any case.

        """
        mode = (train, *switched)
        if self._mode is not None and self._mode[0] == mode:
            # The same flags again, without a walk through the modules.
            for attributes, training in self._mode[1]:
                attributes["training"] = training
            return
        self.template.train(train)
        for name in switched:
            self.template.get_submodule(name).training = True
        self._mode = mode, [(module.__dict__, module.training) for module in self.template.modules()]

    def pass_context(self, *, train: bool) -> AbstractContextManager[Any]:
        """The context of a pass: autocast where training passes are made in bfloat16.

        Args:
            train: whether it is a training pass.

        Returns:
            A context.

        """
        if not train or self.training_precision == "full":
            return nullcontext()
        # A cache of casts would keep those of one draw for the next one.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def add_dropout(self, rate: float, x: Any) -> None:
        """Put dropout before every weight layer of the copy except the first one that runs.

        Args:
            rate: the probability that an input of a layer is dropped.
            x: a batch of inputs, which shows the order of the layers.

        Raises:
            ValueError: if the network could not be traced or has fewer than two weight layers.

        """
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
        """Put dropout before some layers of the copy.

        Args:
            layers: names of the layers.
            rate: the probability that an input of a layer is dropped.

        """
        for name in layers:
            self.template.get_submodule(name).register_forward_pre_hook(DropoutBefore(rate), with_kwargs=True)
        self.added_dropout = list(layers)
        self.trace, self.chain, self.probed, self._runs = None, None, {}, None

    def pick(self, result: Any) -> Tensor:
        """The output tensor of a pass: what `output=` names in the result of the module.

        Args:
            result: what the module returned.

        Returns:
            The tensor; half precision is widened, because likelihoods need more digits.

        """
        output = pick(result, self.output)
        if output.is_meta:
            raise EscapedWeightsError
        return output.to(self.dtype) if output.is_floating_point() and output.element_size() < 4 else output

    @property
    def convolves(self) -> bool:
        """Whether there are convolutions in the module."""
        return any(isinstance(layer, nn.modules.conv._ConvNd) for layer in self.template.modules())

    @property
    def linear_in_random(self) -> bool:
        """Whether the output is known to be linear in the random weights: those of the layer that gives it."""
        name = None if self.trace is None or self.trace.problem is not None else self.trace.gives_output
        use = None if self.trace is None or name is None else self.trace.evaluated.get(name)
        if use is None or use.calls != 1 or use.read_elsewhere:
            return False
        random = {place.name for place in self.places if place.random}
        return bool(random) and random <= {f"{name}.weight", f"{name}.bias"}

    @property
    def is_chain(self) -> bool:
        """Whether the module is a plain chain of known layers."""
        return self.chain is not None

    def chained(self, tensors: dict[str, Tensor], x: Any) -> Tensor:
        """Evaluate a plain chain at several sets of weights by batched products.

        Args:
            tensors: the trained tensors by name, `[draws, *shape]` each.
            x: a batch of inputs that all draws share.

        Returns:
            Outputs `[draws, batch, ...]`.

        """
        return self.pick(layer_chain.run(self.chain, tensors, x))

    def _explain(self, problem: Exception, trace: Trace) -> None:
        if trace.problem is not None:
            # The inputs may have been wrong, not the network: trace again on the next ones.
            self.trace = None
        if re.search(r"\bmeta\b", str(problem)):
            raise EscapedWeightsError from problem


def _refuse_second_run(_: Callable[..., Any]) -> NoReturn:
    raise InterfaceError(NOT_REPEATABLE)


def _spec_of(module: nn.Module) -> dict[str, Any] | None:
    from bayesify.networks import spec_of

    return spec_of(module) if type(module) is nn.Sequential else None


def _is_recurrent(module: nn.Module, name: str) -> bool:
    return isinstance(module.get_submodule(name.rpartition(".")[0]), nn.modules.rnn.RNNBase)
