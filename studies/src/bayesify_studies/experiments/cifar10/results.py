"""What the parts of `cifar10` say of each method: for the pages of `cifar10` and `shift`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesify.evaluation.seed_statistics import estimate
from bayesify_studies.experiments.cifar10 import parts
from bayesify_studies.experiments.framework.work import Work

TITLES = {
    "point": "plain network",
    "longer": "plain network, longer",
    "ensemble": "ensemble",
    "mc-dropout": "MC dropout",
    "variational": "mean-field VI",
    "ivon": "IVON",
    "laplace": "Laplace, last layer",
    "swag": "SWAG",
}
# The method whose colour and marker one has that is no method of its own.
LOOKS = {method: method for method in TITLES} | {"longer": "point"}


@dataclass(frozen=True)
class Results:
    """Summaries of each method, one for each of its networks; short trainings; parts that failed and why."""

    networks: Mapping[str, Sequence[Mapping[str, Any]]]
    tried: Mapping[str, Mapping[str, Mapping[str, Any]]]
    chosen: Mapping[str, str]
    failed: Mapping[str, str]

    def score(self, method: str, group: str, name: str) -> dict[str, Any]:
        """A score's mean over networks with its standard error."""
        return estimate([one["scores"][group][name] for one in self.networks[method]])

    def mean(self, method: str, group: str, name: str) -> float:
        """A score's mean over networks."""
        return float(self.score(method, group, name)["mean"])


def results(work: Work, settings: Mapping[str, Any]) -> Results:
    """Train what is missing, and sort the parts by method; the ensemble is the mean of all plain networks."""
    short = work.every(parts.pilots(settings, work.device))
    told = {parts.FIRST: short[parts.FIRST], **work.every(parts.scored(settings, short, work.device))}
    found: dict[str, list[Mapping[str, Any]]] = {}
    failed = {
        f"{name} ({one.get('name', 'short training')})": one["failed"] for name, one in short.items() if "failed" in one
    }
    for name, one in told.items():
        if why := one.get("failed", one.get("skipped")):
            failed[name] = why
        else:
            found.setdefault(name.rsplit("-", 1)[0], []).append(one)
    plain = found.get("point", [])
    if len(plain) > 1:
        found["ensemble"] = [work.once("ensemble", parts.ensemble_of, plain, settings)]
    for method in ("laplace", "swag"):
        around = [one[method] for one in plain if method in one]
        if around:
            found[method] = around
    return Results(
        {method: found[method] for method in TITLES if method in found},
        {method: parts.tried(settings, short, method) for method in parts.CHOSEN},
        {method: parts.chosen(settings, short, method) for method in parts.CHOSEN},
        failed,
    )
