"""Why study B's settings diverge on Fashion-MNIST and not on MNIST: the longest step that SGD takes without diverging.

The first layer's curvature grows with the squared length of the inputs, and SGD is stable only for steps shorter than
two over the largest curvature. Pictures of clothes are brighter than digits: at pixels / 126 their mean squared length
is nearly twice that of MNIST. So the same step is nearly twice as long in units of the stable one. This is tested: the
study's networks at several rates and widths, on both data sets and with shorter inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.errors import TrainingError
from bayesify.evaluation.seed_statistics import estimate, percent
from bayesify.fleets import Fleet
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_b import training

NAME = "long_steps"


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A fleet of all rates and seeds for each data set, scaling and width."""
    asked = work[NAME]
    return {
        f"steps-{data}-{pixels}-{units}": (cell, work, data, pixels, units)
        for units in asked["widths"]
        for data, pixels in asked["inputs"]
    }


def cell(work: Work, data: str, pixels: str, units: int) -> dict[str, Any]:
    """The study's networks at every rate: how many diverge, and the validation error of the others by mean weights."""
    asked = work[NAME]
    setting = asked["setting"] | {"pixels": pixels}
    images = training.images(
        Work(work.folder, work.settings | {"data": data}, device=work.device), setting, held_out=True
    )
    pairs = [(rate, seed) for rate in asked["rates"] for seed in range(asked["seeds"])]
    methods = [training.network(setting, units, images, seed) for _, seed in pairs]
    fleet = Fleet(methods)
    try:
        fleet.fit(
            images["train"],
            learning_rates=[rate for rate, _ in pairs],
            epochs=setting["epochs"],
            batch_size=setting["batch"],
            optimizer=setting["optimizer"],
            device=work.device,
            precision=work.precision,
            may_diverge=True,
            progress=False,
        )
    except TrainingError:
        if len(fleet.diverged) < len(fleet):
            raise
        fleet.unstack()
    gone, (x, y) = set(fleet.diverged), images["validation"]
    rows: dict[str, Any] = {}
    for number, ((rate, _), method) in enumerate(zip(pairs, methods, strict=True)):
        row = rows.setdefault(f"{rate:g}", {"diverged": 0, "errors": []})
        if number in gone:
            row["diverged"] += 1
        else:
            row["errors"].append(float((method.predict(x, by="mean").probs.argmax(-1) != y).double().mean()))
    length = float(images["train"][0].double().square().sum(1).mean())
    return {"rates": rows, "squared_length": length}


def longest(rates: Mapping[str, Any], hurt: float) -> float | None:
    """The largest rate up to which no network diverged or ended with an error above `hurt`, None where none is."""
    good = None
    for rate, row in sorted(rates.items(), key=lambda item: float(item[0])):
        if row["diverged"] or max(row["errors"]) > hurt:
            break
        good = float(rate)
    return good


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """Errors and divergences by rate, and the longest stable step times the squared length of the inputs."""
    asked, rows, kept = work[NAME], [], {}
    epochs = "one epoch" if asked["setting"]["epochs"] == 1 else f"{asked['setting']['epochs']} epochs"
    rates = [f"{rate:g}" for rate in asked["rates"]]
    for name, part in found.items():
        data, pixels, units = name.removeprefix("steps-").rsplit("-", 2)  # the data's name may hold a dash
        stable = longest(part["rates"], asked["hurt"])
        product = None if stable is None else stable * part["squared_length"]
        rows.append(
            [
                f"{data}, {_scaled(pixels)}, {units} units",
                f"{part['squared_length']:.0f}",
                *(_cell(part["rates"][rate]) for rate in rates),
                "none" if stable is None else f"{stable:g}",
                "" if product is None else f"{product:.0f}",
            ]
        )
        kept[f"{data} {pixels} {units}"] = {
            "squared_length": part["squared_length"],
            "longest": stable,
            "product": product,
            "rates": {
                rate: {"diverged": row["diverged"]} | ({"error": estimate(row["errors"])} if row["errors"] else {})
                for rate, row in part["rates"].items()
            },
        }
    return Added(
        kept,
        lines=_why(asked, kept),
        tables=[
            Table(
                "Why the study's settings diverge: validation error by learning rate",
                [
                    "inputs",
                    "mean squared length",
                    *(f"rate {rate}" for rate in rates),
                    "largest stable rate",
                    "rate times squared length",
                ],
                rows,
                f"Study B's networks, N(0, 1), {epochs} of SGD, {asked['seeds']} seeds, "
                "error by mean weights. The study's rate is 0.128 of the mean loss. Stable: no seed diverged "
                f"or ended with an error above {asked['hurt']:.0%}, here and at every smaller rate.",
            )
        ],
    )


