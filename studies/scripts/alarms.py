"""False alarms and misses of the warnings after a fit, counted: `python studies/scripts/alarms.py`.

Seven small problems, ten methods and three seeds, each with good settings and with settings that are wrong on purpose.
Whether a fit failed is decided on test examples that the checks never see, against the best good fit of its problem and
seed. A hundred examples are validation data: without any, no check can see that a network overfits. Written to
docs/results/alarms.json; `--table` prints the tables of docs/warnings.md from it. Fits that are in the file already are
not repeated. About half an hour on one core; `--seeds 1` is a third of it.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits, make_circles, make_moons
from torch import nn

import bayesify as bf
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.training.users_data import as_examples
from bayesify.training.warnings import without_warnings

FILE = Path(__file__).parents[2] / "docs" / "results" / "alarms.json"
PROBLEMS = ("moons", "circles", "gap", "diabetes", "boston", "digits", "energy")
# What each method needs to fit the problems well; a regression may need other rates.
METHODS = {
    "point": (bf.PointEstimate, {}, {"learning_rate": 0.02, "epochs": 150}),
    "ensemble": (bf.Ensemble, {"members": 3}, {"learning_rate": 0.02, "epochs": 150}),
    "mc-dropout": (bf.MCDropout, {"p": 0.05}, {"learning_rate": 0.02, "epochs": 200}),
    "variational": (bf.Variational, {"estimator": "local"}, {"learning_rate": 0.05, "epochs": 250}),
    "ivon": (bf.IVON, {}, {"epochs": 250}),
    "laplace": (bf.LaplaceApproximation, {}, {"learning_rate": 0.02, "epochs": 150}),
    "swag": (bf.SWAG, {}, {"learning_rate": 0.02, "epochs": 150}),
    "sgld": (bf.SGLD, {}, {"learning_rate": (0.2, 0.03), "epochs": 800}),
    "sghmc": (bf.SGHMC, {}, {"learning_rate": (0.02, 0.005), "epochs": 500}),
    "hmc": (bf.HMC, {}, {"warm_up": 150, "samples": 75, "max_leapfrogs": 40}),
}
PRIORS = ("variational", "ivon", "laplace", "sgld", "sghmc", "hmc")
SETTINGS = ("good", "rate x 100", "rate / 100", "one epoch", "huge prior", "targets unscaled")
# A fit is fine from this share of what the best good fit gains over a constant (accuracy and NLL for classes, R^2 for
# numbers) and, for numbers, up to this factor of its RMSE. Beyond the second of each pair it failed.
SHARES, FACTORS = (0.9, 0.7), (1.2, 1.4)
NLL_SHARES = (0.8, 0.6)
PARTS = (slice(None, -100), slice(-100, None))
# About the posterior, not about predictions: right though predictions are fine.
OF_POSTERIOR = {"kl_frozen", "widths_stuck", "few_snapshots", "chains_disagree", "targets_unscaled"}


def problem(name: str, seed: int) -> tuple:
    """Standardised training and test examples."""
    rng = np.random.default_rng(seed)
    if name == "moons":
        x, y = make_moons(600, noise=0.2, random_state=seed)
    elif name == "circles":
        x, y = make_circles(600, noise=0.1, factor=0.5, random_state=seed)
    elif name == "gap":
        x = rng.uniform(-1, 1, (400, 1))
        x = np.sign(x) * (0.3 + 0.7 * np.abs(x))
        y = np.sin(4 * x[:, 0]) + 0.1 * rng.normal(size=400)
    elif name == "digits":
        x, y = load_digits(return_X_y=True)
    elif name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
    else:
        loaded = bf.data.load(f"uci/{name}")
        x = np.concatenate([np.asarray(part) for part in (loaded.x_train, loaded.x_test)])
        y = np.concatenate([np.asarray(part) for part in (loaded.y_train, loaded.y_test)]).reshape(len(x), -1)[:, 0]
        y = y.astype(np.float64)
    order = rng.permutation(len(x))[:1000]
    x, y = np.asarray(x, dtype=np.float64)[order], np.asarray(y)[order]
    known = int(0.6 * len(x))
    x = (x - x[:known].mean(0)) / (x[:known].std(0) + 1e-9)
    if y.dtype.kind == "f":
        y = (y - y[:known].mean()) / y[:known].std()
    classes = y.dtype.kind != "f"
    targets = torch.tensor(y, dtype=torch.int64 if classes else torch.float32)
    x = torch.tensor(x, dtype=torch.float32)
    return (x[:known], targets[:known]), (x[known:], targets[known:]), classes


def make(name: str, setting: str, inputs: int, classes: int, seed: int) -> tuple:
    """A method and the settings of its fit."""
    kind, options, settings = METHODS[name]
    settings = dict(settings)
    rate = settings.get("learning_rate")
    if isinstance(rate, tuple):
        settings["learning_rate"] = rate[0 if classes else 1]
    options = dict(options) | ({"prior": "normal:1"} if name in PRIORS else {})
    if setting == "huge prior":
        options["prior"] = "normal:100"
    elif setting == "one epoch":
        settings |= {"warm_up": 20, "samples": 4, "max_leapfrogs": 2} if name == "hmc" else {"epochs": 1}
    elif setting.startswith("rate"):
        usual = settings.get("learning_rate", 0.1)
        settings["learning_rate"] = usual * (100 if "x" in setting else 0.01)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(inputs, 20), nn.Tanh(), nn.Linear(20, max(classes, 1)))
    likelihood = "categorical" if classes else "gaussian:learned"
    if name == "hmc":
        likelihood = "categorical" if classes else "gaussian:half-cauchy(1)"
    elif setting != "one epoch" and name not in {"sgld", "sghmc", "swag"} and "x 100" not in setting:
        settings["schedule"] = "cosine"
    return kind(network, likelihood, **options, seed=seed), settings


def applies(name: str, setting: str, classes: bool) -> bool:
    """Whether a method has this setting at all."""
    if setting == "huge prior":
        return name in PRIORS
    if setting == "targets unscaled":
        return not classes
    return not (name == "hmc" and setting.startswith("rate"))


def fit(name: str, which: str, setting: str, seed: int) -> dict:
    """Fit once, and score on the test examples."""
    (x, y), (x_test, y_test), classes = problem(which, seed)
    shift, unit = (5000.0, 1000.0) if setting == "targets unscaled" else (0.0, 1.0)
    y, y_test = (part if classes else part * unit + shift for part in (y, y_test))
    method, settings = make(name, setting, x.shape[1], int(y.max()) + 1 if classes else 0, seed)
    began = time.perf_counter()
    try:
        with without_warnings():
            run = {"compiled": False, "progress": False, "seed": seed} | ({} if name == "hmc" else {"batch_size": 600})
            method.fit((x[:-100], y[:-100]), **settings, **run)
            # As `fit(validation=)` does at its end, without a validation score in every epoch.
            known, other = (as_examples((x[part], y[part]), method.likelihood, torch.float32) for part in PARTS)
            method._examine(known, other, method.history["kl"])
    except bf.TrainingError as problem_met:
        return {"error": str(problem_met)[:100], "warnings": ["error"], "seconds": time.perf_counter() - began}
    seconds = time.perf_counter() - began
    predictive = method.predict(x_test, draws=50)
    constant = constant_log_prob(method.likelihood, y, y_test)
    if classes:
        base = float((y_test == y.mode().values).double().mean())
        gain = float((predictive.labels == y_test).double().mean()) - base
    else:
        gain = 1 - float((predictive.mean - y_test).square().mean() / (y_test - y.mean()).square().mean())
    return {
        "classes": classes,
        "gain": gain,
        "nll": -float(predictive.log_prob(y_test).double().mean()),
        "constant": -float(constant.mean()),
        "warnings": sorted(method.warnings),
        "seconds": round(seconds, 2),
    }


def judged(found: dict) -> dict:
    """For every fit whether it is `fine`, `failed` or `between`, and whether it was warned of."""
    best: dict[tuple[str, str], dict] = {}
    for key, one in found.items():
        _, which, setting, seed = key.split("|")
        if setting == "good" and "gain" in one:
            old = best.get((which, seed), {"gain": 0.0, "information": 0.0})
            information = one["constant"] - one["nll"]
            best[which, seed] = {
                "gain": max(old["gain"], one["gain"]),
                "information": max(old["information"], information),
            }
    rows = {}
    for key, one in found.items():
        _, which, setting, seed = key.split("|")
        state = _state(one, best[which, seed])
        kinds = set(one["warnings"]) - (OF_POSTERIOR if setting != "good" and state == "fine" else set())
        rows[key] = {"state": state, "warned": bool(kinds if state == "fine" else one["warnings"])}
    return rows


def _state(one: dict, best: dict) -> str:
    if "gain" not in one or not one["nll"] < one["constant"]:
        return "failed"
    shares = [(one["gain"] / best["gain"], *SHARES)]
    if one["classes"]:
        shares.append(((one["constant"] - one["nll"]) / best["information"], *NLL_SHARES))
    else:
        factor = ((1 - one["gain"]) / (1 - best["gain"])) ** 0.5
        shares.append((-factor, *(-limit for limit in FACTORS)))
    if any(share < failed for share, _, failed in shares):
        return "failed"
    return "fine" if all(share >= fine for share, fine, _ in shares) else "between"


def table(found: dict) -> str:
    """False alarms among fine fits and misses among failed ones, by method and by setting."""
    rows = judged(found)
    lines = []
    for axis, title in ((0, "method"), (2, "settings"), (1, "problem")):
        lines += [
            f"| {title} | fits | fine | of these warned | failed | of these missed | between |",
            "| --- " * 7 + "|",
        ]
        for name in dict.fromkeys(key.split("|")[axis] for key in rows):
            mine = [row for key, row in rows.items() if key.split("|")[axis] == name]
            fine, failed = ([row for row in mine if row["state"] == state] for state in ("fine", "failed"))
            alarms, misses = sum(row["warned"] for row in fine), sum(not row["warned"] for row in failed)
            between = len(mine) - len(fine) - len(failed)
            lines.append(f"| {name} | {len(mine)} | {len(fine)} | {alarms} | {len(failed)} | {misses} | {between} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, save it, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true", help="only print the tables")
    parser.add_argument("--again", action="store_true", help="repeat fits that are in the file")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    torch.set_num_threads(1)
    for seed in range(0 if given.table else given.seeds):
        for which in given.problems:
            classes = problem(which, seed)[2]
            for name in given.methods:
                for setting in given.settings:
                    key = f"{name}|{which}|{setting}|{seed}"
                    if applies(name, setting, classes) and (given.again or key not in found):
                        found[key] = fit(name, which, setting, seed)
                given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    for key, row in judged(found).items():
        if (row["state"] == "fine" and row["warned"]) or (row["state"] == "failed" and not row["warned"]):
            print(row["state"], "warned" if row["warned"] else "missed", key, found[key])


if __name__ == "__main__":
    main()
