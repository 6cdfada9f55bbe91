"""The format of a run folder: its files and checkpoints, and their checks."""

from bayesify.runs.folder import (
    CARD,
    CARD_MARK,
    CONFIG,
    FORMAT,
    HISTORY,
    METRICS,
    MODEL,
    STATE,
    VERSION,
    check_no_other_content,
    claim,
    clear,
    delete_scores,
    read_config,
    read_history,
    use,
    versions,
)
from bayesify.runs.lock import holds_locks

__all__ = [
    "CARD",
    "CARD_MARK",
    "CONFIG",
    "FORMAT",
    "HISTORY",
    "METRICS",
    "MODEL",
    "STATE",
    "VERSION",
    "check_no_other_content",
    "claim",
    "clear",
    "delete_scores",
    "holds_locks",
    "read_config",
    "read_history",
    "use",
    "versions",
]
