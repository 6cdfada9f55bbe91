r"""Which settings of Bayes by Backprop err least on MNIST's validation part: `python studies/scripts/tune_mnist.py`.

Fleets of variational networks (784-H-H-10) with different priors, rates, starts and seeds learn from 50,000 images; the
other 10,000 decide. The test part is never opened. The objective is the ELBO unless `--kl` names a temperature.
Networks of a fleet share width, estimator, batch size, epochs, schedule, optimiser, draws per step, pixels' scale and
the prior's family; everything else may differ inside one. Each fleet's scores are printed (and kept, one JSON line for
each network) when it ends; what the file holds already is not trained again.

    python studies/scripts/tune_mnist.py --device cuda --plan first --minutes 9 --out tune.jsonl
    python studies/scripts/tune_mnist.py --device cuda --units 1200 --estimator local --pi 0.5 0.75 \
        --sigma2 -7 -8 --seeds 3
    python studies/scripts/tune_mnist.py --show --out tune.jsonl

What was found so far is in docs/results/mnist-tuning.jsonl (`--show --out docs/results/mnist-tuning.jsonl`).

Sigmas are given by their logarithms, as in the paper. `--random 200` takes so many of the product at random.
"""

import argparse
import itertools
import json
import math
import random
import statistics
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from bayesify import Variational, networks
from bayesify.evaluation.pruning import prune
from bayesify.fleets import Fleet
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe


@dataclass(frozen=True)
class Setting:
    """One network; learning rates are of the mean loss, `sigma1` and `sigma2` are logarithms.

    `pi` = 1 is the Gaussian prior N(0, sigma1^2) alone, whose `sigma2` says nothing.
    """

    units: int = 400
    estimator: str = "weight"
    epochs: int = 100
    batch: int = 125
    schedule: str = "cosine"
    optimizer: str = "adam"
    draws: int = 1
    pixels: str = "126"
    pi: float = 0.75
    sigma1: float = 0.0
    sigma2: float = -8.0
    rate: float = 1e-3
    rho: float = -5.0
    start: str = "fresh"
    kl: str = "uniform"
    seed: int = 0

    @property
    def prior(self) -> str:
        if self.pi == 1:
            return f"normal:{math.exp(self.sigma1):.6g}"
        return f"scale-mixture:{self.pi},{math.exp(self.sigma1):.6g},{math.exp(self.sigma2):.6g}"

    @property
    def shared(self) -> tuple[object, ...]:
        """What networks of one fleet have in common."""
        names = ("units", "estimator", "epochs", "batch", "schedule", "optimizer", "draws", "pixels")
        return (*(getattr(self, name) for name in names), self.pi == 1)

    @property
    def work(self) -> float:
        """Weights moved in all steps: what the time goes by."""
        weights = 784 * self.units + self.units**2 + 10 * self.units
        return weights * self.draws * self.epochs * 50_000 / self.batch


# Products of the values named; what is not named is as in `Setting`.
PLANS: dict[str, list[dict[str, list]]] = {
    # Which prior, rate, width of the start and estimator, at 400 units: 232 networks.
    "first": [
        {
            "estimator": ["local", "weight"],
            "pi": [0.25, 0.5, 0.75],
            "sigma1": [0.0, -1.0, -2.0],
            "sigma2": [-6.0, -7.0, -8.0],
            "rate": [1e-3, 3e-3],
            "rho": [-5.0, -3.0],
        },
        {"estimator": ["local", "weight"], "pi": [1.0], "sigma1": [0.0, -1.0, -2.0, -3.0], "rate": [1e-3, 3e-3]},
    ],
    # The same questions at 1200 units, fewer of each.
    "wide": [
        {
            "units": [1200],
            "estimator": ["local", "weight"],
            "pi": [0.25, 0.75],
            "sigma1": [0.0, -1.0, -2.0],
            "sigma2": [-6.0, -8.0],
            "rate": [1e-3],
            "rho": [-5.0],
        }
    ],
    # Whether longer training, other batches or more draws help (name the estimator and the prior to ask this of).
    "longer": [
        {"epochs": [50, 200, 400], "rate": [5e-4, 1e-3, 2e-3]},
        {"batch": [50, 250, 500], "rate": [5e-4, 1e-3, 2e-3]},
        {"draws": [2, 5], "rate": [5e-4, 1e-3, 2e-3]},
    ],
    # Seconds on a CPU: whether this script works.
    "tiny": [{"units": [16], "epochs": [2], "estimator": ["local", "weight"], "pi": [0.5, 1.0], "rate": [1e-3, 3e-3]}],
}
NAMES = [field.name for field in fields(Setting) if field.name != "seed"]
FIRST_GUESS = 4e-11  # seconds per weight moved in a fleet, and to compile a fleet's step; measured after the first
SECONDS_TO_COMPILE = 60.0


