"""Learning one task after another: the posterior of the tasks so far is the prior of the next.

    q_t(w)  approximates  p(data_t | w) q_{t-1}(w) / Z

(C. Nguyen, Y. Li, T. Bui and R. Turner, "Variational Continual Learning", 2018, arXiv:1710.10628). Means and widths of
a task start where the last task left them. Three additions are optional.

    coresets    some examples of each task are kept aside; `rehearse` fits the posterior to them once more, and that
                posterior predicts, while the next task goes on from the one before
    heads       each task has its own last layer
    discount    the old data count for less: prior = q_{t-1}^(1 - discount) p_0^discount
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import runs
from bayesify.errors import RunError, at_least
from bayesify.evaluation import read_targets
from bayesify.functional.selection import select
from bayesify.methods import Variational, saving
from bayesify.predictive import Predictive
from bayesify.priors import Normal, Posterior, Pretrained, WeightPrior
from bayesify.priors.text import parse
from bayesify.runs import tensor_files
from bayesify.training.loop import History


class Continual:
    """A variational network that learns tasks one after another, with its posterior as the next prior.

    Args:
        method: a `Variational` of the family `mean_field`, untrained, whose prior is that of the first task.
        coreset: examples of each task to keep for `rehearse`; they are not trained on before.
        heads: whether each task has its own last layer; predictions then need the task.
        discount: how much of the old data is forgotten with each task, from 0 (nothing) to below 1. Above 0 the prior
            of the method must be a normal.
        seed: of the choice of the coresets.
        learned: the names of tasks that a trained method has learned already, such as `["before"]`; the next task
            goes on from its posterior. There is no coreset of these.

    Attributes:
        method: the posterior after the last task.
        tasks: the names of the tasks, in their order.

    Raises:
        TypeError: if the method is not `Variational`.
        ValueError: if its family is not `mean_field`, its prior has random scales, or a number is out of range.

    Examples:
        >>> from bayesify.decisions import Continual
        >>> learner = Continual(bf.Variational(net, "categorical", prior="normal:1", seed=0), coreset=5)
        >>> for task in ("monday", "tuesday"):
        ...     history = learner.learn((x, y), task, epochs=20, learning_rate=0.05, progress=False)
        >>> learner.rehearse(epochs=5, learning_rate=0.01, progress=False)
        >>> learner.tasks, learner.predict(x).probs.shape
        (['monday', 'tuesday'], torch.Size([60, 3]))

    """

    def __init__(
        self,
        method: Variational,
        *,
        coreset: int = 0,
        heads: bool = False,
        discount: float = 0.0,
        seed: int = 0,
        learned: Sequence[str] = (),
    ) -> None:
        if not isinstance(method, Variational):
            raise TypeError(
                f"Continual needs means and standard deviations to go on from: use Variational, got "
                f"{type(method).__name__}"
            )
        if method.family != "mean_field":
            raise ValueError(f"Continual takes family='mean_field', got {method.family!r}")
        assert method.prior is not None
        if method.prior.scale_variables or method.log_noise is not None:
            raise ValueError("Continual takes a prior and a noise with fixed scales, such as normal:1 and gaussian:0.1")
        if not 0 <= discount < 1:
            raise ValueError(f"discount must be from 0 to below 1, got {discount}")
        self.coreset = at_least("coreset", coreset, 0)
        self.discount, self.seed = discount, seed
        self.method = method
        self.first_prior = dict(method.prior.patterns)
        self._check_discount()
        self.tasks: list[str] = list(learned)
        if heads and learned:
            raise ValueError("heads=True needs to learn every task itself: leave out learned")
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}
        self._rehearsed: dict[str, Variational] = {}
        self._head_names: set[str] = set()
        self._head: Tensor | None = None
        if heads:
            self._head_names, self._head = _last_layer(method)
        self._heads: dict[str, tuple[Tensor, Tensor]] = {}
        self._first_head = None if self._head is None else _cut(method, self._head)

    def learn(self, data: Any, task: str | None = None, **fit: Any) -> History:
        """Learn the next task.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`.
            task: its name; None numbers the tasks.
            fit: settings of `Variational.fit`.

        Returns:
            The history of the fit.

        Raises:
            ValueError: if the task was learned before, or has no more examples than the coreset.

        """
        name = str(len(self.tasks)) if task is None else task
        if name in self.tasks:
            raise ValueError(f"the task {name!r} was learned before: give the new one its own name")
        self._check_discount()
        x, y = self._examples(data)
        if len(x) != len(y):
            raise ValueError(f"x and y must have the same length, got {len(x)} and {len(y)}")
        if len(y) <= self.coreset:
            raise ValueError(f"a task needs more than the {self.coreset} examples of its coreset, got {len(y)}")
        kept, rest = self._divide(len(y), len(self.tasks))
        method = self._next() if self.tasks else self.method
        history = method.fit((x[rest], y[rest]), **fit)
        self.method, self._rehearsed = method, {}
        self.tasks.append(name)
        if self.coreset:
            self._kept[name] = x[kept].cpu(), y[kept].cpu()
        if self._head is not None:
            self._heads[name] = _cut(method, self._head)
        return history

    def rehearse(self, **fit: Any) -> None:
        """Fit the posterior to the coresets of all tasks; predictions use the result until the next task is learned.

        Args:
            fit: settings of `Variational.fit`.

        Raises:
            ValueError: if there is no coreset.

        """
        if not self._kept:
            raise ValueError("there is nothing to rehearse: make Continual(..., coreset=200) and learn a task")
        self._rehearsed = {}
        if self._head is None:
            x, y = (torch.cat(parts) for parts in zip(*self._kept.values(), strict=True))
            method = self._with_prior(self.method, Posterior(self.method))
            method.fit((x, y), **fit)
            self._rehearsed = dict.fromkeys(self.tasks, method)
            return
        for task, examples in self._kept.items():
            before = self.method_for(task)
            method = self._with_prior(before, Posterior(before))
            method.fit(examples, **fit)
            self._rehearsed[task] = method

    def method_for(self, task: str | None = None) -> Variational:
        """The posterior that predicts a task.

        Args:
            task: its name; None is the last one, and may be left out where tasks have no heads.

        Returns:
            The method; a copy where tasks have heads.

        Raises:
            ValueError: if the task is unknown, or nothing was learned.

        """
        if not self.tasks:
            raise ValueError("no task was learned: call learn first")
        if task is None and self._head is not None and len(self.tasks) > 1:
            raise ValueError(f"each task has its own last layer: name the task, one of {', '.join(self.tasks)}")
        name = self.tasks[-1] if task is None else task
        if name not in self.tasks:
            raise ValueError(f"the task {name!r} was not learned; known are {', '.join(self.tasks)}")
        if name in self._rehearsed:
            return self._rehearsed[name]
        if self._head is None:
            return self.method
        method = copy.deepcopy(self.method)
        _paste(method, self._head, self._heads[name])
        return method

    def predict(self, x: Any, task: str | None = None, *, draws: int = 100, seed: int = 0) -> Predictive:
        """Predict inputs of a task.

        Args:
            x: inputs `[n, ...]`.
            task: the task that they belong to; needed where tasks have heads.
            draws: number of posterior draws.
            seed: of the draws.

        Returns:
            The prediction.

        """
        return self.method_for(task).predict(x, draws=draws, seed=seed)

    def save(self, folder: str | Path) -> Path:
        """Write the method that predicts to a run folder, and beside it what the next task needs.

        Args:
            folder: a run folder, which `bayesify.load` and the commands read too.

        Returns:
            The folder.

        Raises:
            ValueError: nothing was learned.

        """
        if not self.tasks:
            raise ValueError("no task was learned: call learn first")
        predicting = self.method if self._head is not None else self.method_for()
        place = predicting.save(folder)
        tensors: dict[str, Tensor] = {"mu": self.method.mu, "rho": self.method.rho}
        # Without heads the run folder has the one posterior that was rehearsed.
        rehearsed = {} if self._head is None else self._rehearsed
        again = {task: (method.mu, method.rho) for task, method in rehearsed.items()}
        for kind, parts in (("kept", self._kept), ("head", self._heads), ("rehearsed", again)):
            for task, (first, second) in parts.items():
                number = self.tasks.index(task)
                tensors |= {f"{kind}.{number}.0": first, f"{kind}.{number}.1": second}
        if self._first_head is not None:
            tensors |= {"first_head.0": self._first_head[0], "first_head.1": self._first_head[1]}
        state = {
            "tasks": self.tasks,
            "coreset": self.coreset,
            "heads": self._head is not None,
            "discount": self.discount,
            "seed": self.seed,
            "first_prior": {pattern: prior.text for pattern, prior in self.first_prior.items()},
            "weights": saving.weights_digest(predicting),
        }
        tensor_files.write(place / runs.CONTINUAL, tensors, state)
        return place

    @classmethod
    def load(cls, folder: str | Path, network: Any = None) -> Continual:
        """What `save` wrote, to learn the next task.

        Args:
            folder: the run folder.
            network: the network, where it is not built in, as for `bayesify.load`.

        Returns:
            The learner.

        Raises:
            RunError: the folder has none, or its method was changed afterwards.

        """
        file = Path(folder) / runs.CONTINUAL
        if not file.is_file():
            raise RunError(
                f"{folder} was not written by Continual.save: use Continual(bf.load(folder), learned=[name])"
            )
        predicting = saving.load(Path(folder), network=network)
        tensors, state = tensor_files.read(file)
        if not isinstance(predicting, Variational) or state.get("weights") != saving.weights_digest(predicting):
            raise RunError(
                f"{file} was made for other weights: go on from a folder as learn-on or Continual.save wrote it"
            )
        method = copy.deepcopy(predicting)
        with torch.no_grad():
            method.mu.copy_(tensors["mu"])
            method.rho.copy_(tensors["rho"])
        learner = cls(method, coreset=state["coreset"], heads=state["heads"], seed=state["seed"])
        learner.first_prior = {pattern: parse(text) for pattern, text in state["first_prior"].items()}
        learner.discount, learner.tasks = state["discount"], list(state["tasks"])
        for kind, parts in (("kept", learner._kept), ("head", learner._heads)):
            for number, task in enumerate(learner.tasks):
                if f"{kind}.{number}.0" in tensors:
                    parts[task] = tensors[f"{kind}.{number}.0"], tensors[f"{kind}.{number}.1"]
        if learner._head is None:
            learner._rehearsed = dict.fromkeys(learner.tasks, predicting)
        else:
            learner._first_head = tensors["first_head.0"], tensors["first_head.1"]
            learner._rehearsed = {
                task: learner._with_weights(tensors[f"rehearsed.{number}.0"], tensors[f"rehearsed.{number}.1"])
                for number, task in enumerate(learner.tasks)
                if f"rehearsed.{number}.0" in tensors
            }
        return learner

    def _check_discount(self) -> None:
        """A discount mixes the old posterior with the first prior, which must be a normal."""
        priors = list(self.first_prior.values())
        first = priors[0]
        fixed = isinstance(first, Normal) and not isinstance(first, Pretrained) and isinstance(first.scale, Real)
        if self.discount and (len(priors) != 1 or not fixed):
            given = ", ".join(prior.text for prior in priors)
            raise ValueError(f"discount needs one normal prior for all weights, such as normal:1, got {given}")

    def _examples(self, data: Any) -> tuple[Tensor, Tensor]:
        if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[0], dict):
            return torch.as_tensor(data[0]), torch.as_tensor(data[1])
        x, y = read_targets(self.method, data)
        if not isinstance(x, Tensor):
            raise TypeError(f"Continual takes inputs in one tensor, got {type(x).__name__}")
        return x, y

    def _with_weights(self, mu: Tensor, rho: Tensor) -> Variational:
        """A copy of the method with other means and widths."""
        method = copy.deepcopy(self.method)
        with torch.no_grad():
            method.mu.copy_(mu)
            method.rho.copy_(rho)
        return method

    def _next(self) -> Variational:
        """The method of the next task: it starts at the last posterior, which is its prior."""
        method = copy.deepcopy(self.method)
        if self._head is not None and self._first_head is not None:
            _paste(method, self._head, self._first_head)  # a new head starts as the first one did
        otherwise = next(iter(self.first_prior.values()))
        prior = Posterior(self.method, otherwise=otherwise if self.discount else None, power=1 - self.discount)
        if self._head is not None:
            assert prior.known is not None
            prior.known = {name: pair for name, pair in prior.known.items() if name not in self._head_names}
            prior.otherwise = otherwise
        return self._with_prior(method, prior)

    @staticmethod
    def _with_prior(method: Variational, prior: Posterior) -> Variational:
        method = copy.deepcopy(method)
        device = method.mu.device
        method.prior = WeightPrior(prior, method.network.weights, method.network.initial.cpu()).to(device)
        return method

    def _divide(self, examples: int, number: int) -> tuple[Tensor, Tensor]:
        order = torch.randperm(examples, generator=torch.Generator().manual_seed(self.seed * 1000 + number))
        return order[: self.coreset], order[self.coreset :]


def _last_layer(method: Variational) -> tuple[set[str], Tensor]:
    """The names of the last layer's tensors, and the places of their elements in the flat vector."""
    network = method.network
    names = select(network.module(), [place.name for place in network.places], "last_layer")
    places = [place for place in network.places if place.name in names]
    if not all(place.random for place in places):
        raise ValueError("heads=True needs a random last layer: use bayesian='all'")
    return names, torch.cat([torch.arange(place.start, place.stop) for place in places])


def _cut(method: Variational, head: Tensor) -> tuple[Tensor, Tensor]:
    """Means and widths (before softplus) of the elements of a head."""
    return tuple(values.detach()[head.to(values.device)].clone() for values in (method.mu, method.rho))  # type: ignore[return-value]


def _paste(method: Variational, head: Tensor, values: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        for parameter, own in zip((method.mu, method.rho), values, strict=True):
            parameter[head.to(parameter.device)] = own.to(parameter)
