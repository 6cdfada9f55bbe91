"""One sentence or two for a busy reader, from an experiment's numbers: at most 40 words.

The page's full answer follows below it. Words follow the numbers: a difference that another run turns around turns its
sentence around too. An experiment without a verdict, or whose numbers lack what it needs, shows its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import settled, settled_together

Numbers = Mapping[str, Any]
LONGEST = 40


def verdict(results: Mapping[str, Any]) -> str:
    """The verdict on a result, or its answer where there is none."""
    write = VERDICTS.get(results["name"])
    try:
        return results["answer"] if write is None else write(results["numbers"])
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return str(results["answer"])


def _coin(numbers: Numbers) -> str:
    cases = [case for name, case in numbers.items() if name.startswith("heads")]
    worst = max(abs(case["grid"] - case["exact"]) for case in cases)
    return (
        f"A grid of {cases[0]['points']} points puts P(head) off by up to {worst:.3f}. Its own error estimate explains "
        f"all but {numbers['largest_unexplained']:.0e} of that."
    )


def _line(numbers: Numbers) -> str:
    return (
        f"Yes. A grid agrees with the exact posterior to {numbers['largest_difference']:.0e}; the rest is probability "
        "beyond its edges. Uncertainty grows away from the data."
    )


def _gaussian_logits(numbers: Numbers) -> str:
    clean, mixed = numbers["cells"]["mnist-mlp-adam-log_expected-0"], numbers["cells"]["mnist-mlp-adam-log_expected-30"]
    plain = numbers["cells"]["mnist-mlp-adam-plain-30"]
    return (
        f"On clean digits the learned spread shrinks to {clean['spread']['mean']:.3f}: it says nothing. Where labels "
        f"are mixed, it finds the affected digits with AUROC {mixed['spread_auroc']['mean']:.3f}; a plain network's "
        f"entropy reaches {plain['entropy_auroc']['mean']:.3f}."
    )


def _uncertainty_kinds(numbers: Numbers) -> str:
    change = {kind: 4 ** one["mean"] - 1 for kind, one in numbers["slopes"]["hmc"].items()}
    return (
        f"With HMC, four times the data changes epistemic uncertainty by {change['epistemic']:+.0%} and aleatoric "
        f"uncertainty by {change['aleatoric']:+.0%}. Mean-field VI behaves alike."
    )


def _bayes_by_backprop(numbers: Numbers) -> str:
    width = numbers["best_width"]
    error = numbers["error"][f"ours-mixture-{width}-draws"]["mean"]
    signs = {
        other: [one["sign"] for name, one in numbers["mixture_less"].items() if name.startswith(other)]
        for other in ("plain", "dropout")
    }
    plain, dropout = signs["plain"], signs["dropout"]
    return (
        f"A variational network with a scale mixture errs on {error:.2%} at {width} units. It beats plain networks at "
        f"{plain.count(-1)} of {len(plain)} widths and MC dropout at {dropout.count(-1)} of {len(dropout)}."
    )


def _kl_reweighting(numbers: Numbers) -> str:
    word = {1: "hurts", -1: "helps", 0: "makes no significant difference"}
    study, converged, gains = numbers["gain"]["study"], numbers["gain"]["converged"], list(numbers["gain"].values())
    return (
        f"Re-weighting the KL {word[settled(study)]} as the study trained ({_points(study)}) and "
        f"{word[settled(converged)]} with Adam ({_points(converged)} of test error). Of {len(gains)} differences, "
        f"{settled_together(gains)} survive a correction for their number."
    )


def _priors(numbers: Numbers) -> str:
    def better(way: str) -> str:
        signs = [settled(one) for name, one in numbers["less_gaussian"].items() if name.startswith(way)]
        return f"{signs.count(-1)} of {len(signs)}"

    return (
        f"It depends on the training. As the study trained, {better('study')} scale mixtures beat N(0, 1); with Adam "
        f"and a falling rate, {better('converged')} do."
    )


def _normalisation(numbers: Numbers) -> str:
    less = numbers["less_others"]
    return (
        "No scaling wins consistently. Dividing pixels by 126 instead of 255 changes the test error by "
        f"{_points(less['study_255'])} as the study trained and {_points(less['converged_255'])} with Adam. Of "
        f"{len(less)} differences, {settled_together(list(less.values()))} survive a correction for their number."
    )


def _pruning(numbers: Numbers) -> str:
    chosen = numbers["chosen"]
    own = [one for name, one in numbers["snr_less_magnitude_at_75"].items() if name.startswith("Adam")]
    signs = [settled(one) for one in own]
    return (
        f"With 98% of its weights pruned, a 1200-unit network errs on {chosen['pruned']['mean']:.2%} instead of "
        f"{chosen['unpruned']['mean']:.2%}. At 75%, signal-to-noise beats magnitude in {signs.count(-1)} of "
        f"{len(signs)} networks and loses in {signs.count(1)}."
    )


def _paper_grid(numbers: Numbers) -> str:
    return (
        f"The best of {numbers['settings']} settings on validation errs on {numbers['test']['error']:.2%} of the test "
        f"images; the paper reports 1.36%. The whole search took {numbers['minutes']:.0f} minutes on one GPU."
    )


def _unseen_class(numbers: Numbers) -> str:
    names = {"variational": "variational", "ensemble": "ensemble", "dropout": "MC dropout", "plain": "plain"}
    shown = ", ".join(f"{names[way]} {numbers[f'equal-{way}']['auroc entropy']['mean']:.3f}" for way in names)
    return f"A little. AUROC for pictures of the class never seen, at equal budgets: {shown}. Chance is 0.5."


def _hmc_distance(numbers: Numbers) -> str:
    nearest, ahead = [], 0
    for data in numbers["data"].values():
        far = {
            row["label"]: row["scores"]["total_variation"]["mean"]
            for row in data["rows"]
            if not row["label"].startswith("HMC")
        }
        nearest.append(min(far, key=far.__getitem__))
        ahead += far["Ensemble of 5"] < far["Variational"]
    names = " or ".join(dict.fromkeys(nearest))
    return (
        f"{names} is nearest to HMC on all {len(nearest)} data sets. The ensemble of 5 is nearer than mean-field VI on "
        f"{ahead} of {len(nearest)}."
    )


def _hyperpriors(numbers: Numbers) -> str:
    word = {1: "better", -1: "worse", 0: "not significantly different"}
    plain, warm = numbers["advantage"]["plain"]["pooled"], numbers["advantage"]["warm"]["pooled"]
    return (
        f"Against a scale tuned on validation, a hyperprior is {word[settled(plain)]} ({_points(plain)} of accuracy); "
        f"with the KL warmed up it is {word[settled(warm)]} ({_points(warm)})."
    )


def _mnist_cnn(numbers: Numbers) -> str:
    trust = "too confident" if settled(numbers["expected_less_error"]) == -1 else "about right"
    return (
        f"It reads {1 - numbers['error']['mean']:.2%} of the digits correctly. It expects "
        f"{numbers['expected']['mean']:.2%} errors and makes {numbers['error']['mean']:.2%}: {trust}. Where all draws "
        f"agree, {numbers['wrong_at_zero']['mean']:.2%} are wrong."
    )


def _regression_bands(numbers: Numbers) -> str:
    ratio = {name: one["ratio"]["mean"] for name, one in numbers["methods"].items()}
    return (
        f"Variational bands are {ratio['variational']:.1f} times as wide away from the data as on it. Those of HMC are "
        f"{ratio['hmc']:.0f} times as wide, of an ensemble {ratio['ensemble']:.0f}, of MC dropout "
        f"{ratio['mc-dropout']:.1f}."
    )


def _mushroom(numbers: Numbers) -> str:
    own, greedy = numbers["median"]["variational"], numbers["median"]["greedy"]
    less = numbers["variational_less"]["greedy"]
    wins = sum(value < 0 for value in less["values"])
    sure = "a settled difference" if settled(less) else "no significant difference"
    return (
        f"Median regret after {numbers['steps']:,} steps is {own:,.0f} by Thompson sampling and {greedy:,.0f} by "
        f"greedy play, lower in {wins} of {len(less['values'])} games: {sure}."
    )


def _bandits(numbers: Numbers) -> str:
    regret = numbers["regret"]["mushroom"]
    return (
        f"Mushroom, {numbers['steps']:,} steps, logistic agents: regret {_mean(regret['logistic ucb'])} by upper "
        f"confidence bounds, {_mean(regret['logistic thompson'])} by Thompson sampling, "
        f"{_mean(regret['logistic greedy'])} by greedy play."
    )


def _guarantees(numbers: Numbers) -> str:
    made, broken = numbers["promises_made"], numbers["promises_broken"]
    low, high = (worst(one["mean"] for one in numbers["coverage"].values()) for worst in (min, max))
    return (
        f"Of {made:,} promises of an error rate, {broken:,} ({broken / made:.1%}) were broken; 5% were allowed. "
        f"Conformal sets for 90% hold the truth in {low:.1%} to {high:.1%} of cases."
    )


def _likelihoods(numbers: Numbers) -> str:
    helps = numbers["helps"]

    def on(family: str, way: str) -> str:
        return f"{helps[family][way]['better']} of {helps[family][way]['tables']}"

    return (
        f"Better CRPS than Gaussian noise: input-dependent noise on {on('numbers', 'heteroscedastic')}, "
        f"quantiles {on('numbers', 'quantiles')}, mixtures {on('numbers', 'mixture of 3')}. Censoring helps on "
        f"{on('censored', 'censored')}, negative binomial {on('counts', 'negative binomial')}, ordinal "
        f"{on('ordinal', 'ordinal')} (NLL: {helps['ordinal']['ordinal']['nll_better']}), multi-label "
        f"{on('tags', 'multi-label')}."
    )


def _active_learning(numbers: Numbers) -> str:
    labels = numbers["median_labels"]
    reached = {name: count for name, count in labels.items() if count is not None}
    best = min(reached, key=reached.__getitem__)
    name = {"batchbald": "BatchBALD", "bald": "BALD", "epig": "EPIG"}.get(best, best)
    random = f"{labels['random']:.0f}" if labels["random"] is not None else "more than were asked"
    return f"{name} reaches 90% on MNIST with {reached[best]:.0f} labels (median). Random choice needs {random}."


def _learning_on(numbers: Numbers) -> str:
    own = {way: f"{one['mean']:.1%}" for way, one in numbers["accuracy"]["permuted"].items()}
    split = {way: one["mean"] for way, one in numbers["accuracy"]["split"].items()}
    word = "better" if split["coreset"] > split["ewc"] else "worse"
    return (
        f"After {numbers['tasks']} tasks of permuted digits: {own['coreset']} with coresets, {own['posterior']} "
        f"without, {own['ewc']} by elastic weight consolidation, {own['fine-tuned']} by fine-tuning. On split digits "
        f"it is {word} than elastic weight consolidation."
    )


def _ood(numbers: Numbers) -> str:
    told = [
        f"{title}: AUROC {own['ensemble']['entropy']['mean']:.3f} by an ensemble's entropy, "
        f"{own['ensemble']['knn']['mean']:.3f} by {'the default check' if number == 0 else 'the check'}"
        for number, (title, own) in enumerate((kind, numbers["auroc"][kind]) for kind in ("fashion-mnist", "notmnist"))
    ]
    return f"{'; '.join(told)} (distances between pixels). Which score is best depends on the unknown inputs."


def _transfer(numbers: Numbers) -> str:
    signs = [
        settled(one)
        for name, one in numbers["discounted_less"].items()
        if " tuned " in name and name.endswith("accuracy")
    ]
    own = [
        settled(one)
        for name, one in numbers["discounted_less"].items()
        if " nothing " in name and name.endswith("accuracy")
    ]
    return (
        f"A discounted old posterior beats starting without old data in {own.count(1)} of {len(own)} cases. It beats "
        f"fine-tuning in {signs.count(1)} of {len(signs)}: what helps is where training starts."
    )


def _figures(numbers: Numbers) -> str:
    return (
        f"Softplus is a smooth ReLU, at most {numbers['softplus']['largest_distance']:.2f} above it. Forward KL fits a "
        "wide Gaussian over both humps; reverse KL, which variational inference uses, fits one of them."
    )


def _sbc(numbers: Numbers) -> str:
    methods = numbers["methods"]
    good = [name for name, one in methods.items() if one["calibrated"] and not name.startswith("cold")]
    judged = [name for name in methods if not name.startswith("cold")]
    return (
        f"{len(good)} of {len(judged)} methods pass simulation-based calibration in {numbers['repetitions']} "
        "repetitions. A posterior made too narrow on purpose fails, so the test can see a fault."
    )


def _defaults(numbers: Numbers) -> str:
    states, silent = numbers["states"], len(numbers["failed_without_warning"])
    return (
        f"Of {numbers['fits']} fits at the defaults, {states['fine']} are fine and {states['failed']} failed, {silent} "
        "of them without a warning."
    )


def _points(estimated: Mapping[str, Any]) -> str:
    return f"{100 * estimated['mean']:+.2f} points"


def _mean(estimated: Mapping[str, Any]) -> str:
    return f"{estimated['mean']:,.0f}"


VERDICTS: dict[str, Callable[[Numbers], str]] = {
    "coin": _coin,
    "line": _line,
    "gaussian-logits": _gaussian_logits,
    "uncertainty-kinds": _uncertainty_kinds,
    "mnist-table": _bayes_by_backprop,
    "fashion-table": _bayes_by_backprop,
    "kl-reweighting": _kl_reweighting,
    "priors": _priors,
    "normalisation": _normalisation,
    "pruning": _pruning,
    "paper-grid": _paper_grid,
    "unseen-class": _unseen_class,
    "hmc-distance": _hmc_distance,
    "hyperpriors": _hyperpriors,
    "mnist-cnn": _mnist_cnn,
    "regression-bands": _regression_bands,
    "mushroom": _mushroom,
    "bandits": _bandits,
    "guarantees": _guarantees,
    "likelihoods": _likelihoods,
    "active-learning": _active_learning,
    "learning-on": _learning_on,
    "ood": _ood,
    "transfer": _transfer,
    "figures": _figures,
    "sbc": _sbc,
    "defaults": _defaults,
}
