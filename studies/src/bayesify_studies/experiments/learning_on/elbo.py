"""The ELBO of the posterior after the first task, whose prior is the ordinary one, beside that of knowing nothing.

The prior of a later task is the posterior of those before it, so its objective has no such floor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods import Categorical
from bayesify.methods import Variational
from bayesify.networks import mlp
from bayesify_studies.experiments.framework import elbo_rows
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.learning_on import stacked
from bayesify_studies.experiments.learning_on.sequences import World


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """The first task: permuted digits in their own order."""
    return {"elbo-first-task": (first_task, work)}


def first_task(work: Work) -> dict[str, Any]:
    """The networks of some seeds, side by side, with the setting that validation chose."""
    asked = work["elbo"]
    seeds = list(range(asked["seeds"]))
    torch.manual_seed(0)
    world = World("permuted", seeds, {**work.settings, **asked["setting"], "choosing": False}, work.device)
    mu = world.shape.start(seeds, world.device)
    rho = world.column("rho").expand_as(mu).contiguous()
    prior = torch.zeros_like(mu), world.column("prior").expand_as(mu).contiguous()
    task, _ = world.training(0, work["coreset"])
    stacked.fit_variational((mu, rho), prior, task, world.plan(), world.shape, world.known)
    places = torch.arange(task.rows.shape[1], device=task.rows.device).expand_as(task.rows)
    x, y = task.batch(*world.known, places)
    networks = ((as_variational(world, mu[n], rho[n]), (x[n], y[n])) for n in range(len(seeds)))
    words = (f"{world.count} permuted tasks", "after the first task")
    return elbo_rows.row(words, networks, as_variational(world, mu[0], rho[0]))


def as_variational(world: World, mu: Tensor, rho: Tensor) -> Variational:
    """A posterior of the experiment as one of the library: the same means and widths, `[P]`."""
    inputs, *units, outputs = world.shape.sizes
    network = mlp(inputs, outputs, units=units[0], layers=len(units))
    method = Variational(network, Categorical(classes=outputs), prior=f"normal:{world.settings['prior']:g}")
    method.to(mu.device)
    given = {name: world.shape.layers(own.unsqueeze(0)) for name, own in (("mu", mu), ("rho", rho))}
    for kind, own in (("weight", 0), ("bias", 1)):
        places = [place for place in method.network.places if place.name.endswith(kind)]
        for number, place in enumerate(places):
            for name, target in (("mu", method.mu), ("rho", method.rho)):
                tensor = given[name][number][own][0]
                target.data[place.start : place.stop] = (tensor.T if kind == "weight" else tensor).flatten()
    return method


ADDITION = elbo_rows.addition(parts)
