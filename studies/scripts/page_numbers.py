"""Measured numbers in the text and tables of docs/, filled from docs/results: `python studies/scripts/page_numbers.py`.

A text has places such as `{speed:cpu.parts.hmc.ratio_eager:.1f}`, as in headlines.py, and stands in its page once, with
numbers in those places and lines broken anywhere. The words are changed by hand, here and in the page; the numbers by
this. A test fails where a page and the files disagree.
"""

import re
from pathlib import Path

from headlines import fill

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = r"[-+]?[\d.,]*\d%?"

CPU = "speed:cpu.parts"
OURS = f"{CPU}.peers.rows"
HMC = f"{CPU}.hmc"
BITS = "moments:bfloat16"
NETWORKS = "moments:networks"
PERCEPTRON = f"{NETWORKS}.perceptron.answers.moments"
LAPLACE = "pages:laplace"

NORMAL = f"{{{CPU}.step/normal.ratio:.1f}}"
NORMAL_TO_COMPILED = f"{{{CPU}.step/normal.ratio_to_compiled_plain:.1f}}"
LOCAL, FLIPOUT, IVON, SGHMC, KRONECKER, DIAGONAL = (
    f"{{{path}.ratio:.1f}}"
    for path in (
        f"{CPU}.step/local-normal",
        *(
            f"{OURS}[what={what}]"
            for what in ("flipout, normal", "ivon", "sghmc", "laplace, kronecker", "laplace, diagonal")
        ),
    )
)
BY_MOMENTS = f"{{{CPU}.predict.ratio_of_moments:.1f}}"
ON_ONE_CORE = "{moments:cost.ratio:.1f}"


def change(how: str, forms: tuple[str, str, str, str, str]) -> str:
    """What bfloat16 changes in answers by draws or by moments."""
    names = ("largest_change", "change", "largest_change_of_entropy", "largest_change_of_epistemic")
    places = [
        f"{{{BITS}.{how}.{name}:{form}}}" for name, form in zip((*names, "largest_change_of_nll"), forms, strict=True)
    ]
    return (
        "the largest change of a probability was {} (the mean one {}), of an entropy {}, of its epistemic part {} and "
        "of the mean negative log-likelihood {}; no label changed"
    ).format(*places)


def of_peers() -> list[str]:
    """Milliseconds of each other library's step beside ours, and the effective draws of HMC."""

    def ms(what: str, library: str = "bayesify", form: str = ".3g") -> str:
        return f"{{{OURS}[library={library}&what={what}].ms:{form}}}"

    def both(what: str, library: str) -> str:
        return f"{ms(what, library)} ms there and {ms(what)} ms here"

    normal, kronecker, diagonal = "variational, normal", "laplace, kronecker", "laplace, diagonal"
    return [
        f"under a scale mixture takes {both('variational, mixture', 'torch-uncertainty')}",
        f"{ms(kronecker, 'laplace-torch')} ms a batch there and {ms(kronecker)} ms here",
        f"The diagonal takes {ms(diagonal)} ms here and {ms(diagonal, 'laplace-torch', ',.0f')} ms there",
        f"{both(normal, 'posteriors')}; a step of SGHMC {ms('sghmc', 'posteriors')} ms and {ms('sghmc')} ms",
        (
            f"{both(normal, 'bayesian-torch')}; with flipout {ms('flipout, normal', 'bayesian-torch')} ms and "
            f"{ms('flipout, normal')} ms"
        ),
        f"a step takes {both('ivon', 'ivon-opt')}, ours compiled",
        (
            f"our HMC has {{{HMC}.ratio_eager:.1f}} times the effective draws per second of its NUTS, "
            f"{{{HMC}.ratio_compiled:.1f}} times compiled, and {{{HMC}.ratio_compiled_with_compilation:.1f}} times with"
        ),
    ]


def table(lines: list[tuple[str, list[str]]]) -> str:
    return "\n".join(f"| {' | '.join([label, *cells])} |" for label, cells in lines)


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
    lines = []
    for ours, theirs in zip(left, right, strict=True):
        first, *rest = [*half("perceptron", *ours), "", *half("convolutions", *theirs)]
        lines.append((first, rest))
    return table(lines)


def answers(network: str, labels: dict[str, str], scores: tuple[str, ...]) -> str:
    """Distances of a network's answers to 10,000 draws; no ratio of spreads for mean weights, which have none."""
    lines = []
    for label, answer in labels.items():
        cells = [f"{{{NETWORKS}.{network}.answers.{answer}.{score}}}" for score in scores]
        lines.append((label, [*cells[:2], "0", "0"] if answer == "mean weights" else cells))
    return table(lines)


def classes(network: str, form: str) -> str:
    others = ("100 draws", "mean weights", "forward variances alone")
    scores = (f"total_variation:{form}", "largest_total_variation:.3f", "class_std_ratio:.2f", "epistemic_ratio:.2f")
    return answers(network, {f"{network}, moments": "moments"} | {name: name for name in others}, scores)


def approximations(names: tuple[str, ...]) -> str:
    """Scores of Laplace approximations with their standard errors; the point estimate has no evidence."""
    lines = []
    for name in names:
        forms = [("accuracy", ".3f"), ("nll", ".3f"), ("ece", ".3f"), ("log_evidence", ".0f")]
        cells = [
            " ± ".join(f"{{{LAPLACE}.rows.{name}.{score}.{what}:{form}}}" for what in ("mean", "standard_error"))
            for score, form in forms[: 3 if name == "point estimate" else 4]
        ]
        lines.append((name, cells if len(cells) == len(forms) else [*cells, ""]))
    return table(lines)


