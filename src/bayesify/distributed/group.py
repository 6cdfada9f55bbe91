"""The processes of one training: found from the environment of `torchrun`, with the few collectives that are needed.

`joined` makes a group for the length of a fit, a prediction or an evaluation. Code below asks `active()` for it, and
works as one process where there is none.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

from bayesify.errors import TrainingError, first_line
from bayesify.launch import launched_processes

Result = TypeVar("Result")
# The group of the work under way; `alone` where one of its processes does something by itself; `off` where several
# processes were started and do not work together.
_ACTIVE: ContextVar[Group | str | None] = ContextVar("group", default=None)
_ALONE, _OFF = "alone", "off"
# Seconds that threads of the process group have to end, when the interpreter ends; more where they still wait for a
# processor.
_LAST_MOMENT, _MOST_SECONDS = 0.3, 5.0


class FirstProcessError(TrainingError):
    """The first process failed at what it does for all; it says why, and the others end too."""


class Group:
    """Several processes that work on the same thing.

    Args:
        device: where the tensors of the work are.

    Attributes:
        rank: the number of this process, counted from zero.
        size: how many processes there are.
        own_draws: whether each process draws its own weights in a training step.
        sharded: whether each process holds a part of the weights, widths and moments alone.
        wants_to_stop: asked before every sum of gradients; a process that says yes stops all of them after the step.
        stopping: whether some process wanted to stop at the last step.

    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.own_draws = self.sharded = False
        self.wants_to_stop: Callable[[], bool] = lambda: False
        self.stopping = False

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def slice(self, total: int) -> tuple[int, int]:
        """The part of `total` items that falls to this process: the first one and how many; sizes differ by one."""
        size, larger = divmod(total, self.size)
        return self.rank * size + min(self.rank, larger), size + (self.rank < larger)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in one exchange for each dtype."""
        kinds = dict.fromkeys((tensor.dtype, tensor.device) for tensor in tensors)
        for kind in kinds:
            some = [tensor for tensor in tensors if (tensor.dtype, tensor.device) == kind]
            bucket = some[0].reshape(-1) if len(some) == 1 else torch.cat([tensor.reshape(-1) for tensor in some])
            bucket = self._sendable(bucket)
            with _explained():
                dist.all_reduce(bucket)
            for tensor, part in zip(some, bucket.split([tensor.numel() for tensor in some]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def rows(self, part: Tensor, total: int, axis: int) -> Tensor:
        """All rows of a tensor of which every process has the part that `slice(total)` says.

        Args:
            part: the rows of this process.
            total: rows in all.
            axis: the axis of the rows.

        Returns:
            The whole tensor, the same in every process.

        """
        most = -(-total // self.size)
        moved = self._sendable(part.movedim(axis, 0).contiguous())
        padded = moved.new_zeros((most, *moved.shape[1:]))
        padded[: len(moved)] = moved
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        with _explained():
            dist.all_gather(parts, padded)
        size, larger = divmod(total, self.size)
        whole = torch.cat([rows[: size + (rank < larger)] for rank, rows in enumerate(parts)])
        return whole.movedim(0, axis).to(part.device)

    def gathered(self, part: Tensor) -> Tensor:
        """The parts of all processes, one after the other: `[n]` of each becomes `[size * n]`."""
        sent = self._sendable(part.contiguous())
        whole = sent.new_empty(self.size * sent.numel())
        with _explained():
            _all_gather(whole, sent)
        return whole.to(part.device)

    def sum_of_part(self, whole: Tensor) -> Tensor:
        """The part of this process of the sum over the processes: `[size * n]` of each becomes `[n]`.

        A backend without this collective adds everything and keeps the part, which moves twice the bytes.
        """
        sent = self._sendable(whole.contiguous())
        part = sent.new_empty(sent.numel() // self.size)
        try:
            _reduce_scatter(part, sent)
        except RuntimeError as problem:
            if not any(words in str(problem).lower() for words in ("support", "implement")):
                with _explained():
                    raise
            with _explained():
                dist.all_reduce(sent)
            part = sent.view(self.size, -1)[self.rank].clone()
        return part.to(whole.device)

    def values(self, value: Any) -> list[Any]:
        """The value of every process, in their order; small Python objects that JSON could hold."""
        gathered: list[Any] = [None] * self.size
        with _explained():
            dist.all_gather_object(gathered, value)
        return gathered

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        found = torch.tensor(float(flag), device=self._control)
        with _explained():
            dist.all_reduce(found)
        return bool(found > 0)

    def first_value(self, value: Result) -> Result:
        """The value of the first process."""
        chosen: list[Any] = [value]
        with _explained():
            dist.broadcast_object_list(chosen, src=0)
        return chosen[0]  # type: ignore[no-any-return]

    def done_first(self, work: Callable[[], Result]) -> Result | None:
        """Do something in the first process alone, while the others wait; an error there ends all of them.

        Args:
            work: what the first process does.

        Returns:
            Its result in the first process, None in the others.

        """
        result, problem = None, None
        if self.first:
            try:
                result = work()
            except Exception as raised:  # noqa: BLE001 -- raised again once the others know
                problem = raised
        failed = self.first_value(None if problem is None else str(problem))
        if problem is not None:
            raise problem
        if failed is not None:
            raise FirstProcessError(f"the first process ended: {failed}")
        return result

    def start_alike(self, tensors: Sequence[Tensor]) -> None:
        """Give every process the tensors of the first one."""
        with torch.no_grad(), _explained():
            for tensor in tensors:
                sent = self._sendable(tensor.detach().contiguous())
                dist.broadcast(sent, src=0)
                tensor.copy_(sent)

    def check_same(self, what: str, value: Any, advice: str) -> None:
        """Refuse to go on where the processes differ in something.

        Args:
            what: what must be the same, for the message.
            value: it, or a digest of it.
            advice: what to do.

        Raises:
            TrainingError: in every process, if one of them has another value.

        """
        values = self.values(value)
        other = next((rank for rank, one in enumerate(values) if one != values[0]), None)
        if other is not None:
            raise TrainingError(f"processes 0 and {other} have different {what}: {advice}")

    def same(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors have the same bytes in every process."""
        mark = digest(tensors)
        found = torch.tensor([mark, -mark], dtype=torch.int64, device=self._control)
        with _explained():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found[0]) == -int(found[1])

    def _sendable(self, tensor: Tensor) -> Tensor:
        """A tensor where this group can exchange it."""
        if not tensor.is_cuda:
            return tensor.to(self._control)
        # Gloo exchanges tensors of a CPU: several processes may share one card that way.
        return tensor if "nccl" in str(dist.get_backend_config()) else tensor.cpu()

    @property
    def _control(self) -> torch.device:
        """Where small numbers are exchanged: a group of NCCL alone has no collectives on a CPU."""
        only_cuda = "gloo" not in str(dist.get_backend_config())
        return torch.device("cuda", torch.cuda.current_device()) if only_cuda else torch.device("cpu")


