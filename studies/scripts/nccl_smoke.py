"""One training step after another over NCCL, on the cards of a machine: does it start, and is it the same training?

    python studies/scripts/nccl_smoke.py                                     # one process, a group of one on NCCL
    torchrun --standalone --nproc-per-node=8 studies/scripts/nccl_smoke.py   # one process for each card
    torchrun --standalone --nproc-per-node=2 studies/scripts/nccl_smoke.py --backend gloo   # two on one card

Each method is trained with the group and without it (`distributed=False`), from the same start. In `sharded` rows each
process holds a part of the weights. The largest relative difference of their weights is printed, and the time of a
step, as JSON. `--out FILE` writes the results of each method as soon as they are known.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import bayesify as bf
from bayesify.distributed.group import Group, working_as
from bayesify.launch import is_first_process, launched_processes


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def network_without_statistics() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def methods() -> dict[str, tuple[Callable[[], bf.Method], bool | str]]:
    """What makes each method, and how its processes share the training."""
    plain: dict[str, Callable[[], bf.Method]] = {
        "point": lambda: bf.PointEstimate(network(), "categorical"),
        "mc-dropout": lambda: bf.MCDropout(network(), "categorical"),
        "variational": lambda: bf.Variational(network(), "categorical", prior="normal:1"),
        "variational local": lambda: bf.Variational(network(), "categorical", prior="normal:1", estimator="local"),
        "variational flipout": lambda: bf.Variational(network(), "categorical", prior="normal:1", estimator="flipout"),
        "ivon": lambda: bf.IVON(network(), "categorical", hessian_init=1.0),
        "swag": lambda: bf.SWAG(network(), "categorical", rank=3),
        "sgld": lambda: bf.SGLD(network_without_statistics(), "categorical", chains=2, samples=4),
        "sghmc": lambda: bf.SGHMC(network_without_statistics(), "categorical", chains=2, samples=4),
        "laplace": lambda: bf.LaplaceApproximation(network(), "categorical", subset="last_layer"),
    }
    every = {name: (make, True) for name, make in plain.items()}
    cut = ("point", "mc-dropout", "variational", "variational local", "variational flipout", "ivon", "swag")
    every |= {f"{name}, sharded": (plain[name], "sharded") for name in cut}
    own = {f"{name}, sharded, own draws": (plain[name], "sharded-own-draws") for name in ("variational", "ivon")}
    return every | (own if launched_processes() == 1 else {})


def train(method: bf.Method, data: tuple[torch.Tensor, torch.Tensor], device: str, together: bool | str) -> float:
    sampler = isinstance(method, bf.SGLD | bf.SGHMC)
    began = time.perf_counter()
    method.fit(
        data,
        epochs=5,
        batch_size=120,
        learning_rate=1e-4 if sampler else 0.01,
        device=device,
        progress=False,
        compiled=False,
        distributed=together,
    )
    return (time.perf_counter() - began) / method.history["step"][-1]


def weights(method: bf.Method) -> torch.Tensor:
    return torch.cat([parameter.detach().double().reshape(-1).cpu() for parameter in method.parameters()])


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 8 by 8 pixels in ten classes that can be told from them, without a file."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.rand(10, 1, 8, 8, generator=generator)
    y = torch.randint(10, (500,), generator=generator)
    return classes[y] + 0.3 * torch.randn(500, 1, 8, 8, generator=generator), y


def compare(name: str, data: tuple[torch.Tensor, torch.Tensor], device: str) -> dict[str, object]:
    make, how = methods()[name]
    together, alone = make(), make()
    group = working_as(Group(torch.device(device))) if launched_processes() == 1 else nullcontext()
    with group:
        seconds = train(together, data, device, how)
    without = train(alone, data, device, together=False)
    one, other = weights(alone), weights(together)
    return {
        "difference": float((one - other).norm() / one.norm()),
        "ms_per_step": round(1000 * seconds, 3),
        "ms_per_step_alone": round(1000 * without, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", help="names of methods")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = options.device
    if device == "cuda":
        number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(number)
        device = f"cuda:{number}"
    limit = timedelta(seconds=40)
    if launched_processes() == 1:
        dist.init_process_group(options.backend, store=dist.HashStore(), rank=0, world_size=1, timeout=limit)
    else:
        dist.init_process_group(options.backend, timeout=limit)
    about = {"processes": dist.get_world_size(), "backend": dist.get_backend(), "device": device}
    results: dict[str, object] = {}
    for name in options.only or methods():
        try:
            results[name] = compare(name, digits(), device)
        except Exception as problem:  # noqa: BLE001 -- the others are worth trying
            results[name] = {"error": f"{type(problem).__name__}: {problem}"}
        if is_first_process():
            text = json.dumps({**about, "torch": torch.__version__, "methods": results}, indent=1)
            if options.out is not None:
                options.out.write_text(text)
    if is_first_process():
        print(text)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
