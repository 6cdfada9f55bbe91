"""What a training over many devices needs: memory, bytes moved and time per step, from formulas and a simulation.

    python studies/scripts/scale_plan.py                                  # 7 billion weights on 64 devices
    python studies/scripts/scale_plan.py --weights 1e9 --devices 16 --json
    python studies/scripts/scale_plan.py --what search                    # a million settings
    python studies/scripts/scale_plan.py --what serving                   # ten thousand requests a second

Every number comes from the arguments. Speeds are those that the makers of the hardware state, times a share that is
reached; they are assumptions, to be replaced by measurements. The exchanges are also simulated message by message, on
rings within and between nodes, and must agree with their formulas. The search is simulated task by task with workers
that are lost, and the server request by request.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random as random_numbers
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
    """How many numbers of 4 bytes the library keeps for each random weight, and how many copies exchange."""

    kept: int  # parameters, moments of the optimiser, the last good state, the given weights
    gradients: int
    passing: int  # drawn weights and their noise

    @property
    def bytes_per_weight(self) -> int:
        return 4 * (self.kept + self.gradients + self.passing)


# Means, widths and two moments of Adam for each; mean, curvature and momentum; weights and two moments. Then a copy of
# the parameters after the last good epoch, and the weights that the network was given.
# `tests/distributed/test_sharded.py` counts them.
METHODS = {"variational": Method(6 + 3, 2, 2), "ivon": Method(3 + 3, 2, 2), "point": Method(3 + 2, 1, 0)}
# Buffers of one bucket that exist at a time: two gathered, padded copies of them, and a gradient with its padded copy.
BUCKETS_ALIVE = 6


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
    rings = Rings(machine)
    inside, nodes = rings.inside, rings.nodes
    rings.rounds("within", inside - 1, size / inside)
    rings.rounds("across", 2 * (nodes - 1), size / inside / nodes)
    rings.rounds("within", inside - 1, size / inside)
    return rings.seconds


class Rings:
    """The devices of a cluster with a clock each, on a ring in every node and one through each place of the nodes."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.inside = machine, min(machine.per_node, machine.devices)
        self.nodes = machine.devices // self.inside
        self.clock = [[0.0] * self.inside for _ in range(self.nodes)]

    def rounds(self, where: str, count: int, message: float) -> None:
        """Every device passes a message on to the next one, `count` times."""
        nodes, devices = range(self.nodes), range(self.inside)
        if where == "within":
            rings, speed = [[(node, device) for device in devices] for node in nodes], self.machine.inside
        else:
            rings, speed = [[(node, device) for node in nodes] for device in devices], self.machine.between
        for _ in range(count):
            for members in rings:
                sent = [self.clock[node][device] for node, device in members]
                for place, (node, device) in enumerate(members):
                    # A device has this round's message once its neighbour had it, and it has finished its own.
                    arrives = sent[place - 1] + self.machine.latency + message / speed
                    self.clock[node][device] = max(self.clock[node][device], arrives)

    @property
    def seconds(self) -> float:
        return max(max(times) for times in self.clock)


def gathering(size: float, buckets: int, machine: Machine) -> float:
    """Seconds in which every device gathers `size` bytes, of which it holds a part: between nodes, then within them.

    Adding a gradient and leaving each device its part takes as long, in the other order.
    """
    inside = min(machine.per_node, machine.devices)
    nodes, bucket = machine.devices // inside, size / buckets
    across = (nodes - 1) * (machine.latency + bucket / machine.devices / machine.between)
    return buckets * (across + (inside - 1) * (machine.latency + bucket / inside / machine.inside))


def gathering_simulated(size: float, buckets: int, machine: Machine) -> float:
    """The same, message by message, one bucket after the other."""
    rings = Rings(machine)
    for _ in range(buckets):
        rings.rounds("across", rings.nodes - 1, size / buckets / machine.devices)
        rings.rounds("within", rings.inside - 1, size / buckets / rings.inside)
    return rings.seconds


def plan(
    weights: float, random: float, tokens: float, method: str, machine: Machine, largest: float
) -> dict[str, object]:
    """Memory, bytes and seconds of a step, for copies on every device and for shards.

    Args:
        weights: of the network; those that are not random are frozen, in 2 bytes each.
        random: weights that have a posterior and are trained.
        tokens: examples (or tokens) of a step over all devices.
        method: its name.
        machine: the cluster.
        largest: weights of the largest tensor, which is gathered at once.

    """
    one, count = METHODS[method], machine.devices
    frozen = 2 * (weights - random)
    copies = frozen + one.bytes_per_weight * random
    # Shards: everything is divided; a bucket is gathered at a time.
    largest = min(largest, random)
    shards = frozen + one.bytes_per_weight * random / count + 4 * BUCKETS_ALIVE * largest
    passes = 4 * weights + 2 * random  # forward, gradients of activations, gradients of the random weights
    exchanged = 4 * one.gradients * random
    # Drawn weights in the forward and in the backward pass, and their gradient, in float32. Widths add nothing: each
    # device makes their gradient from that of the drawn weights and its own noise.
    exchanges, buckets = 3, max(1, round(random / max(largest / 3, 1)))
    gathered = (count - 1) / count * exchanges * 4 * random
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
            "exchange_s": exchanges * gathering(4 * random, buckets, machine),
            "exchange_simulated_s": exchanges * gathering_simulated(4 * random, buckets, machine),
            "draw_s": 16 * random / count / machine.memory_speed,
        },
        "compute_s": passes * tokens / (machine.flops * machine.reached * count),
    }


