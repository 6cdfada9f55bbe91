"""What a training over many devices needs: memory, bytes moved and time per step, from formulas and a simulation.

    python studies/scripts/scale_plan.py                                  # 7 billion weights on 64 devices
    python studies/scripts/scale_plan.py --weights 1e9 --devices 16 --json

Every number comes from the arguments. Speeds are those that the makers of the hardware state, times a share that is
reached; they are assumptions, to be replaced by measurements. The exchange of gradients is also simulated message by
message, on rings within and between nodes, and must agree with its formula.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

GB = 1e9


@dataclass(frozen=True)
class Machine:
    """A cluster of equal nodes.

    Args:
        devices: all of them.
        per_node: devices of one node.
        memory: bytes of one device.
        flops: arithmetic of one device in a second, in bfloat16.
        reached: the share of it that training reaches.
        memory_speed: bytes that a device reads or writes in a second.
        inside: bytes a second from a device to the next one in its node.
        between: bytes a second from a device to one of another node.
        latency: seconds of one message.

    """

    devices: int = 64
    per_node: int = 8
    memory: float = 80 * GB
    flops: float = 990e12
    reached: float = 0.4
    memory_speed: float = 3350 * GB
    inside: float = 450 * GB
    between: float = 50 * GB
    latency: float = 10e-6


@dataclass(frozen=True)
class Method:
    """How many numbers of 4 bytes a method keeps for each random weight, and how many it exchanges."""

    kept: int  # parameters and moments of the optimiser
    gradients: int
    passing: int  # drawn weights and their noise

    @property
    def bytes_per_weight(self) -> int:
        return 4 * (self.kept + self.gradients + self.passing)


# Means, widths and two moments of Adam for each; mean, curvature and momentum; weights and two moments.
METHODS = {"variational": Method(6, 2, 2), "ivon": Method(3, 2, 2), "point": Method(3, 1, 0)}


def ring(size: float, devices: int, speed: float, latency: float) -> float:
    """Seconds of an all-reduce on one ring, by the formula: 2 (K - 1) rounds of 1 / K of the bytes."""
    return 2 * (devices - 1) * (latency + size / devices / speed) if devices > 1 else 0.0


def hierarchical(size: float, machine: Machine) -> float:
    """Seconds of an all-reduce within nodes, between nodes of each device's share, and within nodes again."""
    inside = min(machine.per_node, machine.devices)
    return ring(size, inside, machine.inside, machine.latency) + ring(
        size / inside, machine.devices // inside, machine.between, machine.latency
    )


def simulated(size: float, machine: Machine) -> float:
    """The same exchange, message by message: every device sends when it has received what it is to pass on."""
    inside = min(machine.per_node, machine.devices)
    nodes = machine.devices // inside
    clock = [[0.0] * inside for _ in range(nodes)]

    def rounds(rings: list[list[tuple[int, int]]], count: int, message: float, speed: float) -> None:
        for _ in range(count):
            for members in rings:
                sent = [clock[node][device] for node, device in members]
                for place, (node, device) in enumerate(members):
                    # A device has this round's message once its neighbour had it, and it has finished its own.
                    arrives = sent[place - 1] + machine.latency + message / speed
                    clock[node][device] = max(clock[node][device], arrives)

    within = [[(node, device) for device in range(inside)] for node in range(nodes)]
    across = [[(node, device) for node in range(nodes)] for device in range(inside)]
    rounds(within, inside - 1, size / inside, machine.inside)
    rounds(across, 2 * (nodes - 1), size / inside / nodes, machine.between)
    rounds(within, inside - 1, size / inside, machine.inside)
    return max(max(times) for times in clock)


def plan(weights: float, random: float, tokens: float, method: str, machine: Machine) -> dict[str, object]:
    """Memory, bytes and seconds of a step, for copies on every device and for shards.

    Args:
        weights: of the network; those that are not random are frozen, in 2 bytes each.
        random: weights that have a posterior and are trained.
        tokens: examples (or tokens) of a step over all devices.
        method: its name.
        machine: the cluster.

    """
    one, count = METHODS[method], machine.devices
    frozen = 2 * (weights - random)
    copies = frozen + one.bytes_per_weight * random
    # Shards: what is kept and its gradients are divided; the drawn weights of all layers, in 2 bytes, are gathered.
    shards = frozen + 4 * (one.kept + one.gradients + 1) * random / count + 2 * random
    passes = 4 * weights + 2 * random  # forward, gradients of activations, gradients of the random weights
    exchanged = 4 * one.gradients * random
    gathered = (count - 1) / count * (2 * 2 * random + 4 * one.gradients * random)
    through = min(count, machine.per_node) * machine.between if count > machine.per_node else float("inf")
    return {
        "method": method,
        "weights": weights,
        "random_weights": random,
        "copies": {
            "memory_gb": copies / GB,
            "fits": copies < machine.memory,
            "bytes_exchanged_gb": exchanged / GB,
            "exchange_s": hierarchical(exchanged, machine),
            "exchange_simulated_s": simulated(exchanged, machine),
            "draw_s": 16 * random / machine.memory_speed,
        },
        "shards": {
            "memory_gb": shards / GB,
            "fits": shards < machine.memory,
            "bytes_exchanged_gb": gathered / GB,
            "exchange_s": gathered / through + gathered / machine.inside,
            "draw_s": 16 * random / count / machine.memory_speed,
        },
        "compute_s": passes * tokens / (machine.flops * machine.reached * count),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=float, default=7e9)
    parser.add_argument("--random", type=float, default=None, help="random weights, for a third plan")
    parser.add_argument("--tokens", type=float, default=1e6, help="tokens of a step over all devices")
    parser.add_argument("--json", action="store_true")
    for name, value in asdict(Machine()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = parser.parse_args()
    machine = Machine(**{name: getattr(options, name) for name in asdict(Machine())})
    partly = options.weights / 350 if options.random is None else options.random
    plans = [
        plan(options.weights, random, options.tokens, method, machine)
        for method, random in (
            ("point", options.weights),
            ("variational", options.weights),
            ("ivon", options.weights),
            ("variational", partly),
            ("ivon", partly),
        )
    ]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "tokens": options.tokens, "plans": plans}, indent=1))
        return
    print("| method | random weights | kept as | memory, GB | fits | moved, GB | exchange, s | simulated | compute |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for one in plans:
        for kind in ("copies", "shards"):
            part = one[kind]
            assert isinstance(part, dict)
            simulation = f"{part['exchange_simulated_s']:.3f}" if "exchange_simulated_s" in part else ""
            print(
                f"| {one['method']} | {one['random_weights']:.3g} | {kind} | {part['memory_gb']:.1f} | "
                f"{'yes' if part['fits'] else 'no'} | {part['bytes_exchanged_gb']:.2f} | {part['exchange_s']:.3f} | "
                f"{simulation} | {one['compute_s']:.2f} |"
            )


if __name__ == "__main__":
    main()
