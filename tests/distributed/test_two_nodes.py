"""Two torchrun nodes with a network of their own each, joined by a cable: network namespaces, which need root."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest
from test_torchrun import RECIPE, same
from together import why_not

from bayesify.cli import main

ADDRESSES = ("10.213.7.1", "10.213.7.2")


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=120)


@contextlib.contextmanager
def namespaces():
    """Two network namespaces with an address each, which see each other and nothing else."""
    nodes = [f"bayesify{os.getpid()}{end}" for end in "ab"]
    cables = [f"bfy{os.getpid() % 100000}{end}" for end in "ab"]
    try:
        for node in nodes:
            ip("netns", "add", node)
        ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for node, cable, address in zip(nodes, cables, ADDRESSES, strict=True):
            ip("link", "set", cable, "netns", node)
            ip("-n", node, "addr", "add", f"{address}/24", "dev", cable)
            for device in (cable, "lo"):
                ip("-n", node, "link", "set", device, "up")
        yield list(zip(nodes, cables, strict=True))
    finally:
        for node in nodes:
            with contextlib.suppress(subprocess.SubprocessError):
                ip("netns", "del", node)


def why_no_namespaces():
    if why_not() is not None:
        return why_not()
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "network namespaces need root and the command ip"
    try:
        with namespaces() as nodes:
            # This needs a mount, which some containers refuse though they make namespaces.
            ip("netns", "exec", nodes[0][0], "true")
            return None
    except subprocess.SubprocessError as problem:
        return f"network namespaces cannot be made here: {getattr(problem, 'stderr', '') or problem}"


def test_two_nodes_train_the_network_of_one_process(tmp_path):
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    with namespaces() as nodes:
        running = []
        for number, (node, cable) in enumerate(nodes):
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": cable}
            words = ["ip", "netns", "exec", node, sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
            words += [f"--node-rank={number}", "--nproc-per-node=1", f"--master-addr={ADDRESSES[0]}"]
            words += ["--master-port=29511", "-m", "bayesify", "train", *RECIPE]
            words += ["--distributed", "sharded", "--out", str(tmp_path / "two")]
            running.append(
                subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        try:
            said = [process.communicate(timeout=300)[0] for process in running]
        finally:
            for process in running:
                process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)
    assert "".join(said).count("the run is in") == 1
    assert main(["train", *RECIPE, "--out", str(tmp_path / "one")]) == 0
    assert same(tmp_path / "one", tmp_path / "two")