def digest(tensors: Sequence[Tensor]) -> int:
    """A checksum of the bytes of tensors."""
    mark = 0
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        mark = zlib.crc32(flat.view(torch.uint8).numpy().data if flat.numel() else b"", mark)
    return mark


def active() -> Group | None:
    """The group of the work under way; None where this process works alone."""
    group = _ACTIVE.get()
    return group if isinstance(group, Group) else None


def within_group() -> bool:
    """Whether a group is at work, even where this process does something by itself (`alone`)."""
    return _ACTIVE.get() not in {None, _OFF}


@contextmanager
def alone() -> Iterator[None]:
    """Inside this context this process works alone: what one process does must not wait for the others."""
    token = _ACTIVE.set(_ALONE if within_group() else _OFF)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def working_as(group: Group) -> Iterator[None]:
    """Inside this context a group is at work, whatever the environment says: for a group of one process."""
    token = _ACTIVE.set(group)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def joined(device: torch.device, *, wanted: bool = True) -> Iterator[Group | None]:
    """Inside this context the processes that a launcher started work together.

    The process group is initialised here, unless the script has done it: gloo on a CPU, NCCL on CUDA.

    Args:
        device: where the tensors of the work are.
        wanted: False works alone.

    Yields:
        The group, or None where this process works alone.

    Raises:
        TrainingError: the processes cannot find each other.

    """
    known = _ACTIVE.get()
    if isinstance(known, Group) and wanted:
        yield known
        return
    in_main_thread = threading.current_thread() is threading.main_thread()
    if known is not None or not wanted or launched_processes() == 1 or not in_main_thread:
        token = _ACTIVE.set(known if wanted or known == _ALONE else _OFF)
        try:
            yield None
        finally:
            _ACTIVE.reset(token)
        return
    start(device)
    token = _ACTIVE.set(Group(device))
    try:
        yield active()
    finally:
        _ACTIVE.reset(token)


def start(device: torch.device) -> None:
    """Initialise the process group from the environment, unless it is initialised."""
    if not dist.is_available():
        raise TrainingError("this torch has no torch.distributed: start one process, or give distributed=False")
    if dist.is_initialized():
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        store, rank, size = next(iter(rendezvous("env://")))
        # A launcher that starts processes again keeps its store, with the addresses of those that are gone.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        dist.init_process_group(backend, store=PrefixStore(f"bayesify/{attempt}", store), rank=rank, world_size=size)
        atexit.register(_end)
    except (RuntimeError, ValueError) as problem:
        raise TrainingError(
            f"the {launched_processes()} processes (WORLD_SIZE) cannot find each other: {first_line(problem)}; start "
            "them with torchrun, or give distributed=False"
        ) from problem


def _end() -> None:
    """End the process group that `start` has initialised, unless the script has ended it, before the interpreter ends.

    A thread of gloo drops the tensors of an exchange after the exchange is over, and needs the interpreter for it. If
    the interpreter is gone by then, the thread aborts a process whose work is done. So it gets a moment, and on a busy
    machine as long as it waits for a processor.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    until = time.monotonic() + _MOST_SECONDS
    time.sleep(_LAST_MOMENT)
    while _other_threads_run() and time.monotonic() < until:
        time.sleep(0.05)


def _other_threads_run() -> bool:
    """Whether another thread of this process runs or waits for a processor, where the system shows it."""
    mine = str(threading.get_native_id())
    for path in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):
            if path.parent.name != mine and path.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


def local_device(device: torch.device | str | None) -> torch.device | str | None:
    """The device of this process: `cuda` is the card with its number on the machine (LOCAL_RANK)."""
    number = os.environ.get("LOCAL_RANK", "")
    if device is None or launched_processes() == 1 or not number.isdecimal():
        return device
    try:
        plain = torch.device(device)
    except RuntimeError:
        return device
    return torch.device("cuda", int(number)) if plain.type == "cuda" and plain.index is None else device


def _all_gather(whole: Tensor, part: Tensor) -> None:
    # Torch 2.13 has given both another name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole, part)


def _reduce_scatter(part: Tensor, whole: Tensor) -> None:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(part, whole)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:  # torch.distributed's own errors are of this type
        raise TrainingError(
            f"lost the other processes: one of them ended, and its own message says why, "
            f"or it did not make the same calls ({first_line(problem)})"
        ) from problem
