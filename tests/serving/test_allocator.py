"""Threads of the server share the allocator's arenas."""

import importlib.util
import os
import platform
import re
import subprocess
import sys

import pytest

FILE = importlib.util.find_spec("bayesify.serving.allocator").origin
# Twelve threads at once that allocate, then the arenas that glibc tells of.
CODE = """
import ctypes, importlib.util, os, sys, threading
spec = importlib.util.spec_from_file_location("allocator", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.limit_arenas(), flush=True)
libc, barrier = ctypes.CDLL(None), threading.Barrier(12)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
def work():
    barrier.wait()
    for _ in range(50):
        libc.malloc(10_000)
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


def arenas(**environment):
    """Whether the number was limited, and how many arenas twelve threads have."""
    kept = {name: value for name, value in os.environ.items() if name not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}}
    done = subprocess.run(
        [sys.executable, "-c", CODE, FILE], env=kept | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.startswith("True"), len(re.findall("<heap nr=", done.stdout))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_many_threads_share_two_arenas_unless_the_user_says_otherwise():
    assert arenas() == (True, 2)
    limited, count = arenas(MALLOC_ARENA_MAX="6")
    assert not limited
    assert count == 6
