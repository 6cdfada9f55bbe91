"""A small transformer over words, and the same with low-rank adapters beside its frozen layers.

h = W x + (alpha / r) B A x,    A [r, in] random, B [out, r] zero at the start    (E. Hu et al., "LoRA", 2021)
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RANK, ALPHA = 8, 16.0


class Transformer(nn.Module):
    """Words `[batch, length]`, zero where a text has ended, to logits `[batch, intents]`.

    Args:
        words: size of the vocabulary.
        intents: classes.
        length: the longest text.
        width: of each word's vector.
        blocks: how many.

    """

    def __init__(self, words: int, intents: int, length: int, width: int, blocks: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        nn.init.normal_(self.words.weight, std=0.5)
        nn.init.normal_(self.places.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(width, width // 32) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, intents)

    def forward(self, x: Tensor) -> Tensor:
        there = x != 0
        h = self.words(x) + self.places.weight
        for block in self.blocks:
            h = block(h, there)
        shares = there.to(h.dtype) / there.sum(-1, keepdim=True).clamp(min=1)
        logits: Tensor = self.head((self.norm(h) * shares.unsqueeze(-1)).sum(1))
        return logits


class Block(nn.Module):
    """Attention and a perceptron, each behind a normalisation and beside a sum.

    Args:
        width: of a vector.
        heads: of the attention.

    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, h: Tensor, there: Tensor) -> Tensor:
        inside = self.before(h)
        query, key, value = (
            layer(inside).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mask = torch.where(there, 0.0, -1e4).to(h.dtype)[:, None, None, :]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        h = h + self.out(mixed.transpose(1, 2).flatten(-2))
        found: Tensor = h + self.down(F.gelu(self.up(self.between(h))))
        return found


class Adapted(nn.Module):
    """A frozen layer with an adapter beside it; the names are those of PEFT.

    Args:
        layer: stays as it is.

    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.base = layer
        self.lora_A = nn.Linear(layer.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, layer.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + (ALPHA / RANK) * self.lora_B(self.lora_A(x))
        return found


def adapted(base: Transformer, intents: int) -> Transformer:
    """A copy of a trained transformer: frozen, with new adapters at every linear layer and a new head."""
    network = copy.deepcopy(base).requires_grad_(False)
    for block in network.blocks:
        for name, layer in list(block.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(block, name, Adapted(layer))
    network.head = nn.Linear(base.head.in_features, intents)
    return network
