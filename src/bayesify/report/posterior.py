"""The parts of a comparison that look inside: training, surfaces over two inputs, weights, signal-to-noise, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify import plots
from bayesify.methods import Variational
from bayesify.plots.weights import CUTS, binned_weights, signal_to_noise
from bayesify.pruning import PruningCurve, prunable_weights, pruning_curve, scores
from bayesify.report.results import looks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.report.report import Report
    from bayesify.report.results import MethodResult

PRUNING_DRAWS = 20


def surfaces(report: Report, results: Sequence[MethodResult], inputs: Any) -> None:
    """For two inputs: how unsure each method is over the plane."""
    x = torch.as_tensor(inputs)
    if x.shape[1:] != (2,) or results[0].predictive.kind != "classification":
        return
    report.section("Over the plane of the two inputs")
    report.figure(
        [plots.uncertainty_surface(result.method, x, result.targets, title=result.label) for result in results],
        "Entropy of the predictive distribution: dark is unsure. Along the boundary every method doubts; far from the "
        "examples only some do.",
        [f"Uncertainty surface of {result.label}" for result in results],
    )


def weights(report: Report, results: Sequence[MethodResult], inputs: Any = None) -> None:
    """How the weights are spread and, for Gaussian posteriors that are not pruned to nothing, which are needed."""
    looks = looks_of(results)
    methods = {result.label: result.method for result in results}
    report.section("Inside the network")
    report.figure(
        plots.weight_densities(methods, looks=looks),
        "The weights (not the biases) over draws of each posterior. Weights gathered at zero are ones that the data "
        "did not ask for.",
        "Densities of the weights of " + ", ".join(methods),
        {label: {"weight": at, "density": density} for label, (at, density) in binned_weights(methods, 31).items()},
    )
    for result in results:
        if isinstance(result.method, Variational) and bool(
            (scores(result.method) > 0)[prunable_weights(result.method)].any()
        ):
            _signal_to_noise(report, result, inputs)


def training(report: Report, results: Sequence[MethodResult]) -> None:
    """The training NLL by epoch, and where it was measured the validation's."""
    histories = {result.label: result.history for result in results if len(result.history)}
    if not histories:
        return
    looks = looks_of(results)
    shown = ["nll"]
    if any(record.get("validation_nll") is not None for part in histories.values() for record in part.records):
        shown.append("validation_nll")
    report.section("Training")
    report.figure(
        [plots.training_history(histories, show=column, looks=looks) for column in shown],
        "The data's part of the objective by epoch. A variational network stops earlier than a plain one can: its "
        "noise and its prior keep it from memorising.",
        [f"{column.replace('_', ' ')} by epoch" for column in shown],
        {label: {column: part[column] for column in shown} for label, part in histories.items()},
    )


def _signal_to_noise(report: Report, result: MethodResult, inputs: Any) -> None:
    look = looks_of([result])[result.label]
    snr = signal_to_noise(result.method)
    panels = [
        plots.snr_histogram(result.method, look=look),
        plots.snr_cumulative(result.method, look=look),
    ]
    data: dict[str, Any] = {"cuts": {f"{cut:g}": float(np.quantile(snr, cut)) for cut in CUTS}}
    words = [f"Signal-to-noise of the weights of {result.label}", "Share of the weights below each signal-to-noise"]
    told = ""
    curve = _pruned(result, inputs)
    if curve is not None:
        named = "error" if result.predictive.kind == "classification" else "RMSE"
        panels.append(plots.pruning_curve({result.label: curve}, error_name=named, looks={result.label: look}))
        data["pruning"] = curve.to_dict()
        words.append("Error after pruning a share of the weights")
        told = f" {_how_far(curve)}"
    report.figure(
        panels,
        f"{result.label}: signal-to-noise of its weights; dashed, the cuts that remove {_listed(CUTS)} of them.{told}",
        words,
        data,
    )


def _pruned(result: MethodResult, inputs: Any) -> PruningCurve | None:
    if inputs is None:
        return None
    draws = min(PRUNING_DRAWS, result.predictive.draws)
    return pruning_curve(result.method, (inputs, result.targets), draws=draws)


def _how_far(curve: PruningCurve) -> str:
    """The largest share that can go, step by step, for at most a tenth more error."""
    reached = 0.0
    for fraction, error in zip(curve.fractions, curve.error, strict=True):
        if error > 1.1 * curve.error[0] + 1e-12:
            break
        reached = fraction
    if reached == 0:
        return "The error grows by more than a tenth as soon as weights are removed."
    return f"{reached:.0%} of the weights can go before the error grows by more than a tenth."


def _listed(cuts: Sequence[float]) -> str:
    texts = [f"{cut:.0%}" for cut in cuts]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
