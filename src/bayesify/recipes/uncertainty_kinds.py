"""The two uncertainties against the number of training examples: one must shrink, the other must not.

Study A calls epistemic what "can be trained away" and aleatoric what is inherent to the data. Here both are measured on
one fixed set of test inputs while the training set grows, each set holding the smaller ones: mean mutual information
and mean expected entropy for classes, variance of means and noise variance for numbers (`bayesify.predictive`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bayesify.data import load
from bayesify.errors import at_least, choose
from bayesify.methods import HMC
from bayesify.recipes.against import DRAWS
from bayesify.recipes.against_report import interval
from bayesify.recipes.building import fit_settings, make_method, suited
from bayesify.recipes.entrants import ENTRANTS, SETUPS, recipe_for
from bayesify.recipes.material import Material, gather
from bayesify.recipes.recipe import Recipe
from bayesify.training import checkpoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES = (50, 100, 200, 400, 800, 1600)
METHODS = ("variational", "hmc")
TEST = 1000


def uncertainty_kinds(
    out: Path,
    *,
    data: str = "moons",
    methods: Sequence[str] = METHODS,
    sizes: Sequence[int] = SIZES,
    seeds: int = 3,
    draws: int = DRAWS,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Measure both uncertainties for every method, size and seed, and write `results.json` under `out`.

    What is measured is kept: the same call goes on where an interrupted one stopped. `settings` are those of a recipe,
    over the ones that `against` has for the method.
    """
    choose("data set", data, [name for name, setup in SETUPS.items() if setup.train is None])
    at_least("seeds", seeds, 1)
    entrants = {one.slug: one for one in ENTRANTS}
    for name in methods:
        choose("method", name, entrants)
    rows = []
    for size in sorted(sizes):
        for name in methods:
            found = []
            for seed in range(seeds):
                kept = out / f"{data}-{size}-{name}-{seed}.json"
                if not kept.is_file():
                    given = {"data": data, **(settings or {}), "seed": seed}
                    recipe = recipe_for(entrants[name], given)
                    material = _material(data, at_least("sizes", size, 4), max(sizes), seed, recipe)
                    steps = int(entrants[name].settings.get("steps", 0))
                    checkpoint.write_json(kept, _measure(recipe, material, steps, draws, progress=progress))
                found.append(json.loads(kept.read_text(encoding="utf-8")))
            row: dict[str, Any] = {"method": name, "examples": size}
            for kind in ("aleatoric", "epistemic"):
                row[kind] = interval([one[kind] for one in found])
            if all("r_hat" in one for one in found):
                row["r_hat"] = max(one["r_hat"] for one in found)
            rows.append(row)
    results = {"data": data, "seeds": seeds, "draws": draws, "test": TEST, "rows": rows, "slopes": slopes(rows)}
    checkpoint.write_json(out / "results.json", results)
    return results


def slopes(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """How each uncertainty goes with the number of examples: the slope of its logarithm by least squares.

    -1 is the law of large samples for a mutual information or a variance; 0 does not change.
    """
    found: dict[str, dict[str, float]] = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        if len(own) < 2:
            continue
        x = torch.tensor([math.log(row["examples"]) for row in own], dtype=torch.float64)
        found[method] = {}
        for kind in ("aleatoric", "epistemic"):
            y = torch.tensor([row[kind]["mean"] for row in own], dtype=torch.float64).log()
            found[method][kind] = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    return found


def picture(results: Mapping[str, Any]) -> list[Axes]:
    """Epistemic on the left and aleatoric on the right, against the number of examples; bars are 95% intervals."""
    from bayesify.plots import style

    figure = style.new_figure(8.4, 3.2)
    panels = [figure.add_subplot(1, 2, place) for place in (1, 2)]
    for axes, kind in zip(panels, ("epistemic", "aleatoric"), strict=True):
        for method in dict.fromkeys(row["method"] for row in results["rows"]):
            own = [row for row in results["rows"] if row["method"] == method]
            name = method if method in style.METHOD_LOOKS else style.method_of(method)
            means = [row[kind]["mean"] for row in own]
            ends = [row[kind].get("interval", [mean, mean]) for row, mean in zip(own, means, strict=True)]
            reach = [[mean - low, high - mean] for mean, (low, high) in zip(means, ends, strict=True)]
            axes.errorbar(
                [row["examples"] for row in own],
                means,
                yerr=[list(side) for side in zip(*reach, strict=True)],
                label=style.TITLES[name],
                capsize=2,
                **style.METHOD_LOOKS[name].line(marker_size=4),
            )
        axes.set_xscale("log")
        if kind == "epistemic":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        style.dress(axes, title=kind, x="training examples")
        style.legend(axes)
    return panels


def _material(data: str, size: int, most: int, seed: int, recipe: Recipe) -> Material:
    """The first `size` of a seed's `most` training examples, and test inputs that no size changes."""
    options: dict[str, float] = {**SETUPS[data].options, "n": TEST + most, "test": TEST}
    raw = load(data, None, seed=seed, **options)
    return gather(recipe, replace(raw, x_train=raw.x_train[:size], y_train=raw.y_train[:size]))


def _measure(recipe: Recipe, material: Material, steps: int, draws: int, *, progress: bool) -> dict[str, float]:
    recipe = suited(recipe, material)
    examples = len(material.train[0])
    if steps and recipe.epochs is None:
        recipe = replace(recipe, epochs=-(-steps // -(-examples // recipe.batch_size)))
    method = make_method(recipe, material)
    method.fit(material.train, progress=progress, **fit_settings(recipe, examples))
    answer = method.predict(material.test[0], draws=method.held or draws)
    found = {kind: float(getattr(answer, kind).double().mean()) for kind in ("aleatoric", "epistemic")}
    return found | ({"r_hat": method.diagnose().r_hat} if isinstance(method, HMC) else {})