STATED = {
    "demo.md": [
        (
            "at 30 epochs has an NLL of {pages:demo.nll:.3f}, an AUROC of {pages:demo.auroc:.3f} and is falsely sure "
            "of {pages:demo.sure:.0%}"
        ),
    ],
    "gotchas.md": [
        "On {pages:intervals.rows:d} rows of scikit-learn's `load_diabetes`",
        "same error ({pages:intervals.units.50.rmse.mean:.0f} and {pages:intervals.units.10.rmse.mean:.0f}; ten splits",
    ],
    "peers.md": of_peers(),
    "prediction.md": [
        "100 draws) " + change("draws", (".4f", ".6f", ".4f", ".4f", ".5f")),
        "On the same digits " + change("moments", (".5f", ".6f", ".5f", ".4f", ".6f")),
        (
            f"the mean total variation was {{{PERCEPTRON}.total_variation:.5f}} in full precision and "
            f"{{{BITS}.moments.total_variation:.5f}} in bfloat16, the largest "
            f"{{{PERCEPTRON}.largest_total_variation:.4f}} and {{{BITS}.moments.largest_total_variation:.4f}}"
        ),
        (
            f"took {BY_MOMENTS} plain passes in full precision and {{{CPU}.predict.ratio_of_moments_auto:.1f}} with "
            '`"auto"`'
        ),
    ],
    "methods/README.md": [
        f"| {NORMAL}; `local` {LOCAL}, `flipout` {FLIPOUT};",
        f"| `IVON` | {IVON} |",
        f"| SGHMC {SGHMC} for each chain",
        f"the variational one takes {NORMAL_TO_COMPILED} (`make bench`",
    ],
    "methods/ensemble.md": [f"take {{{CPU}.fleet/ensemble.ratio:.2f}} of the time of five trainings"],
    "methods/ivon.md": [f"on two CPU cores and compiled, {IVON} eager plain steps"],
    "methods/sghmc.md": [f"a step of one chain takes {SGHMC} plain ones"],
    "methods/variational.md": [
        (
            f"takes {NORMAL} eager plain steps under a normal prior and {{{CPU}.step/mixture.ratio:.1f}} under a scale "
            f"mixture (`local` {LOCAL}, `flipout` {FLIPOUT}), or {NORMAL_TO_COMPILED} and "
            f"{{{CPU}.step/mixture.ratio_to_compiled_plain:.1f}} plain steps that are compiled too"
        ),
        f"is {ON_ONE_CORE} passes on one core ([moments](moments.md)) and {BY_MOMENTS} on two",
    ],
    "methods/hmc.md": [
        f"{{{HMC}.warm_up:d}} iterations of warm-up, {{{HMC}.samples:d}} draws of each of {{{HMC}.chains:d}} chains",
        *(
            f"| {label} | {{{HMC}.{who}.leapfrogs:.0f}} | {{{HMC}.{who}.r_hat:.3f}} | {{{HMC}.{who}.ess_min:,.0f}} of"
            for label, who in (
                ("as it is", "eager"),
                ("compiled", "compiled"),
                ("NumPyro's NUTS, 500 + 500 iterations of two chains", "numpyro"),
            )
        ),
        (
            f"{{{HMC}.ratio_eager:.1f}} without compiling ours and {{{HMC}.ratio_compiled:.1f}} compiled, compilation "
            f"left out on both sides; {{{HMC}.ratio_compiled_with_compilation:.1f}} with all of it counted"
        ),
    ],
    "methods/laplace.md": [
        f"{KRONECKER} epochs of plain training (Kronecker) or {DIAGONAL} (diagonal)",
        approximations(
            (
                "point estimate",
                "full",
                "Kronecker",
                "Kronecker, precision by marginal likelihood",
                "Kronecker, last layer",
                "diagonal",
                'full, `predictive="weights"`',
            )
        ),
        (
            f"it fell to {{{LAPLACE}.wide.weights.mean:.2f}} accuracy where the linearised predictive kept "
            f"{{{LAPLACE}.wide.linearised.mean:.2f}}"
        ),
    ],
    "methods/moments.md": [
        layers(),
        classes("perceptron", ".4f") + "\n" + classes("convolutions", ".3f"),
        answers(
            "line",
            {name: name for name in ("moments", "100 draws", "forward variances alone")},
            (
                "mean_error:.3f",
                "epistemic_std_error:.1%",
                "predictive_std_error:.1%",
                "largest_predictive_std_error:.1%",
            ),
        ),
        "products add up to {moments:cost.products_in_plain_passes:.1f} plain passes",
        (
            f"took {ON_ONE_CORE} times as long as a plain pass on one CPU core, in processor time (the same command), "
            f"and {BY_MOMENTS} times on two"
        ),
    ],
}


def refreshed(page: str, texts: list[str], folder: Path) -> str:
    """A page with the numbers of the files in the places of its texts."""
    for text in texts:
        literals = re.split(r"\{[^{}]*\}", text)
        found = [*re.finditer(f"({NUMBER})".join(map(_any_lines, literals)), page)]
        if len(found) != 1:
            raise ValueError(
                f"a page must have this text once, with numbers in its places, not {len(found)} times: {text}"
            )
        numbers = (fill(place, folder) for place in re.findall(r"\{[^{}]*\}", text))
        end = 0
        pieces = []
        for group, number in enumerate(numbers, start=1):
            pieces += [page[end : found[0].start(group)], number]
            end = found[0].end(group)
        page = "".join(pieces) + page[end:]
    return page


def _any_lines(literal: str) -> str:
    """A pattern for a text whose lines may be broken anywhere between words."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", literal))


def main() -> None:
    for name, texts in STATED.items():
        page = DOCS / name
        page.write_text(refreshed(page.read_text(encoding="utf-8"), texts, DOCS / "results"), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
