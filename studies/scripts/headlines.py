"""The measured numbers of the README and of docs/results/numbers.md: `python studies/scripts/headlines.py`.

Both are filled from the JSON files in docs/results: the README with the strongest rows, the other page with all.

A row is a text with places such as `{mnist:summary.error.mean:.2f}`: a file, a path in it (`rows[label=SGHMC]` takes
the entry of a list by one of its values) and a form. A row whose file is not there yet is left out. A test fails where
a page and the files disagree.
"""

import json
import re
from pathlib import Path

from bayesify_studies import marks
from bayesify_studies.experiments.defaults.published import BEST

ROOT = Path(__file__).parents[2]
_TV = "scores.total_variation"
_HMC = "hmc-distance:numbers.data"
_LOGITS = "gaussian-logits:numbers.cells.mnist-mlp-adam"
_HYPER = "hyperpriors:numbers.advantage"
_DRAWS = "paper-grid:numbers.differences.draws per step.10"
_SLOPES = "uncertainty-kinds:numbers.slopes.hmc"
_FOUR = (("plain", "plain"), ("ensemble of 5", "ensemble"), ("MC dropout", "dropout"), ("variational", "variational"))
_THREE = ("(1/2, 1, e^-6)", "(1/10, 1, e^-6)", "(3/4, 1, e^-8)")
_CHOSEN = (
    "all weights {pruning:numbers.chosen.unpruned.mean:.2%} ± {pruning:numbers.chosen.unpruned.standard_error:.2%}; "
    "98% pruned {pruning:numbers.chosen.pruned.mean:.2%} ± {pruning:numbers.chosen.pruned.standard_error:.2%}"
)
_PRUNED = "; ".join(
    f"{said}{{pruning:numbers.{place}.{before}.mean:.2%}} → {{pruning:numbers.{place}.pruned.mean:.2%}}"
    for said, place, before in (
        *(
            ("" if number else "three priors, full KL: ", f"rules.three_priors.{prior}", "whole")
            for number, prior in enumerate(_THREE)
        ),
        ("settings chosen for pruning, reduced KL: ", "chosen", "unpruned"),
    )
)
_ENSEMBLE = (
    "two CPU cores {speed:cpu.parts.fleet/ensemble.ratio:.2f}; one H200 {speed:cuda.parts.fleet/ensemble.ratio:.2f}"
)


def _distances(data: str) -> str:
    """Total variation to HMC of three methods."""
    names = {"SGHMC": "SGHMC", "ensemble of 5": "Ensemble of 5", "mean-field VI": "Variational"}
    return "; ".join(f"{said} {{{_HMC}.{data}.rows[label={name}].{_TV}.mean:.3f}}" for said, name in names.items())


def _slopes() -> str:
    """By what power of the number of examples each uncertainty changes."""
    return "; ".join(
        f"{kind} {{{_SLOPES}.{kind}.mean:.2f}} ± {{{_SLOPES}.{kind}.standard_error:.2f}}"
        for kind in ("epistemic", "aleatoric")
    )


def _uci() -> str:
    """Auto's test NLL on each table, and the best published one."""
    return "; ".join(
        f"{table.title()} {{uci:numbers.auto.{table}.mean:.2f}} ± {{uci:numbers.auto.{table}.standard_error:.2f}} "
        f"({best:.2f})"
        for table, best in BEST.items()
    )


