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

ROOT = Path(__file__).parents[2]
_TV = "scores.total_variation"
_HMC = "hmc-distance:numbers.data"
_LOGITS = "gaussian-logits:numbers.cells.mnist-mlp-adam"
_HYPER = "hyperpriors:numbers.advantage"
_DRAWS = "paper-grid:numbers.differences.draws per step.10"
_SLOPES = "uncertainty-kinds:numbers.slopes.hmc"
_FOUR = ("plain", "ensemble", "dropout", "variational")
_THREE = ("(1/2, 1, e^-6)", "(1/10, 1, e^-6)", "(3/4, 1, e^-8)")
_PRUNED = "; ".join(
    f"{{pruning:numbers.{place}.{before}.mean:.2%}}, {{pruning:numbers.{place}.pruned.mean:.2%}}"
    for place, before in (*((f"rules.three_priors.{prior}", "whole") for prior in _THREE), ("chosen", "unpruned"))
)
# What, the result, the file that the page is beside, and the command.
ROWS = (
    *(
        (
            (
                f"{data}, settings chosen on validation: test error with 400, 1200 units: scale mixture; MC dropout; "
                "plain network"
            ),
            "; ".join(
                ", ".join(f"{{{page}:numbers.error.ours-{kind}-{units}-{by}.mean:.2%}}" for units in (400, 1200))
                for kind, by in (("mixture", "draws"), ("dropout", "draws"), ("plain", "mean"))
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
        "the same networks, with Fashion-MNIST as unknown inputs: AUROC of the entropy",
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
            f"{said}: total variation to converged HMC: SGHMC; ensemble; mean-field VI",
            "; ".join(
                f"{{{_HMC}.{data}.rows[label={name}].{_TV}.mean:.3f}}"
                for name in ("SGHMC", "Ensemble of 5", "Variational")
            ),
            "hmc-distance.md",
            "bayesify reproduce hmc-distance --preset full --device cuda",
        )
        for data, said in (("moons", "200 moons"), ("gap", "a regression with a gap"), ("mnist", "300 MNIST images"))
    ),
    (
        (
            "MNIST, 784-400-400-10: test error of the best of three scale mixtures (by validation) and of N(0, 1): "
            "with Adam and a falling rate; with study D's training (150 of its 600 epochs)"
        ),
        (
            "{priors:numbers.errors.adam_wide.mean:.2%} and {priors:numbers.errors.adam_gaussian.mean:.2%}; "
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
        (
            "Gaussian logits, 30% of 1s and 7s relabelled: AUROC for finding 1s and 7s: spread with log_expected; "
            "spread with expected; entropy of a plain network"
        ),
        "; ".join(
            f"{{{_LOGITS}-{cell}_auroc.mean:.3f}}"
            for cell in ("log_expected-30.spread", "expected-30.spread", "plain-30.entropy")
        ),
        "gaussian-logits.md",
        "bayesify reproduce gaussian-logits --preset full --device cuda",
    ),
    (
        "moons, 50 to 1,600 examples, HMC: slope of log uncertainty against log examples: epistemic; aleatoric",
        "; ".join(
            f"{{{_SLOPES}.{kind}.mean:.2f}} ± {{{_SLOPES}.{kind}.standard_error:.2f}}"
            for kind in ("epistemic", "aleatoric")
        ),
        "uncertainty-kinds.md",
        "bayesify reproduce uncertainty-kinds --preset full",
    ),
    (
        (
            "moons and circles: accuracy with a hyperprior minus accuracy with a tuned scale: one network against the "
            "best of five, full KL; the same, KL warm-up; the best of five each, KL warm-up, two of the six data sets"
        ),
        "; ".join(
            f"{{{place}.mean:+.1%}} ± {{{place}.standard_error:.1%}}"
            for place in (
                f"{_HYPER}.plain.pooled",
                f"{_HYPER}.warm.pooled",
                "hyperpriors:numbers.as_many_tries.less.tuned",
            )
        ),
        "hyperpriors.md",
        "bayesify reproduce hyperpriors --preset full",
    ),
    (
        "mushroom bandit, 50,000 steps, ten games: mean and median regret: Thompson sampling; greedy",
        "; ".join(
            f"{{mushroom:numbers.regret.{agent}.mean:,.0f}} ± {{mushroom:numbers.regret.{agent}.standard_error:,.0f}}, "
            f"{{mushroom:numbers.median.{agent}:,.0f}}"
            for agent in ("variational", "greedy")
        ),
        "mushroom.md",
        "bayesify reproduce mushroom --preset full",
    ),
    (
        (
            "mushroom bandit, 50,000 steps, 20 games: mean regret: logistic Thompson sampling; logistic upper bounds; "
            "logistic greedy; linear Thompson sampling"
        ),
        "; ".join(
            f"{{bandits:numbers.regret.mushroom.{agent}.mean:,.0f}} ± "
            f"{{bandits:numbers.regret.mushroom.{agent}.standard_error:,.0f}}"
            for agent in ("logistic thompson", "logistic ucb", "logistic greedy", "linear thompson")
        ),
        "bandits.md",
        "bayesify reproduce bandits --preset full",
    ),
    (
        (
            "ten tasks of permuted MNIST, one after another: mean accuracy: posterior as the next prior, with "
            "coresets; without coresets; elastic weight consolidation; fine-tuning; all tasks at once"
        ),
        "; ".join(
            f"{{learning-on:numbers.accuracy.permuted.{way}.mean:.1%}}"
            for way in ("coreset", "posterior", "ewc", "fine-tuned", "joint")
        ),
        "learning-on.md",
        "bayesify reproduce learning-on --preset full --device cuda",
    ),
    (
        "MNIST, starting with 20 labels and adding ten at a time: test accuracy with 90 labels: BatchBALD; random",
        "; ".join(
            f"{{active-learning:numbers.accuracy.{by}.mean:.1%}} ± "
            f"{{active-learning:numbers.accuracy.{by}.standard_error:.1%}}"
            for by in ("batchbald", "random")
        ),
        "active-learning.md",
        "bayesify reproduce active-learning --preset full",
    ),
    (
        (
            "MNIST networks with Fashion-MNIST, notMNIST as unknown inputs: AUROC: entropy of a variational network; "
            "entropy of an ensemble; distance between pixels (the default check)"
        ),
        "; ".join(
            ", ".join(f"{{ood:numbers.auroc.{kind}.{pair}.mean:.3f}}" for kind in ("fashion-mnist", "notmnist"))
            for pair in ("variational.entropy", "ensemble.entropy", "variational.knn")
        ),
        "ood.md",
        "bayesify reproduce ood --preset full --device cuda",
    ),
    (
        (
            "MNIST, 784-1200-1200-10, prior and temperature chosen on validation (in a second round, planned after the "
            "first had been tested): test error; with 98% of the weights pruned by signal-to-noise"
        ),
        (
            "{pruning:numbers.chosen.unpruned.mean:.2%} ± {pruning:numbers.chosen.unpruned.standard_error:.2%}; "
            "{pruning:numbers.chosen.pruned.mean:.2%} ± {pruning:numbers.chosen.pruned.standard_error:.2%}"
        ),
        "pruning.md",
        "bayesify reproduce pruning --preset full --device cuda",
    ),
    (
        (
            "CIFAR-10 without horses, settings chosen at equal budgets, then refitted on all images: accuracy on the "
            "nine known classes; AUROC of the entropy for horses: each for plain network, ensemble of 5, MC dropout, "
            "variational"
        ),
        "; ".join(
            ", ".join(f"{{unseen-class:numbers.refit-{kind}.{score}}}" for kind in _FOUR)
            for score in ("accuracy.mean:.1%", "auroc entropy.mean:.3f")
        ),
        "unseen-class.md",
        "bayesify reproduce unseen-class --preset full --device cuda",
    ),
    (
        (
            "5 labelled pictures of each of five new classes: accuracy on MNIST, Fashion-MNIST: the discounted old "
            "posterior as the prior; the old posterior only as the start; fine-tuning; from scratch"
        ),
        "; ".join(
            f"{{transfer:numbers.values.mnist {way} 5.accuracy.mean:.1%}}, "
            f"{{transfer:numbers.values.fashion-mnist {way} 5.accuracy.mean:.1%}}"
            for way in ("power", "start", "tuned", "nothing")
        ),
        "transfer.md",
        "bayesify reproduce transfer --preset full",
    ),
    (
        "time to train an ensemble of 5 as one, relative to five separate trainings: two CPU cores; one H200",
        "{speed:cpu.parts.fleet/ensemble.ratio:.2f}; {speed:cuda.parts.fleet/ensemble.ratio:.2f} times",
        "speed.md",
        "make bench; python studies/scripts/speed.py --device cuda --only fleet/ensemble",
    ),
    (
        (
            "time of a compiled variational step (scale mixture, normal prior) on two CPU cores: relative to an eager "
            "plain step with fused Adam; relative to a compiled plain step"
        ),
        "; ".join(
            f"{{speed:cpu.parts.step/mixture.{key}:.2f}}, {{speed:cpu.parts.step/normal.{key}:.2f}} times"
            for key in ("ratio", "ratio_to_compiled_plain")
        ),
        "speed.md",
        "make bench",
    ),
    (
        (
            "time of the same step on one H200, relative to a plain step, both compiled and captured in CUDA graphs, "
            "TF32 precision: 400 units; 1200 units"
        ),
        "; ".join(
            f"{{speed:cuda.parts.graphs/{units}mixture.ratio:.2f}}, "
            f"{{speed:cuda.parts.graphs/{units}normal.ratio:.2f}} times"
            for units in ("", "1200-")
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
        "the best of the 324 on validation: test error; error with 10 draws a step minus that with 1 (± over 81 pairs)",
        f"{{paper-grid:numbers.test.error:.2%}}; {{{_DRAWS}.mean:+.2%}} ± {{{_DRAWS}.standard_error:.2%}}",
        "paper-grid.md",
        "bayesify reproduce paper-grid --preset full --device cuda",
    ),
)


# The eight of the README, in words that need no page.
STRONGEST = (
    (
        "200 moons: distance (total variation) to the exact answer by HMC: SGHMC; ensemble; mean-field VI",
        "; ".join(
            f"{{{_HMC}.moons.rows[label={name}].{_TV}.mean:.3f}}" for name in ("SGHMC", "Ensemble of 5", "Variational")
        ),
        "hmc-distance.md",
        "bayesify reproduce hmc-distance --preset full --device cuda",
    ),
    (
        "MNIST, 1200 units: test error of a variational network (KL weighted by 0.1); MC dropout; plain network",
        "; ".join(
            f"{{mnist-table:numbers.error.ours-{kind}-1200-{by}.mean:.2%}}"
            for kind, by in (("mixture", "draws"), ("dropout", "draws"), ("plain", "mean"))
        ),
        "mnist-table.md",
        "bayesify reproduce mnist-table --preset full --device cuda",
    ),
    (
        (
            "MNIST, 1200 units: test error with all weights, after pruning 98%: three priors, full KL; a prior and a "
            "reduced KL that were chosen for pruning"
        ),
        _PRUNED,
        "pruning.md",
        "bayesify reproduce pruning --preset full --device cuda",
    ),
    (
        "variational network trained on MNIST: AUROC for telling Fashion-MNIST from MNIST (KL not reduced)",
        "{mnist:summary.auroc_fashion.mean:.3f} ± {mnist:summary.auroc_fashion.standard_error:.3f}",
        "mnist.json",
        "python studies/scripts/mnist.py",
    ),
    (
        "CIFAR-10 without horses: AUROC for horses: plain; ensemble of 5; MC dropout; variational",
        "; ".join(f"{{unseen-class:numbers.refit-{kind}.auroc entropy.mean:.3f}}" for kind in _FOUR),
        "unseen-class.md",
        "bayesify reproduce unseen-class --preset full --device cuda",
    ),
    (
        "HMC on moons with N = 50 to 1,600 examples: slope of log uncertainty against log N: epistemic; aleatoric",
        "; ".join(
            f"{{{_SLOPES}.{kind}.mean:.2f}} ± {{{_SLOPES}.{kind}.standard_error:.2f}}"
            for kind in ("epistemic", "aleatoric")
        ),
        "uncertainty-kinds.md",
        "bayesify reproduce uncertainty-kinds --preset full",
    ),
    (
        "time of a variational training step / of a plain one: two CPU cores; one H200 (1200 units, both compiled)",
        "{speed:cpu.parts.step/normal.ratio:.2f}; {speed:cuda.parts.graphs/1200-normal.ratio:.2f}",
        "speed.md",
        "make bench; python studies/scripts/speed.py --device cuda --only graphs",
    ),
    (
        "time to train an ensemble of 5 together / time of five separate trainings: two CPU cores; one H200",
        "{speed:cpu.parts.fleet/ensemble.ratio:.2f}; {speed:cuda.parts.fleet/ensemble.ratio:.2f}",
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
