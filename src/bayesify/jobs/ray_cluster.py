"""Parts as tasks of Ray, on one machine or on many, which need no common disk.

A worker fills a folder of its own and sends the files back; the caller writes them, the file that says "finished" last.
Ray runs the tasks of a lost worker again. A part's result depends on its arguments alone, so the bits are the same.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import TrainingError, first_line
from bayesify.jobs.parts import Part, carry_out

# Tasks that are handed to Ray at once: it keeps some kilobytes for each.
_MOST_SUBMITTED = 1000
# How often a task is started again after its worker or its node was lost.
_MOST_LOSSES = 20


class RayEngine:
    """Parts on a Ray cluster.

    Args:
        address: of the cluster; None starts Ray on this machine, or takes the cluster of `$RAY_ADDRESS`.
        threads: threads of torch, and processors, of each part.
        device: with `cuda` each part has a GPU.
        share: as in `Engine`.

    Raises:
        ValueError: Ray is not installed, there is no cluster at the address, or it has no GPU.

    """

    inside = here = False

    def __init__(
        self, address: str | None = None, *, threads: int = 1, device: str = "cpu", share: tuple[int, int] = (1, 1)
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ValueError("--engine ray needs Ray: pip install 'bayesify[ray]'")
        self.share, self._address, self._threads, self._device = share, address, threads, device

    def run(self, parts: Sequence[Part], shared: tuple[Any, ...]) -> Iterator[Part]:
        """Carry out parts as tasks; a first error stops the rest."""
        if not parts:
            return
        import ray

        started = self._connect()
        running: dict[Any, Part] = {}
        try:
            sent = ray.put(shared)
            task = ray.remote(_fill).options(
                num_cpus=self._threads, num_gpus=self._gpus(), max_retries=_MOST_LOSSES, name="bayesify part"
            )
            waiting = iter(parts)
            while True:
                for part in islice(waiting, _MOST_SUBMITTED - len(running)):
                    running[task.remote(part, sent, self._threads)] = part
                if not running:
                    return
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                part = running.pop(done)
                _write(part, _result(done))
                yield part
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            if started:
                ray.shutdown()

    def _connect(self) -> bool:
        """Connect to the cluster; whether it was done here, and has to be undone."""
        import ray

        if ray.is_initialized():
            return False
        # A progress bar is what a person looks at; what workers print would tear it.
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        address = self._address or os.environ.get("RAY_ADDRESS")
        if address is not None:
            _check_answers(address)
        try:
            if address is None:
                ray.init(address="local", include_dashboard=False, **quiet)
            else:
                ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as problem:
            failed = f"there is no Ray cluster at {address}" if address else "Ray does not start on this machine"
            raise ValueError(f"{failed}: {first_line(problem)}") from None
        return True

    def _gpus(self) -> int:
        import ray

        if not self._device.startswith("cuda"):
            return 0
        if not ray.cluster_resources().get("GPU"):
            raise ValueError("the Ray cluster has no GPU: use --device cpu")
        return 1


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for a minute."""
    found = re.fullmatch(r"(?:ray://)?\[?([^\[\]]+?)\]?:(\d+)", address)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except (OSError, OverflowError) as problem:
        raise ValueError(f"there is no Ray cluster at {address}: {files.reason(problem)}") from None


def _fill(part: Part, shared: tuple[Any, ...], threads: int) -> dict[str, bytes]:
    """What a worker does: the part in a folder of its own, and the content of its files."""
    with tempfile.TemporaryDirectory(prefix="bayesify-part-") as scratch:
        folder = Path(scratch) / part.folder.name
        carry_out(part, folder, shared, threads)
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _result(reference: Any) -> dict[str, bytes]:
    import ray

    try:
        content: dict[str, bytes] = ray.get(reference)
    except ray.exceptions.RayError as problem:
        # The error of the part itself, without Ray's account of where it was raised.
        cause = problem.cause if isinstance(problem, ray.exceptions.RayTaskError) else problem
        missing = re.search(r"No module named ('[^']+')", str(cause))
        if missing is not None:
            advice = "install bayesify and your own modules on every node"
            raise ValueError(f"a node of the Ray cluster has no module {missing[1]}: {advice}") from None
        if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):
            raise cause from None
        raise TrainingError(f"Ray lost a part for good: {first_line(problem)}") from None
    return content


def _write(part: Part, content: dict[str, bytes]) -> None:
    """Put the files of a part into its folder, the one that says "finished" last."""
    for name in sorted(content, key=lambda name: name == part.done):
        with files.replacing(part.folder / name, len(content[name])) as temporary:
            temporary.write_bytes(content[name])