def main() -> None:
    options = read_options()
    if options.show:
        show(rows_of(options.out))
        return
    torch.set_float32_matmul_precision("highest" if options.precision == "float32" else "high")
    began = time.perf_counter()
    known = {json.dumps(row["setting"], sort_keys=True) for row in rows_of(options.out)}
    wanted = [one for one in settings_of(options) if json.dumps(asdict(one), sort_keys=True) not in known]
    fleets = cut_into_fleets(wanted, options.per_fleet)
    left = len(fleets)
    print(f"{len(wanted)} networks in {left} fleets; {len(known)} are known already", flush=True)
    speed, materials, rows = FIRST_GUESS, {}, []
    for fleet in fleets:
        work = sum(one.work for one in fleet)
        expected = SECONDS_TO_COMPILE + work * speed
        if time.perf_counter() - began + expected > 60 * options.minutes:
            print(f"not begun, about {expected:.0f} s: {len(fleet)} networks like {fleet[0]}", flush=True)
            continue
        pixels = fleet[0].pixels
        if pixels not in materials:
            materials[pixels] = material_of(pixels, options)
        found, steps = train(fleet, materials[pixels], options)
        speed = steps / work
        torch.cuda.empty_cache()
        with options.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in found)
        rows += found
        left -= 1
        show_fleet(found, time.perf_counter() - began, steps)
    print(f"\n{left} fleets were not trained" if left else "\nall fleets are trained")
    show(rows)


def train(settings: list[Setting], data: dict, options: argparse.Namespace) -> tuple[list[dict], float]:
    """Scores of each network, averaged over its last epochs, and the seconds that the steps took."""
    began = time.perf_counter()
    methods = [
        Variational(
            networks.mlp(data["inputs"], 10, units=one.units, layers=2),
            "categorical",
            prior=one.prior,
            estimator=one.estimator,
            start=one.start,
            rho=one.rho,
            seed=one.seed,
        )
        for one in settings
    ]
    reader = Variational(networks.mlp(data["inputs"], 10, units=settings[0].units, layers=2), "categorical")
    reader.to(options.device)
    fleet = Fleet(methods)
    scores: list[list[dict]] = [[] for _ in settings]
    timed = {"first": 0.0, "last": 0.0, "scoring": 0.0}
    common = settings[0]
    places = {name: number for number, name in enumerate(fleet.names)}

    def after(epoch: int, nll: list[float]) -> None:
        now = time.perf_counter()
        timed["last"] = now
        if epoch == 1:
            timed["first"] = now
        if epoch <= common.epochs - options.last:
            return
        for number in set(range(len(settings))) - set(fleet.diverged):
            own = scores[number]
            with torch.no_grad():
                reader.mu.copy_(fleet.parameters[places["mu"]][number])
                reader.rho.copy_(fleet.parameters[places["rho"]][number])
            own.append(score(reader, data, epoch, options) | {"train_nll": nll[number]})
        if epoch < common.epochs:
            timed["scoring"] += time.perf_counter() - now

    bfloat16 = {"precision": "bfloat16"} if options.precision == "bfloat16" and common.estimator == "weight" else {}
    fleet.fit(
        data["train"],
        learning_rates=[one.rate for one in settings],
        kl=[one.kl for one in settings],
        epochs=common.epochs,
        batch_size=common.batch,
        optimizer=common.optimizer,
        schedule=common.schedule,
        draws=common.draws,
        device=options.device,
        may_diverge=True,
        progress=False,
        on_epoch=after,
        **bfloat16,
    )
    rows = [row_of(one, own) for one, own in zip(settings, scores, strict=True)]
    steps = timed["last"] - timed["first"] - timed["scoring"]
    whole = steps * common.epochs / max(1, common.epochs - 1) or 1.0
    print(f"\nfleet of {len(settings)}: {time.perf_counter() - began:.0f} s in all, {whole:.1f} s of steps", flush=True)
    return rows, whole


