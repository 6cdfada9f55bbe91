"""Networks that people train, from their configuration alone, each with a batch of the usual size; dropout is off.

Large and tiny versions have the same layers. Transformers are those of the library `transformers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

NAMES = ("resnet18", "resnet50", "vit", "bert", "gpt2")


@dataclass
class Known:
    """A network, one batch of it, and how its result becomes logits.

    Args:
        make: makes the network, the same weights each time.
        x: inputs of a batch.
        y: their labels.
        logits: from what the network returns to logits with the classes last.
        output: the same as an argument of our methods.

    """

    make: Callable[[], nn.Module]
    x: Tensor
    y: Tensor
    logits: Callable[[Any], Tensor]
    output: str | None = None


def known(name: str, *, tiny: bool = False, batch: int | None = None) -> Known:
    """One of `NAMES`; `tiny` is for trying things out on a CPU."""
    generator = torch.Generator().manual_seed(0)

    def labels(*shape: int, classes: int) -> Tensor:
        return torch.randint(0, classes, shape, generator=generator)

    if name in {"resnet18", "resnet50"}:
        small = name == "resnet18"
        rows, side, classes = batch or (4 if tiny else 128 if small else 64), 32 if small or tiny else 224, 10
        classes = 10 if small or tiny else 1000
        width, depths = (8, (1, 1)) if tiny else (64, (2, 2, 2, 2) if small else (3, 4, 6, 3))
        images = torch.randn(rows, 3, side, side, generator=generator)
        return Known(
            _seeded(lambda: resnet(depths, width, classes, bottleneck=not small, small_images=small or tiny)),
            images,
            labels(rows, classes=classes),
            lambda result: result,
        )
    if name == "vit":
        rows, side = batch or (2 if tiny else 64), 32 if tiny else 224
        images = torch.randn(rows, 3, side, side, generator=generator)
        return Known(_seeded(lambda: _vit(tiny)), images, labels(rows, classes=10), lambda r: r.logits, "logits")
    rows, length, words = (
        batch or (2 if tiny else 32 if name == "bert" else 8),
        8 if tiny else 128,
        100 if tiny else 30522,
    )
    if name == "gpt2":
        length, words = (8, 100) if tiny else (512, 50257)
    tokens = torch.randint(0, words, (rows, length), generator=generator)
    if name == "bert":
        return Known(_seeded(lambda: _bert(tiny)), tokens, labels(rows, classes=2), lambda r: r.logits, "logits")
    if name == "gpt2":
        return Known(_seeded(lambda: _gpt2(tiny)), tokens, tokens.roll(-1, 1), lambda r: r.logits, "logits")
    raise ValueError(f"network must be one of {', '.join(NAMES)}, got {name!r}")


def _seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return make()

    return made


class Residual(nn.Module):
    """Two 3 x 3 convolutions, or a bottleneck of three, and a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        if not bottleneck:
            shapes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        layers: list[nn.Module] = []
        for source, target, size, step in shapes:
            layers += [nn.Conv2d(source, target, size, step, size // 2, bias=False), nn.BatchNorm2d(target), nn.ReLU()]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(depths: tuple[int, ...], width: int, classes: int, *, bottleneck: bool, small_images: bool) -> nn.Sequential:
    """A residual network; small images have a stem without pooling."""
    stem: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    if not small_images:
        stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), *stem[1:], nn.MaxPool2d(3, 2, 1)]
    blocks: list[nn.Module] = []
    inputs = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            blocks.append(Residual(inputs, width * 2**stage, stride, bottleneck=bottleneck))
            inputs = width * 2**stage * (4 if bottleneck else 1)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def _vit(tiny: bool) -> nn.Module:
    """ViT-S/16: 22 million weights."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes: dict[str, Any] = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 10}
    if tiny:
        sizes |= {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
        sizes |= {"num_hidden_layers": 1, "image_size": 32}
    return ViTForImageClassification(ViTConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def _bert(tiny: bool) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {"num_labels": 2}
    if tiny:
        sizes |= {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
        sizes |= {"num_hidden_layers": 1, "vocab_size": 100}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    made: Any = BertForSequenceClassification
    network: nn.Module = made(BertConfig(**sizes))
    return network


def _gpt2(tiny: bool) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_embd": 16, "n_head": 2, "n_layer": 1, "vocab_size": 100} if tiny else {}
    sizes |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    made: Any = GPT2LMHeadModel
    network: nn.Module = made(GPT2Config(**sizes))
    return network
