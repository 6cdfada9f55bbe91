"""The campaigns by their names on the command line, and the module of each. A module has `rows(ledger, short)`."""

# Those that need the layer of `failing_io.c`, which is loaded when the command starts.
LAYERED = {"disk", "clock"}
# Those whose trials are independent and known beforehand, so that several processes can share them.
SHARED = {"disk", "combinations", "files", "signed-files", "requests"}
CAMPAIGNS = {
    "kills": "kills",
    "killed-ranks": "killed_ranks",
    "disk": "disk_errors",
    "small-disk": "small_disk",
    "clock": "clock",
    "files": "mutated_files",
    "signed-files": "signed_files",
    "guided-files": "guided_files",
    "combinations": "combinations",
    "nan": "diverging",
    "requests": "malformed_requests",
    "connections": "many_connections",
    "slow-clients": "slow_clients",
    "largest": "largest_requests",
    "served-models": "changed_models",
    "attacks": "attacks",
    "sigterm": "ended_servers",
    "soak": "soak",
}
