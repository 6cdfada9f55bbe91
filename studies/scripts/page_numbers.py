"""Measured numbers in the pages of docs/, filled from docs/results: `python studies/scripts/page_numbers.py`.

A number or a table stands on a page between two marks, `<!-- step-ivon -->0.9<!-- end -->`. The name says which one of
`stated` it is; all other words of a page are free. A test fails where a page and the files disagree. Within a paragraph
a mark must not begin a line: Markdown would end the paragraph there.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path

from headlines import fill
from scipy import integrate, special, stats

from bayesify_studies import marks

DOCS = Path(__file__).parents[2] / "docs"
CPU = "speed:cpu.parts"
ROWS = f"{CPU}.peers.rows"
HMC = f"{CPU}.hmc"
NETWORKS = "moments:networks"
LAPLACE = "pages:laplace"

NUMBERS = {
    # docs/demo.md
    "demo-nll": "{pages:demo.nll:.3f}",
    "demo-auroc": "{pages:demo.auroc:.3f}",
    "demo-sure": "{pages:demo.sure:.0%}",
    # docs/gotchas.md
    "diabetes-rows": "{pages:intervals.rows:d}",
    "diabetes-rmse-50": "{pages:intervals.units.50.rmse.mean:.0f}",
    "diabetes-rmse-10": "{pages:intervals.units.10.rmse.mean:.0f}",
    # Times of a step or of a fit, over those of a plain one.
    "step-normal": f"{{{CPU}.step/normal.ratio:.1f}}",
    "step-mixture": f"{{{CPU}.step/mixture.ratio:.1f}}",
    "step-normal-both-compiled": f"{{{CPU}.step/normal.ratio_to_compiled_plain:.1f}}",
    "step-mixture-both-compiled": f"{{{CPU}.step/mixture.ratio_to_compiled_plain:.1f}}",
    "step-local": f"{{{CPU}.step/local-normal.ratio:.1f}}",
    "step-flipout": f"{{{ROWS}[what=flipout, normal].ratio:.1f}}",
    "step-ivon": f"{{{ROWS}[what=ivon].ratio:.1f}}",
    "step-sghmc": f"{{{ROWS}[what=sghmc].ratio:.1f}}",
    "fit-kronecker": f"{{{ROWS}[what=laplace, kronecker].ratio:.1f}}",
    "fit-diagonal": f"{{{ROWS}[what=laplace, diagonal].ratio:.1f}}",
    "ensemble-as-one": f"{{{CPU}.fleet/ensemble.ratio:.2f}}",
    # Predictions by moments.
    "moments-products": "{moments:cost.products_in_plain_passes:.1f}",
    "moments-one-core": "{moments:cost.ratio:.1f}",
    "moments-two-cores": f"{{{CPU}.predict.ratio_of_moments:.1f}}",
    "moments-two-cores-auto": f"{{{CPU}.predict.ratio_of_moments_auto:.1f}}",
    "moments-tv": f"{{{NETWORKS}.perceptron.answers.moments.total_variation:.5f}}",
    "moments-tv-bfloat16": "{moments:bfloat16.moments.total_variation:.5f}",
    "moments-tv-largest": f"{{{NETWORKS}.perceptron.answers.moments.largest_total_variation:.4f}}",
    "moments-tv-largest-bfloat16": "{moments:bfloat16.moments.largest_total_variation:.4f}",
    # HMC beside NumPyro's NUTS.
    "hmc-warm-up": f"{{{HMC}.warm_up:d}}",
    "hmc-samples": f"{{{HMC}.samples:d}}",
    "hmc-chains": f"{{{HMC}.chains:d}}",
    "hmc-eager": f"{{{HMC}.ratio_eager:.1f}}",
    "hmc-compiled": f"{{{HMC}.ratio_compiled:.1f}}",
    "hmc-compilation-counted": f"{{{HMC}.ratio_compiled_with_compilation:.1f}}",
    # Milliseconds of a step, for docs/peers.md.
    **{
        f"ms-{library}-{name}": f"{{{ROWS}[library={library}&what={what}].ms:{',.0f' if slow else '.3g'}}}"
        for name, what, libraries in (
            ("mixture", "variational, mixture", ("torch-uncertainty",)),
            ("normal", "variational, normal", ("posteriors", "bayesian-torch")),
            ("flipout", "flipout, normal", ("bayesian-torch",)),
            ("kronecker", "laplace, kronecker", ("laplace-torch",)),
            ("diagonal", "laplace, diagonal", ("laplace-torch",)),
            ("sghmc", "sghmc", ("posteriors",)),
            ("ivon", "ivon", ("ivon-opt",)),
        )
        for library in ("bayesify", *libraries)
        for slow in [(library, name) == ("laplace-torch", "diagonal")]
    },
    # docs/serving.md and docs/scale.md
    **{
        f"serve-{workers}-{name}": f"{{scale:serving.digits.workers.{workers}.{key}:{form}}}"
        for workers in ("1", "1c", "2")
        for name, key, form in (
            ("rate", "per_second", ",.0f"),
            ("p99", "p99_ms", ".0f"),
            ("cost", "processor_ms_a_request", ".2f"),
            ("memory", "pss_all_mb", ".0f"),
        )
    },
    "serve-2-wrk": "{scale:serving.digits.workers.2.share_of_wrk:.0%}",
    **{f"processes-{name}": f"{{scale:processes.{name}:.1f}}" for name in ("copies", "threads", "parts")},
    "serve-ratio": "{scale:serving.digits.ratios.1:.2f}",
    "serve-ratio-one-core": "{scale:serving.digits.ratios.1c:.2f}",
    # docs/studio.md
    **{
        f"studio-{name}-{which}": f"{{studio:{key}.{which}:.0f}}"
        for name, key in (("paint", "first_paint_ms"), ("stroke", "stroke_ms"))
        for which in ("median", "p95", "slowest")
    },
    "studio-load": "{studio:load_before:.0f}",
    "studio-visits": "{studio:visits:d}",
    "studio-strokes": "{studio:strokes:d}",
    # docs/methods/laplace.md
    "laplace-wide-weights": f"{{{LAPLACE}.wide.weights.mean:.2f}}",
    "laplace-wide-linearised": f"{{{LAPLACE}.wide.linearised.mean:.2f}}",
}


def stated(folder: Path) -> dict[str, str]:
    """Every number and table of the pages, by the name of its marks, from the files of a folder."""
    tables = {
        "bfloat16-changes": bfloat16_changes(),
        "hmc-cost": hmc_cost(),
        "laplace-structures": laplace_structures(),
        "moments-layers": layers(),
        "moments-classes": classes(),
        "moments-line": line(),
    }
    found = {name: fill(text, folder) for name, text in NUMBERS.items()}
    found |= {name: f"\n{fill(text, folder)}\n" for name, text in tables.items()}
    found["auto-tables"] = f"\n{auto_tables(folder)}\n"
    return found | spans(folder) | computed()


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def spans(folder: Path) -> dict[str, str]:
    """Smallest and largest of several numbers, and numbers that are computed from several."""

    def span(values: Iterable[float], form: str) -> str:
        found = sorted(values)
        return f"{found[0]:{form}} to {found[-1]:{form}}"

    data = read(folder, "hmc-distance")["numbers"]["data"]
    diagnoses = [one for name in ("moons", "circles") for one in data[name]["reference"]["diagnoses"]]
    logits = read(folder, "speed")["cpu"]["parts"]["predict"]["gaussian_logits"]
    units = read(folder, "pages")["intervals"]["units"]
    demo = read(folder, "demo")
    won = sum(demo["Variational"][digit]["auroc"] > plain["auroc"] for digit, plain in demo["Plain network"].items())
    older = map(json.loads, (folder / "auto-tables.jsonl").read_text(encoding="utf-8").splitlines())
    (power,) = (one for one in older if one["table"] == "power")
    return {
        "auto-older-nll": f"{power['nll']:.3f}",
        "auto-older-rmse": f"{power['rmse'] / power['boosting_rmse']:.2f}",
        "r-hat-of-weights": span((one["r_hat_weights"] for one in diagnoses), ".3f"),
        "logits-eager": span((row["ratio"] for row in logits), ".2f"),
        "logits-both-compiled": span((row["ratio_to_compiled_plain"] for row in logits), ".2f"),
        "diabetes-covered-50": span(units["50"]["coverage"]["values"], ".0%"),
        "diabetes-covered-10": span(units["10"]["coverage"]["values"], ".0%"),
        "demo-won": f"{won} of the {len(demo['Variational'])}",
    }


def computed() -> dict[str, str]:
    """Numbers of docs/gotchas.md that need no run: the mean of a sigmoid, and the KL of a fresh network."""
    average, _ = integrate.quad(lambda z: special.expit(z) * stats.norm.pdf(z, 2, 3), -25, 29)
    width = math.log1p(math.exp(-3))
    kl = 478_410 * (-math.log(width) - 0.5 + width**2 / 2)
    return {
        "sigmoid-of-mean": f"{special.expit(2):.2f}",
        "mean-of-sigmoid": f"{average:.2f}",
        "first-kl-millions": f"{kl / 1e6:.1f}",
        "first-kl-per-example": f"{kl / 60_000:.0f}",
    }


def table(headings: list[str], lines: list[list[str]], numbers: bool = True) -> str:
    rule = ["---", *["---:" if numbers else "---"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *lines))


def auto_tables(folder: Path) -> str:
    """Auto on the tables of numbers, with the number of their training rows."""
    found = read(folder, "defaults")
    rows = {problem: examples.split()[0] for problem, _, examples, _ in found["tables"][0]["rows"]}
    lines = []
    for one in found["numbers"]["auto_on_tables"]:
        error = "" if one["error"] is None else f" ± {one['error']:.3f}"
        published = "–" if one["published"] is None else f"{one['published']:.2f}"
        cells = [one["table"], rows[one["table"]], one["used"], str(one["splits"]), f"{one['nll']:.3f}{error}"]
        lines.append(
            [*cells, published, f"{one['coverage']:.1%}", f"{one['over_boosting']:.2f}", f"{one['seconds']:.0f}"]
        )
    headings = ["table", "rows", "method", "splits", "test NLL", "best published NLL", "inside 90% intervals"]
    return table([*headings, "RMSE / boosting's RMSE", "CPU s"], lines)


def bfloat16_changes() -> str:
    """What bfloat16 changes in answers by draws or by moments."""
    scores = {
        "largest_change": (".4f", ".5f"),
        "change": (".6f", ".6f"),
        "largest_change_of_entropy": (".4f", ".5f"),
        "largest_change_of_epistemic": (".4f", ".4f"),
        "largest_change_of_nll": (".5f", ".6f"),
    }
    lines = [
        [label, *(f"{{moments:bfloat16.{how}.{score}:{forms[column]}}}" for score, forms in scores.items())]
        for column, (label, how) in enumerate((("100 draws", "draws"), ("moments", "moments")))
    ]
    headings = ["", "probability", "probability, mean", "entropy", "epistemic uncertainty", "NLL"]
    return table(headings, lines)


def hmc_cost() -> str:
    labels = {
        "bayesify, not compiled": ("eager", "8,000"),
        "bayesify, compiled": ("compiled", "8,000"),
        "NumPyro's NUTS, 500 + 500 iterations of two chains": ("numpyro", "1,000"),
    }
    lines = [
        [
            label,
            f"{{{HMC}.{who}.leapfrogs:.0f}}",
            f"{{{HMC}.{who}.r_hat:.3f}}",
            f"{{{HMC}.{who}.ess_min:,.0f}} of {draws}",
        ]
        for label, (who, draws) in labels.items()
    ]
    return table(["", "leapfrog steps per trajectory", "largest R-hat", "smallest ESS of a prediction"], lines)


def laplace_structures() -> str:
    """Scores of Laplace approximations with their standard errors; the point estimate has no evidence."""
    names = ("point estimate", "full", "Kronecker", "Kronecker, precision by marginal likelihood")
    lines = []
    for name in (*names, "Kronecker, last layer", "diagonal", 'full, `predictive="weights"`'):
        forms = [("accuracy", ".3f"), ("nll", ".3f"), ("ece", ".3f"), ("log_evidence", ".0f")]
        cells = [
            " ± ".join(f"{{{LAPLACE}.rows.{name}.{score}.{what}:{form}}}" for what in ("mean", "standard_error"))
            for score, form in forms[: 3 if name == "point estimate" else 4]
        ]
        lines.append([name, *cells, *[""] * (len(forms) - len(cells))])
    return table(["", "accuracy", "NLL", "ECE", "log evidence"], lines)


def layers() -> str:
    """Layers of the perceptron on the left, of the convolutions on the right, by the last layer of each line."""

    def half(network: str, label: str, layer: str) -> list[str]:
        found = f"{NETWORKS}.{network}.layers[layer={layer}]"
        return [label, f"{{{found}.mean_error:.3f}}", f"{{{found}.std_ratio:.3f}}"] if layer else ["", "", ""]

    left = [*((name.partition(" ")[2], name) for name in ("1 Linear", "2 ReLU", "3 Linear", "4 ReLU"))]
    left += [("Linear (outputs)", "5 Linear"), ("", ""), ("", "")]
    right = [("Conv, ReLU", "1 ReLU"), ("Conv, ReLU", "3 ReLU"), ("max pooling", "4 MaxPool2d")]
    right += [("Conv, ReLU, Conv, ReLU", "8 ReLU"), ("max pooling", "9 MaxPool2d")]
    right += [("Linear, ReLU, Linear, ReLU", "14 ReLU"), ("Linear (outputs)", "15 Linear")]
    lines = [
        [*half("perceptron", *ours), "", *half("convolutions", *theirs)]
        for ours, theirs in zip(left, right, strict=True)
    ]
    scores = ["mean error", "std ratio"]
    headings = ["digits, 64-100-100-10, ReLU", *scores, "", "digits, convolutions (study-c)", *scores]
    return table(headings, lines, numbers=False)


def answers(network: str, labels: dict[str, str], scores: tuple[str, ...]) -> list[list[str]]:
    """Distances of a network's answers to 10,000 draws; no ratio of spreads for mean weights, which have none."""
    lines = []
    for label, answer in labels.items():
        cells = [f"{{{NETWORKS}.{network}.answers.{answer}.{score}}}" for score in scores]
        lines.append([label, *([*cells[:2], "0", "0"] if answer == "mean weights" else cells)])
    return lines


