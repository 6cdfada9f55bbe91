"""The README's three MNIST results over several seeds, by the command line alone: `python studies/scripts/mnist.py`.

Each seed is one `bayesify train` on all 60,000 images, one `evaluate` against Fashion-MNIST as unknown, one `prune`.
Runs that exist are used as they are, so an interrupted measurement goes on. Means and standard errors are printed and
written to docs/results/mnist.json, with the commands.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

SETTINGS = (
    "--data mnist --normalise 126 --method variational --network mlp --units 400 --layers 2 "
    "--prior scale-mixture:0.75,1,0.0015 --rho=-4 --estimator weight --start fresh "
    "--epochs 30 --batch-size 128 --learning-rate 2e-3 --schedule cosine"
)


def bayesify(*arguments: str) -> dict:
    command = [sys.executable, "-m", "bayesify", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measure(seed: int, folder: Path) -> dict:
    run = folder / f"mnist-{seed}"
    if not run.exists():
        bayesify("train", *SETTINGS.split(), "--seed", str(seed), "--out", str(run))
    elif not json.loads((run / "config.json").read_text())["complete"]:
        bayesify("train", "--resume", str(run))
    scores = bayesify("evaluate", str(run), "--ood", "fashion-mnist", "--draws", "50")
    pruned = bayesify("prune", str(run), "--fraction", "0.75", "--by", "snr", "--draws", "50")
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return {
        "seed": seed,
        "error": 100 * scores["error"],
        "nll": scores["nll"],
        "ece": 100 * scores["ece"],
        "auroc_fashion": scores["auroc"],
        "auroc_by": scores["auroc_by"],
        "error_pruned_75": 100 * pruned["after"]["error"],
        "added_by_pruning": 100 * (pruned["after"]["error"] - pruned["before"]["error"]),
        "seconds": sum(record["seconds"] for record in history),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/mnist.json"))
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        rows.append(measure(seed, options.folder))
        print(json.dumps(rows[-1]), flush=True)
    summary = {}
    for name in ("error", "nll", "ece", "auroc_fashion", "error_pruned_75", "added_by_pruning", "seconds"):
        values = [row[name] for row in rows]
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
        summary[name] = {"mean": statistics.fmean(values), "standard_error": error}
        print(f"{name}: {summary[name]['mean']:.4f} +- {error or 0:.4f}")
    result = {
        "command": "python studies/scripts/mnist.py",
        "train": f"bayesify train {SETTINGS} --seed SEED --out RUN",
        "evaluate": "bayesify evaluate RUN --ood fashion-mnist --draws 50",
        "prune": "bayesify prune RUN --fraction 0.75 --by snr --draws 50",
        "summary": summary,
        "seeds": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
