"""Study D's networks (A. Singh, Bayesian Neural Networks), trained as it trained them or with Adam and a falling rate.

The study's loss is `KL * share + sum of the batch's -log p`, ours is that divided by the batch's size: its SGD step of
1e-3 at batches of 100 is 0.1 here. Its code counts the entropy of layer 2 twice and that of layer 3 never, which is an
ELBO with the term `-(H1 + 2 H2)` where `-(H1 + H2 + H3)` belongs; `miscount` makes the same mistake on purpose.

Networks are trained in fleets: seeds differ in start and noise, and share the order of the examples.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import Variational, networks
from bayesify.evaluation.pruning import prunable_weights
from bayesify.fleets import Fleet
from bayesify.likelihoods import Categorical
from bayesify.runs import tensor_files
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework.evidence import loss_per_example
from bayesify_studies.experiments.framework.examples import Pair, first
from bayesify_studies.experiments.framework.work import Work

BATCH = 100
HALF, QUARTER = "scale-mixture:0.5,1,0.00247875", "scale-mixture:0.25,1,0.00247875"  # the narrow part is e^-6 wide
# Where histograms of the means are counted: what lies beyond belongs to the outermost bins.
REACH, BINS, SNAPSHOTS = 0.5, 80, 6
# How many shifts of the draws' seed a test error is measured under, of as many draws as the study's.
STUDY_DRAWS = 10


@dataclass(frozen=True)
class Way:
    """How networks are trained."""

    optimizer: str
    rate: float
    schedule: str
    draws: int
    estimator: str
    start: str
    rho: float | str
    kl: str
    miscounted: bool
    keep: str


STUDY = Way("sgd", 0.1, "constant", 2, "weight", "uniform:-0.2,0.2", "uniform:-5,-4", "reweighted", True, "best")
COUNTED = replace(STUDY, miscounted=False)
ADAM = Way("adam", 1e-3, "cosine", 1, "local", "fresh", -5.0, "uniform", False, "last")
WAYS = {"study": STUDY, "counted": COUNTED, "adam": ADAM}


@dataclass(frozen=True)
class Images:
    """Training, validation and test examples, `(x, y)` each."""

    train: Pair
    validation: Pair
    test: Pair


@dataclass(frozen=True)
class Trained:
    """One network of a fleet: its name, seed, posterior, what was seen on the way and its validation error."""

    label: str
    seed: int
    method: Variational
    seen: list[dict[str, Any]]
    validation: float


def images(work: Work, normalise: str = "126", *, everything: bool = False) -> Images:
    """The preset's data; a sixth (10,000 of MNIST) is for validation, or trains too where there is nothing to choose.

    `validation` is always that sixth of the data: with `everything` it must not be used to choose.
    """
    recipe = Recipe(data=work["data"], normalise=normalise, validation=1 / 6, network="mlp")
    found = prepare_data(recipe)
    assert found.validation is not None
    train, validation, test = (first(part, work["examples"]) for part in (found.train, found.validation, found.test))
    if everything:
        train = torch.cat((train[0], validation[0])), torch.cat((train[1], validation[1]))
    return Images(train, validation, test)


def train(
    work: Work,
    name: str,
    way: Way,
    data: Images,
    members: dict[str, dict[str, Any]],
    *,
    units: int,
    epochs: int,
    seeds: Sequence[int],
    evaluate: Callable[[list[Trained]], dict[str, Any]],
) -> dict[str, Any]:
    """Train every member with every seed at once, and evaluate the networks; nothing but that answer is kept.

    A member has a `prior` and may have a `kl` and a `rate` other than the way's.
    """
    labels = [(label, seed) for label in members for seed in seeds]
    every = [members[label] for label, _ in labels]
    methods = [network(way, data, one["prior"], units, seed) for one, (_, seed) in zip(every, labels, strict=True)]
    if way.miscounted:
        # A fleet has one objective, that of its first network.
        miscount(methods[0])
    home = work.folder / "runs" / name
    fleet = Fleet(methods)
    watch = Watch(fleet, data.validation, epochs, home / "watch.safetensors")
    fleet.fit(
        data.train,
        learning_rates=[one.get("rate", way.rate) for one in every],
        epochs=epochs,
        batch_size=BATCH,
        optimizer=way.optimizer,
        schedule=way.schedule,
        draws=way.draws,
        kl=[one.get("kl", way.kl) for one in every],
        device=work.device,
        precision=work.precision,
        run=home,
        checkpoint_every=max(1, epochs // 5),
        progress=work.progress,
        on_epoch=watch,
    )
    if way.keep == "best":
        watch.put_back()
    trained = []
    for label, method, seen in zip(labels, methods, watch.seen(), strict=True):
        by_epoch = [one["error"] for one in seen]
        trained.append(Trained(*label, method, seen, min(by_epoch) if way.keep == "best" else by_epoch[-1]))
    found = evaluate(trained)
    shutil.rmtree(home, ignore_errors=True)
    return found


def miscount(method: Variational) -> None:
    """Count the entropy of the second layer twice and that of the third never, in the loss of every step."""
    extra = torch.zeros(method.network.random_size)
    layers = list(dict.fromkeys(place.name.rpartition(".")[0] for place in method.network.places))
    for place in method.network.places:
        extra[place.start : place.stop] = {1: 1.0, 2: -1.0}.get(layers.index(place.name.rpartition(".")[0]), 0.0)
    method.register_buffer("miscounted", extra, persistent=False)
    right = method.objective

    def objective(batches: Any, *, step: Any, share: Any, draws: int = 1) -> Any:
        found = right(batches, step=step, share=share, draws=draws)
        wrongly = -(method.get_buffer("miscounted") * torch.log(method.widths(method.rho))).sum()
        return replace(found, loss=found.loss + share / batches[0][1].shape[0] * wrongly)

    object.__setattr__(method, "objective", objective)


class Watch:
    """Validation error and the means' distribution as training goes on, and each network where it erred least."""

    def __init__(self, fleet: Fleet, validation: Pair, epochs: int, file: Path) -> None:
        self.fleet, self.validation, self.file = fleet, validation, file
        self.due = {1, epochs, *range(0, epochs, -(-epochs // 30))} - {0}
        self.pictured = {1, epochs, *range(0, epochs, -(-epochs // (SNAPSHOTS - 1)))} & self.due
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.best: dict[str, Tensor] = {}
        if file.is_file():
            self.best, self.rows = tensor_files.read(file)

    def __call__(self, epoch: int, _: list[float]) -> None:
        if epoch not in self.due:
            return
        methods = self.fleet.unstack()
        least = [min((row[n]["error"] for row in self.rows.values()), default=2.0) for n in range(len(methods))]
        row: list[dict[str, Any]] = []
        for method in methods:
            wrong = mistakes(method, self.validation, draws=STUDY_DRAWS)
            row.append({"epoch": epoch, "error": float(wrong.double().mean())} | shape_of_means(method))
            if epoch not in self.pictured:
                del row[-1]["counts"]
        for name, parameter in zip(self.fleet.names, self.fleet.parameters, strict=True):
            held = self.best.setdefault(name, parameter.detach().cpu().clone())
            for number, lowest in enumerate(least):
                if row[number]["error"] < lowest:
                    held[number] = parameter.detach()[number].cpu()
        self.rows[str(epoch)] = row
        tensor_files.write(self.file, self.best, self.rows)

    def put_back(self) -> None:
        """Give each network the weights with which it erred least on validation."""
        for number, method in enumerate(self.fleet.methods):
            for name, parameter in method.named_parameters():
                parameter.data = self.best[name][number].to(parameter.device)

    def seen(self) -> list[list[dict[str, Any]]]:
        """By network, in the order of the epochs."""
        ordered = sorted(self.rows.items(), key=lambda item: int(item[0]))
        return [[row[number] for _, row in ordered] for number in range(len(self.fleet))]


def mistakes(method: Variational, data: Pair, *, draws: int, seed: int = 0, by: str = "draws") -> Tensor:
    """Which images are answered wrongly, `[n]`."""
    x, y = data
    answered = method.predict(x.to(method.mu.device), draws=draws, seed=seed, by=by).probs.argmax(-1).cpu()
    return answered != y


def shape_of_means(method: Variational) -> dict[str, Any]:
    """How the weights' means (biases left out) are spread: a histogram, skewness, and the share that has no mirror.

    `asymmetry` is the distance in variation between the histogram and its mirror image, 0 for a symmetric one.
    """
    prunable, random = prunable_weights(method), method.network.random_size
    means = method.mean_weights[:random][prunable].double().cpu()
    layers = [place for place in method.network.places if bool(prunable[place.start])]
    edge = REACH * (1 - 1e-9)
    counts = torch.histc(means.clamp(-edge, edge), BINS, -REACH, REACH)
    share = counts / counts.sum()
    centred = means - means.mean()
    return {
        "skewness": float((centred**3).mean() / (centred**2).mean() ** 1.5),
        "asymmetry": float((share - share.flip(0)).abs().sum() / 2),
        "in_spike": float((means.abs() < 3 * 0.00247875).double().mean()),
        "widths": [float(method.std[place.start : place.stop].median()) for place in layers],
        "counts": [int(count) for count in counts],
    }


def widths_kept(method: Variational) -> float | None:
    """The correlation of the widths' logarithms with those they started from, where these were drawn at random."""
    prunable = prunable_weights(method)
    start = method.first_rho(method.seed).to(method.rho.device)
    logs = torch.stack([torch.log(method.widths(rho.detach()))[prunable].double() for rho in (start, method.rho)])
    return None if float(logs[0].std()) == 0 else float(torch.corrcoef(logs)[0, 1])


def by_label(trained: Sequence[Trained], measure: Callable[[Trained], dict[str, Any]]) -> dict[str, Any]:
    """What is measured of every network, `{label: [by seed]}`."""
    found: dict[str, Any] = {}
    for one in trained:
        told = {"seed": one.seed, "validation": one.validation, "seen": one.seen}
        found.setdefault(one.label, []).append(told | measure(one))
    return found


def errors(data: Images, *, draws: int, repeats: int = 0) -> Callable[[Trained], dict[str, Any]]:
    """Test error with many draws, and with the study's 10 under several seeds of the draws; the loss per example."""

    def measure(one: Trained) -> dict[str, Any]:
        few = (mistakes(one.method, data.test, draws=STUDY_DRAWS, seed=100 + n) for n in range(repeats))
        return {
            "error": float(mistakes(one.method, data.test, draws=draws).double().mean()),
            "again": [float(wrong.double().mean()) for wrong in few],
            "elbo": loss_per_example(one.method, *data.train),
        }

    return measure


def network(way: Way, data: Images, prior: str, units: int, seed: int) -> Variational:
    inputs, classes = data.train[0].shape[1], int(data.train[1].max()) + 1
    return Variational(
        lambda: networks.mlp(inputs, classes, units=units),
        Categorical(classes=classes),
        prior=prior,
        estimator=way.estimator,
        start=way.start,
        rho=way.rho,
        seed=seed,
    )
