"""The parts of a comparison about the networks: training, surfaces over two inputs, weights, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify import plots
from bayesify.evaluation.pruning import PruningCurve, prunable_weights, pruning_curve, scores
from bayesify.evaluation.results import list_by_label
from bayesify.methods import Variational
from bayesify.methods.after_fit import low_elbo
from bayesify.plots import style
from bayesify.plots.style import looks_of
from bayesify.plots.training import time_axis
from bayesify.plots.weights import CUTS, binned_weights, sampled_weights, signal_to_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report
    from bayesify.training.loop import History

PRUNING_DRAWS = 20


def surfaces(report: Report, results: Sequence[MethodResult], inputs: Any) -> None:
    """For two inputs: how unsure each method is over the plane."""
    all_inputs = [torch.as_tensor(result.inputs_or(inputs)) for result in results]
    if any(x.shape[1:] != (2,) for x in all_inputs) or results[0].predictive.kind != "classification":
        return
    report.section("Over the plane of the two inputs")
    report.figure(
        [
            plots.uncertainty_surface(result.method, x, result.targets, title=result.label)
            for result, x in zip(results, all_inputs, strict=True)
        ],
        "Entropy of the predictive distribution: dark is unsure. Every method is unsure along the boundary; only some "
        "are unsure far from the examples.",
        [f"Uncertainty surface of {result.label}" for result in results],
    )


def weights(report: Report, results: Sequence[MethodResult], inputs: Any = None) -> None:
    """Densities of the weights and, for Gaussian posteriors, signal-to-noise and pruning."""
    looks = looks_of(results)
    methods = {result.label: result.method for result in results}
    report.section("Inside the network")
    densities = plots.weight_densities(methods, looks=looks, axes=style.canvas(None, 3.7, 2.8))
    binned = binned_weights(methods, 31)
    caption = (
        "The weights (without biases) over posterior draws. Weights near zero are not needed to fit the data. Half "
        f"of the weights lie within {_listed_halves(results)}."
    )
    words = "Densities of the weights of " + ", ".join(methods)
    data: dict[str, Any] = {label: {"weight": at, "density": density} for label, (at, density) in binned.items()}
    gaussian = [result for result in results if _has_signal(result)]
    if len(results) == len(gaussian) == 1:
        _signal_to_noise(report, results[0], inputs, (densities, caption, words, data))
        return
    report.figure(densities, caption, words, data)
    for result in gaussian:
        _signal_to_noise(report, result, inputs)


def training(report: Report, results: Sequence[MethodResult]) -> None:
    """The parts of the objective by epoch (or iteration), the validation NLL, and histograms of the weights."""
    histories = {result.label: result.history for result in results if len(result.history)}
    if not histories:
        return
    looks = looks_of(results)
    shown = ["nll", *(column for column in ("validation_nll", "kl") if _moving(histories, column))]
    panels = [
        plots.training_history(_moving(histories, column), show=column, looks=looks, axes=style.canvas(None, 3.7, 2.8))
        for column in shown
    ]
    along = time_axis(histories.values())[1]
    words = [f"{column.replace('_', ' ')} by {along}" for column in shown]
    data: dict[str, Any] = {
        label: {column: [record.get(column) for record in part] for column in shown}
        for label, part in histories.items()
    }
    for result in results:
        # Of several methods only those with a posterior over single weights; one method alone in any case.
        if "weights" in result.history and (isinstance(result.method, Variational) or len(results) == 1):
            panels.append(_histograms(result, looks[result.label], alone=len(results) == 1))
            words.append(f"Weights of {result.label} by epoch")
    falls = list_by_label(
        {label: f"{part['nll'][0]:.3g} to {part['nll'][-1]:.3g}" for label, part in histories.items()}
    )
    about = {
        "nll": f"The negative log-likelihood, which should level off. First and last epoch: {falls}.",
        "validation_nll": "On held-out examples: where it rises while the training NLL falls, the network overfits.",
        "kl": "KL divergence of the posterior from the prior. A flat line means that the data did not change it."
        if along != "iteration"
        else "Minus the log prior density of the chains: while it still falls or rises, they have not converged.",
    }
    notes = [about[column] for column in shown]
    notes += ["When the rows stop changing, the weights have converged. All rows are drawn at the same height."] * (
        len(panels) - len(shown)
    )
    report.section("Training")
    bounds = {r.label: str(r.method.final_elbo) for r in results if r.method.final_elbo is not None}
    if bounds:
        report.text(
            f"ELBO of the final posterior on all training examples (higher is better): {list_by_label(bounds)}."
        )
    for result in results:
        note = low_elbo(result.method)
        if note is not None:
            report.text(f"Note on {result.label}: {note}.")
    report.figure(panels, "", words, data, notes)


def _histograms(result: MethodResult, look: Any, *, alone: bool) -> Any:
    title = "" if alone else result.label
    return plots.weight_histograms(result.history, look=look, title=title, axes=style.canvas(None, 3.7, 2.8))


def _moving(histories: Mapping[str, History], column: str) -> dict[str, History]:
    """The histories in which a column was recorded and is not zero throughout."""
    return {label: part for label, part in histories.items() if any(record.get(column) for record in part)}


def _has_signal(result: MethodResult) -> bool:
    if not isinstance(result.method, Variational) or result.method.annealed:
        return False
    return bool((scores(result.method) > 0)[prunable_weights(result.method)].any())


def _listed_halves(results: Sequence[MethodResult]) -> str:
    return list_by_label({r.label: f"±{float(np.median(np.abs(sampled_weights(r.method)))):.2g}" for r in results})


def _signal_to_noise(
    report: Report, result: MethodResult, inputs: Any, before: tuple[Axes, str, str, dict[str, Any]] | None = None
) -> None:
    """`before` is a panel that shares the figure: its axes, caption, words and data."""
    look = looks_of([result])[result.label]
    snr = signal_to_noise(result.method)
    panels = [
        plots.snr_histogram(result.method, look=look),
        plots.snr_cumulative(result.method, look=look),
    ]
    data: dict[str, Any] = {"cuts": {f"{cut:g}": float(np.quantile(snr, cut)) for cut in CUTS}}
    words = [f"Signal-to-noise of the weights of {result.label}", "Share of the weights below each signal-to-noise"]
    curve = _pruned(result, inputs)
    if curve is not None:
        named = "error" if result.predictive.kind == "classification" else "RMSE"
        panels.append(plots.pruning_curve({result.label: curve}, error_name=named, looks={result.label: look}))
        data["pruning"] = curve.to_dict()
        words.append("Error after pruning a share of the weights")
    below = float((snr < 1).mean())
    notes = [
        f"Signal-to-noise of the weights of {result.label}. Dashed lines: cuts that remove {_listed(CUTS)} of them.",
        f"The share of the weights below each signal-to-noise: {below:.0%} have more noise than signal.",
        *([_how_far(curve)] if curve is not None else []),
    ]
    if before is not None:
        densities, opening, alone, more = before
        panels, words, notes, data = [densities, *panels], [alone, *words], [opening, *notes], more | data
    report.figure(panels, "", words, data, notes)


def _pruned(result: MethodResult, inputs: Any) -> PruningCurve | None:
    inputs = result.inputs_or(inputs)
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
    return f"{reached:.0%} of the weights can be removed before the error grows by more than a tenth."


def _listed(cuts: Sequence[float]) -> str:
    texts = [f"{cut:.0%}" for cut in cuts]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
