"""ResNet-18 on CIFAR-10 with the usual augmentation: plain networks beside variational ones and IVON, on one GPU.

Each setting is one process: `python cifar10_resnet18.py SETTING --data FILE.npz --out FOLDER [--epochs 30] [--test]`.
Without `--test` the last 5,000 training images are held out and scored; with it all 50,000 train and the test images
are scored once. FILE.npz has `x_train`, `y_train`, `x_test`, `y_test` as uint8 images `[n, 3, 32, 32]` and labels.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bayesify as bf

MEAN, SCALE = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = nn.Identity()
        if not same:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


def resnet18(width: int = 64) -> nn.Module:
    """ResNet-18 with the small stem that is usual for 32 x 32 images: 11.2 million weights at width 64."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for block in range(2):
            outputs = width * 2**stage
            layers.append(Block(inputs, outputs, 2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class AugmentedBatches:
    """Batches on the device, each image cropped from a border of 4 pixels and mirrored at random."""

    def __init__(self, x: Tensor, y: Tensor, batch_size: int, seed: int) -> None:
        self.x, self.y, self.batch_size = x, y, batch_size
        self.generator = torch.Generator(device=x.device).manual_seed(seed)
        self.dataset = range(len(y))
        self.started: list[float] = []

    def __len__(self) -> int:
        """The number of whole batches."""
        return len(self.y) // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in a random order."""
        self.started.append(time.perf_counter())
        order = torch.randperm(len(self.y), generator=self.generator, device=self.x.device)
        padded = torch.nn.functional.pad(self.x, (4, 4, 4, 4))
        pixels = torch.arange(32, device=self.x.device)
        for number in range(len(self)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]
            shift = torch.randint(0, 9, (2, len(rows), 1), generator=self.generator, device=self.x.device)
            mirrored = torch.rand(len(rows), 1, generator=self.generator, device=self.x.device) < 0.5
            down, across = pixels + shift[0], pixels + shift[1]
            across = torch.where(mirrored, across.flip(1), across)
            images = padded[rows[:, None, None], :, down[:, :, None], across[:, None, :]]
            yield images.permute(0, 3, 1, 2).contiguous(), self.y[rows]


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

SETTINGS: Settings = {
    "plain-sgd": (
        lambda net: bf.PointEstimate(net, "categorical"),
        {"optimizer": sgd, "learning_rate": 0.1, "schedule": warm_cosine},
    ),
    "plain-adam": (
        lambda net: bf.PointEstimate(net, "categorical"),
        {"learning_rate": 1e-3, "schedule": "cosine"},
    ),
    "ivon-0.2-1": (
        lambda net: bf.IVON(net, "categorical", prior="normal:0.3", hessian_init=1.0),
        {"learning_rate": 0.2, "schedule": warm_cosine},
    ),
    "ivon-0.2-2": (
        lambda net: bf.IVON(net, "categorical", prior="normal:0.3", hessian_init=2.0),
        {"learning_rate": 0.2, "schedule": warm_cosine},
    ),
    "ivon-0.4-4": (
        lambda net: bf.IVON(net, "categorical", prior="normal:0.3", hessian_init=4.0),
        {"learning_rate": 0.4, "schedule": warm_cosine},
    ),
    "vi-sgd": (
        lambda net: bf.Variational(net, "categorical", prior="normal:0.2", rho=-6.0),
        {"optimizer": momentum, "learning_rate": 0.1, "schedule": warm_cosine},
    ),
    "ivon-default": (lambda net: bf.IVON(net, "categorical"), {}),
    "ivon-prior": (
        lambda net: bf.IVON(net, "categorical", prior="normal:0.2", hessian_init=4.0),
        {"learning_rate": 0.4, "schedule": warm_cosine},
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
    location, scale = (torch.tensor(v, device=device)[:, None, None] for v in (MEAN, SCALE))

    def images(name: str) -> Tensor:
        return (torch.from_numpy(arrays[name]).to(device).float() / 255 - location) / scale

    x, y = images("x_train"), torch.from_numpy(arrays["y_train"]).to(device).long()
    if test:
        return [x, y, images("x_test"), torch.from_numpy(arrays["y_test"]).to(device).long()]
    return [x[:-5000], y[:-5000], x[-5000:], y[-5000:]]


def main() -> None:
    """Train one setting and write its scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rows", type=int, default=None, help="train and score on this many images, to try it out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--test", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    x, y, x_scored, y_scored = (part[: arguments.rows] for part in load(arguments.data, device, arguments.test))
    torch.manual_seed(arguments.seed)
    make, settings = SETTINGS[arguments.setting]
    method = make(resnet18(arguments.width).to(device))
    start = time.perf_counter()
    batches = AugmentedBatches(x, y, 128, arguments.seed)
    history = method.fit(
        batches,
        epochs=arguments.epochs,
        n_data=len(y),
        device=device,
        seed=arguments.seed,
        progress=False,
        **settings,
    )
    seconds = time.perf_counter() - start
    record: dict[str, Any] = {"setting": arguments.setting, "epochs": arguments.epochs, "seed": arguments.seed}
    record |= {"test": arguments.test, "seconds": round(seconds, 1), "training_nll": history["nll"][-1]}
    # The shortest is that of an epoch without compiling.
    record["seconds_per_epoch"] = round(float(np.diff(batches.started).min()), 2)
    scores = bf.evaluate(method, (x_scored, y_scored), draws=30)
    record["scores"] = {name: float(getattr(scores, name)) for name in ("accuracy", "nll", "ece")}
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"{arguments.setting}-{arguments.seed}{'-test' if arguments.test else ''}.json"
    (arguments.out / name).write_text(json.dumps(record))
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
