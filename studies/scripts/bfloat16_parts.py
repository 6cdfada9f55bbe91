"""Why bfloat16 agrees between numbers of processes to 1e-2 only: where the rounding happens.

    python studies/scripts/bfloat16_parts.py

The gradient of a batch is computed at once and as the sum of its parts, as K processes do. Under autocast the product
that sums a weight's gradient over the examples of a part returns bfloat16, with 8 bits. The parts are added in float32
already; adding them in float64 changes nothing, because the bits are lost before.
"""

from __future__ import annotations

import json

import torch
from torch import nn


def gradient(net: nn.Module, x: torch.Tensor, y: torch.Tensor, parts: int, dtype: torch.dtype | None) -> torch.Tensor:
    """The gradient of the mean loss over a batch, from its parts, which are added in `dtype`; None without autocast."""
    total = torch.zeros(sum(p.numel() for p in net.parameters()), dtype=dtype or torch.float64)
    for xs, ys in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
            outputs = net(xs)
        loss = nn.functional.cross_entropy(outputs.float() if dtype is not None else outputs, ys)
        slopes = torch.autograd.grad(loss, list(net.parameters()))
        total += torch.cat([slope.reshape(-1) for slope in slopes]).to(total.dtype) * (len(xs) / len(x))
    return total.double()


def main() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
    x = torch.randn(1024, 64)
    y = x[:, :10].argmax(1)

    def apart(one: torch.Tensor, other: torch.Tensor) -> float:
        return float((one - other).norm() / other.norm())

    exact = gradient(net.double(), x.double(), y, 1, None)
    net.float()
    whole = gradient(net, x, y, 1, torch.float32)
    rows = {"1 part, from the exact gradient": apart(whole, exact)}
    for parts in (2, 4, 8):
        in_32, in_64 = (gradient(net, x, y, parts, dtype) for dtype in (torch.float32, torch.float64))
        rows[f"{parts} parts, from the exact gradient"] = apart(in_32, exact)
        rows[f"{parts} parts, from 1 part, added in float32"] = apart(in_32, whole)
        rows[f"{parts} parts, from 1 part, added in float64"] = apart(in_64, whole)
    print(json.dumps({name: f"{value:.2e}" for name, value in rows.items()}, indent=1))


if __name__ == "__main__":
    main()
