"""What is measured for the two uncertainties: a method on some of moons, the truth there, and a fleet on digits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from bayesify import noise as noises
from bayesify.data import DataSet, label_noise, load
from bayesify.methods import HMC, Method, Variational
from bayesify.workflows.build import make_method, with_defaults
from bayesify.workflows.compare.hmc_reference import sample_until_converged
from bayesify.workflows.compare.hmc_settings import CANDIDATES, SETUPS, recipe_for
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework import planar
from bayesify_studies.experiments.framework.work import Work

KINDS = ("aleatoric", "epistemic")
TEST = 1000
AMBIGUOUS = (1, 7)
DIGIT_SCORES = ("accuracy", *(f"{kind}_{where}" for kind in KINDS for where in ("ambiguous", "others")))


def name_of(method: str, size: int, swap: float, seed: int) -> str:
    """A part on moons."""
    return f"moons-{size}-{method}-{seed}" + (f"-{round(100 * swap)}" if swap else "")


def on_moons(work: Work, method: str, size: int, swap: float, seed: int) -> dict[str, float]:
    """Both uncertainties of a method fitted to the first `size` examples of a seed, some labels swapped."""
    run = name_of(method, size, swap, seed)
    fitted, prepared = fitted_to_moons(work, method, size, swap, seed, run)
    found: dict[str, float] = {}
    if isinstance(fitted, HMC):
        home = work.folder / "runs" / run
        sample_until_converged(fitted, prepared, home, work["hmc"]["samples"], progress=work.progress)
        found["r_hat"] = fitted.diagnose().r_hat
    answer = fitted.predict(prepared.test[0], draws=fitted.held or work["draws"])
    return {kind: float(getattr(answer, kind).double().mean()) for kind in KINDS} | found


def fitted_to_moons(
    work: Work, method: str, size: int, swap: float, seed: int, run: str
) -> tuple[Method, PreparedData]:
    """A method fitted to the first `size` examples of a seed, and these data; `run` is its folder."""
    candidate = next(one for one in CANDIDATES if one.slug == method)
    given = {"data": "moons", "seed": seed} | (work["hmc"] if method == "hmc" else {})
    recipe = recipe_for(candidate, given)
    raw = _moons(work, seed, size)
    if swap:
        raw = replace(raw, y_train=label_noise(raw.y_train, {(0, 1): swap}, seed))
    prepared = prepare_data(recipe, raw)
    recipe = with_defaults(recipe, prepared)
    if method != "hmc":
        recipe = replace(recipe, epochs=-(-work["steps"] // -(-size // recipe.batch_size)))
    return work.trained(run, recipe, prepared), prepared


def truth(work: Work, swap: float) -> dict[str, Any]:
    """The mean entropy of the labels at the test inputs of each seed, from the true class probabilities."""
    curves = planar.moons(SETUPS["moons"].options["noise"])
    found = []
    for seed in work.seeds:
        probs = curves.probs(_moons(work, seed, max(work["sizes"])).x_test)
        swapped = (1 - swap) * probs + swap * probs.flip(-1)
        found.append(float(torch.special.entr(swapped).sum(-1).mean()))
    return {"entropy": found}


def on_digits(work: Work, size: int, swap: float) -> dict[str, Any]:
    """Both uncertainties on 1 and 7 and on the other digits, all seeds in one fleet, each with its own examples."""
    swapped = f"{AMBIGUOUS[0]},{AMBIGUOUS[1]}={swap}" if swap else None
    recipe = Recipe(
        data="mnist",
        method="variational",
        units=(100,),
        layers=1,
        prior="normal:0.3",
        label_noise=swapped,
        options={"estimator": "local", "rho": "-2"},
    )
    prepared = prepare_data(recipe)
    x, y = prepared.train
    order = noises.permutation(noises.keys(0, noises.Stream.SPLIT)[0], len(x))
    # Each seed's sets hold its smaller ones.
    starts = [seed * len(x) // len(work.seeds) for seed in work.seeds]
    rows = [order.roll(-start)[:size] for start in starts]

    def make() -> list[Variational]:
        made = [make_method(replace(recipe, seed=seed), prepared) for seed in work.seeds]
        return [one for one in made if isinstance(one, Variational)]

    fleet = work.fleet(
        f"digits-{size}-{round(100 * swap)}",
        make,
        [(x[own], y[own]) for own in rows],
        learning_rates=[3e-3] * len(starts),
        epochs=max(1, work["digit_steps"] // -(-size // 128)),
        schedule="cosine",
        checkpoint_every=max(1, work["digit_steps"] // -(-size // 128) // 5),
    )
    inputs, labels = prepared.test
    odd = (labels.unsqueeze(-1) == torch.tensor(AMBIGUOUS)).any(-1)
    found: dict[str, list[float]] = {name: [] for name in DIGIT_SCORES}
    for method in fleet:
        answer = method.predict(inputs, draws=work["digit_draws"])
        found["accuracy"].append(float((answer.labels.cpu() == labels).double().mean()))
        for kind in KINDS:
            values = getattr(answer, kind).double().cpu()
            found[f"{kind}_ambiguous"].append(float(values[odd].mean()))
            found[f"{kind}_others"].append(float(values[~odd].mean()))
    return found


def _moons(work: Work, seed: int, size: int) -> DataSet:
    """The first `size` of a seed's training examples, and test inputs that no size changes."""
    options: dict[str, float] = {**SETUPS["moons"].options, "n": TEST + max(work["sizes"]), "test": TEST}
    raw = load("moons", None, seed=seed, **options)
    return replace(raw, x_train=raw.x_train[:size], y_train=raw.y_train[:size])
