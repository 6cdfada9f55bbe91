"""Tasks one after another, learned in one of several ways, and the accuracy on every task so far.

posterior   variational: the posterior of the tasks so far is the prior of the next, with and without coresets
ewc         plain networks with a normal prior around their last weights, as precise as the Fisher information says
fine-tuned  plain networks that go on from their last weights
joint       plain networks that are trained on all tasks at once

The networks of all seeds are trained side by side. Split tasks use two outputs each of one last layer; the weights of
the other outputs are left alone, so each task has its own head.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bayesify.data import open_data
from bayesify_studies.experiments.learning_on import stacked
from bayesify_studies.experiments.learning_on.stacked import Plan, Shape, Task

WAYS = ("posterior", "ewc", "fine-tuned", "joint")
DRAWS = 20
Settings = Mapping[str, Any]


def sequences(kind: str, way: str, seeds: list[int], settings: Settings, device: str) -> dict[str, Any]:
    """All tasks of a kind (`permuted` or `split`) in one way; `accuracy` `[networks][tasks learned][tasks tested]`.

    With `choosing` the accuracy is on training images that are kept aside, otherwise on test images. Settings with a
    list of numbers give each network its own.
    """
    if device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(seeds[0])
    world = World(kind, seeds, settings, device)
    return _LEARN[way](world)


class World:
    """The images, the tasks and the shape of the networks."""

    def __init__(self, kind: str, seeds: list[int], settings: Settings, device: str) -> None:
        self.seeds, self.settings, self.device, self.split = seeds, settings, device, kind == "split"
        x, y, tested_x, tested_y = _digits(settings["data"])
        if settings["choosing"]:
            learned = len(y) * 5 // 6
            tested_x, tested_y, x, y = x[learned:], y[learned:], x[:learned], y[:learned]
        x, y = x[: settings["examples"]], y[: settings["examples"]]
        self.known = x.to(device), y.to(device)
        self.tested = tested_x.to(device), tested_y.to(device)
        self.count = 5 if self.split else int(settings["tasks"])
        self.shape = Shape([x.shape[1], settings["units"], settings["units"], 10])
        self.orders = [self._order(number, x.shape[1]) for number in range(self.count)]

    def column(self, name: str) -> Tensor:
        """A setting of every network, `[networks, 1]`."""
        given = self.settings[name]
        values = given if isinstance(given, list) else [given] * len(self.seeds)
        return torch.tensor(values, device=self.device, dtype=torch.float32).unsqueeze(1)

    def plan(self, **other: Any) -> Plan:
        own = {**self.settings, **other}
        return Plan(own["epochs"], own["batch_size"], self.column("rate"))

    def training(self, number: int, aside: int = 0) -> tuple[Task, Task]:
        """The training examples of a task without those that are kept aside, and these."""
        task = self._task(number, self.known[1])
        mixed = torch.stack([self._mixed(seed, number, task.rows.shape[1]) for seed in self.seeds]).to(self.device)
        rows = task.rows.gather(1, mixed)
        return Task(rows[:, aside:], task.order, task.outputs), Task(rows[:, :aside], task.order, task.outputs)

    def test(self, number: int) -> Task:
        return self._task(number, self.tested[1])

    def mask(self, number: int) -> Tensor | None:
        return self.shape.mask(self._outputs(number), self.device) if self.split else None

    def _outputs(self, number: int) -> slice:
        return slice(2 * number, 2 * number + 2) if self.split else slice(0, 10)

    def _task(self, number: int, labels: Tensor) -> Task:
        outputs = self._outputs(number)
        rows = torch.nonzero((labels >= outputs.start) & (labels < outputs.stop)).squeeze(1)
        return Task(rows.expand(len(self.seeds), -1), self.orders[number], outputs)

    def _order(self, number: int, pixels: int) -> Tensor:
        """The order of the pixels of each network; the first task, and split tasks, have the images as they are."""
        if self.split or number == 0:
            return torch.arange(pixels, device=self.device).expand(len(self.seeds), -1)
        orders = [_permutation(1000 * seed + number, pixels) for seed in self.seeds]
        return torch.stack(orders).to(self.device)

    @staticmethod
    def _mixed(seed: int, number: int, count: int) -> Tensor:
        return _permutation(1000 * seed + 500 + number, count)


def _permutation(seed: int, count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _posterior(world: World) -> dict[str, Any]:
    shape, settings = world.shape, world.settings
    mu = shape.start(world.seeds, world.device)
    rho = world.column("rho").expand_as(mu).contiguous()
    prior = torch.zeros_like(mu), world.column("prior").expand_as(mu).contiguous()
    rows, kept = [], []
    for number in range(world.count):
        task, aside = world.training(number, settings["coreset"])
        stacked.fit_variational((mu, rho), prior, task, world.plan(), shape, world.known, world.mask(number))
        kept.append(aside)
        learned = _learned(world.mask(number), prior, (mu, rho))
        prior = learned
        rows.append([_tested(world, (mu, rho), one) for one in range(number + 1)])
    again = {"epochs": settings["rehearsals"], "batch_size": settings["rehearsal_batch_size"]}
    rehearsed = _rehearsed(world, (mu, rho), kept, world.plan(**again))
    return {"accuracy": _by_network(rows), "rehearsed": [list(one) for one in zip(*rehearsed, strict=True)]}


def _learned(mask: Tensor | None, prior: tuple[Tensor, Tensor], posterior: tuple[Tensor, Tensor]) -> Any:
    """The next prior: the posterior, and the first prior for heads that no task has used."""
    mean, deviation = posterior[0].clone(), functional.softplus(posterior[1])
    if mask is None:
        return mean, deviation
    return torch.where(mask > 0, mean, prior[0]), torch.where(mask > 0, deviation, prior[1])


def _rehearsed(world: World, posterior: tuple[Tensor, Tensor], kept: list[Task], plan: Plan) -> list[list[float]]:
    """Accuracies `[tasks][networks]` after one more fit to the coresets: to all of them, or to that of each head."""
    prior = posterior[0].clone(), functional.softplus(posterior[1])
    if world.split:
        found = []
        for number, task in enumerate(kept):
            own = posterior[0].clone(), posterior[1].clone()
            stacked.fit_variational(own, prior, task, plan, world.shape, world.known, world.mask(number))
            found.append(_tested(world, own, number))
        return found
    own = posterior[0].clone(), posterior[1].clone()
    data, together = _together(world, kept)
    stacked.fit_variational(own, prior, together, plan, world.shape, data)
    return [_tested(world, own, number) for number in range(world.count)]


def _together(world: World, tasks: list[Task]) -> tuple[tuple[Tensor, Tensor], Task]:
    """Permuted tasks as one: their images are written out, a block of rows for each network."""
    blocks = [
        task.batch(*world.known, torch.arange(task.rows.shape[1], device=world.device).expand_as(task.rows))
        for task in tasks
    ]
    x, y = (torch.cat(parts, 1) for parts in zip(*blocks, strict=True))
    networks, examples = y.shape
    rows = torch.arange(networks * examples, device=world.device).view(networks, examples)
    order = torch.arange(x.shape[2], device=world.device).expand(networks, -1)
    return (x.flatten(0, 1), y.flatten()), Task(rows, order, slice(0, 10))


def _tested(world: World, posterior: tuple[Tensor, Tensor], number: int) -> list[float]:
    mu, deviation = posterior[0], functional.softplus(posterior[1])
    return stacked.accuracies(
        lambda _: torch.addcmul(mu, deviation, torch.randn_like(mu)),
        DRAWS,
        world.test(number),
        world.shape,
        world.tested,
    )


def _ewc(world: World) -> dict[str, Any]:
    """Online: the Fisher information of the tasks adds up, each at the weights after its task."""
    return _plain(world, world.column("strength"))


def _fine_tuned(world: World) -> dict[str, Any]:
    return _plain(world, None)


def _plain(world: World, strength: Tensor | None) -> dict[str, Any]:
    theta = world.shape.start(world.seeds, world.device)
    centre, precision = torch.zeros_like(theta), torch.ones_like(theta)
    rows = []
    for number in range(world.count):
        task, _ = world.training(number)
        prior = None if strength is None else (centre, precision)
        stacked.fit_plain(theta, prior, task, world.plan(), world.shape, world.known, world.mask(number))
        if strength is not None:
            information = stacked.fisher(theta, task, world.shape, world.known)
            precision = precision + strength * task.rows.shape[1] * information
            centre = theta.clone()
        rows.append([_tested_plain(world, theta, one) for one in range(number + 1)])
    return {"accuracy": _by_network(rows)}


def _joint(world: World) -> dict[str, Any]:
    """All tasks at once; with heads, all ten classes in one network, of which a task compares its two."""
    theta = world.shape.start(world.seeds, world.device)
    plan = world.plan(epochs=world.settings["joint_epochs"])
    if world.split:
        every = torch.arange(len(world.known[1]), device=world.device).expand(len(world.seeds), -1)
        stacked.fit_plain(theta, None, Task(every, world.orders[0], slice(0, 10)), plan, world.shape, world.known)
    else:
        tasks = [world.training(number)[0] for number in range(world.count)]
        stacked.fit_plain(theta, None, _Mixture(tasks), plan, world.shape, world.known)
    return {"accuracy": _by_network([[_tested_plain(world, theta, number) for number in range(world.count)]])}


class _Mixture(Task):
    """Permuted tasks as one: place `k * n + i` is example i of task k."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__(torch.cat([task.rows for task in tasks], 1), tasks[0].order, tasks[0].outputs)
        object.__setattr__(self, "orders", torch.stack([task.order for task in tasks], 1))
        object.__setattr__(self, "each", tasks[0].rows.shape[1])

    def batch(self, images: Tensor, labels: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        found: Any = self
        rows, task = self.rows.gather(1, places), places // found.each
        networks = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        return images[rows.unsqueeze(-1), found.orders[networks, task]], labels[rows]


def _tested_plain(world: World, theta: Tensor, number: int) -> list[float]:
    return stacked.accuracies(lambda _: theta, 1, world.test(number), world.shape, world.tested)


_LEARN = {"posterior": _posterior, "ewc": _ewc, "fine-tuned": _fine_tuned, "joint": _joint}


def _by_network(rows: list[list[list[float]]]) -> list[list[list[float]]]:
    """`[tasks learned][tasks tested][networks]` with the networks first."""
    return [[[values[network] for values in row] for row in rows] for network in range(len(rows[0][0]))]


@lru_cache(1)
def _digits(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images, flat, with grey levels from 0 to 1."""
    found = open_data(name)
    top = float(found.x_train.max())
    return (
        found.x_train.flatten(1).float() / top,
        found.y_train.long(),
        found.x_test.flatten(1).float() / top,
        found.y_test.long(),
    )
