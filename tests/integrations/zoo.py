"""Networks that people use, in small: each with data that fits it. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayesify as bf

N, CLASSES, SIDE, VOCABULARY, TOKENS = 8, 3, 32, 40, 6


@dataclass(frozen=True)
class Entry:
    """A network: how it is made, what it takes, and what it predicts."""

    title: str
    source: str  # the library it comes from, or "look-alike" for small code of the same structure
    make: Callable[[], nn.Module]
    data: Callable[[], tuple[Any, Tensor]]
    likelihood: Callable[[], Any] = lambda: "categorical"
    output: Any = None
    last_layer: str = "last_layer"  # where the last layer of the module is not that of the output


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(N, 3, SIDE, SIDE), torch.arange(N) % CLASSES


def pixels() -> tuple[Tensor, Tensor]:
    x = torch.randn(N, 3, 16, 16)
    return x, (x.mean(1) > 0).long()


def texts() -> tuple[dict[str, Tensor], Tensor]:
    tokens = torch.randint(0, VOCABULARY, (N, TOKENS))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, torch.arange(N) % CLASSES


def next_tokens() -> tuple[dict[str, Tensor], Tensor]:
    tokens = torch.randint(0, VOCABULARY, (N, TOKENS + 1))
    return {"input_ids": tokens[:, :-1]}, tokens[:, 1:]


def tagged() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, VOCABULARY, (N, TOKENS))
    return tokens, tokens % CLASSES


def graphs() -> tuple[dict[str, Tensor], Tensor]:
    edges = (torch.rand(N, 5, 5) > 0.5).float()
    return {"nodes": torch.randn(N, 5, 4), "adjacency": edges}, torch.arange(N) % CLASSES


# torchvision's structures, in few channels: torchvision itself is not needed.


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        changed = stride > 1 or inputs != outputs
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if changed
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for number in range(4):
            first = BasicBlock(widths[number], widths[number + 1], 1 if number == 0 else 2)
            second = BasicBlock(widths[number + 1], widths[number + 1])
            setattr(self, f"layer{number + 1}", nn.Sequential(first, second))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(F.relu(self.norm2(x)))


class DenseNet(nn.Module):
    def __init__(self, growth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.layers = nn.ModuleList(DenseLayer(8 + number * growth, growth) for number in range(3))
        self.norm = nn.BatchNorm2d(8 + 3 * growth)
        self.classifier = nn.Linear(8 + 3 * growth, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(features))
        x = F.relu(self.norm(torch.cat(features, 1)))
        return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))


class InvertedResidual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.Hardswish(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width, bias=False),
            nn.BatchNorm2d(2 * width),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * width, width, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 1)
        )
        self.project = nn.Sequential(nn.Conv2d(2 * width, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.block(x)
        return x + self.project(hidden * F.hardsigmoid(self.squeeze(hidden)))


def mobilenet() -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()),
        nn.Sequential(InvertedResidual(8), InvertedResidual(8)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 16),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(16, CLASSES),
    )


class EncoderBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.self_attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        inside = self.ln_1(x)
        x = x + self.dropout(self.self_attention(inside, inside, inside, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 8, patch: int = 16) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(0.02 * torch.randn(1, (SIDE // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(EncoderBlock(width), EncoderBlock(width))
        self.ln = nn.LayerNorm(width)
        self.heads = nn.Sequential(nn.Linear(width, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x).flatten(2).mT
        x = torch.cat((self.class_token.expand(len(x), -1, -1), x), 1) + self.pos_embedding
        return self.heads(self.ln(self.layers(x))[:, 0])


class UNet(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.bottom = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, 1, 1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.head = nn.Conv2d(2 * width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        left = self.down(x)
        return self.head(torch.cat((left, self.up(self.bottom(left))), 1))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        mean = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1.0)
        hidden = torch.relu(self.first(mean @ nodes))
        return self.head(torch.relu(self.second(mean @ hidden)).mean(1))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 8), nn.ReLU())
        self.classes, self.box = nn.Linear(8, CLASSES), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.encoder(x)
        return {"classes": self.classes(hidden), "box": self.box(hidden)}


def _transformers(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))

    return make


def _lora() -> nn.Module:
    import peft

    base = ENTRIES["GPT-2"].make()
    return peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))


_TEXT = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
_PICTURE = {"num_labels": CLASSES, "image_size": SIDE}
_TOKENS = {"likelihood": lambda: bf.likelihoods.Categorical(class_dim=-1)}

ENTRIES: dict[str, Entry] = {
    entry.title: entry
    for entry in (
        Entry("ResNet-18", "look-alike", ResNet18, images),
        Entry(
            "ResNet-50",
            "transformers",
            _transformers(
                "ResNetForImageClassification",
                "ResNetConfig",
                num_labels=CLASSES,
                embedding_size=8,
                hidden_sizes=[16, 32],
                depths=[1, 1],
                layer_type="bottleneck",
            ),
            images,
            output="logits",
        ),
        Entry("DenseNet", "look-alike", DenseNet, images),
        Entry("MobileNetV3", "look-alike", mobilenet, images),
        Entry(
            "EfficientNet",
            "transformers",
            _transformers(
                "EfficientNetForImageClassification",
                "EfficientNetConfig",
                **_PICTURE,
                width_coefficient=0.2,
                depth_coefficient=0.2,
                hidden_dim=256,
                kernel_sizes=[3, 3],
                in_channels=[32, 16],
                out_channels=[16, 24],
                strides=[1, 2],
                num_block_repeats=[1, 1],
                expand_ratios=[1, 2],
                depthwise_padding=[],
            ),
            images,
            output="logits",
        ),
        Entry(
            "ConvNeXt",
            "transformers",
            _transformers(
                "ConvNextForImageClassification",
                "ConvNextConfig",
                **_PICTURE,
                hidden_sizes=[4, 8, 8, 8],
                depths=[1, 1, 1, 1],
            ),
            images,
            output="logits",
        ),
        Entry("ViT, torchvision", "look-alike", VisionTransformer, images),
        Entry(
            "ViT",
            "transformers",
            _transformers("ViTForImageClassification", "ViTConfig", **_PICTURE, **_SMALL, patch_size=16),
            images,
            output="logits",
        ),
        Entry(
            "BERT",
            "transformers",
            _transformers("BertForSequenceClassification", "BertConfig", **_TEXT, **_SMALL, num_labels=CLASSES),
            texts,
            output="logits",
        ),
        Entry(
            "GPT-2",
            "transformers",
            _transformers("GPT2LMHeadModel", "GPT2Config", **_TEXT, n_embd=8, n_layer=2, n_head=2),
            next_tokens,
            output="logits",
            **_TOKENS,
        ),
        Entry(
            "Llama",
            "transformers",
            _transformers("LlamaForCausalLM", "LlamaConfig", **_TEXT, **_SMALL, num_key_value_heads=1),
            next_tokens,
            output="logits",
            **_TOKENS,
        ),
        Entry("GPT-2 with LoRA", "peft", _lora, next_tokens, output="logits", **_TOKENS),
        Entry("U-Net, labels per pixel", "look-alike", UNet, pixels),
        Entry("LSTM tagger", "look-alike", Tagger, tagged, **_TOKENS),
        Entry("Graph network", "look-alike", GraphNet, graphs),
        Entry("Encoder with two heads", "look-alike", TwoHeads, images, output="classes", last_layer="classes"),
    )
}

METHODS: dict[str, Callable[..., bf.Method]] = {
    "Variational": bf.Variational,
    "Variational, flipout": lambda net, *rest, **more: bf.Variational(net, *rest, estimator="flipout", **more),
    "IVON": bf.IVON,
    "SWAG": lambda net, *rest, **more: bf.SWAG(net, *rest, rank=2, held_draws=2, **more),
    "MC dropout": lambda net, *rest, **more: bf.MCDropout(net, *rest, p=0.1, **more),
    "Laplace, last layer": bf.LaplaceApproximation,
    "Ensemble": lambda net, *rest, **more: bf.Ensemble(net, *rest, members=2, **more),
}


STEPS = ("train", "evaluate", "prune", "serve")
_served: list[Callable[[], nn.Module]] = []


def served() -> nn.Module:
    """The network of the run that is being served: a server is given the name of a function that makes it."""
    return _served[-1]()


def try_one(entry: Entry, method: str, folder: Path) -> dict[str, str]:
    """Each step: `yes`, or the line with which it is refused; what was not trained is not tried further.

    `train` is to make, train, predict, save and load: the loaded method predicts the same numbers.
    """
    torch.manual_seed(0)
    net, (x, y) = entry.make(), entry.data()
    try:
        random = {"bayesian": entry.last_layer} if method == "Laplace, last layer" else {}
        bnn = METHODS[method](net, entry.likelihood(), output=entry.output, **random)
        bnn.fit((x, y), epochs=4, batch_size=4, learning_rate=1e-3, progress=False)
        predictive = bnn.predict(x, draws=2)
    except (TypeError, ValueError, NotImplementedError) as problem:
        return {"train": _line(problem)}
    assert torch.isfinite(predictive.outputs).all()
    assert len(bnn.history) == 4
    bnn.save(folder)
    again = bf.load(folder, net)
    assert torch.equal(again.predict(x, draws=2).outputs, predictive.outputs)
    assert float((predictive.outputs[0] - predictive.outputs[1]).abs().max()) > 0
    found = {"train": "yes"}
    for step, attempt in (
        ("evaluate", lambda: _evaluate(bnn, x, y)),
        ("prune", lambda: _prune(bnn, x)),
        ("serve", lambda: _serve(bnn, net, folder, x)),
    ):
        try:
            attempt()
            found[step] = "yes"
        except (TypeError, ValueError, NotImplementedError, bf.errors.RunError) as problem:
            found[step] = _line(problem)
    return found


def _evaluate(bnn: bf.Method, x: Any, y: Tensor) -> None:
    scores = bf.evaluate(bnn, (x, y), draws=2)
    assert scores.nll > 0
    assert 0 <= scores.accuracy <= 1


def _prune(bnn: bf.Method, x: Any) -> None:
    small = bf.prune(bnn, 0.5)
    zeros = float((small.mean_weights == 0).float().mean())
    assert 0.3 < zeros < 0.6  # biases and normalisation stay
    assert torch.isfinite(small.predict(x, draws=2).outputs).all()


def _serve(bnn: bf.Method, net: nn.Module, folder: Path, x: Any) -> None:
    from bayesify.serving.models import Registry

    _served.append(lambda: net)
    registry = Registry([folder], draws=2, network="zoo:served")
    registry.load()
    if registry.failure is not None:
        raise registry.failure
    model = registry.get(folder.name)
    x = next(iter(x.values())) if isinstance(x, dict) else x
    given = model.predictor.predict(model.preparation.apply(x), 2, 0).outputs
    torch.testing.assert_close(given, bnn.predict(x, draws=2, seed=0).outputs, rtol=1e-3, atol=1e-4)


def _line(problem: Exception) -> str:
    return str(problem).splitlines()[0]
