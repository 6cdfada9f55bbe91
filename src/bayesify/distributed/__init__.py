"""One training over several processes, as `torchrun` starts them: the group, its collectives, and who does what."""

from bayesify.distributed.batch_statistics import global_batch_statistics
from bayesify.distributed.group import FirstProcessError, Group, active, alone, joined, within_group

__all__ = [
    "FirstProcessError",
    "Group",
    "active",
    "alone",
    "global_batch_statistics",
    "joined",
    "within_group",
]
