"""ResNet-18 on CIFAR-10 with the usual augmentation: plain networks beside variational ones and IVON, on one GPU.

    python cifar10_resnet18.py SETTING [SETTING ...] --data FILE.npz --out FOLDER [--epochs 20] [--minutes 10] [--test]

Settings are trained one after the other in compiled steps, and each is written as soon as it is scored. One that would
not end within `--minutes` is left out. Without `--test` the last 5,000 training images are held out and scored;
with it all 50,000 train and the test images are scored once. FILE.npz has `x_train`, `y_train`, `x_test`, `y_test` as
uint8 images `[n, 3, 32, 32]` and labels.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify_studies.experiments.cifar10.network import augmented, normalised, resnet18


def sgd(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Momentum and weight decay as they are usual for this network."""
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4)


def momentum(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Momentum without weight decay: the prior takes its place."""
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


def warm_cosine(done: float) -> float:
    """A rate that rises over the first 10% of steps and falls as a cosine."""
    return min(done / 0.1, 1.0) * 0.5 * (1 + float(np.cos(np.pi * max(0.0, (done - 0.1) / 0.9))))


Settings = dict[str, tuple[Callable[[nn.Module], Any], dict[str, Any]]]


def ivon(prior, start, rate):
    """IVON with a prior, a start of its curvature and a learning rate."""
    return (
        lambda net: bf.IVON(net, "categorical", prior=prior, hessian_init=start),
        {"learning_rate": rate, "schedule": warm_cosine},
    )


def published(prior: str, rate: float) -> tuple[Callable[[nn.Module], Any], dict[str, Any]]:
    """IVON with its authors' memory: beta2 is 0.99999 from the first step, so that h stays near its start of 0.9.

    With a short memory h follows the curvature within five epochs. In 20 epochs the widths then grow tenfold, and with
    them the noise. The authors' rate of 0.2 is 0.18 here (theirs is multiplied by the start of h), for 200 epochs; as
    SGD with momentum 0.9 it is a rate of 0.02, where the plain network has 0.1.
    """
    return (
        lambda net: bf.IVON(net, "categorical", prior=prior, hessian_init=0.9, short_memory=False),
        {"learning_rate": rate, "schedule": warm_cosine},
    )


SETTINGS: Settings = {
    "ivon-published-0.2-0.45": published("normal:0.2", rate=0.45),
    "ivon-published-0.2-0.9": published("normal:0.2", rate=0.9),
    "ivon-published-0.33-0.45": published("normal:0.33", rate=0.45),
    "ivon-published-0.33-0.18": published("normal:0.33", rate=0.18),
    "plain-sgd": (
        lambda net: bf.PointEstimate(net, "categorical"),
        {"optimizer": sgd, "learning_rate": 0.1, "schedule": warm_cosine},
    ),
    "plain-adam": (
        lambda net: bf.PointEstimate(net, "categorical"),
        {"learning_rate": 1e-3, "schedule": "cosine"},
    ),
    "ivon-0.2-1": ivon("normal:0.3", start=1.0, rate=0.2),
    "ivon-0.2-2": ivon("normal:0.3", start=2.0, rate=0.2),
    "ivon-0.4-4": ivon("normal:0.3", start=4.0, rate=0.4),
    "vi-sgd": (
        lambda net: bf.Variational(net, "categorical", prior="normal:0.2", rho=-6.0),
        {"optimizer": momentum, "learning_rate": 0.1, "schedule": warm_cosine},
    ),
    "ivon-default": (lambda net: bf.IVON(net, "categorical"), {}),
    "ivon-prior": ivon("normal:0.2", start=4.0, rate=0.4),
    "ivon-prior-0.8-8": ivon("normal:0.2", start=8.0, rate=0.8),
    "ivon-prior-0.2-2": ivon("normal:0.2", start=2.0, rate=0.2),
    "vi-fan-in": (
        lambda net: bf.Variational(net, "categorical", prior="normal:fan_in", rho=-6.0),
        {"learning_rate": 1e-3, "schedule": "cosine"},
    ),
    "vi-fan-in-cold": (
        lambda net: bf.Variational(net, "categorical", prior="normal:fan_in", rho=-6.0),
        {"learning_rate": 1e-3, "schedule": "cosine", "kl": "uniform,temperature=0.1"},
    ),
    "vi-normal1": (
        lambda net: bf.Variational(net, "categorical", prior="normal:1"),
        {"learning_rate": 1e-3, "schedule": "cosine"},
    ),
    "vi-normal0.3": (
        lambda net: bf.Variational(net, "categorical", prior="normal:0.3"),
        {"learning_rate": 1e-3, "schedule": "cosine"},
    ),
    "vi-normal0.1": (
        lambda net: bf.Variational(net, "categorical", prior="normal:0.1"),
        {"learning_rate": 1e-3, "schedule": "cosine"},
    ),
}


def load(path: Path, device: torch.device, test: bool) -> list[Tensor]:
    """Normalised images and labels: of training, then of the part that is scored."""
    arrays = np.load(path)

    def images(name: str) -> Tensor:
        return normalised(torch.from_numpy(arrays[name]), device)

    x, y = images("x_train"), torch.from_numpy(arrays["y_train"]).to(device).long()
    if test:
        return [x, y, images("x_test"), torch.from_numpy(arrays["y_test"]).to(device).long()]
    return [x[:-5000], y[:-5000], x[-5000:], y[-5000:]]


def train(setting: str, data: list[Tensor], options: argparse.Namespace) -> dict[str, Any]:
    """Train one setting and score it."""
    x, y, x_scored, y_scored = data
    torch.manual_seed(options.seed)
    make, settings = SETTINGS[setting]
    method = make(resnet18(options.width).to(x.device))
    start = time.perf_counter()
    history = method.fit(
        (x, y),
        augment=augmented,
        epochs=options.epochs,
        batch_size=128,
        device=x.device,
        seed=options.seed,
        compiled=options.compiled,
        precision=options.precision,
        progress=False,
        **settings,
    )
    record: dict[str, Any] = {"setting": setting, "epochs": options.epochs, "seed": options.seed}
    record |= {"test": options.test, "seconds": round(time.perf_counter() - start, 1), "precision": options.precision}
    record |= {"compiled": method.plan.compiled, "training_nll": history["nll"][-1]}
    # The first epoch includes compiling.
    record["seconds_per_epoch"] = round(float(np.median(history["seconds"][1:] or history["seconds"])), 2)
    scores = bf.evaluate(method, (x_scored, y_scored), draws=30)
    record["scores"] = {name: float(getattr(scores, name)) for name in ("accuracy", "nll", "ece")}
    return record


def main() -> None:
    """Train the settings one after the other and write their scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", choices=SETTINGS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rows", type=int, default=None, help="train and score on this many images, to try it out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--precision", choices=("full", "bfloat16"), default="bfloat16")
    parser.add_argument("--eager", dest="compiled", action="store_false")
    parser.add_argument("--test", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    data = [part[: options.rows] for part in load(options.data, device, options.test)]
    options.out.mkdir(parents=True, exist_ok=True)
    end, longest = time.perf_counter() + 60 * options.minutes, 0.0
    for setting in options.settings:
        began = time.perf_counter()
        if began + longest > end:
            print(f"no time left for {setting}", flush=True)
            continue
        try:
            record = train(setting, data, options)
        except Exception as problem:  # noqa: BLE001 -- the next setting may work
            traceback.print_exc()
            record = {"setting": setting, "failed": f"{type(problem).__name__}: {problem}"[:300]}
        longest = max(longest, time.perf_counter() - began)
        name = f"{setting}-{options.seed}{'-test' if options.test else ''}.json"
        (options.out / name).write_text(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
