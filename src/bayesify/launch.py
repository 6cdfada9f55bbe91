"""Which of several processes this is, as a launcher such as `torchrun` says in the environment; without torch."""

from __future__ import annotations

import os


def launched_processes() -> int:
    """How many processes a launcher has started, by WORLD_SIZE; 1 where they could not find each other."""
    count, rank = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
    together = count.isdecimal() and rank.isdecimal() and "MASTER_ADDR" in os.environ
    return int(count) if together and int(count) > 1 else 1


def is_first_process() -> bool:
    """Whether this is the only process, or the first of several: the one that writes and prints."""
    return launched_processes() == 1 or int(os.environ["RANK"]) == 0


def started_again() -> bool:
    """Whether the launcher has started the processes again, after one of them failed (`torchrun --max-restarts`)."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return launched_processes() > 1 and count.isdecimal() and int(count) > 0


def process_name() -> str:
    """How messages name this process: `process 2 of 4`, counted from zero; empty where there is one process."""
    size = launched_processes()
    return "" if size == 1 else f"process {int(os.environ['RANK'])} of {size}"
