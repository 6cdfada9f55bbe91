"""One training over several processes, as `torchrun` starts them: the group, its collectives, and who does what."""

from bayesify.distributed.batch_statistics import global_batch_statistics
from bayesify.distributed.group import (
    Group,
    active,
    alone,
    is_first_process,
    joined,
    launched_processes,
    started_again,
    within_group,
)

__all__ = [
    "Group",
    "active",
    "alone",
    "global_batch_statistics",
    "is_first_process",
    "joined",
    "launched_processes",
    "started_again",
    "within_group",
]
