"""The memory of a machine, and errors about too little of it in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from bayesify.training.recovery import is_out_of_memory


def available(device: torch.device) -> int | None:
    """Bytes that can be allocated on a device now; None where that cannot be known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    sizes = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError, StopIteration):
        # A container has its own limit; files in its cache can be dropped.
        group = Path("/sys/fs/cgroup")
        used, limit = (int((group / name).read_text(encoding="ascii")) for name in ("memory.current", "memory.max"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        sizes.append(max(0, limit - used + cached))
    return min(sizes) if sizes else None


def in_words(size: float) -> str:
    """A number of bytes as people write it."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} bytes"


@contextmanager
def explained_allocation(what: str) -> Iterator[None]:
    """Turn torch's errors about memory into a `MemoryError` of one line; `what` says for what there was too little."""
    try:
        yield
    except RuntimeError as problem:
        if not is_out_of_memory(problem):
            raise
        raise MemoryError(f"not enough memory for {what}") from None
