"""Small runs and the real server, for the tests of the studio's API and of its pages."""

import contextlib
import threading
import time

import uvicorn

from bayesify.cli import main
from bayesify.serving import Registry
from bayesify.serving.app import create_app
from bayesify.studio import attach, results_page

METHODS = ("point", "ensemble", "variational")


def make_runs(folder):
    """A run of each of three methods on nine digits, small and sure enough to be asked; a few seconds."""
    shared = [
        "train",
        "--data",
        "digits",
        "--withhold",
        "3",
        "--units",
        "40",
        "--layers",
        "1",
        "--normalise",
        "standard",
    ]
    shared += ["--epochs", "25", "--batch-size", "64", "--learning-rate", "0.01", "--json"]
    own = {"ensemble": ["--members", "3"], "variational": ["--prior", "normal:2", "--estimator", "local"]}
    for method in METHODS:
        with contextlib.redirect_stdout(None):
            assert main([*shared, "--method", method, *own.get(method, []), "--out", str(folder / method)]) == 0
    return {method: folder / method for method in METHODS}


@contextlib.contextmanager
def serving(folders, reproduced):
    """The address of a server over these runs, whose Results page looks into `reproduced`."""
    held, results_page.PLACES = results_page.PLACES, (str(reproduced),)
    registry = Registry(list(folders), threads=1)
    server = uvicorn.Server(uvicorn.Config(create_app(registry, pages=attach), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not (server.started and registry.ready):
            assert registry.failure is None, registry.failure
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(120)
        results_page.PLACES = held
