"""The engines by name, as `--engine` takes them."""

from __future__ import annotations

import re

from bayesify.errors import at_least, choose
from bayesify.jobs.parts import Engine

ENGINES = ("local", "ray")


def make_engine(
    name: str = "local",
    *,
    jobs: int = 1,
    threads: int | None = None,
    address: str | None = None,
    device: str = "cpu",
    share: str | None = None,
) -> Engine:
    """An engine by its name.

    Args:
        name: `local` (this machine) or `ray` (a Ray cluster, or Ray on this machine).
        jobs: processes at once, for `local`; 1 is this process.
        threads: threads of torch for each part. None is 1, but all for one job in this process.
        address: of a Ray cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`. None starts Ray here.
        device: what parts compute on; on Ray each part with `cuda` has a GPU.
        share: `I/N` carries out every N-th part alone, as in an array of jobs.

    Returns:
        The engine.

    Raises:
        ValueError: a setting is refused, Ray is not installed, or there is no cluster at the address.

    Examples:
        >>> from bayesify.jobs import make_engine
        >>> make_engine("local", jobs=2, share="1/4").share
        (1, 4)

    """
    choose("engine", name, ENGINES)
    jobs = at_least("jobs", jobs, 1)
    if threads is not None:
        threads = at_least("threads", threads, 1)
    part_of = (1, 1) if share is None else read_share(share)
    if name == "ray":
        if jobs != 1:
            raise ValueError("jobs is for the engine local: Ray runs as many parts as the cluster has room for")
        from bayesify.jobs.ray_cluster import RayEngine

        return RayEngine(address, threads=threads or 1, device=device, share=part_of)
    if address is not None:
        raise ValueError(f"address={address} is for the engine ray")
    from bayesify.jobs.local_processes import LocalProcesses, ThisProcess

    if jobs == 1:
        return ThisProcess(threads=threads, share=part_of)
    return LocalProcesses(jobs, threads=threads or 1, share=part_of)


def read_share(text: str) -> tuple[int, int]:
    """The two numbers of `I/N`, from 1/N to N/N."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    first, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= first <= of:
        raise ValueError(f"a part must be I/N, from 1/N to N/N, such as 3/8, got {text!r}")
    return first, of
