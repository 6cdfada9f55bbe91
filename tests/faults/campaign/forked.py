"""Processes that are forked from this one, so that a trial needs no second for importing torch.

This process imports, and computes nothing: torch's threads do not survive a fork. A child is an ordinary process, and a
`kill -9` ends it as any other.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

# A process that takes longer hangs. Long, because a campaign may run beside other work on a busy machine.
LIMIT = 900.0
# A disk in memory, where there is one: syncing a file there takes no time, and the order of the changes is the same.
# Containers often have a small one, or one that only its owner may write to.
_MEMORY, _ROOM = Path("/dev/shm"), 256 << 20
FAST = str(_MEMORY) if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM else None


class Child:
    """A process that runs a function and ends. What it prints goes to a file.

    Args:
        function: what it runs; its return value is the exit code.
        tag: part of the name of its file of output.

    """

    def __init__(self, function, tag="child"):
        file, self.output = tempfile.mkstemp(prefix=f"{tag}-", suffix=".log")
        sys.stdout.flush()
        sys.stderr.flush()
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            for stream in (1, 2):
                os.dup2(file, stream)
            code = 98
            try:
                code = function() or 0
            except BaseException:  # noqa: BLE001 -- the parent reads it from the file
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        # Here too: a child that is killed at once may not have come to do it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(self.pid, self.pid)
        os.close(file)
        self.code = None

    def wait(self, seconds=LIMIT):
        """The exit code, a negative signal, or None where it still runs after `seconds`."""
        end = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() >= end:
                return None
            time.sleep(0.002)
        return self.code

    def kill(self):
        """Send SIGKILL to it and to the processes it started; whether it was still running."""
        running = self.wait(0) is None
        if running:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        return running

    def text(self):
        """What it printed; its file is deleted."""
        path = Path(self.output)
        text = path.read_text(encoding="utf-8", errors="replace")
        path.unlink()
        return text


def run(function, seconds=LIMIT):
    """Run a function in a child to its end: exit code, output, seconds. A hang is the code None, and is killed."""
    child = Child(function)
    code = child.wait(seconds)
    took = time.monotonic() - child.began
    if code is None:
        child.kill()
    return code, child.text(), took


def import_what_it_imports(function):
    """Run a function in a child, and import here what it imported there: the next children start at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "modules.json"

        def listing():
            try:
                return function()
            finally:
                path.write_text(json.dumps(sorted(sys.modules)))

        run(listing)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in json.loads(path.read_text()):
                # The compiler starts threads and processes when it is imported.
                if (
                    name.split(".")[0]
                    in {
                        "bayesify",
                        "bayesify_studies",
                        "torch",
                        "numpy",
                        "scipy",
                        "sklearn",
                        "matplotlib",
                        "typer",
                        "rich",
                    }
                    and "_inductor" not in name
                ):
                    try:
                        importlib.import_module(name)
                    except Exception:  # noqa: BLE001 -- some modules exist only where others made them
                        continue
