"""Variational networks of one architecture with a setting each, trained at once and kept while the experiment runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from bayesify.likelihoods import Categorical
from bayesify.methods import Variational
from bayesify_studies.experiments.framework.work import Work

Setting = Mapping[str, Any]


def variational(prior: str, kl: str = "uniform", estimator: str = "flipout") -> dict[str, Any]:
    """What a variational network has beside its plan; the fleet's networks share the estimator."""
    return {"prior": prior, "kl": kl, "estimator": estimator, "rho": -5.0}


def trained_fleet(
    work: Work,
    home: str,
    network: Callable[[], nn.Module],
    classes: int,
    settings: Sequence[Setting],
    seeds: Sequence[int],
    train: tuple[Tensor, Tensor],
    *,
    start: str = "fresh",
) -> list[Variational]:
    """A network for each pair of a setting and a seed; priors, rates and KL weights are each one's own."""
    common = settings[0]

    def make() -> list[Variational]:
        return [
            Variational(
                network,
                Categorical(classes=classes),
                prior=setting["prior"],
                estimator=setting["estimator"],
                start=start,
                rho=setting["rho"],
                seed=seed,
            )
            for setting, seed in zip(settings, seeds, strict=True)
        ]

    return work.fleet(
        home,
        make,
        train,
        learning_rates=[setting["rate"] for setting in settings],
        kl=[setting["kl"] for setting in settings],
        epochs=common["epochs"],
        batch_size=common["batch"],
        schedule=common["schedule"],
        checkpoint_every=max(1, common["epochs"] // 5),
    )


def said(setting: Setting) -> str:
    """A setting in a few words."""
    named = ("p", "prior", "kl", "estimator", "rate")
    told = [f"{name} {setting[name]}" for name in named if setting.get(name) not in (None, "uniform")]
    return ", ".join(told)
