"""Make the peers' environment: `python studies/scripts/peers/install.py .bench-venv`.

One environment with the torch of our own constraints, this package and every peer. A peer that cannot be installed is
left out with its reason, in peers.json beside the environment's interpreter; the others go on. What is there stays.
"""

import argparse
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]
# What is measured by which file, and what pip is asked for. Torch-Uncertainty does not start without its extra.
PEERS = {
    "bayesian-torch": "bayesian-torch",
    "torchbnn": "torchbnn",
    "blitz-bayesian-pytorch": "blitz-bayesian-pytorch",
    "torch-uncertainty": "torch-uncertainty[cpu]",
    "posteriors": "posteriors",
    "ivon-opt": "ivon-opt",
    "laplace-torch": "laplace-torch",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--again", action="store_true", help="try those that failed once more")
    options = parser.parse_args()
    record = options.folder / "peers.json"
    done = json.loads(record.read_text()) if record.is_file() else {}
    python = options.folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        venv.create(options.folder, with_pip=True)
    pins = options.folder / "torch.txt"
    pins.write_text(torch_pin((ROOT / "constraints.txt").read_text()))
    own = {"bayesify": ["--editable", str(ROOT)]}
    for name, what in (own | {name: [asked] for name, asked in PEERS.items()}).items():
        if done.get(name) == "installed" or (name in done and not options.again):
            continue
        done[name] = install(python, pins, what)
        print(f"{name}: {done[name]}", flush=True)
        record.write_text(json.dumps(done, indent=2) + "\n")


def torch_pin(constraints: str) -> str:
    """The line that pins torch: peers choose the rest of what they need by themselves."""
    return "".join(line + "\n" for line in constraints.splitlines() if line.startswith("torch=="))


def install(python: Path, pins: Path, what: list[str]) -> str:
    command = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(pins), *what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    except subprocess.TimeoutExpired:
        return "not installed: pip took more than twenty minutes"
    return "installed" if done.returncode == 0 else f"not installed: {reason(done.stderr)}"


def reason(said: str) -> str:
    """The line in which pip says what is wrong, without addresses and paths."""
    errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.strip().splitlines()[-1:]
    line = errors[0].removeprefix("ERROR:").strip() if errors else "pip gave no reason"
    return re.sub(r"(https?|file)://\S+|(?<!\w)/[\w./-]+", "...", line)[:200]


if __name__ == "__main__":
    main()