def score(method: Variational, data: dict, seed: int, options: argparse.Namespace) -> dict:
    """Error (a share) and NLL on validation by draws, by the mean weights, and by draws of a pruned network."""
    x, y = data["validation"]
    found = {}
    asked = [("draws", method, "draws"), ("mean", method, "mean")]
    if options.prune:
        asked.append(("pruned", prune(method, options.prune), "draws"))
    for name, one, by in asked:
        predictive = one.predict(x, draws=options.draws_at_test, seed=seed, by=by, batch_size=len(x))
        found[f"{name}_error"] = float((predictive.probs.argmax(-1) != y).double().mean())
        found[f"{name}_nll"] = -float(predictive.log_prob(y).double().mean())
    return found


def row_of(setting: Setting, scores: list[dict] | None) -> dict:
    """A line of the file; a network that diverged has no scores."""
    if not scores:
        return {"setting": asdict(setting), "prior": setting.prior, "scores": None}
    means = {name: statistics.fmean(one[name] for one in scores) for name in scores[0]}
    finite = all(math.isfinite(value) for value in means.values())
    return {"setting": asdict(setting), "prior": setting.prior, "scores": means if finite else None}


def material_of(pixels: str, options: argparse.Namespace) -> dict:
    """50,000 images to learn from and 10,000 to choose by, on the device; `--examples` takes the first few of them."""
    found = prepare_data(Recipe(data=options.data, normalise=pixels, validation=1 / 6, network="mlp"))
    assert found.validation is not None
    x, y = (tensor[: options.examples] for tensor in found.train)
    held = tuple(tensor[: options.examples].to(options.device) for tensor in found.validation)
    return {"train": (x, y), "validation": held, "inputs": x.shape[1]}


def settings_of(options: argparse.Namespace) -> list[Setting]:
    """The plan's, or the product of what the command line names, each with every seed."""
    named = {name: getattr(options, name) for name in NAMES if getattr(options, name) is not None}
    grids = PLANS[options.plan] if options.plan else [{}]
    grids = [grid | named for grid in grids]
    listed = [
        Setting(**dict(zip(grid, values, strict=True)))
        for grid in grids
        for values in itertools.product(*grid.values())
    ]
    listed = list(dict.fromkeys(listed))
    if options.random:
        listed = random.Random(options.choice).sample(listed, min(options.random, len(listed)))
    seeds = range(options.seeds)
    return [Setting(**(asdict(one) | {"seed": seed})) for one in listed for seed in seeds]