# What, the result, the file that the page is beside, and the command.
ROWS = (
    *(
        (
            f"{data}, settings chosen on validation: test error with 400 and with 1200 units",
            "; ".join(
                f"{said} "
                + " and ".join(f"{{{page}:numbers.error.ours-{kind}-{units}-{by}.mean:.2%}}" for units in (400, 1200))
                for said, kind, by in (
                    ("scale mixture", "mixture", "draws"),
                    ("MC dropout", "dropout", "draws"),
                    ("plain network", "plain", "mean"),
                )
            ),
            f"{page}.md",
            f"bayesify reproduce {page} --preset full --device cuda",
        )
        for page, data in (("mnist-table", "MNIST"), ("fashion-table", "Fashion-MNIST"))
    ),
    (
        "MNIST, 784-400-400-10, scale mixture, full KL, 30 epochs: test error",
        "{mnist:summary.error.mean:.2f} ± {mnist:summary.error.standard_error:.2f}%",
        "mnist.json",
        "python studies/scripts/mnist.py",
    ),
    (
        "the same networks: AUROC of the entropy for Fashion-MNIST as unknown inputs",
        "{mnist:summary.auroc_fashion.mean:.3f} ± {mnist:summary.auroc_fashion.standard_error:.3f}",
        "mnist.json",
        "python studies/scripts/mnist.py",
    ),
    (
        "the same networks, 75% of the weights pruned by signal-to-noise: increase of the test error",
        "{mnist:summary.added_by_pruning.mean:.2f} ± {mnist:summary.added_by_pruning.standard_error:.2f} points",
        "mnist.json",
        "python studies/scripts/mnist.py",
    ),
    *(
        (
            f"{said}: total variation to converged HMC",
            _distances(data),
            "hmc-distance.md",
            "bayesify reproduce hmc-distance --preset full --device cuda",
        )
        for data, said in (("moons", "200 moons"), ("gap", "a regression with a gap"), ("mnist", "300 MNIST images"))
    ),
    (
        (
            "MNIST, 784-400-400-10: test error with the best of three scale mixtures (by validation) as prior, and "
            "with N(0, 1)"
        ),
        (
            "with Adam and a falling learning rate {priors:numbers.errors.adam_wide.mean:.2%} and "
            "{priors:numbers.errors.adam_gaussian.mean:.2%}; with study D's training (150 of its 600 epochs) "
            "{priors:numbers.errors.study_quarter.mean:.2%} and {priors:numbers.errors.study_gaussian.mean:.2%}"
        ),
        "priors.md",
        "bayesify reproduce priors --preset full --device cuda",
    ),
    (
        "study E's convolutional network on MNIST, a tenth of the KL, 100 draws: test error",
        "{mnist-cnn:numbers.error.mean:.2%} ± {mnist-cnn:numbers.error.standard_error:.2%}",
        "mnist-cnn.md",
        "bayesify reproduce mnist-cnn --preset full --device cuda",
    ),
    (
        "Gaussian logits, 30% of the 1s and 7s relabelled: AUROC for finding 1s and 7s",
        "; ".join(
            f"{said} {{{_LOGITS}-{cell}_auroc.mean:.3f}}"
            for said, cell in (
                ("spread, trained with `log_expected`,", "log_expected-30.spread"),
                ("spread, trained with `expected`,", "expected-30.spread"),
                ("entropy of a plain network", "plain-30.entropy"),
            )
        ),
        "gaussian-logits.md",
        "bayesify reproduce gaussian-logits --preset full --device cuda",
    ),
    (
        "HMC on moons, N = 50 to 1,600 examples: the exponent b, where uncertainty changes as N^b",
        _slopes(),
        "uncertainty-kinds.md",
        "bayesify reproduce uncertainty-kinds --preset full",
    ),
    (
        "moons and circles: accuracy with a hyperprior minus accuracy with a tuned scale",
        "; ".join(
            f"{said} {{{place}.mean:+.1%}} ± {{{place}.standard_error:.1%}}"
            for said, place in (
                ("one network against the best of five, full KL", f"{_HYPER}.plain.pooled"),
                ("the same, KL warm-up", f"{_HYPER}.warm.pooled"),
                (
                    "the best of five each, KL warm-up, two of the six data sets",
                    "hyperpriors:numbers.as_many_tries.less.tuned",
                ),
            )
        ),
        "hyperpriors.md",
        "bayesify reproduce hyperpriors --preset full",
    ),
    (
        "mushroom bandit, 50,000 steps, ten games: regret",
        "; ".join(
            f"{said}: mean {{mushroom:numbers.regret.{agent}.mean:,.0f}} ± "
            f"{{mushroom:numbers.regret.{agent}.standard_error:,.0f}}, median {{mushroom:numbers.median.{agent}:,.0f}}"
            for said, agent in (("Thompson sampling", "variational"), ("greedy", "greedy"))
        ),
        "mushroom.md",
        "bayesify reproduce mushroom --preset full",
    ),
    (
        "mushroom bandit, 50,000 steps, 20 games: mean regret",
        "; ".join(
            f"{said} {{bandits:numbers.regret.mushroom.{agent}.mean:,.0f}} ± "
            f"{{bandits:numbers.regret.mushroom.{agent}.standard_error:,.0f}}"
            for said, agent in (
                ("logistic regression with Thompson sampling", "logistic thompson"),
                ("with upper confidence bounds", "logistic ucb"),
                ("greedy", "logistic greedy"),
                ("linear regression with Thompson sampling", "linear thompson"),
            )
        ),
        "bandits.md",
        "bayesify reproduce bandits --preset full",
    ),
    (
        "ten tasks of permuted MNIST, one after another: mean accuracy on all ten",
        "; ".join(
            f"{said} {{learning-on:numbers.accuracy.permuted.{way}.mean:.1%}}"
            for said, way in (
                ("the posterior as the next prior, with stored examples (coresets),", "coreset"),
                ("without them", "posterior"),
                ("elastic weight consolidation", "ewc"),
                ("fine-tuning", "fine-tuned"),
                ("all tasks at once", "joint"),
            )
        ),
        "learning-on.md",
        "bayesify reproduce learning-on --preset full --device cuda",
    ),
    (
        "MNIST, starting with 20 labels and adding ten at a time: test accuracy with 90 labels",
        "; ".join(
            f"{said} {{active-learning:numbers.accuracy.{by}.mean:.1%}} ± "
            f"{{active-learning:numbers.accuracy.{by}.standard_error:.1%}}"
            for said, by in (("BatchBALD", "batchbald"), ("random choice", "random"))
        ),
        "active-learning.md",
        "bayesify reproduce active-learning --preset full",
    ),
    (
        "MNIST networks: AUROC for Fashion-MNIST and for notMNIST as unknown inputs",
        "; ".join(
            f"{said} "
            + " and ".join(f"{{ood:numbers.auroc.{kind}.{pair}.mean:.3f}}" for kind in ("fashion-mnist", "notmnist"))
            for said, pair in (
                ("entropy of a variational network", "variational.entropy"),
                ("entropy of an ensemble", "ensemble.entropy"),
                ("distance between pixels (the default check)", "variational.knn"),
            )
        ),
        "ood.md",
        "bayesify reproduce ood --preset full --device cuda",
    ),
    (
        (
            "MNIST, 784-1200-1200-10: test error. The prior and the temperature were chosen on validation images, in a "
            "second round that was planned after the first had been tested"
        ),
        _CHOSEN,
        "pruning.md",
        "bayesify reproduce pruning --preset full --device cuda",
    ),
    (
        (
            "six UCI tables, published splits (20, Protein 5): test NLL of `Auto` with its default settings, and in "
            "brackets the best of six published methods"
        ),
        _uci(),
        "uci.md",
        "bayesify reproduce uci --preset full",
    ),
    (
        "CIFAR-10, ResNet-18 of width 8, 20,000 images, 12 epochs: test NLL",
        "; ".join(
            f"{said} {{cifar10:numbers.scores.{method}.nll.mean:.3f}}"
            for said, method in (
                ("plain", "point"),
                ("ensemble", "ensemble"),
                ("MC dropout", "mc-dropout"),
                ("variational", "variational"),
                ("IVON", "ivon"),
                ("SWAG", "swag"),
                ("Laplace, last layer", "laplace"),
            )
        ),
        "cifar10.md",
        "bayesify reproduce cifar10 --preset cpu",
    ),
    (
        (
            "CIFAR-10 without horses, settings chosen at equal budgets, then refitted on all images: accuracy on the "
            "nine known classes, and AUROC of the entropy for horses"
        ),
        "; ".join(
            f"{said} "
            + " and ".join(
                f"{{unseen-class:numbers.refit-{kind}.{score}}}"
                for score in ("accuracy.mean:.1%", "auroc entropy.mean:.3f")
            )
            for said, kind in _FOUR
        ),
        "unseen-class.md",
        "bayesify reproduce unseen-class --preset full --device cuda",
    ),
    (
        "5 labelled pictures of each of five new classes: accuracy on MNIST and on Fashion-MNIST",
        "; ".join(
            f"{said} {{transfer:numbers.values.mnist {way} 5.accuracy.mean:.1%}} and "
            f"{{transfer:numbers.values.fashion-mnist {way} 5.accuracy.mean:.1%}}"
            for said, way in (
                ("the old posterior as the prior, with less weight,", "power"),
                ("the old posterior only as the start", "start"),
                ("fine-tuning", "tuned"),
                ("from scratch", "nothing"),
            )
        ),
        "transfer.md",
        "bayesify reproduce transfer --preset full",
    ),
    (
        "time to train an ensemble of 5 together, relative to five separate trainings",
        _ENSEMBLE,
        "speed.md",
        "make bench; python studies/scripts/speed.py --device cuda --only fleet/ensemble",
    ),
    (
        (
            "time of a compiled variational step with a scale mixture and with a normal prior, on two CPU cores, "
            "relative to a plain step with fused Adam"
        ),
        "; ".join(
            f"plain step {said}: {{speed:cpu.parts.step/mixture.{key}:.2f}} and "
            f"{{speed:cpu.parts.step/normal.{key}:.2f}}"
            for said, key in (("not compiled", "ratio"), ("compiled", "ratio_to_compiled_plain"))
        ),
        "speed.md",
        "make bench",
    ),
    (
        (
            "time of the same step with the same two priors, on one H200 in TF32 precision, relative to a plain step; "
            "both steps are compiled and captured in CUDA graphs"
        ),
        "; ".join(
            f"{said} units: {{speed:cuda.parts.graphs/{units}mixture.ratio:.2f}} and "
            f"{{speed:cuda.parts.graphs/{units}normal.ratio:.2f}}"
            for said, units in (("400", ""), ("1200", "1200-"))
        ),
        "speed.md",
        "python studies/scripts/speed.py --device cuda --only graphs",
    ),
    (
        "time for 600 epochs of 60,000 images with 400 units on one H200, including compiling, TF32 precision",
        "{speed:cuda.parts.epochs/400.seconds:.1f} s",
        "speed.md",
        "python studies/scripts/speed.py --device cuda --only epochs/400",
    ),
    (
        "time to train the 324 settings of the paper's grid (600 epochs; 1, 2, 5 and 10 draws) on one H200",
        "{paper-grid:numbers.minutes:.1f} minutes",
        "paper-grid.md",
        "bayesify reproduce paper-grid --preset full --device cuda",
    ),
    (
        "the same 324 settings: test error of the one with the best validation score, and the gain from more draws",
        (
            "{paper-grid:numbers.test.error:.2%}; error with 10 draws a step minus error with 1 draw: "
            f"{{{_DRAWS}.mean:+.2%}} ± {{{_DRAWS}.standard_error:.2%}} (81 pairs)"
        ),
        "paper-grid.md",
        "bayesify reproduce paper-grid --preset full --device cuda",
    ),
)


