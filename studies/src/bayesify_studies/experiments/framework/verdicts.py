"""One sentence or two for a busy reader, from an experiment's numbers: at most 40 words.

The page's full answer follows below it. Words follow the numbers: a difference that another run turns around turns its
sentence around too. An experiment without a verdict, or whose numbers lack what it needs, shows its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import paired, settled, settled_by_holm
from bayesify.methods.cards import CARDS
from bayesify_studies.experiments.study_c.elbo_of_solutions import WARMED

Numbers = Mapping[str, Any]
LONGEST = 40
# Chains with a larger R-hat are no reference.
AGREEING = 1.01
# Tables of UCI on which Auto should be level with the best published row.
UCI_GOAL = 4


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
        f"On a grid of {cases[0]['points']} points, P(head) has an error of up to {worst:.3f}. The grid's own "
        f"estimate of its error is off by at most {_small(numbers['largest_unexplained'])}."
    )


def _line(numbers: Numbers) -> str:
    return (
        f"The grid differs from the exact posterior by at most {_small(numbers['largest_difference'])}, and "
        "uncertainty grows away from the data. The error comes from probability beyond the edges of the grid."
    )


def _gaussian_logits(numbers: Numbers) -> str:
    clean, mixed = numbers["cells"]["mnist-mlp-adam-log_expected-0"], numbers["cells"]["mnist-mlp-adam-log_expected-30"]
    plain = numbers["cells"]["mnist-mlp-adam-plain-30"]
    return (
        f"On clean digits the learned spread shrinks to {clean['spread']['mean']:.3f} and has no meaning. With 30% of "
        f"the 1s and 7s relabelled, it finds these digits with AUROC {mixed['spread_auroc']['mean']:.3f} (a plain "
        f"network's entropy: {plain['entropy_auroc']['mean']:.3f})."
    )


def _uncertainty_kinds(numbers: Numbers) -> str:
    change = {kind: 4 ** one["mean"] - 1 for kind, one in numbers["slopes"]["hmc"].items()}
    said = {kind: f"{'falls' if one < 0 else 'rises'} by {abs(one):.0%}" for kind, one in change.items()}
    clean: dict[str, dict[int, float]] = {"variational": {}, "hmc": {}}
    for row in numbers["moons"]:
        if not row["swapped"]:
            clean[row["method"]][row["examples"]] = row["epistemic"]["mean"]
    ratios = [one / clean["hmc"][examples] for examples, one in clean["variational"].items()]
    return (
        f"With four times the data, HMC's epistemic uncertainty {said['epistemic']} and its aleatoric uncertainty "
        f"{said['aleatoric']}{_unsettled(numbers['largest_r_hat'])}. With mean-field VI both fall similarly, but "
        f"epistemic uncertainty is {min(ratios):.1f} to {max(ratios):.1f} times as large."
    )


def _unsettled(r_hat: float) -> str:
    """A remark on chains that are no reference."""
    return f" (HMC not fully converged: R-hat {r_hat:.2f})" if r_hat > AGREEING else ""


def _bayes_by_backprop(numbers: Numbers) -> str:
    width = numbers["best_width"]
    error = numbers["error"][f"ours-mixture-{width}-draws"]["mean"]
    compared = numbers["mixture_less"]
    signs = dict(zip(compared, settled_by_holm([one["over_seeds"] for one in compared.values()]), strict=True))
    plain, dropout = (
        [sign for name, sign in signs.items() if name.startswith(other)] for other in ("plain", "dropout")
    )
    whole = numbers.get("whole_kl", {}).get("rows", {}).get(f"mixture-{width}")
    prior, told = "a scale-mixture prior", ""
    if whole is not None:
        prior, told = f"{prior} with a reduced KL", f" (full KL: {whole['error']['mean']:.2%})"
    return (
        f"With {width} units, {prior} has a test error of {error:.2%}{told}. After correction for "
        f"{len(signs)} comparisons, it beats plain networks at {plain.count(-1)} of {len(plain)} widths and MC dropout "
        f"at {dropout.count(-1)} of {len(dropout)}."
    )


def _kl_reweighting(numbers: Numbers) -> str:
    study, adam, gains = numbers["gain"]["study"], numbers["gain"]["adam"], list(numbers["gain"].values())
    return (
        f"Re-weighting the KL {_change(study)} with the study's training, and {_change(adam)} with Adam. "
        f"{_corrected(gains)}"
    )


def _priors(numbers: Numbers) -> str:
    def better(way: str) -> str:
        signs = [settled(one) for name, one in numbers["less_gaussian"].items() if name.startswith(way)]
        return f"{signs.count(-1)} of {len(signs)}"

    return (
        f"It depends on the training: {better('study')} scale mixtures beat N(0, 1) with the study's training, and "
        f"{better('adam')} with Adam and a falling learning rate."
    )


def _normalisation(numbers: Numbers) -> str:
    less = numbers["less_others"]
    return (
        "Dividing by 126 instead of 255 changes the test error by "
        f"{_points(less['study_255'])} with the study's training and by {_points(less['adam_255'])} with Adam. "
        f"{_corrected(list(less.values()))}"
    )


def _pruning(numbers: Numbers) -> str:
    chosen, rules = numbers["chosen"], numbers["rules"]
    counts = {word: sum(one[word] for one in rules["by_share"].values()) for word in ("better", "worse", "open")}
    first, second, third = (
        f"{100 * (one['pruned']['mean'] - one['whole']['mean']):.2f}" for one in rules["three_priors"].values()
    )
    own = 100 * (chosen["pruned"]["mean"] - chosen["unpruned"]["mean"])
    return (
        f"Pruning 98% of 1200-unit networks adds {first}, {second} and {third} points of test error under three "
        f"priors, and {own:.2f} under a prior chosen for pruning. After correction, signal-to-noise is better than "
        f"magnitude in {counts['better']} of {sum(counts.values())} comparisons, worse in {counts['worse']}."
    )


def _paper_grid(numbers: Numbers) -> str:
    return (
        f"Of {numbers['settings']} settings, the one with the best validation score has a test error of "
        f"{numbers['test']['error']:.2%}; the paper reports 1.36%. All {numbers['settings']} took "
        f"{numbers['minutes']:.0f} "
        "minutes on one GPU."
    )


def _unseen_class(numbers: Numbers) -> str:
    names = {"variational": "variational", "ensemble": "ensemble", "dropout": "MC dropout", "plain": "plain"}
    every = numbers.get("every_class", {}).get("auroc")
    if every:
        # Classes of CIFAR-10 in turn say more than horses alone.
        of_colours = ", ".join(f"{names[way]} {every[way]['mean']:.3f}" for way in names)
        told = f"AUROC for {len(every['plain']['values'])} CIFAR-10 classes, each withheld in turn: {of_colours}."
    else:
        horses = ", ".join(f"{names[way]} {numbers[f'equal-{way}']['auroc entropy']['mean']:.3f}" for way in names)
        told = f"AUROC for horses, the one CIFAR-10 class withheld: {horses}."
    digits = ", ".join(f"{numbers['digits_auroc'][way]['mean']:.3f}" for way in names)
    gaps = numbers["variational_less_dropout"]
    kept = sum(sign != 0 for sign in settled_by_holm(list(gaps.values())))
    return (
        f"Only slightly. {told} MNIST digits, in the same order: {digits}. Variational and MC dropout differ "
        f"significantly in {kept} of {len(gaps)} comparisons."
    )


def _hmc_distance(numbers: Numbers) -> str:
    nearest, ahead, alone = [], 0, 0
    for data in numbers["data"].values():
        far = {
            row["label"]: row["scores"]["total_variation"] for row in data["rows"] if not row["label"].startswith("HMC")
        }
        best = min(far, key=lambda label: far[label]["mean"])
        nearest.append(best)
        ahead += far["Ensemble of 5"]["mean"] < far["Variational"]["mean"]
        others = (one["values"] for label, one in far.items() if label != best)
        alone += all(settled(paired(far[best]["values"], one)) == -1 for one in others)
    names = " or ".join(dict.fromkeys(nearest))
    told = (
        f"{names} is nearest to HMC on all {len(nearest)} data sets, significantly so on {alone}; ensembles are nearer "
        f"than mean-field VI on {ahead}."
    )
    poor = [data for data, of in numbers.get("elbo", {}).items() if settled(of[WARMED]["less_mean_field"]) == -1]
    if poor:
        told += f" On {' and '.join(poor)}, the ELBO prefers mean-field VI's poor solution to that of KL warm-up."
    return told


def _hyperpriors(numbers: Numbers) -> str:
    word = {1: "raises the accuracy", -1: "lowers the accuracy", 0: "makes no significant difference"}
    plain, warm = numbers["advantage"]["plain"]["pooled"], numbers["advantage"]["warm"]["pooled"]
    if "as_many_tries" not in numbers or "one_try" not in numbers:
        return (
            f"Compared with a scale tuned on validation data, a hyperprior {word[settled(plain)]} ({_points(plain)}). "
            f"If the weight of the KL rises slowly (warm-up), it {word[settled(warm)]} ({_points(warm)})."
        )
    alike, one = numbers["as_many_tries"]["less"]["tuned"], numbers["one_try"]["less"]["fixed"]
    return (
        f"Against a tuned scale, with KL warm-up, a hyperprior {word[settled(alike)]} with five networks each "
        f"({_points(alike)}) and {word[settled(one)]} with one each ({_points(one)}). With full KL, one against five, "
        f"it {word[settled(plain)]} ({_points(plain)})."
    )


def _mnist_cnn(numbers: Numbers) -> str:
    trust = "it is overconfident" if settled(numbers["expected_less_error"]) == -1 else "the estimate is about right"
    return (
        f"It reads {1 - numbers['error']['mean']:.2%} of the digits correctly, and "
        f"{1 - numbers['wrong_at_zero']['mean']:.2%} of those on which all draws agree. It expects "
        f"{numbers['expected']['mean']:.2%} errors and makes {numbers['error']['mean']:.2%}, so {trust}."
    )


def _regression_bands(numbers: Numbers) -> str:
    ratio = {name: one["ratio"]["mean"] for name, one in numbers["methods"].items()}
    return (
        f"Variational bands are {ratio['variational']:.1f} times as wide away from the data as near it. An ensemble's "
        f"are {ratio['ensemble']:.0f} times as wide, MC dropout's {ratio['mc-dropout']:.1f} times, HMC's "
        f"{ratio['hmc']:.0f} times{_unsettled(numbers['largest_r_hat'])}."
    )


def _mushroom(numbers: Numbers) -> str:
    own, greedy = numbers["median"]["variational"], numbers["median"]["greedy"]
    less = numbers["variational_less"]["greedy"]
    wins = sum(value < 0 for value in less["values"])
    sure = "significant" if settled(less) else "not significant"
    return (
        f"After {numbers['steps']:,} steps, the median regret is {own:,.0f} with Thompson sampling and {greedy:,.0f} "
        f"with greedy play; Thompson sampling is better in {wins} of {len(less['values'])} games ({sure})."
        f"{_price(numbers)}"
    )


def _price(numbers: Numbers) -> str:
    """What exploring costs, where it was measured."""
    own = numbers.get("where_lost", {}).get("ways", {}).get("page variational")
    if not own:
        return ""
    games = len(own["share"]["values"])
    said = "one game" if games == 1 else f"{games} games"
    return f" Exploration causes {own['share']['mean']:.0%} of its expected regret (measured in {said})."


def _bandits(numbers: Numbers) -> str:
    regret, again = numbers["regret"]["mushroom"], numbers.get("new_games", {}).get("mushroom")
    told = (
        f"Mushroom bandit, {numbers['steps']:,} steps: logistic agents have a regret of "
        f"{_mean(regret['logistic ucb'])} with upper confidence bounds, {_mean(regret['logistic thompson'])} with "
        f"Thompson sampling, {_mean(regret['logistic greedy'])} with greedy play."
    )
    if again is None:
        return told
    new = [_mean(again[f"logistic {rule}"]) for rule in ("ucb", "thompson", "greedy")]
    return f"{told} In new games, the three have {', '.join(new[:-1])} and {new[-1]}."


def _guarantees(numbers: Numbers) -> str:
    made, broken = numbers["promises_made"], numbers["promises_broken"]
    low, high = (worst(one["mean"] for one in numbers["coverage"].values()) for worst in (min, max))
    return (
        f"Of {made:,} guaranteed error rates, {broken:,} ({broken / made:.1%}) were exceeded; up to 5% were allowed. "
        f"Conformal sets with a guaranteed coverage of 90% contain the target in {low:.1%} to {high:.1%} of cases."
    )


def _active_learning(numbers: Numbers) -> str:
    labels = numbers["median_labels"]
    reached = {name: count for name, count in labels.items() if count is not None}
    best = min(reached, key=reached.__getitem__)
    name = {"batchbald": "BatchBALD", "bald": "BALD", "epig": "EPIG"}.get(best, best)
    random = f"{labels['random']:.0f}" if labels["random"] is not None else "more labels than the experiment allowed"
    return (
        f"{name} reaches an accuracy of 90% on MNIST with {reached[best]:.0f} labels (median). Random choice needs "
        f"{random}."
    )


def _learning_on(numbers: Numbers) -> str:
    own = {way: f"{one['mean']:.1%}" for way, one in numbers["accuracy"]["permuted"].items()}
    split = {way: one["mean"] for way, one in numbers["accuracy"]["split"].items()}
    word = "worse" if split["coreset"] > split["ewc"] else "better"
    return (
        f"Accuracy after {numbers['tasks']} tasks of permuted digits: {own['posterior']} with the posterior as prior, "
        f"{own['coreset']} with stored examples too (coresets), {own['ewc']} with elastic weight consolidation, "
        f"{own['fine-tuned']} with fine-tuning. On split digits, elastic weight consolidation is {word} than coresets."
    )


def _ood(numbers: Numbers) -> str:
    fashion, letters = (
        [f"{numbers['auroc'][kind]['ensemble'][score]['mean']:.3f}" for score in ("entropy", "knn")]
        for kind in ("fashion-mnist", "notmnist")
    )
    return (
        f"It depends on the unknown inputs: for Fashion-MNIST, the AUROC is {fashion[0]} with an ensemble's entropy "
        f"and {fashion[1]} with the default check (distances between pixels). For notMNIST, these are {letters[0]} and "
        f"{letters[1]}."
    )


def _transfer(numbers: Numbers) -> str:
    gaps = numbers["discounted_less"]
    signs = dict(zip(gaps, settled_by_holm(list(gaps.values())), strict=True))

    def better(other: str) -> str:
        own = [sign for name, sign in signs.items() if f" {other} " in name and name.endswith("accuracy")]
        return f"{own.count(1)} of {len(own)}"

    return (
        "Old weights help as a start, not as a prior. After correction, the discounted old posterior as prior beats "
        f"training from scratch in {better('nothing')} cases, fine-tuning in {better('tuned')} and the start alone in "
        f"{better('start')}."
    )


def _lora(numbers: Numbers) -> str:
    def said(other: str, score: str) -> str:
        sign = settled(numbers["exact_less"][f"{other} {score}"]) * (1 if score == "accuracy" else -1)
        return {1: "better", -1: "worse", 0: "not significantly different"}[sign]

    alike: dict[str, list[str]] = {}
    for score, name in (("nll", "NLL"), ("accuracy", "accuracy"), ("ece", "ECE")):
        alike.setdefault(said("plain", score), []).append(name)
    words = "; its ".join(
        f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} {word}" for word, names in alike.items()
    )
    return (
        f"Compared with LoRA, Bayesian LoRA's {words}. Compared with an ensemble of LoRAs, its NLL is "
        f"{said('ensemble', 'nll')}."
    )


def _figures(numbers: Numbers) -> str:
    return (
        f"Softplus is a smooth ReLU, at most {numbers['softplus']['largest_distance']:.2f} above it. Forward KL fits a "
        "wide Gaussian over both modes; reverse KL, which variational inference uses, fits one of them."
    )


def _sbc(numbers: Numbers) -> str:
    methods = numbers["methods"]
    good = [name for name, one in methods.items() if one["calibrated"] and not name.startswith("cold")]
    judged = [name for name in methods if not name.startswith("cold")]
    return (
        f"{len(good)} of {len(judged)} methods pass simulation-based calibration in {numbers['repetitions']} "
        "repetitions. A posterior that was made too narrow on purpose fails, so the test does detect errors."
    )


def _defaults(numbers: Numbers) -> str:
    states, silent = numbers["states"], len(numbers["failed_without_warning"])
    warned = f"{silent} of these failures gave no warning." if silent else "All of these failures gave a warning."
    return (
        f"Of {numbers['fits']} fits at the defaults, {states['fine']} are fine and {states['failed']} failed. {warned}"
    )


def _uci(numbers: Numbers) -> str:
    standings = [one["standing"] for one in numbers["auto"].values()]
    splits = {table: one["splits"] for table, one in numbers["auto"].items()}
    few = f"Auto has {min(splits.values())} to {max(splits.values())} splits of each table, most published rows 20."
    if all(count == (5 if table == "protein" else 20) for table, count in splits.items()):
        few = "Auto has all published splits: 20, of protein 5."
    good = sum(one in {"ahead", "level"} for one in standings)
    return (
        f"Auto's test NLL is level with or ahead of the best published row on {good} of {len(standings)} tables "
        f"(goal: {UCI_GOAL}), and ahead on {standings.count('ahead')}. {few}"
    )


def _cifar10(numbers: Numbers) -> str:
    nll = {method: scores["nll"]["mean"] for method, scores in numbers["scores"].items()}
    names = {"point": "plain", "mc-dropout": "MC dropout", "variational": "VI", "laplace": "Laplace"}
    # It is no method of its own: what more epochs do for the plain network stands beside it.
    longer = f" (trained longer: {nll.pop('longer'):.3f})" if "longer" in nll else ""
    said = ", ".join(
        f"{names[method] if method in names else CARDS[method].title} {nll[method]:.3f}"
        + (longer if method == "point" else "")
        for method in sorted(nll, key=nll.__getitem__)
    )
    best = min(numbers["goals"].values(), key=lambda own: own["nll"])
    reached = "reached" if best["nll_reached"] else f"missed by {best['nll'] - best['nll_goal']:.3f}"
    size = numbers["size"]
    return (
        f"ResNet-18 of width {size['width']}, {size['examples']:,} images, {size['epochs']} epochs. Test NLL: {said}. "
        f"The goal for VI or IVON, {best['nll_goal']:.3f}, is {reached}."
    )


def _hmc_cifar10(numbers: Numbers) -> str:
    rows, goal = numbers["scores"], 0.099
    far = {kind: row["total_variation"] for kind, row in rows.items()}
    first, *others = sorted(far, key=far.__getitem__)
    short = far[first] - goal
    # Chains that were made colder than the posterior are named so.
    cold = {"sghmc": " (cold posterior)"} if numbers.get("chosen", "").endswith("cold") else {}
    said = ", ".join(
        f"{CARDS[kind.removesuffix('-ensemble')].title}{cold.get(kind, '')} {far[kind]:.3f}" for kind in others[:3]
    )
    reached = "reached" if short < 0 else f"missed by {short:.3f}"
    count = rows[first]["networks"]
    title = CARDS[first.removesuffix("-ensemble")].title + (f" of {count} networks" if count > 1 else "")
    return (
        f"Nearest to HMC: {title} (total variation {far[first]:.3f}), then {said}. The goal, the "
        f"paper's best ({goal}), is {reached}."
    )


def _shift(numbers: Numbers) -> str:
    kinds = {"turned MNIST digits, over all strengths": numbers["digits"]["rotation"]}
    if numbers.get("narrow"):
        kinds["corrupted CIFAR-10, narrow ResNet"] = numbers["narrow"]
    else:
        kinds["corrupted CIFAR-10"] = numbers["cifar10"]
    return " ".join(f"Mean NLL on {kind}: {_best_of(scores)}." for kind, scores in kinds.items())


def _best_of(scores: Numbers) -> str:
    own = {method: {name: one["all"]["mean"] for name, one in of.items()} for method, of in scores.items()}
    others = {method: of["nll"] for method, of in own.items() if method in CARDS and method != "point"}
    best = min(others, key=others.__getitem__)
    told = (
        f"best other method {others[best]:.2f} ({CARDS[best].title})"
        if len(others) > 1
        else f"{CARDS[best].title} {others[best]:.2f} (no other method was run)"
    )
    return f"plain network {own['point']['nll']:.2f}, temperature-scaled {own['point']['scaled_nll']:.2f}, {told}"


def _change(difference: dict[str, Any]) -> str:
    """What a difference does to the test error, or that it is not significant."""
    sign, size = settled(difference), f"{100 * abs(difference['mean']):.2f} points"
    if sign == 0:
        return f"does not change the test error significantly ({_points(difference)})"
    return f"{'raises' if sign > 0 else 'lowers'} the test error by {size}"


def _corrected(differences: Sequence[dict[str, Any]]) -> str:
    """How many differences are significant given how many there are."""
    kept = sum(sign != 0 for sign in settled_by_holm(differences))
    return f"After correction for multiple tests, {kept} of {len(differences)} differences are significant."


def _points(estimated: Mapping[str, Any]) -> str:
    return f"{100 * estimated['mean']:+.2f} points"


def _small(value: float) -> str:
    """One digit, without an exponent: 0.00003."""
    return f"{float(f'{value:.0e}'):.12f}".rstrip("0").rstrip(".")


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
    "active-learning": _active_learning,
    "learning-on": _learning_on,
    "ood": _ood,
    "transfer": _transfer,
    "lora": _lora,
    "figures": _figures,
    "sbc": _sbc,
    "defaults": _defaults,
    "uci": _uci,
    "cifar10": _cifar10,
    "hmc-cifar10": _hmc_cifar10,
    "shift": _shift,
}
