"""The server as a Ray Serve deployment: the example answers like `bayesify serve`, to the bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sklearn.datasets import load_digits
from talking import Client, serving

from bayesify.serving import Registry
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import train

pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed: pip install 'ray[serve]'")
EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_serve.py"


def test_replicas_on_ray_answer_like_the_server(tmp_path):
    run = train(
        Recipe(data="digits", method="variational", units=(8,), epochs=2), tmp_path / "mine", progress=False
    ).run
    asked = [
        ("/v1/predict?model=mine&draws=7", load_digits().images[number : number + 1].tolist()) for number in (0, 9)
    ]
    with serving(Registry([run], threads=1)) as client:
        expected = [client.post(*one).json for one in asked]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local"}
    command = [sys.executable, str(EXAMPLE), str(run), "--replicas", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving at http://127.0.0.1:8000")
            client = Client("http://127.0.0.1:8000")
            assert client.get("/v2/health/ready").status == 200
            for _ in range(3):
                assert [client.post(*one).json for one in asked] == expected
            assert client.get("/v1/predict?model=other").status in {404, 405}
        finally:
            process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + 240
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            process.kill()
