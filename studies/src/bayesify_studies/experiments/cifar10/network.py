"""ResNet-18 for 32 x 32 images, CIFAR-10 as it sees them, the usual augmentation, and inputs of unknown kinds."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesify.data import load

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


def augmented(images: Tensor) -> Tensor:
    """Each image cropped from a border of 4 pixels and mirrored at random; colours last in memory."""
    rows, where, side = len(images), images.device, images.shape[-1]
    padded = F.pad(images, (4, 4, 4, 4))
    pixels = torch.arange(side, device=where)
    shift = torch.randint(0, 9, (2, rows, 1), device=where)
    mirrored = torch.rand(rows, 1, device=where) < 0.5
    down, across = pixels + shift[0], pixels + shift[1]
    across = torch.where(mirrored, across.flip(1), across)
    numbers = torch.arange(rows, device=where)
    return padded[numbers[:, None, None], :, down[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)


def normalised(images: Tensor, device: str | torch.device) -> Tensor:
    """Images of 0..255 as the network sees them; colours last in memory, with which convolutions are faster."""
    location, scale = (torch.tensor(values, device=device)[:, None, None] for values in (MEAN, SCALE))
    return ((images.to(device).float() / 255 - location) / scale).contiguous(memory_format=torch.channels_last)


class Images(NamedTuple):
    """Raw images `[n, 3, 32, 32]` in uint8 and their labels: for training, held out from it, and for the test."""

    x: Tensor
    y: Tensor
    x_held_out: Tensor
    y_held_out: Tensor
    x_test: Tensor
    y_test: Tensor


@lru_cache(maxsize=1)
def images(examples: int, held_out: int, tested: int) -> Images:
    """The first training images, the last ones held out, and the first test images."""
    data = load("cifar10")
    y, y_test = data.y_train, data.y_test
    return Images(
        data.x_train[:examples],
        y[:examples],
        data.x_train[len(y) - held_out :],
        y[len(y) - held_out :],
        data.x_test[:tested],
        y_test[:tested],
    )


UNKNOWN = ("noise", "shuffled pixels", "digits")


def unknown_images(known: Tensor, kind: str, seed: int = 0) -> Tensor:
    """As many images of no class: uniform noise, the known images with shuffled pixels, or MNIST's digits in grey."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "noise":
        return torch.randint(0, 256, known.shape, generator=generator, dtype=torch.uint8)
    if kind == "shuffled pixels":
        order = torch.rand(len(known), 1, known[0, 0].numel(), generator=generator).argsort(-1)
        return known.flatten(2).gather(2, order.expand(-1, 3, -1)).reshape(known.shape)
    digits = F.pad(load("mnist").x_test[: len(known)], (2, 2, 2, 2))
    return digits[:, None].expand(-1, 3, -1, -1)
