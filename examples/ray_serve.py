"""The server as a Ray Serve deployment: replicas on a cluster behind Ray's proxy, with the same answers and paths.

    pip install 'bayesify[serve]' 'ray[serve]'
    python examples/ray_serve.py runs/mine --replicas 2        # http://127.0.0.1:8000/docs

Or in a Serve config file: import_path ray_serve:build, args {runs: [/shared/runs/mine], replicas: 2}. Every node must
see the run folders. Ray's proxy takes the place of the limits on connections that `bayesify serve` has; limits on
bodies, inputs, draws and queues hold in each replica.
"""

import argparse
import os
import time
from pathlib import Path

from ray import serve

from bayesify.serving import Registry
from bayesify.serving.app import create_app


def build(args):
    """The application: `runs` (folders), and perhaps `replicas`, `draws`, `token` and `hosts` (names of the proxy)."""
    runs, draws = args["runs"], int(args.get("draws", 100))
    runs = [runs] if isinstance(runs, str) else list(runs)
    token, hosts = args.get("token") or os.environ.get("BAYESIFY_TOKEN"), args.get("hosts", ())

    def make():
        registry = Registry(runs, draws=draws, threads=1)
        # With the models loaded before the replica counts as started, none is asked too early.
        registry.load()
        return create_app(registry, token=token, hosts=[hosts] if isinstance(hosts, str) else hosts)

    @serve.deployment(
        name="bayesify",
        num_replicas=int(args.get("replicas", 1)),
        ray_actor_options={"num_cpus": 1},
        max_ongoing_requests=256,
        graceful_shutdown_timeout_s=35,
    )
    @serve.ingress(make)
    class Bayesify:
        pass

    return Bayesify.bind()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", help="run folders, or folders of them")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--draws", type=int, default=100)
    asked = parser.parse_args()
    serve.run(build({**vars(asked), "runs": [str(Path(run).resolve()) for run in asked.runs]}))
    print("serving at http://127.0.0.1:8000 (Ctrl-C ends)", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        serve.shutdown()
