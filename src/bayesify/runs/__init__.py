"""The format of a run folder: its files, its checkpoints, and how both are checked."""

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
    check_ours,
    claim,
    clear,
    forget_scores,
    read_config,
    read_history,
    versions,
)

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
    "check_ours",
    "claim",
    "clear",
    "forget_scores",
    "read_config",
    "read_history",
    "versions",
]
