"""What a measurement was made on, in words that name hardware and versions and nothing of whose machine it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

import bayesify
from bayesify.errors import choose

DEVICES = ("cpu", "cuda")


def describe(device: str = "cpu", processor_file: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Processor, cores, threads and versions; on a GPU its name, its memory and the precision of products."""
    found: dict[str, Any] = {
        "processor": processor(processor_file),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "bayesify": bayesify.__version__,
    }
    if device.startswith("cuda"):
        card = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": card.name,
            "gpu_memory_gib": round(card.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
            "float32_products": torch.get_float32_matmul_precision(),
        }
    return found


def processor(file: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model, where the system says it."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable(device: str) -> str:
    """The device, if it is one that is measured and is here."""
    choose("device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda is not here: use --device cpu")
    return device
