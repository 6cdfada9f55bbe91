"""ResNet-18 on CIFAR-10 with the usual augmentation: which method gives the best probabilities, and at which cost?

Settings of VI and IVON are chosen on held-out training images, which also choose each method's temperature. Test images
are scored once. The full preset needs a GPU. The preset `cpu` has a network an eighth as wide, fewer images and fewer
epochs: a comparison of methods, not of their best scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, percent, written
from bayesify_studies.experiments.cifar10.network import UNKNOWN, resnet18
from bayesify_studies.experiments.cifar10.parts import CHOSEN
from bayesify_studies.experiments.cifar10.results import LOOKS, TITLES, Results, results
from bayesify_studies.experiments.cifar10.settings import CPU, FULL, LONGER, QUICK
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work

# WRN-28-10 (uncertainty-baselines; SWAG by Izmailov et al. 2019): accuracy, NLL, ECE.
PUBLISHED: Mapping[str, tuple[float, float, float | None]] = {
    "point": (0.960, 0.159, 0.023),
    "ensemble": (0.966, 0.114, 0.010),
    "mc-dropout": (0.961, 0.145, 0.019),
    "variational": (0.947, 0.211, 0.029),
    "swag": (0.9641, 0.1122, None),
}
# The published ensemble's NLL divided by that of the published plain network: the goal for VI or IVON.
SHARE = 0.114 / 0.159
# IVON or VI may be this much below the plain network in accuracy.
MARGIN = 0.005
# A network with a lower temperature than this is hardly overconfident.
CALIBRATED = 1.1
# What a part says that was not begun.
LATE = "not begun"
# What a preset's name leaves out.
SIZE = ("width", "examples", "epochs")


def run(work: Work) -> Findings:
    found = results(work, work.settings)
    goals = {method: goal(found, method) for method in CHOSEN if method in found.networks}
    return Findings(
        answer=_answer(work, found, goals),
        lines=[_line(found, method) for method in found.networks]
        + [_goal_line(method, own) for method, own in goals.items()],
        numbers={
            "scores": {
                method: {
                    name: found.score(method, "test", name)
                    for name in ("accuracy", "nll", "ece", "scaled_nll", "scaled_ece")
                }
                for method in found.networks
            },
            "auroc": {
                method: {kind: estimate([one["auroc"][kind] for one in own]) for kind in UNKNOWN}
                for method, own in found.networks.items()
            },
            "chosen": dict(found.chosen),
            "goals": goals,
            "size": {"weights": _weights(work["width"]), **{name: work[name] for name in SIZE}},
            "full": {name: FULL[name] for name in SIZE},
        },
        tables=[
            _scores(found),
            _unknown(found),
            *(_choices(work, found, method) for method in CHOSEN),
            _cost(work, found),
        ],
        pictures=[
            Picture(
                work.figure("scores", picture(found)),
                "Test images. Filled: as predicted; open: after temperature scaling. Lower is better.",
            )
        ],
        shortfalls=_shortfalls(work, found, goals),
        reading="± is the standard error over networks, where there are several; the ensemble is one.",
    )


def goal(found: Results, method: str) -> dict[str, Any]:
    """Whether a method is as accurate as the plain network, with better NLL and ECE, and how its NLL compares."""
    own, plain = (
        {name: found.mean(one, "test", name) for name in ("accuracy", "nll", "ece")} for one in (method, "point")
    )
    return {
        "points_below": 100 * (plain["accuracy"] - own["accuracy"]),
        "nll_less": own["nll"] - plain["nll"],
        "ece_less": own["ece"] - plain["ece"],
        "as_good": bool(
            own["accuracy"] >= plain["accuracy"] - MARGIN and own["nll"] < plain["nll"] and own["ece"] < plain["ece"]
        ),
        "nll": own["nll"],
        "nll_goal": SHARE * plain["nll"],
        "nll_reached": bool(own["nll"] <= SHARE * plain["nll"]),
        **({"nll_less_longer": own["nll"] - found.mean("longer", "test", "nll")} if "longer" in found.networks else {}),
    }


def _answer(work: Work, found: Results, goals: Mapping[str, Mapping[str, Any]]) -> str:
    ranked = sorted(found.networks, key=lambda method: found.mean(method, "test", "nll"))
    each = "; ".join(
        f"{TITLES[method]} {100 * found.mean(method, 'test', 'accuracy'):.1f}%, "
        f"{found.mean(method, 'test', 'nll'):.3f}, {found.mean(method, 'test', 'ece'):.3f}"
        for method in ranked
    )
    return (
        f"A ResNet-18 of width {work['width']} ({_weights(work['width']):,} weights; the usual width is 64), "
        f"{work['examples']:,} training images, {work['epochs']} epochs. Accuracy, NLL and ECE on {work['tested']:,} "
        f"test images, best NLL first: {each}. "
        f"{' '.join(_goal_words(method, own) for method, own in goals.items())}"
    )


def _weights(width: int) -> int:
    return sum(weight.numel() for weight in resnet18(width).parameters())


def _goal_words(method: str, own: Mapping[str, Any]) -> str:
    below = own["points_below"]
    where = f"{below:.2f} points below" if below > 0 else f"{-below:.2f} points above"
    told = (
        f"{TITLES[method][0].upper() + TITLES[method][1:]}, with {LONGER:g} times the epochs, is {where} the plain "
        f"network in accuracy; its NLL differs by {own['nll_less']:+.3f}, its ECE by {own['ece_less']:+.3f}."
    )
    longer = own.get("nll_less_longer")
    return (
        told if longer is None else f"{told} From a plain network of as many epochs its NLL differs by {longer:+.3f}."
    )


def _line(found: Results, method: str) -> Line:
    ours = (
        f"{percent(found.score(method, 'test', 'accuracy'), 1)}, NLL {written(found.score(method, 'test', 'nll'))}, "
        f"ECE {written(found.score(method, 'test', 'ece'))}"
    )
    if method not in PUBLISHED:
        return Line(TITLES[method], "none", ours, "as many epochs as VI and IVON" if method == "longer" else "")
    accuracy, nll, ece = PUBLISHED[method]
    told = f"{100 * accuracy:.1f}%, NLL {nll:.3f}" + ("" if ece is None else f", ECE {ece:.3f}")
    if method == "point":
        return Line(TITLES[method], told, ours, "a larger network, 200 epochs: compare ratios to the plain one only")
    theirs, own = nll / PUBLISHED["point"][1], found.mean(method, "test", "nll") / found.mean("point", "test", "nll")
    return Line(TITLES[method], told, ours, f"NLL / plain network's: published {theirs:.2f}, ours {own:.2f}")


def _goal_line(method: str, own: Mapping[str, Any]) -> Line:
    missed = "reached" if own["nll_reached"] else f"missed by {own['nll'] - own['nll_goal']:.3f}"
    equal = "reached" if own["as_good"] else "missed"
    return Line(
        f"goals: {TITLES[method]}",
        f"NLL at most {own['nll_goal']:.3f}; at most {100 * MARGIN:.1f} points below plain, better NLL and ECE",
        f"{own['nll']:.3f}; {-own['points_below']:+.2f} points, NLL {own['nll_less']:+.3f}, ECE {own['ece_less']:+.3f}",
        f"{missed}; {equal}",
    )


def _scores(found: Results) -> Table:
    return Table(
        "Scores on test images",
        ["method", "networks", "accuracy", "NLL", "ECE", "temperature", "NLL, scaled", "ECE, scaled"],
        [
            [
                TITLES[method],
                str(len(own) if method != "ensemble" else len(found.networks["point"])),
                percent(found.score(method, "test", "accuracy"), 2),
                *(written(found.score(method, "test", name), ".3f") for name in ("nll", "ece")),
                written(estimate([one["temperature"] for one in own]), ".2f"),
                *(written(found.score(method, "test", name), ".3f") for name in ("scaled_nll", "scaled_ece")),
            ]
            for method, own in found.networks.items()
        ],
        "Scaled: after temperature scaling. Each temperature is chosen on held-out training images, by NLL.",
    )


def _unknown(found: Results) -> Table:
    return Table(
        "Unknown inputs: AUROC of the entropy",
        ["method", *UNKNOWN],
        [
            [TITLES[method], *(written(estimate([one["auroc"][kind] for one in own]), ".3f") for kind in UNKNOWN)]
            for method, own in found.networks.items()
        ],
        "Test images against as many images of uniform noise, test images with shuffled pixels, and MNIST's digits in "
        "grey. Nothing was chosen on them.",
    )


def _choices(work: Work, found: Results, method: str) -> Table:
    return Table(
        f"Settings of {TITLES[method]}",
        ["setting", "accuracy", "NLL", "ECE", ""],
        [
            [
                name.partition(", ")[2],
                *(
                    (f"{100 * one['accuracy']:.2f}%", f"{one['nll']:.3f}", f"{one['ece']:.3f}")
                    if "nll" in one
                    else ("failed", "", "")
                ),
                "chosen" if name == found.chosen[method] else "",
            ]
            for name, one in found.tried[method].items()
        ],
        f"Held-out training images, {work['choosing_epochs']} epochs, one seed. {len(found.tried[method])} settings "
        "were tried; the chosen one has the lowest NLL.",
    )


def _cost(work: Work, found: Results) -> Table:
    return Table(
        "Cost",
        ["method", "epochs", "seconds of training"],
        [
            [
                TITLES[method],
                str(own[0].get("epochs", sum(one["epochs"] for one in found.networks["point"]))),
                written(estimate([one["training_seconds"] for one in own]), ".0f")
                if "training_seconds" in own[0]
                else "",
            ]
            for method, own in found.networks.items()
        ],
        (
            "Several networks were trained at once on one GPU, and the seconds include compiling: they are longer than "
            "those of a training alone."
            if work.settings["fit"].get("compiled")
            else "One network at a time on one core, in steps that are not compiled. Other work shared the machine."
        ),
    )


def picture(found: Results) -> Any:
    """NLL and ECE of each method, before and after temperature scaling."""
    from bayesify.plots import style

    figure = style.new_figure(8.4, 3.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, score in zip(panels, ("nll", "ece"), strict=True):
        for row, method in enumerate(found.networks):
            look = style.METHOD_LOOKS[LOOKS[method]]
            for name, fill in ((score, look.color), (f"scaled_{score}", "none")):
                values = [one["scores"]["test"][name] for one in found.networks[method]]
                axes.plot(
                    values, [row] * len(values), look.marker, color=look.color, markerfacecolor=fill, markersize=6
                )
        style.dress(axes, title={"nll": "NLL", "ece": "ECE"}[score], x="", y="")
        axes.margins(x=0.1)
    panels[0].set_yticks(range(len(found.networks)), [TITLES[method] for method in found.networks])
    panels[0].invert_yaxis()
    return figure


def _shortfalls(work: Work, found: Results, goals: Mapping[str, Mapping[str, Any]]) -> list[str]:
    missed = []
    if goals and not any(own["nll_reached"] for own in goals.values()):
        best = min(goals.values(), key=lambda own: own["nll"])
        missed.append(
            f"VI or IVON should have an NLL of at most {best['nll_goal']:.3f}, {SHARE:.2f} times that of the plain "
            f"network: missed by {best['nll'] - best['nll_goal']:.3f}."
        )
    if goals and not any(own["as_good"] for own in goals.values()):
        missed.append(
            f"VI or IVON should be at most {100 * MARGIN:.1f} points below the plain network, with better NLL and ECE: "
            "missed."
        )
    alone = [TITLES[method] for method, own in found.networks.items() if len(own) == 1 and method != "ensemble"]
    if alone:
        missed.append(f"One network each, so another seed may give another order: {', '.join(alone)}.")
    tried = sum(len(own) for own in found.tried.values())
    late = [name for name, why in found.failed.items() if why.startswith(LATE)]
    temperature = estimate([one["temperature"] for one in found.networks["point"]])["mean"]
    if temperature < CALIBRATED:
        missed.append(
            f"The plain networks' best temperature is {temperature:.2f}: they are hardly overconfident after "
            f"{work['epochs']} epochs, so there is little that a posterior could correct."
        )
    return [
        *missed,
        (
            "The published numbers are of WRN-28-10 with 36.5 million weights, all 50,000 images and 200 epochs; ours "
            f"is a ResNet-18 with {_weights(work['width']):,} weights, {work['examples']:,} images and "
            f"{work['epochs']} epochs."
        ),
        (
            f"{tried} settings of VI and IVON were tried with {work['choosing_epochs']} epochs each; the other methods "
            "have one, not chosen."
        ),
        (
            f"Unknown inputs: SVHN, the usual one, is not here, and no class was withheld. AUROC is of "
            f"{work['shifted']:,} test images against as many unknown ones."
        ),
        *(f"{name} failed: {why}." for name, why in found.failed.items() if not why.startswith(LATE)),
        *([f"Networks that were planned and not trained, for lack of time: {', '.join(late)}."] if late else []),
    ]


EXPERIMENT = Experiment(
    name="cifar10",
    title="CIFAR-10 with a ResNet",
    study="the field",
    question="With a ResNet on CIFAR-10, how do plain networks, ensembles, MC dropout, VI, IVON, SWAG and "
    "last-layer Laplace compare in accuracy, NLL and ECE?",
    run=run,
    quick=QUICK,
    full=FULL,
    cpu=CPU,
)