def classes() -> str:
    others = ("100 draws", "mean weights", "forward variances alone")
    lines = []
    for network, form in (("perceptron", ".4f"), ("convolutions", ".3f")):
        labels = {f"{network}, {name}": name for name in ("moments", *others)}
        scores = (f"total_variation:{form}", "largest_total_variation:.3f")
        lines += answers(network, labels, (*scores, "class_std_ratio:.2f", "epistemic_ratio:.2f"))
    return table(["", "total variation, mean", "largest", "std of probabilities", "epistemic"], lines)


def line() -> str:
    labels = {name: name for name in ("moments", "100 draws", "forward variances alone")}
    scores = ("mean_error:.3f", "epistemic_std_error:.1%", "predictive_std_error:.1%")
    lines = answers("line", labels, (*scores, "largest_predictive_std_error:.1%"))
    return table(["", "mean, in epistemic std", "epistemic std", "predictive std", "largest, predictive std"], lines)


def pages() -> dict[Path, str]:
    """What each page of docs/ that has a number should say."""
    texts = stated(DOCS / "results")
    found = {}
    for file in sorted(DOCS.rglob("*.md")):
        page = file.read_text(encoding="utf-8")
        if wanted := {name: texts[name] for name in marks.names(page) if name in texts}:
            found[file] = marks.filled(page, wanted)
    return found


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
        print(file)
