"""The layer of `failing_io.c` in this process: built once, loaded before everything else, armed in a child."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rows import ROOT

COUNT, ONCE, EVER_AFTER, KILL = range(4)
_HERE = "BAYESIFY_FAULTS_LAYER"
_LIBRARY = ROOT / "build" / "faults" / "failing_io.so"


def available():
    """Start this command again with the layer below it, unless it is there; False where it cannot be built."""
    if _HERE in os.environ:
        return True
    if "failing_io" in os.environ.get("LD_PRELOAD", ""):
        os.environ[_HERE] = "1"
        del os.environ["LD_PRELOAD"]  # for this process and those that it forks, not for other programs
        return True
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        print("no fault of the disk is made: the layer needs Linux and a C compiler", file=sys.stderr)
        return False
    _LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("failing_io.c")
    # Several processes may build it at once; none may load half a file.
    own = _LIBRARY.with_suffix(f".{os.getpid()}")
    # A compiler without the headers of the C library builds nothing at all.
    empty = [compiler, "-fsyntax-only", "-x", "c", "-"]
    if subprocess.run(empty, input=b"#include <dlfcn.h>\n", capture_output=True, check=False).returncode != 0:
        print("no fault of the disk is made: the C compiler finds no headers", file=sys.stderr)
        return False
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", own, source, "-ldl"], check=True)
    own.replace(_LIBRARY)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": str(_LIBRARY)})
    return False  # never reached


def arm(folder, number, kind, error=0):
    """Count the changes below a folder from now on; change `number` meets the fault."""
    _library().faults_arm(str(folder).encode(), ctypes.c_long(number), kind, error)


def set_clock(after, seconds):
    """Move the clock of the day by so many seconds, after it has been looked at `after` more times."""
    _library().faults_clock(ctypes.c_long(after), ctypes.c_long(seconds))


def seen():
    """How many changes there were."""
    library = _library()
    library.faults_seen.restype = ctypes.c_long
    return library.faults_seen()


def _library():
    return ctypes.CDLL(str(_LIBRARY))