# The eight of the README, in words that need no page.
STRONGEST = (
    (
        "200 moons: distance (total variation) from the predictions of HMC, the reference",
        _distances("moons"),
        "hmc-distance.md",
        "bayesify reproduce hmc-distance --preset full --device cuda",
    ),
    (
        "MNIST, 1200 units: test error",
        "; ".join(
            f"{said} {{mnist-table:numbers.error.ours-{kind}-1200-{by}.mean:.2%}}"
            for said, kind, by in (
                ("variational (a tenth of the KL)", "mixture", "draws"),
                ("MC dropout", "dropout", "draws"),
                ("plain", "plain", "mean"),
            )
        ),
        "mnist-table.md",
        "bayesify reproduce mnist-table --preset full --device cuda",
    ),
    (
        "MNIST, 1200 units, variational: test error before → after pruning 98% of the weights",
        _PRUNED,
        "pruning.md",
        "bayesify reproduce pruning --preset full --device cuda",
    ),
    (
        "MNIST, 400 units, variational with the full KL: AUROC for noticing Fashion-MNIST",
        "{mnist:summary.auroc_fashion.mean:.3f} ± {mnist:summary.auroc_fashion.standard_error:.3f}",
        "mnist.json",
        "python studies/scripts/mnist.py",
    ),
    (
        "six UCI tables, published splits: test NLL of `Auto` with no settings given (best of six published methods)",
        _uci(),
        "uci.md",
        "bayesify reproduce uci --preset full",
    ),
    (
        "HMC on moons, N = 50 to 1,600 examples: the exponent b, where uncertainty changes as N^b",
        _slopes(),
        "uncertainty-kinds.md",
        "bayesify reproduce uncertainty-kinds --preset full",
    ),
    (
        "time of a variational training step, relative to a plain step",
        (
            "two CPU cores (400 units, plain step not compiled) {speed:cpu.parts.step/normal.ratio:.2f}; one H200 "
            "(1200 units, both compiled) {speed:cuda.parts.graphs/1200-normal.ratio:.2f}"
        ),
        "speed.md",
        "make bench; python studies/scripts/speed.py --device cuda --only graphs",
    ),
    (
        "time to train an ensemble of 5 together, relative to five separate trainings",
        _ENSEMBLE,
        "speed.md",
        "make bench; python studies/scripts/speed.py --device cuda --only fleet/ensemble",
    ),
)