@dataclass(frozen=True)
class Search:
    """Many independent trainings.

    Args:
        settings: to be trained.
        seconds: of one of them on one device, in a fleet: 5.1 s, measured on one H200 (docs/results/paper-grid.md).
        slice: settings of one task, which a device trains side by side.
        weights: of one network.
        data: bytes of the training data, which each device keeps.
        row: bytes of the results of a setting.
        week: how often a device is lost in a week.
        spread: standard deviation of the time of a task, as a share of its mean.

    """

    settings: int = 1_000_000
    seconds: float = 5.1
    slice: int = 324
    weights: int = 478_410
    data: float = 55_000 * 785 * 4.0
    row: float = 400.0
    week: float = 0.5
    spread: float = 0.1


def search_plan(search: Search, machine: Machine) -> dict[str, object]:
    """Hours, memory and bytes of a search, by formula and by a simulation in which devices are lost."""
    tasks = -(-search.settings // search.slice)
    task = search.slice * search.seconds
    hours = tasks * task / machine.devices / 3600
    draw = random_numbers.Random(0)
    free = [0.0] * machine.devices
    waiting, lost, end = tasks, 0, 0.0
    while waiting:
        now = heapq.heappop(free)
        length = max(0.1, draw.gauss(1.0, search.spread)) * task
        fails = draw.expovariate(search.week / (7 * 24 * 3600)) if search.week else float("inf")
        if fails < length:
            lost += 1
            heapq.heappush(free, now + fails + 300)  # five minutes to notice and to start another
            continue
        waiting -= 1
        end = max(end, now + length)
        heapq.heappush(free, now + length)
    return {
        "tasks": tasks,
        "minutes_per_task": task / 60,
        "hours": hours,
        "hours_simulated": end / 3600,
        "tasks_lost": lost,
        "memory_gb": (METHODS["variational"].bytes_per_weight * search.weights * search.slice + search.data) / GB,
        "data_sent_gb": search.data * machine.devices / GB,
        "results_gb": search.row * search.settings / GB,
        "results_per_second": search.settings / (hours * 3600),
    }


@dataclass(frozen=True)
class Serving:
    """Workers with one thread each behind one port.

    Args:
        rate: requests a second, at random times.
        workers: how many.
        window: seconds that a worker waits for others to share a pass.
        batch: the most requests of one pass.
        each: seconds of a worker for one request (reading, writing, its part of the pass).
        start: seconds of a worker for a pass, whatever its size.
        weights: of the network.
        draws: of a prediction.
        body: bytes of a request and its answer.

    """

    rate: float = 10_000
    workers: int = 16
    window: float = 0.002
    batch: int = 64
    each: float = 0.0011
    start: float = 0.004
    weights: int = 478_410
    draws: int = 30
    body: float = 3_600


def serving_plan(serving: Serving, seconds: float = 60.0) -> dict[str, object]:
    """How busy the workers are, the latencies of a simulated minute, and what moves."""
    draw = random_numbers.Random(0)
    rate = serving.rate / serving.workers
    latencies, busy, arrivals, now = [], 0.0, [], 0.0
    while now < seconds:
        now += draw.expovariate(rate)
        arrivals.append(now)
    at, free = 0, 0.0
    while at < len(arrivals):
        begins = max(arrivals[at] + serving.window, free)
        last = at
        while last < len(arrivals) and arrivals[last] <= begins and last - at < serving.batch:
            last += 1
        took = serving.start + serving.each * (last - at)
        latencies += [begins + took - arrival for arrival in arrivals[at:last]]
        busy, free, at = busy + took, begins + took, last
    latencies.sort()
    return {
        "workers": serving.workers,
        "most_per_worker": serving.batch / (serving.start + serving.each * serving.batch),
        "busy": busy / max(free, seconds),
        "p50_ms": 1000 * latencies[len(latencies) // 2],
        "p99_ms": 1000 * latencies[int(0.99 * len(latencies))],
        "keeps_up": free < seconds + 1,
        "moved_mb_per_s": serving.rate * serving.body / 1e6,
        "memory_shared_mb": 2 * 4 * serving.weights / 1e6,
        "memory_of_a_worker_mb": 4 * serving.weights * serving.draws / 1e6,
        "tera_flop_per_s": 2 * serving.weights * serving.draws * serving.rate / 1e12,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=float, default=7e9)
    parser.add_argument("--random", type=float, default=None, help="random weights, for a third plan")
    parser.add_argument("--tokens", type=float, default=1e6, help="tokens of a step over all devices")
    parser.add_argument("--largest", type=float, default=131e6, help="weights of the largest tensor")
    parser.add_argument("--what", default="training", choices=("training", "search", "serving"))
    parser.add_argument("--workers", type=int, nargs="*", default=(10, 12, 14, 16, 20), help="of a server")
    parser.add_argument("--each", type=float, default=Serving.each, help="seconds of a worker for one request")
    parser.add_argument("--start", type=float, default=Serving.start, help="seconds of a worker for one pass")
    parser.add_argument("--json", action="store_true")
    for name, value in asdict(Machine()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = parser.parse_args()
    machine = Machine(**{name: getattr(options, name) for name in asdict(Machine())})
    if options.what != "training":
        if options.what == "search":
            rows = [search_plan(Search(slice=size), machine) for size in (32, 324, 3240)]
        else:
            timing = {"each": options.each, "start": options.start}
            rows = [serving_plan(Serving(workers=workers, **timing)) for workers in options.workers]
        print(json.dumps(rows, indent=1))
        return
    partly = options.weights / 350 if options.random is None else options.random
    plans = [
        plan(options.weights, random, options.tokens, method, machine, options.largest)
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