def cut_into_fleets(settings: list[Setting], most: int) -> list[list[Setting]]:
    """Fleets of at most so many networks of 400 units (fewer wider ones), the cheap ones first."""
    groups: dict[tuple[object, ...], list[Setting]] = {}
    for one in settings:
        groups.setdefault(one.shared, []).append(one)
    found = []
    for own in groups.values():
        weights = own[0].work / own[0].epochs * own[0].batch / 50_000
        size = max(1, min(most, round(most * 477_600 / weights)))
        parts = -(-len(own) // size)
        # Parts of one size: a compiled step is kept by the compiler for the next part of the same shape.
        each = -(-len(own) // parts)
        found += [own[start : start + each] for start in range(0, len(own), each)]
    return sorted(found, key=lambda fleet: sum(one.work for one in fleet))


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def show_fleet(rows: list[dict], seconds: float, steps: float) -> None:
    first = Setting(**rows[0]["setting"])
    per_step = steps / (len(rows) * first.epochs * 50_000 / first.batch)
    print(
        f"after {seconds:.0f} s: {first.units} units, {first.estimator}, {first.epochs} epochs, batch {first.batch}, "
        f"{first.optimizer} {first.schedule}, {first.draws} draws, pixels {first.pixels}; "
        f"{1e6 * per_step:.1f} microseconds per network and step (of 50,000 images)"
    )
    table(rows)


def show(rows: list[dict]) -> None:
    """The best settings over all seeds, and what each hyperparameter's values have in common."""
    if not rows:
        print("nothing is scored yet")
        return
    print("\nthe best by validation error with draws")
    table(rows, 25)
    print("\nvalidation error by value: mean, best")
    good = [row for row in rows if row["scores"]]
    for name in NAMES:
        values = sorted({row["setting"][name] for row in good}, key=str)
        for value in values if len(values) > 1 else []:
            errors = [100 * row["scores"]["draws_error"] for row in good if row["setting"][name] == value]
            print(f"  {name:<10}{value!s:>10}  {statistics.fmean(errors):6.3f} {min(errors):6.3f}  ({len(errors)})")


def table(rows: list[dict], most: int | None = None) -> None:
    """Seeds of a setting in one line: error % and NLL by draws and by mean weights, of what is left, in training."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        key = json.dumps({name: row["setting"][name] for name in NAMES})
        groups.setdefault(key, []).append(row)
    lines, lost = [], []
    for key, own in groups.items():
        setting = json.loads(key)
        scores = [row["scores"] for row in own if row["scores"]]
        told = " ".join(f"{name}={value}" for name, value in setting.items() if value != getattr(Setting, name))
        if len(scores) < len(own):
            lost.append(f"  not finite  {own[0]['prior']}  {told}")
            continue
        means = {name: statistics.fmean(one[name] for one in scores) for name in scores[0]}
        errors = [100 * one["draws_error"] for one in scores]
        spread = f"+-{statistics.stdev(errors) / math.sqrt(len(errors)):.3f}" if len(errors) > 1 else ""
        text = (
            f"  {statistics.fmean(errors):6.3f}{spread:<8} {means['draws_nll']:.4f}  "
            f"{100 * means['mean_error']:6.3f} {means['mean_nll']:.4f}  "
            f"{100 * means.get('pruned_error', math.nan):6.3f}  {means['train_nll']:.4f}  "
            f"x{len(own)} {own[0]['prior']}  {told}"
        )
        lines.append((means["draws_error"], text))
    print("  draws: error % nll  mean weights: error % nll  pruned: error %  training nll  seeds prior setting")
    print("\n".join([text for _, text in sorted(lines)[:most]] + lost[:most]), flush=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=PLANS, help="a list of settings; options below replace its values")
    kinds = {"int": int, "float": float, "str": str}
    for field in fields(Setting):
        if field.name != "seed":
            kind = kinds[getattr(field.type, "__name__", str(field.type))]
            parser.add_argument(f"--{field.name}", nargs="+", type=kind, help=f"unless given: {field.default}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--random", type=int, default=0, help="so many settings of the product, at random")
    parser.add_argument("--choice", type=int, default=0, help="seed of --random")
    parser.add_argument("--minutes", type=float, default=9.0, help="no fleet is begun that would end later")
    parser.add_argument("--per-fleet", type=int, default=54, help="networks of 400 units; fewer wider ones")
    parser.add_argument("--draws-at-test", dest="draws_at_test", type=int, default=50)
    parser.add_argument("--prune", type=float, help="also score without this share of the weights, by signal-to-noise")
    parser.add_argument("--last", type=int, default=3, help="epochs whose scores are averaged")
    parser.add_argument("--data", default="mnist", choices=("mnist", "fashion-mnist"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--precision",
        default="tf32",
        choices=("float32", "tf32", "bfloat16"),
        help="of products (bfloat16: weight only)",
    )
    parser.add_argument("--examples", type=int, help="so many only, to try this script")
    parser.add_argument("--out", type=Path, default=Path("tune.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what the file holds")
    options = parser.parse_args()
    if options.prune is not None and not 0 < options.prune < 1:
        parser.error(f"--prune is a share between 0 and 1, got {options.prune:g}")
    if not options.plan and not options.show and all(getattr(options, name) is None for name in NAMES):
        options.plan = "first"
    return options


if __name__ == "__main__":
    main()