# How sure each network of the demo is of the digit that none has seen.
_SURE = "%s.3.sure:.0%%"
DEMO = (
    f"the plain network gives an answer with at least 90% confidence for\n{{demo:{_SURE % 'Plain network'}}} of them; "
    f"the ensemble does so for {{demo:{_SURE % 'Ensemble of 5'}}}, MC dropout for {{demo:{_SURE % 'MC dropout'}}}\n"
    f"and the variational network for {{demo:{_SURE % 'Variational'}}}"
)


def table(rows: tuple[tuple[str, str, str, str], ...], folder: Path, beside: str) -> str:
    """The rows whose files are there, with the numbers in them and links that begin with `beside`."""
    lines = ["| what | result | command |", "| --- | --- | --- |"]
    for what, result, page, command in rows:
        try:
            lines.append(f"| {what} | [{fill(result, folder)}]({beside}{page}) | `{command}` |")
        except FileNotFoundError:
            continue
    return "\n".join(lines)


def fill(text: str, folder: Path) -> str:
    """A text with every place replaced by the number that stands there."""
    return re.sub(r"\{([^:{}]+):([^:{}]+):([^{}]*)\}", lambda found: _number(folder, *found.groups()), text)


def refreshed(readme: str, folder: Path) -> str:
    """The README with everything that is measured between its marks."""
    rows = f"\n{table(STRONGEST, folder, 'docs/results/')}\n"
    return marks.filled(readme, {"headlines": rows, "demo": fill(DEMO, folder)})


def all_numbers(page: str, folder: Path) -> str:
    """The page of all numbers, with everything that is measured between its marks."""
    return marks.filled(page, {"headlines": f"\n{table(ROWS, folder, '')}\n"})


def _number(folder: Path, file: str, path: str, form: str) -> str:
    value = json.loads((folder / f"{file}.json").read_text())
    for name, chosen in re.findall(r"([^.\[\]]+)(?:\[([^\]]+)\])?", path):
        value = value[name]
        if chosen:
            wanted = [condition.split("=", 1) for condition in chosen.split("&")]
            value = next(entry for entry in value if all(entry[key] == one for key, one in wanted))
    return f"{value:{form}}"


if __name__ == "__main__":
    readme = ROOT / "README.md"
    results = ROOT / "docs" / "results"
    readme.write_text(refreshed(readme.read_text(), results))
    numbers = results / "numbers.md"
    numbers.write_text(all_numbers(numbers.read_text(), results))
