"""One training step after another over NCCL, on the cards of a machine: does it start, and is it the same training?

    python studies/scripts/nccl_smoke.py                                     # one process, a group of one on NCCL
    torchrun --standalone --nproc-per-node=8 studies/scripts/nccl_smoke.py   # one process for each card
    torchrun --standalone --nproc-per-node=2 studies/scripts/nccl_smoke.py --backend gloo   # two on one card

Each method is trained with the group and without it (`distributed=False`), from the same start. The largest relative
difference of their weights is printed, and the time of a step, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import nullcontext

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


def methods() -> dict[str, bf.Method]:
    return {
        "point": bf.PointEstimate(network(), "categorical"),
        "mc-dropout": bf.MCDropout(network(), "categorical"),
        "variational": bf.Variational(network(), "categorical", prior="normal:1"),
        "variational local": bf.Variational(network(), "categorical", prior="normal:1", estimator="local"),
        "variational flipout": bf.Variational(network(), "categorical", prior="normal:1", estimator="flipout"),
        "ivon": bf.IVON(network(), "categorical", hessian_init=1.0),
        "swag": bf.SWAG(network(), "categorical", rank=3),
        "laplace": bf.LaplaceApproximation(network(), "categorical", subset="last_layer"),
    }


def train(method: bf.Method, data: tuple[torch.Tensor, torch.Tensor], device: str, together: bool) -> float:
    began = time.perf_counter()
    method.fit(
        data,
        epochs=5,
        batch_size=120,
        learning_rate=0.01,
        device=device,
        progress=False,
        compiled=False,
        distributed=together,
    )
    return (time.perf_counter() - began) / method.history["step"][-1]


def weights(method: bf.Method) -> torch.Tensor:
    return torch.cat([parameter.detach().double().reshape(-1).cpu() for parameter in method.parameters()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = options.device
    if device == "cuda":
        number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(number)
        device = f"cuda:{number}"
    if launched_processes() == 1:
        store = dist.HashStore()
        dist.init_process_group(options.backend, store=store, rank=0, world_size=1)
    elif options.backend == "gloo":
        dist.init_process_group("gloo")
    data = bf.data.load("digits")
    x = torch.as_tensor(data.x_train, dtype=torch.float32).reshape(-1, 1, 8, 8)[:500] / 16
    y = torch.as_tensor(data.y_train)[:500]
    results = {}
    for name, alone in methods().items():
        together = methods()[name]
        group = working_as(Group(torch.device(device))) if launched_processes() == 1 else nullcontext()
        with group:
            seconds = train(together, (x, y), device, together=True)
        without = train(alone, (x, y), device, together=False)
        one, other = weights(alone), weights(together)
        results[name] = {
            "difference": float((one - other).norm() / one.norm()),
            "ms_per_step": round(1000 * seconds, 3),
            "ms_per_step_alone": round(1000 * without, 3),
        }
    if is_first_process():
        about = {"processes": dist.get_world_size(), "backend": dist.get_backend(), "device": device}
        print(json.dumps({**about, "methods": results}, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
