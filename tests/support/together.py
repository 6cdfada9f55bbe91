"""Run functions of a file in one, two or more processes that train together, and read what each of them returned.

As a script: `python together.py FILE OUT SIZES CASES`. The processes are forks of one that has imported everything, so
that starting them takes no time.
"""

import contextlib
import ctypes
import functools
import importlib.util
import os
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

_TIMEOUT = 900


@functools.cache
def why_not():
    """The reason why several processes cannot be tried here; None where they can."""
    if not hasattr(os, "fork"):
        return "this system cannot fork"
    code = (
        "import os, sys, torch.distributed as d; sys.exit(not d.is_available()) if not d.is_available() else "
        "d.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{sys.argv[1]}', rank=0, world_size=1)"
    )
    tried = subprocess.run(
        [sys.executable, "-c", code, str(free_port())], capture_output=True, text=True, timeout=300, check=False
    )
    lines = tried.stderr.strip().splitlines()
    return None if tried.returncode == 0 else f"gloo does not start: {lines[-1] if lines else tried.returncode}"


def run_cases(file, out, sizes, cases):
    """The results of cases, by number of processes: `results[size][rank][case]` is a dict of tensors, or an error."""
    from safetensors.torch import load_file

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"):
        environment.pop(name, None)
    arguments = [sys.executable, __file__, file, out, ",".join(map(str, sizes)), ",".join(cases)]
    done = subprocess.run(
        list(map(str, arguments)), env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results = {}
    for size in sizes:
        results[size] = []
        for rank in range(size):
            found = {case: {} for case in cases}
            for name, tensor in load_file(out / f"{size}-{rank}.safetensors").items():
                case, _, part = name.partition("/")
                found[case][part] = tensor
            for case in cases:
                error = out / f"{size}-{rank}-{case}.error"
                if error.exists():
                    found[case] = error.read_text()
            results[size].append(found)
    return results


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _main(file, out, sizes, cases):
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("cases", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for size in map(int, sizes.split(",")):
        port = free_port()
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                _end_with_parent()
                if size > 1:
                    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
                    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                _child(module, Path(out), size, rank, cases.split(","), save_file)
            children.append(child)
        for child in children:
            _, status = os.waitpid(child, 0)
            assert status == 0, f"a process of {size} ended with {status}"


def _end_with_parent():
    """Where the driver is killed, its processes must not wait for each other for ever (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9)


def _child(module, out, size, rank, cases, save_file):
    status, tensors = 0, {}
    try:
        for case in cases:
            began = time.perf_counter()
            try:
                found = getattr(module, case)()
            except Exception as problem:  # noqa: BLE001 -- errors are results
                if not getattr(module, "EXPECTS_ERRORS", False):
                    traceback.print_exc()
                (out / f"{size}-{rank}-{case}.error").write_text(f"{type(problem).__name__}: {problem}")
                continue
            if os.environ.get("SHOW_SECONDS") and rank == 0:
                with open(os.environ["SHOW_SECONDS"], "a") as stream:
                    print(f"{size} {case} {time.perf_counter() - began:.1f}", file=stream)
            tensors |= {f"{case}/{name}": value.detach().contiguous().clone() for name, value in found.items()}
        save_file(tensors, out / f"{size}-{rank}.safetensors")
    except BaseException:  # noqa: BLE001 -- a fork must never return into the driver
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _main(*sys.argv[1:])
