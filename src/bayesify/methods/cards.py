"""Everything there is to say about a method, in one table that needs no torch.

The command line, recipes, comparisons, plots, model cards, the studio and the documentation all read a method's name,
title and options from its card. A new method is its own file and a card here; its default settings are those in
`defaults.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bayesify.methods.defaults import default_settings

if TYPE_CHECKING:
    from bayesify.methods.ensemble import Ensemble as Ensemble
    from bayesify.methods.hmc.hmc import HMC as HMC
    from bayesify.methods.ivon.ivon import IVON as IVON
    from bayesify.methods.laplace.laplace import LaplaceApproximation as LaplaceApproximation
    from bayesify.methods.mc_dropout import MCDropout as MCDropout
    from bayesify.methods.method import Method
    from bayesify.methods.point import PointEstimate as PointEstimate
    from bayesify.methods.sgmcmc.sghmc import SGHMC as SGHMC
    from bayesify.methods.sgmcmc.sgld import SGLD as SGLD
    from bayesify.methods.swag import SWAG as SWAG
    from bayesify.methods.variational.variational import Variational as Variational

Dash = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Option:
    """A setting that only some methods have: its type, and the words and the placeholder that `--help` shows."""

    kind: type
    help: str
    metavar: str | None = None


@dataclass(frozen=True)
class Card:
    """What the rest of the package needs to know about a method.

    Args:
        name: on the command line, in configuration files and in a run's `config.json`.
        path: where the class is: `module:Class`, the module below `bayesify.methods`.
        title: what a reader sees.
        sentence: what the method is, as the end of a sentence.
        holds: what a fitted method keeps in memory.
        colour: of its lines; its marker and its dash tell it apart where colours do not.
        marker: as matplotlib names them.
        dash: as matplotlib takes them.
        label: in comparisons, where that is not the title.
        options: the names of its settings, which `OPTIONS` explains.
        of_fit: those of them that go to `fit`, not to the constructor.
        prior: whether it has a posterior, and so a prior by default.
        draws_per_step: whether a training step may average over several draws of the weights.
        optimised: whether it follows a plan of epochs and batches; HMC samples instead.
        own_update: whether its update is part of the method, so that a comparison names no other optimiser for it.
        own_rate: whether its learning rate is not that of an optimiser of the mean loss (docs/gotchas.md).
        collects: whether it collects what it holds at the end of its plan, so that it cannot stop early.
        usual: whether it takes part in a comparison that names no methods.

    """

    name: str
    path: str
    title: str
    sentence: str
    holds: str
    colour: str
    marker: str
    dash: Dash = "-"
    label: str = ""
    options: tuple[str, ...] = ()
    of_fit: tuple[str, ...] = ()
    prior: bool = False
    draws_per_step: bool = False
    optimised: bool = True
    own_update: bool = False
    own_rate: bool = False
    collects: bool = False
    usual: bool = False

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.path.rpartition(":")[2]

    def load(self) -> type[Method]:
        """Import the class."""
        module, _, name = self.path.partition(":")
        found: type[Method] = getattr(importlib.import_module(f"bayesify.methods.{module}"), name)
        return found

    def settings_for(self, kind: str, *, images: bool = False) -> dict[str, Any]:
        """The default settings for a kind of problem.

        Args:
            kind: `classification` or `regression`.
            images: whether the inputs are images.

        Returns:
            Settings by name: those of the constructor and those of `fit`; None leaves it to the class.

        Examples:
            >>> CARDS["ivon"].settings_for("classification")["schedule"]
            'cosine'

        """
        return default_settings(self.name, kind, images=images) if self.optimised else {}

    @property
    def finds_rate(self) -> bool:
        """Whether its step size is found from the data where no learning rate is given."""
        return self.optimised and self.settings_for("classification")["learning_rate"] is None

    def takes(self, setting: str) -> bool:
        """Whether a setting of a recipe says anything to this method."""
        if setting in OPTIONS:
            return setting in self.options
        if setting in OF_OPTIMISATION and not self.optimised:
            return False
        refused = {
            "draws": not self.draws_per_step,
            "patience": self.collects,
            "keep": self.collects,
            "optimizer": self.own_update,
            "ema": self.collects,
            "clip_norm": self.collects and self.own_update,  # a sampler
        }
        return not refused.get(setting, False)


# Settings of `fit` that describe an optimisation.
OF_OPTIMISATION = (
    *("epochs", "batch_size", "optimizer", "learning_rate", "schedule", "kl", "patience", "keep"),
    *("precision", "accumulate", "clip_norm", "ema", "on_nan", "distributed"),
)
# How the processes that `torchrun` started share a training, beside the default: each draws its own weights, holds a
# part of the weights, or both.
OWN_DRAWS, SHARDED, SHARDED_OWN_DRAWS = "own-draws", "sharded", "sharded-own-draws"
WAYS_TO_SHARE = (OWN_DRAWS, SHARDED, SHARDED_OWN_DRAWS)

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "family": Option(str, "mean_field, full_rank, low_rank, annealed"),
        "rank": Option(int, "rank of the covariance (default: 10; swag 20)", "N"),
        "transitions": Option(int, "steps of each draw of family annealed (default: 800)", "N"),
        "paths": Option(int, "draws that family annealed makes and keeps (default: 300)", "N"),
        "estimator": Option(str, "weight, local, flipout, moments (default: weight; tables local)"),
        "gradient": Option(str, "reparametrised, stick_the_landing"),
        "bound": Option(str, "elbo, importance_weighted"),
        "rho": Option(str, "where widths start, before softplus: -5, uniform:-5,-4"),
        "members": Option(int, "how many networks (default: 5)", "N"),
        "bootstrap": Option(bool, "train each member on its own resample of the data"),
        "p": Option(float, "the dropout rate (default: 0.2; 0.005 for a table of numbers)", "RATE"),
        "hessian_init": Option(float, "where its curvature starts (default: found from the data)", "H"),
        "adam_share": Option(float, "share of the steps in which its mean follows Adam (default: by size)", "SHARE"),
        "structure": Option(str, "diagonal, kronecker, full (default: kronecker)"),
        "predictive": Option(str, "linearised, weights"),
        "prior_precision": Option(str, "fixed, marginal_likelihood (default)"),
        "every": Option(int, "steps between snapshots (default: one at the end of each epoch)", "STEPS"),
        "begin": Option(float, "take snapshots after this share of training", "SHARE"),
        "chains": Option(int, "how many chains (default: 4; sgld and sghmc of large networks 1)", "N"),
        "samples": Option(int, "draws kept from each chain (default: 100; hmc 500)", "N"),
        "burn_in": Option(
            float, "the share of training that is not kept (default: until the log joint settles)", "SHARE"
        ),
        "cycles": Option(int, "cosine cycles of the step size", "N"),
        "friction": Option(float, "how fast momentum is lost (default: 0.1)", "SHARE"),
        "warm_up": Option(int, "steps that adapt and are not kept (default: 500)", "N"),
        "target_accept": Option(float, "the mean acceptance that the step size is adapted to (default: 0.8)", "SHARE"),
        "max_leapfrogs": Option(int, "the most leapfrog steps in a trajectory (default: 1000)", "N"),
    }
)


CARDS: Mapping[str, Card] = MappingProxyType(
    {
        card.name: card
        for card in (
            Card(
                "point",
                "point:PointEstimate",
                "Plain network",
                "a single set of weights (no posterior)",
                "one vector",
                colour="#59636e",
                marker="o",
                usual=True,
            ),
            Card(
                "ensemble",
                "ensemble:Ensemble",
                "Ensemble",
                "a deep ensemble",
                "one vector for each member",
                colour="#c77c00",
                marker="s",
                dash=(0, (5, 1.5)),
                label="Ensemble of 5",
                options=("members", "bootstrap"),
                usual=True,
            ),
            Card(
                "mc-dropout",
                "mc_dropout:MCDropout",
                "MC dropout",
                "dropout that stays on in predictions",
                "one vector; masks are drawn",
                colour="#009e73",
                marker="^",
                dash=(0, (3, 1.2)),
                options=("p",),
                usual=True,
            ),
            Card(
                "variational",
                "variational.variational:Variational",
                "Variational",
                "a Gaussian posterior over the weights, fitted by variational inference",
                "means and widths; correlations in some families",
                colour="#0072b2",
                marker="D",
                options=("family", "rank", "transitions", "paths", "estimator", "gradient", "bound", "rho"),
                usual=True,
                prior=True,
                draws_per_step=True,
            ),
            Card(
                "ivon",
                "ivon.ivon:IVON",
                "IVON",
                "a Gaussian posterior over the weights, fitted by a variational Newton method",
                "means and curvatures",
                colour="#3a9bd0",
                marker="v",
                dash=(0, (6, 1.5, 1, 1.5)),
                options=("hessian_init", "adam_share"),
                prior=True,
                draws_per_step=True,
                own_update=True,
                own_rate=True,
            ),
            Card(
                "laplace",
                "laplace.laplace:LaplaceApproximation",
                "Laplace approximation",
                "a Gaussian posterior around the best weights, by Laplace's approximation",
                "one vector and a curvature matrix (full, Kronecker or diagonal)",
                colour="#b5518c",
                marker="P",
                dash=(0, (4, 1.2, 1, 1.2)),
                options=("structure", "predictive", "prior_precision"),
                prior=True,
            ),
            Card(
                "swag",
                "swag:SWAG",
                "SWAG",
                "a Gaussian posterior from the path of stochastic gradient descent",
                "a mean, a variance and `rank` deviations",
                colour="#d55e00",
                marker="X",
                dash=(0, (2, 1)),
                options=("rank", "begin", "every"),
                own_update=True,
                collects=True,
            ),
            Card(
                "sgld",
                "sgmcmc.sgld:SGLD",
                "SGLD",
                "posterior samples by stochastic gradient Langevin dynamics",
                "samples",
                colour="#7a6a00",
                marker="<",
                dash=(0, (1, 1)),
                options=("chains", "samples", "burn_in", "cycles"),
                prior=True,
                own_update=True,
                own_rate=True,
                collects=True,
            ),
            Card(
                "sghmc",
                "sgmcmc.sghmc:SGHMC",
                "SGHMC",
                "posterior samples by stochastic gradient Hamiltonian Monte Carlo",
                "samples",
                colour="#5f3f9e",
                marker=">",
                dash=(0, (6, 2)),
                options=("chains", "samples", "burn_in", "cycles", "friction"),
                prior=True,
                own_update=True,
                own_rate=True,
                collects=True,
            ),
            Card(
                "hmc",
                "hmc.hmc:HMC",
                "HMC",
                "posterior samples by Hamiltonian Monte Carlo",
                "samples",
                colour="#1f2328",
                marker="*",
                dash=(0, (8, 1.5)),
                options=("chains", "samples", "warm_up", "target_accept", "max_leapfrogs"),
                of_fit=("samples", "warm_up", "target_accept", "max_leapfrogs"),
                prior=True,
                optimised=False,
            ),
        )
    }
)