def _why(asked: Mapping[str, Any], kept: Mapping[str, Any]) -> list[Line]:
    """At each width, the longest stable steps on both data sets beside the squared lengths of their inputs."""
    lines, rate = [], asked["setting"]["rate"]
    for units in asked["widths"]:
        clothes, digits = (kept.get(f"{data} 126 {units}") for data in ("fashion-mnist", "mnist"))
        if clothes is None or digits is None or None in (clothes["longest"], digits["longest"]):
            continue
        longer = clothes["squared_length"] / digits["squared_length"]
        good = {name: rate <= own["longest"] for name, own in (("Fashion-MNIST", clothes), ("MNIST", digits))}
        fits = "; ".join(f"for {name} it is {'stable' if one else 'too large'}" for name, one in good.items())
        lines.append(
            Line(
                f"largest stable learning rate, {units} units: Fashion-MNIST and MNIST",
                "not measured",
                f"{clothes['longest']:g} and {digits['longest']:g}",
                f"The study's rate is {rate:g}: {fits}. Pictures of clothes are brighter: the squared length of an "
                f"input is {longer:.1f} times as large. Rate times squared length is {clothes['product']:.0f} and "
                f"{digits['product']:.0f}; the rates tried are a factor of two apart.{_shorter(kept, units, clothes)}"
                f"{_near_the_limit(clothes, rate)}",
            )
        )
    return lines


def _shorter(kept: Mapping[str, Any], units: int, clothes: Mapping[str, Any]) -> str:
    """What shorter inputs change, which is not all that their length would explain."""
    other = kept.get(f"fashion-mnist 255 {units}")
    if other is None or other["longest"] is None:
        return ""
    shorter, larger = clothes["squared_length"] / other["squared_length"], other["longest"] / clothes["longest"]
    most = "at least " if other["longest"] == max(map(float, other["rates"])) else ""
    return (
        f" With pixels / 255, Fashion-MNIST's squared length is {shorter:.1f} times smaller and its largest stable "
        f"rate {most}{larger:g} times larger"
        + (", so the length is not the whole reason." if not most and larger < shorter else ".")
    )


def _near_the_limit(clothes: Mapping[str, Any], rate: float) -> str:
    """The error at the study's rate beside that at the smallest one."""
    errors = {float(tried): one["error"]["mean"] for tried, one in clothes["rates"].items() if "error" in one}
    least = min(errors)
    if rate not in errors or rate <= least:
        return ""
    return f" At {rate:g}, Fashion-MNIST's error is {errors[rate]:.1%}; at {least:g} it is {errors[least]:.1%}."


def _scaled(pixels: str) -> str:
    return "standardised" if pixels == "standard" else f"pixels / {pixels}"


def _cell(row: Mapping[str, Any]) -> str:
    told = percent(estimate(row["errors"])) if row["errors"] else ""
    lost = f"{row['diverged']} diverged" if row["diverged"] else ""
    return f"{told} ({lost})" if told and lost else told or f"all {lost}"


ADDITION = Addition(NAME, parts, tell, whole=False)
