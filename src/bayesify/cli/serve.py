"""`bayesify serve`: predictions over HTTP, and the studio in a browser."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesify.cli.options import Json, OwnNetwork, say_unprepared
from bayesify.cli.output import CommandError, emit, say
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from collections.abc import Iterator


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify serve\n\n"
        "bayesify serve runs/plain runs/variational --port 8080\n\n"
        "bayesify serve runs/ --workers 4 --watch 5 --no-studio\n\n"
        "BAYESIFY_TOKEN=... bayesify serve runs/mine --host 0.0.0.0 --allow-host models.example.org\n\n"
        "curl --data-binary @seven.png -H 'Content-Type: image/png' 'http://127.0.0.1:8765/v1/predict?model=mine'"
    )(serve)


def check_installed() -> None:
    """Name the packages that are missing."""
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f"serving needs {' and '.join(missing)}: pip install 'bayesify[serve]'")


def serve(
    run: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="Run folders, or folders of them. (default: four networks on digits, made if missing)",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; beyond this machine a token is needed.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None, typer.Option(envvar="BAYESIFY_TOKEN", help="The bearer token that clients must send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A further host name of this server.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws per prediction, unless a request says otherwise.")] = DRAWS,
    max_draws: Annotated[int, typer.Option(help="The most draws in a request.")] = 1000,
    max_evaluations: Annotated[
        int, typer.Option(metavar="NUMBER", help="The most inputs times draws in a request.")
    ] = 200_000,
    max_inputs: Annotated[int, typer.Option(help="The most inputs in a request.")] = 1024,
    max_body: Annotated[int, typer.Option(metavar="MEGABYTES", help="The largest request.")] = 8,
    cache: Annotated[
        int, typer.Option(metavar="MEGABYTES", help="Drawn weights kept for later requests, over all models.")
    ] = 512,
    queue: Annotated[int, typer.Option(help="Requests that may wait at once.")] = 256,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The longest that a request may take.")] = 30.0,
    window: Annotated[
        float, typer.Option(metavar="MILLISECONDS", help="How long a request waits for others to share a batch.")
    ] = 2.0,
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes behind the port; they share the weights in memory.")
    ] = 1,
    threads: Annotated[
        int | None, typer.Option(help="Threads of torch. (default: all cores but one; 1 for each of several workers)")
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Look this often for runs that were added, removed or trained again.",
        ),
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the forward passes at the start.")] = False,
    studio: Annotated[bool, typer.Option("--studio/--no-studio", help="With the studio's pages.")] = True,
    results: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Reproduced experiments to show. (default: docs/results)")
    ] = None,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Serve predictions of runs over HTTP, with the studio's pages for a browser at /.

    For programs: the Open Inference Protocol under /v2, POST /v1/predict, /metrics, and /docs that describes them.
    Requests that arrive together are evaluated together. The same input and seed always give the same prediction.
    """
    check_installed()
    if (workers > 1 or watch is not None) and compiled:
        raise CommandError("--compile is for one worker without --watch: the compiler's threads do not survive a fork")
    forks = workers > 1 or watch is not None
    with _shared_metrics() if forks else contextlib.nullcontext():
        if not as_json:
            # Importing torch takes seconds, in which a terminal would stay empty.
            what = "the studio" if studio else "the server"
            say(f"starting {what} for {', '.join(map(str, run)) if run else 'the demo'}; this takes a few seconds")
        from bayesify import studio as browser_pages
        from bayesify.serving.limits import Limits
        from bayesify.serving.models import Registry
        from bayesify.serving.security import is_loopback
        from bayesify.serving.server import address_of, listen, make_server

        if token is None and not is_loopback(host):
            raise CommandError(f"--host {host} can be reached from other machines: give --token or set BAYESIFY_TOKEN")
        limits = Limits(
            body=max_body << 20,
            decoded=max(64, 8 * max_body) << 20,
            inputs=max_inputs,
            draws=max_draws,
            evaluations=max_evaluations,
            queue=queue,
            seconds=timeout,
            window=window / 1000,
            cache=cache << 20,
        )
        # Before anything is trained or read: a port that is taken is known at once.
        with contextlib.closing(listen(host, port)) as opened:
            folders = run or _demo(quiet=as_json)

            def read(threads: int | None = threads) -> Registry:
                return Registry(
                    folders, limits=limits, draws=draws, network=network, compiled=compiled, threads=threads
                )

            def announce(registry: Registry, address: str) -> None:
                say_unprepared(*registry.folders())
                if as_json:
                    emit({"url": address, "models": registry.names(), "workers": workers})
                else:
                    what = "the studio for" if studio else "serving"
                    say(
                        f"{what} {', '.join(registry.names())} at {address} (for programs: {address}/docs; Ctrl-C ends)"
                    )

            pages = functools.partial(browser_pages.attach, results=results) if studio else None
            make = functools.partial(make_server, host=host, hosts=allow_host or (), token=token, pages=pages)
            if forks:
                from bayesify.serving.models import run_folders
                from bayesify.serving.watched_folders import Watched
                from bayesify.serving.workers import Workers, listen_shared

                port = opened.getsockname()[1]
                opened.close()
                sockets = listen_shared(host, port, workers)
                seen = None if watch is None else Watched(functools.partial(run_folders, folders), watch)
                parent = Workers(functools.partial(read, threads=1), make, sockets, say, threads or 1, seen)
                parent.run(lambda found: announce(found, address_of(sockets[0])))
                return
            # Before it runs: a server that is told to end while models load closes its socket first.
            registry, address = read(), address_of(opened)

            def loaded() -> None:
                if registry.failure is not None:
                    return
                # The models stay: a garbage collection over all of them would hold requests up for a tenth of a second.
                gc.collect()
                gc.freeze()
                announce(registry, address)

            server = make(registry, on_loaded=loaded)
            server.run(sockets=[opened])
            if registry.failure is not None:
                raise registry.failure


def _demo(*, quiet: bool) -> list[Path]:
    """The runs of the demo, made where there are none."""
    from rich.console import Console

    from bayesify.studio.demonstration import find_demo, make_demo, what_is_made

    runs = find_demo()
    if not runs:
        say(f"no run was given: {what_is_made()}")
        # Without the demo's table and advice, which would bury the line that follows.
        runs = make_demo(console=Console(quiet=True), progress=not quiet, announce=None if quiet else say)
    return runs


@contextlib.contextmanager
def _shared_metrics() -> Iterator[None]:
    """A folder in which several workers count together, named by the variable that prometheus_client reads."""
    folder = tempfile.mkdtemp(prefix="bayesify-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
        shutil.rmtree(folder, ignore_errors=True)
