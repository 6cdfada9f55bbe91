"""Does the installed package work without its repository? Run by the Python that has it installed:

    python packaging/smoke_test.py           # with the whole demo, about two minutes
    python packaging/smoke_test.py --quick   # with a twentieth of its training

Only the library may be installed, without the studies and the optional extras.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path

COMMANDS = {
    *("demo", "train", "evaluate", "predict", "recalibrate", "certify", "ask", "prune", "compare", "sweep", "report"),
    *("serve", "data", "export", "unknown", "learn-on", "series", "bandit"),
}
COMMANDS_OF_STUDIES = {"reproduce", "bench"}
IMPORT_SECONDS = 0.1
# Not requirements of ours, but of an extra (fastapi needs starlette) or of torch on some machines (triton).
INDIRECT = {"starlette", "pydantic", "triton"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "100"}


def main() -> int:
    """Run each check in an empty folder and say which passed."""
    parser = argparse.ArgumentParser(description="Check an installed bayesify.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the demo's training")
    quick = parser.parse_args().quick
    for check in (
        files_are_complete,
        versions_agree,
        only_the_library_has_commands,
        import_is_fast,
        every_module_imports,
        python_trains_and_predicts,
        command_line_trains_and_predicts,
    ):
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
        print(f"passed: {check.__name__.replace('_', ' ')}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        demo_runs(Path(folder), quick=quick)
    print("passed: demo runs")
    return 0


def files_are_complete(_: Path) -> None:
    """The package has its licence and the mark of typed packages, and neither tests nor studies."""
    files = [str(file) for file in distribution("bayesify").files or ()]
    expect("bayesify/py.typed" in files, "py.typed is missing")
    expect(any(re.search(r"dist-info/licenses/LICENSE$", file) for file in files), "the licence is missing")
    folders = {file.partition("/")[0] for file in files if not file.startswith("..")}
    strange = {folder for folder in folders if folder != "bayesify" and not folder.endswith(".dist-info")}
    expect(not strange, f"the package installs more than itself: {sorted(strange)}")
    expect(
        not [file for file in files if "/tests/" in file or "studies" in file], "tests or studies are in the package"
    )


def versions_agree(folder: Path) -> None:
    """The module, the installed metadata and the command say the same version."""
    in_python = python("import bayesify; print(bayesify.__version__)", folder).strip()
    expect(in_python == version("bayesify"), f"the module says {in_python}, the metadata {version('bayesify')}")
    expect(command("--version", folder=folder).strip() == f"bayesify {in_python}", "`bayesify --version` says another")


def only_the_library_has_commands(folder: Path) -> None:
    """The help lists all commands of the library, and none of the studies."""
    help_text = command("--help", folder=folder)
    listed = {name for name in COMMANDS | COMMANDS_OF_STUDIES if re.search(rf"^\W*{name}\b", help_text, re.MULTILINE)}
    expect(listed == COMMANDS, f"`bayesify --help` must list {sorted(COMMANDS)}, it lists {sorted(listed)}")


def import_is_fast(folder: Path) -> None:
    """`import bayesify` does not import torch, and adds little to `import torch`."""
    python("import sys, bayesify; assert 'torch' not in sys.modules, '`import bayesify` imports torch'", folder)
    code = "import time, torch; began = time.perf_counter(); import bayesify; print(time.perf_counter() - began)"
    seconds = min(float(python(code, folder)) for _ in range(3))
    expect(seconds < IMPORT_SECONDS, f"`import bayesify` must take under {IMPORT_SECONDS} s, it took {seconds:.3f} s")


def every_module_imports(_: Path) -> None:
    """Each module imports with the declared dependencies; what is missing must belong to an optional extra."""
    optional = {_module(line) for line in distribution("bayesify").requires or () if "extra ==" in line} | INDIRECT
    for name in _modules():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as problem:
            missing = str(problem.name).partition(".")[0]
            expect(missing in optional, f"{name} needs {missing}, which is not a dependency")


def python_trains_and_predicts(folder: Path) -> None:
    """The five lines of the README, and a run that is saved and loaded again."""
    code = """
import torch
import bayesify as bf

torch.manual_seed(0)
y = torch.arange(120) % 2
x = torch.randn(120, 2) + 4 * y[:, None]
net = bf.networks.mlp(2, 2, units=16, layers=1)
bnn = bf.Variational(net, bf.likelihoods.Categorical(), prior=bf.priors.Normal(1.0))
bnn.fit((x, y), epochs=100, learning_rate=1e-2, progress=False)
p = bnn.predict(x, draws=20)
assert p.probs.shape == (120, 2)
assert (p.labels == y).float().mean() > 0.95, "two clouds far from each other must be learned"
bnn.save("run")
assert torch.equal(bf.load("run").predict(x, draws=20).probs, p.probs), "a loaded run must predict the same bits"
"""
    python(code, folder)


def command_line_trains_and_predicts(folder: Path) -> None:
    """A table in, predictions out."""
    rows = [f"{i % 7},{(3 * i) % 11},{'high' if i % 7 > 3 else 'low'}" for i in range(80)]
    (folder / "table.csv").write_text("\n".join(["a,b,level", *rows]) + "\n", encoding="utf-8")
    command("train", "--data", "table.csv", "--target", "level", "--epochs", "20", "--out", "run", folder=folder)
    (folder / "new.csv").write_text("a,b\n6,1\n0,1\n", encoding="utf-8")
    predictions = json.loads(command("predict", "run", "new.csv", "--json", folder=folder))["predictions"]
    expect(len(predictions) == 2, f"two rows must have two predictions, got {len(predictions)}")


def demo_runs(folder: Path, *, quick: bool) -> None:
    """The demo needs no files and no network."""
    command("demo", *(["--quick"] if quick else []), folder=folder)
    expect((folder / "runs/demo/report.html").stat().st_size > 0, "the demo must write runs/demo/report.html")


def expect(condition: object, message: str) -> None:
    """Stop with a message unless the condition holds."""
    if not condition:
        raise SystemExit(f"failed: {message}")


def python(code: str, folder: Path) -> str:
    """What a program prints, run by this Python in a folder; isolated from the repository."""
    return _output([sys.executable, "-I", "-c", code], folder)


def command(*arguments: str, folder: Path) -> str:
    """What `bayesify` prints with these arguments."""
    return _output([str(Path(sys.executable).with_name("bayesify")), *arguments], folder)


def _output(line: list[str], folder: Path) -> str:
    done = subprocess.run(line, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)  # noqa: S603
    expect(done.returncode == 0, f"{' '.join(line[:3])} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _module(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower().replace("-", "_")


def _modules() -> Iterator[str]:
    import bayesify

    folder = Path(bayesify.__file__).parent
    expect(not (folder.parents[1] / "pyproject.toml").exists(), f"{folder} is a clone, not an installed package")
    for module in pkgutil.walk_packages([str(folder)], "bayesify.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            yield module.name


if __name__ == "__main__":
    sys.exit(main())
