"""The convolutional network with all of its KL, beside the one that validation chose with a tenth of it.

The setting is the best on validation of those with the whole KL (the page's table of choices). Its ELBO is compared
with that of a network that knows nothing: all means zero, one width for every layer but the last and one for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired, percent, signed, written
from bayesify.likelihoods import Categorical
from bayesify.methods import Variational
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.evidence import losses
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d.knows_nothing import least
from bayesify_studies.experiments.study_e import cnn_networks

NAME = "whole_kl"


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """The network with every seed, and the floor of its prior."""
    return {"whole": (whole, work), "nothing": (nothing, work)}


def whole(work: Work) -> dict[str, Any]:
    """Scores by seed on the test pictures."""
    found = cnn_networks.final(work, work[NAME], "whole")
    names = ("error", "nll", "ece", "expected", "wrong_at_zero", "mistakes_at_zero", "elbo")
    return {"seeds": [{name: one[name] for name in names} for one in found["seeds"]]}


def nothing(work: Work) -> dict[str, Any]:
    """The loss of a network that knows nothing."""
    data = cnn_networks.images(work.on_processor(), held_out=False)
    classes = len(data.class_names)
    method = Variational(cnn_networks.network(data), Categorical(classes=classes), prior=work[NAME]["prior"])
    return least(method, data.train)


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """Both networks, and the ELBO of the whole one."""
    own = found["whole"]["seeds"]
    told = {name: estimate([one[name] for one in own]) for name in own[0] if name != "elbo"}
    loss, floor = losses([one["elbo"] for one in own]), found["nothing"]
    rows = [
        [name, percent(one["error"]), written(one["nll"], ".4f"), percent(one["expected"]), *more]
        for name, one, more in (
            ("a tenth of the KL (chosen)", numbers, ["not recorded", ""]),
            ("all of the KL", told, [written(loss["loss"], ".3f"), f"{floor['loss']:.3f}"]),
        )
    ]
    less = paired(told["error"]["values"], numbers["error"]["values"])
    return Added(
        {**told, "error_less_part": less, "elbo": loss, "knows_nothing": floor["loss"]},
        tables=[
            Table(
                "All of the KL, beside a tenth of it",
                ["", "test error", "test NLL", "expected error", "loss per example", "loss of knowing nothing"],
                rows,
                f"Prior {work[NAME]['prior']}. With all of the KL the test error changes by "
                f"{signed(less, '.2f', ' points', 100)}. The loss is minus the ELBO per training example.",
            )
        ],
    )


ADDITION = Addition(NAME, parts, tell)
