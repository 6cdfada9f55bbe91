"""Study B's table and the paper's on MNIST: four widths, two priors, against plain and dropout networks.

The full preset trains 2 x 4 x 4 cells of five seeds, and one of 228 epochs. Each compiles a network of its own: with
`--jobs 8` some compile while others train.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_b import equal_care, whole_kl
from bayesify_studies.experiments.study_b.comparison import Published
from bayesify_studies.experiments.study_b.page import table

PUBLISHED = Published(
    study={200: 0.0251, 400: 0.0233, 800: 0.0216, 1200: 0.0276},
    longer={400: 0.0163},
    baselines={"plain": 0.0174, "dropout": 0.0151},
    paper={
        "plain": {400: 0.0183, 800: 0.0184, 1200: 0.0188},
        "dropout": {400: 0.0151, 800: 0.0133, 1200: 0.0136},
        "gaussian": {400: 0.0182, 800: 0.0199, 1200: 0.0204},
        "mixture": {400: 0.0136, 800: 0.0134, 1200: 0.0132},
    },
    targets={400: 0.0130, 1200: 0.0125},
)
# The study declares this mixture and never uses it.
STUDY_MIXTURE = "scale-mixture:0.25,0.75,0.1"
WIDTHS = [200, 400, 800, 1200]


def run(work: Work) -> Findings:
    return table(work, PUBLISHED)


def as_the_study(epochs: int = 10) -> dict[str, Any]:
    """The study's settings: SGD on a summed loss for variational networks, Adam for the others; N(0, 0.1) starts.

    All have the epochs of its table; its plain and dropout networks, which are not in it, had 50 or 100.
    """
    sgd = {"epochs": epochs, "batch": 128, "optimizer": "sgd", "rate": 0.128, "schedule": "constant", "pixels": "126"}
    adam = sgd | {"optimizer": "adam", "rate": 1e-3}
    variational = sgd | {"estimator": "weight", "start": "normal:0.1", "rho": -3.0}
    return {
        "plain": [adam],
        "dropout": [adam | {"p": 0.5}],
        "gaussian": [variational | {"prior": "normal:1"}],
        "mixture": [variational | {"prior": STUDY_MIXTURE}],
    }


def ours(epochs: int, shorter: int, temperatures: Sequence[float], mixtures: Sequence[str], **settings: Any) -> Any:
    """What is tried on validation: weight decay, dropout rates, priors and temperatures; rates fall along a cosine."""
    adam = {"batch": 125, "optimizer": "adam", "rate": 1e-3, "schedule": "cosine", "pixels": "126"} | settings
    variational = adam | {"epochs": epochs, "start": "fresh", "rho": -7.0}
    weighted = [variational | {"kl": f"uniform,temperature={one:g}" if one != 1 else "uniform"} for one in temperatures]
    return {
        # A prior on a point estimate is weight decay: 9e-5 and 8e-4 of the squared norm at 60,000 images.
        "plain": [adam | {"epochs": shorter, "prior": prior} for prior in (None, "normal:0.3", "normal:0.1")],
        "dropout": [adam | {"epochs": epochs, "p": p} for p in (0.2, 0.5)],
        "gaussian": [one | {"prior": "normal:1", "estimator": by} for by in ("local", "weight") for one in weighted],
        "mixture": [one | {"prior": prior, "estimator": "local"} for prior in mixtures for one in weighted],
    }


# pi, sigma1 = e^0 and sigma2 = e^-8: what studies/scripts/tune_mnist.py found best on MNIST's validation part.
MIXTURES = ["scale-mixture:0.25,1,0.000335463", "scale-mixture:0.5,1,0.000335463"]
TEMPERATURES = [1.0, 0.3, 0.1]


def whole(*rows: tuple[str, int, str, str], **settings: Any) -> list[dict[str, Any]]:
    """Kind, width, prior and estimator of what was chosen with a part of the KL."""
    return [
        {"kind": kind, "units": units, "setting": whole_kl.setting(prior, by, **settings)}
        for kind, units, prior, by in rows
    ]


def chosen(at_400: str, at_1200: str) -> list[dict[str, Any]]:
    """What validation chose at both widths, by the mixtures that were chosen; both with the local estimator."""
    return whole(
        ("mixture", 400, at_400, "local"), ("mixture", 1200, at_1200, "local"), ("gaussian", 400, "normal:1", "local")
    )


EXPERIMENT = Experiment(
    name="mnist-table",
    title="Bayes by Backprop on MNIST",
    study="B",
    question="How well does Bayes by Backprop do on MNIST at each width, with the study's settings and with ours? "
    "Is it better than plain and dropout networks whose settings were also chosen on validation data?",
    run=run,
    quick={
        "data": "mnist",
        "examples": 2400,
        "tested": 1000,
        "seeds": 2,
        "draws": 10,
        "pictured": 100,
        "ways": {
            "study": {"widths": [50, 100], "choose_at": [100], "kinds": as_the_study(5)},
            "ours": {
                "widths": [50, 100],
                "choose_at": [100],
                "kinds": ours(12, 6, [1.0, 0.3], MIXTURES[:1]),
            },
        },
        "whole_kl": whole(("mixture", 50, MIXTURES[0], "local"), epochs=4),
        "equal_care": {"widths": [50], "kinds": equal_care.kinds(4, 2)},
    },
    full={
        "data": "mnist",
        "examples": None,
        "tested": None,
        "seeds": 5,
        "draws": 50,
        "pictured": 400,
        "ways": {
            "study": {"widths": WIDTHS, "choose_at": [400], "kinds": as_the_study()},
            "long": {"widths": [400], "choose_at": [400], "kinds": {"gaussian": as_the_study(228)["gaussian"]}},
            "ours": {"widths": WIDTHS, "choose_at": [400, 1200], "kinds": ours(200, 50, TEMPERATURES, MIXTURES)},
        },
        "whole_kl": chosen(MIXTURES[1], MIXTURES[0]),
        "equal_care": {"widths": [400, 1200], "kinds": equal_care.kinds(200, 50)},
    },
    additions=(whole_kl.ADDITION, equal_care.ADDITION),
)
