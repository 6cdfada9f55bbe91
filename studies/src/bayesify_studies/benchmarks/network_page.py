"""The page on the speed and memory of known networks, from measured rows alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesify.plots import style

Row = dict[str, Any]
TITLES = {
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "vit": "ViT-S/16",
    "bert": "BERT-base",
    "gpt2": "GPT-2 small",
}
BATCHES = {
    "resnet18": "128 images of 32 x 32",
    "resnet50": "64 images of 224 x 224",
    "vit": "64 images of 224 x 224",
    "bert": "32 texts of 128 tokens",
    "gpt2": "8 texts of 512 tokens",
}
METHODS = {
    "variational": "variational",
    "flipout": "variational, flipout",
    "ivon": "IVON",
    "sgld": "SGLD",
    "sghmc": "SGHMC",
    "ensemble": "ensemble of 5",
}
PRECISIONS = {"bfloat16": "bfloat16", "tf32": "TF32"}
STEP, FLIPOUT, EAGER, MEMORY, ENSEMBLE, LAPLACE, PREDICTION, COMPILING = 1.25, 2.2, 1.8, 1.8, 0.7, 60.0, 1.03, 1.5
PICTURE = "network-speed-steps.png"
_CAPTION = "Time of a compiled training step, relative to a compiled plain step of the same network. Less is better."
_EARLIER = (
    "A row with † has a number from an earlier run with earlier code. Where only one of the two numbers of a ratio is "
    "from an earlier run, the ratio compares two runs. These rows count for the goals too."
)
# The goal for memory is one for networks of at least so many weights.
_MANY_WEIGHTS = 10_000_000


def publish(files: Sequence[Path], results: Path) -> None:
    """Take measurements in, later ones in place of earlier ones, and write the results and their page.

    Rows that are not measured again are marked as those of an earlier run.
    """
    known: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {"machine": {}, "rows": []}
    rows = {_key(row): row | {"earlier": True} for row in known["rows"]}
    for file in files:
        if not file.is_file():
            raise SystemExit(f"network_speed.py: there is no file {file}")
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if "machine" in row:
                known["machine"] = row["machine"]
            elif "failed" not in row:
                rows[_key(row)] = row
    known["rows"] = list(rows.values())
    known["pictures"] = [{"file": PICTURE, "caption": _CAPTION}]
    results.write_text(json.dumps(known, indent=1) + "\n")
    results.with_suffix(".md").write_text(page(known))
    draw(known["rows"], results.with_name(PICTURE))


def draw(rows: Sequence[Row], path: Path) -> None:
    """A bar for each compiled step that trains one network and has a plain step beside it."""
    found = [
        (f"{TITLES[network]}, {PRECISIONS[precision]}: {METHODS[row['method']]}", row["method"], ratio)
        for network, precision, row in _steps(rows)
        if row["method"] != "ensemble" and (ratio := _alike(rows, row)) is not None
    ][::-1]
    if not found:
        return
    names, methods, ratios = zip(*found, strict=True)
    figure = style.new_figure(7.0, 0.9 + 0.3 * len(found))
    axes = figure.add_subplot()
    ours, others = style.METHOD_LOOKS["variational"].color, style.tint(style.MUTED)
    colors = [ours if method == "variational" else others for method in methods]
    places = range(len(found))
    axes.barh(places, ratios, color=colors, height=0.7)
    axes.set_yticks(places, names)
    for place, ratio in zip(places, ratios, strict=True):
        axes.annotate(f" {ratio:.2f}", (ratio, place), va="center", fontsize=style.SMALL_SIZE)
    style.dress(axes, title="A training step, in plain steps", x="times a plain step", grid="x")
    style.guide(axes, x=1.0)
    axes.margins(x=0.12)
    figure.savefig(path, dpi=110)


_MISSED = (
    "What was tried for the goals that are missed:\n\n"
    "- Ensemble of 5. One function for all members takes as long to compile as five functions, one for each member. "
    "Now one "
    "member's step is compiled, and the members run it on five streams, which are branches of one graph. One grouped "
    "convolution in place of the five members' convolutions was tried on small networks. It is faster only if cuDNN "
    "searches for an algorithm, and this search may choose another algorithm when a training is resumed. So it is not "
    "used.\n"
    "- Compile time. The hash that makes the noise is one operation for the compiler, and the code for noise is "
    "written "
    "out in at most eight places. What was compiled is kept for the next process (`again`). The plain step compiled "
    "alike takes as long to compile as ours. What takes the time is that we compile a whole step, with the update, as "
    "one function; `torch.compile` compiles only the forward and backward pass.\n"
    "- Memory of BERT. Noise and widths are made again instead of kept, and no copies are made to check a compiled "
    "step. The plain step compiled alike also takes more than the eager one. Steps on pieces of the vectors of "
    "weights, as on a CPU ([speed](speed.md)), were not tried on a GPU."
)


def page(measured: dict[str, Any]) -> str:
    """The page as Markdown."""
    rows = measured["rows"]
    compiled = [(name, precision, row) for name, precision, row in _steps(rows) if row["method"] == "variational"]
    ratios = [ratio for name, precision, row in compiled if (ratio := _alike(rows, row)) is not None]
    answer = "No step has been measured with a plain one beside it."
    if ratios:
        answer = (
            f"**A variational training step of these networks takes {min(ratios):.2f} to {max(ratios):.2f} times as "
            "long as a plain one, if both are compiled and captured in a graph.**"
        )
    card = measured["machine"].get("gpu", measured["machine"].get("processor", "an unknown machine"))
    versions = f"torch {measured['machine'].get('torch', '?')}, Python {measured['machine'].get('python', '?')}"
    parts = [
        "# Speed of known networks",
        "How much longer do ResNets, ViT, BERT and GPT-2 train if they are made Bayesian?",
        answer,
        f"![{_CAPTION}]({PICTURE})\n\n{_CAPTION}" if ratios else "",
        f"Measured on one {card} with {versions}.",
        "Batches: " + "; ".join(f"{TITLES[name]} {text}" for name, text in BATCHES.items()) + ". Dropout is off.",
        _EARLIER if any(row.get("earlier") for row in rows) else "",
        "## Step",
        (
            "Milliseconds of a training step, as medians. `plain` is the same network, trained by the same engine, "
            "compiled and captured in the same way. `torch.compile` is a plain loop with a compiled forward and "
            "backward pass and fused Adam. This loop is not captured, so it waits for Python. Other processes compiled "
            "on the same cores, so its times are rough. A step of the ensemble trains five members; the plain step "
            "beside it trains one network."
        ),
        _step_table(rows),
        "## Compiling",
        (
            "Seconds from the traced step to the compiled one: `ours` for the method, `ours for plain` for the plain "
            "step. "
            "For `torch.compile`, seconds of the first two plain steps. "
            "Other processes compiled on the same cores, so the ratios mean more than the seconds. `again` is a second "
            "process, which finds on disk what the first one compiled."
        ),
        _compile_table(rows),
        "## Without compiling",
        "Milliseconds of a step that is not compiled. Such a step waits for Python more than for the GPU."
        + _disturbed(rows),
        _eager_table(rows),
        "## Memory",
        (
            "The most memory that tensors take at once during a step, in GiB. `plain` is eager training with Adam. A "
            "compiled step keeps the means, the widths and two moments of each: six numbers for each weight, where "
            "plain training has four. The noise of the draws is not kept. It is made again for the gradient of the "
            "widths."
        ),
        _memory_table(rows),
        "## Prediction and Laplace",
        *_others(rows),
        *_images(rows),
        "## Goals",
        _goal_table(rows),
        _MISSED if "reached by" in _goal_table(rows) else "",
        "## Repeat it",
        (
            "```bash\npython studies/scripts/network_speed.py --out network-speed.jsonl --together 8\n"
            "python studies/scripts/cifar10_resnet18.py plain-sgd ivon-prior ivon-prior-0.8-8 --data cifar.npz "
            "--out cifar\ncat cifar/*.json >> network-speed.jsonl\n"
            "python studies/scripts/network_speed.py --publish network-speed.jsonl\n"
            "bayesify bench networks --network bert --method ivon --device cuda\n```"
        ),
        "Transformers are those of the library `transformers`, made from their configuration.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _disturbed(rows: Sequence[Row]) -> str:
    eager = [row for row in rows if row.get("path") == "eager"]
    if all(row.get("together") == 1 for row in eager):
        return ""
    return " The steps had two CPU cores of their own, while other processes compiled on the other cores."


def _key(row: Row) -> str:
    names = ("function", "network", "method", "precision", "compiled", "classes", "setting", "again")
    defaults = {"compiled": True, "function": "measure"}
    # An eager step is compared with the plain one of the same process.
    part = [row.get("part")] if row.get("path") == "eager" and row.get("method") == "plain" else []
    return "/".join(str(value) for value in (*(row.get(name, defaults.get(name)) for name in names), *part))


def _find(
    rows: Sequence[Row], network: str, method: str, precision: str, *, compiled: bool, again: bool = False
) -> Row | None:
    for row in rows:
        same = row.get("network") == network and row.get("method") == method and row.get("precision") == precision
        eager = row.get("path") == "eager"
        if same and eager is not compiled and bool(row.get("again")) is again:
            return row
    return None


def _steps(rows: Sequence[Row]) -> list[tuple[str, str, Row]]:
    """The compiled steps of ours, by network and precision."""
    return [
        (network, precision, row)
        for precision in PRECISIONS
        for network in TITLES
        for method in METHODS
        if (row := _find(rows, network, method, precision, compiled=True)) is not None
    ]


def _alike(rows: Sequence[Row], row: Row) -> float | None:
    plain = _find(rows, row["network"], "point", row["precision"], compiled=True)
    return None if plain is None else row["ms"] / plain["ms"]


def _plain(rows: Sequence[Row], row: Row) -> Row | None:
    """The eager plain step beside a step: that of the same process, or the last one."""
    same = [other for other in rows if other.get("part") == row.get("part")]
    network, precision = row["network"], row["precision"]
    return _find(same, network, "plain", precision, compiled=False) or _find(
        rows[::-1], network, "plain", precision, compiled=False
    )


def _to_eager(rows: Sequence[Row], row: Row, what: str) -> float | None:
    plain = _plain(rows, row)
    return None if plain is None or plain.get(what) is None or row.get(what) is None else row[what] / plain[what]


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return "Not measured."
    marks = ["---", "---", *["---:"] * (len(heads) - 2)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, marks, *lines))


def _mark(*rows: Row | None) -> str:
    """The sign of a line with numbers of an earlier run."""
    return " †" if any(row is not None and row.get("earlier") for row in rows) else ""


def _of(row: Row | None, what: str) -> float | None:
    return None if row is None else row.get(what)


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _step_table(rows: Sequence[Row]) -> str:
    lines = []
    for network, precision, row in _steps(rows):
        plain = _find(rows, network, "point", precision, compiled=True)
        user = _find(rows, network, "torch.compile", precision, compiled=True)
        lines.append(
            [
                f"{TITLES[network]}, {PRECISIONS[precision]}{_mark(row, plain, user)}",
                METHODS[row["method"]],
                _number(row["ms"]),
                _number(_of(plain, "ms")),
                _number(_alike(rows, row)),
                _number(_of(user, "ms")),
            ]
        )
    return _table(("network", "method", "ms", "plain, ms", "ratio", "torch.compile, ms"), lines)


def _compile_table(rows: Sequence[Row]) -> str:
    lines = []
    for network, precision, row in _steps(rows):
        user = _find(rows, network, "torch.compile", precision, compiled=True)
        second = _find(rows, network, row["method"], precision, compiled=True, again=True)
        plain = _find(rows, network, "point", precision, compiled=True)
        lines.append(
            [
                f"{TITLES[network]}, {PRECISIONS[precision]}{_mark(row, plain, user, second)}",
                METHODS[row["method"]],
                _number(row.get("compile_seconds"), 0),
                _number(_of(plain, "compile_seconds"), 0),
                _number(_of(user, "compile_seconds"), 0),
                _number(_compiling(rows, row)),
                _number(_of(second, "compile_seconds"), 0),
            ]
        )
    heads = (
        "network",
        "method",
        "ours, s",
        "ours for plain, s",
        "torch.compile, s",
        "ours / torch.compile",
        "again, s",
    )
    return _table(heads, lines)


def _compiling(rows: Sequence[Row], row: Row) -> float | None:
    """The time that a step takes to compile, over that of `torch.compile` for the plain one."""
    user = _find(rows, row["network"], "torch.compile", row["precision"], compiled=True)
    seconds = _of(user, "compile_seconds")
    return None if not seconds or not row.get("compile_seconds") else row["compile_seconds"] / seconds


def _eager_table(rows: Sequence[Row]) -> str:
    lines = []
    for precision, digits in PRECISIONS.items():
        for network, title in TITLES.items():
            for method, name in METHODS.items():
                row = _find(rows, network, method, precision, compiled=False)
                plain = None if row is None else _plain(rows, row)
                if row is not None and plain is not None:
                    ratio = _number(_to_eager(rows, row, "ms"))
                    title_of_row = f"{title}, {digits}{_mark(row, plain)}"
                    lines.append([title_of_row, name, _number(row["ms"]), _number(plain["ms"]), ratio])
    return _table(("network", "method", "ms", "plain, ms", "ratio"), lines)


def _memory_table(rows: Sequence[Row]) -> str:
    lines = []
    for network, precision, row in _steps(rows):
        plain = _plain(rows, row)
        alike = _find(rows, network, "point", precision, compiled=True)
        if plain is not None and row.get("peak_gib") is not None:
            lines.append(
                [
                    f"{TITLES[network]}, {PRECISIONS[precision]}{_mark(row, plain, alike)}",
                    METHODS[row["method"]],
                    _number(row["peak_gib"]),
                    _number(plain["peak_gib"]),
                    _number(_to_eager(rows, row, "peak_gib")),
                    _number(_of(alike, "peak_gib")),
                ]
            )
    return _table(("network", "method", "GiB", "plain, GiB", "ratio", "plain, compiled by us, GiB"), lines)


def _others(rows: Sequence[Row]) -> list[str]:
    said = []
    for row in rows:
        if row.get("function") == "prediction":
            precision = "bfloat16" if row["precision"] == "bfloat16" else "TF32"
            said.append(
                f"- {row['rows']:,} inputs of ResNet-18 with {row['draws']} draws of all weights in {precision}: "
                f"{row['ours_seconds']:.2f} s, {row['ratio']:.3f} times the time of {row['draws']} plain passes"
                f"{_mark(row)}."
            )
        if row.get("function") == "last_layer_laplace":
            said.append(
                f"- Laplace ({row['structure']}) on a last layer of {row['features']:,} features and "
                f"{row['classes']:,} classes, from {row['rows']:,} rows of features: {row['seconds']:.1f} s"
                f"{_mark(row)}."
            )
    return ["\n".join(said)] if said else ["Not measured."]


def _images(rows: Sequence[Row]) -> list[str]:
    """What training ResNet-18 on CIFAR-10 gave, where it was done."""
    trained = [row for row in rows if "setting" in row]
    if not trained:
        return []
    lines = [
        [
            f"{row['setting']}{_mark(row)}",
            str(row["epochs"]),
            *(_number(row["scores"][name], digits) for name, digits in (("accuracy", 4), ("nll", 3), ("ece", 3))),
            _number(row.get("seconds_per_epoch")),
        ]
        for row in trained
    ]
    return [
        "## CIFAR-10",
        (
            "ResNet-18 with the usual augmentation (`augment=`), batches of 128, compiled steps in bfloat16, one seed. "
            "Scores are on 5,000 held-out training images, with 30 draws. "
            f"The {len(trained)} settings are those of `studies/scripts/cifar10_resnet18.py`. A time is left out where "
            "other work ran beside it."
        ),
        _table(("setting", "epochs", "accuracy", "NLL", "ECE", "seconds an epoch"), lines),
    ]


def _goal_table(rows: Sequence[Row]) -> str:
    """What was asked, the worst that was measured, and whether it is within."""
    found: list[tuple[str, float, list[float]]] = []

    def collect(what: str, limit: float, values: Sequence[float | None]) -> None:
        found.append((what, limit, [value for value in values if value is not None]))

    ours = [row for _, _, row in _steps(rows)]
    weight = [row for row in ours if row["method"] in {"variational", "ivon"}]
    for precision, title in PRECISIONS.items():
        alike = [_alike(rows, row) for row in weight if row["precision"] == precision]
        collect(f"step / plain step, compiled alike, {title}", STEP, alike)
    collect(
        "flipout step / plain step, compiled alike",
        FLIPOUT,
        [_alike(rows, r) for r in ours if r["method"] == "flipout"],
    )
    eager = [row for row in rows if row.get("path") == "eager" and row.get("method") in {"variational", "ivon"}]
    collect(
        "eager step / eager plain step, flipout and samplers left out",
        EAGER,
        [_to_eager(rows, row, "ms") for row in eager],
    )
    many = [row for row in weight if row.get("weights", 0) >= _MANY_WEIGHTS]
    collect("memory peak / eager plain training with Adam", MEMORY, [_to_eager(rows, row, "peak_gib") for row in many])
    members = [ratio / 5 for row in ours if row["method"] == "ensemble" and (ratio := _alike(rows, row)) is not None]
    collect("ensemble of 5 as one / 5 plain trainings, compiled alike", ENSEMBLE, members)
    against = [
        row["ms"] / 5 / user["ms"]
        for row in ours
        if row["method"] == "ensemble"
        and (user := _find(rows, row["network"], "torch.compile", row["precision"], compiled=True)) is not None
    ]
    collect("ensemble of 5 as one / 5 trainings with torch.compile", ENSEMBLE, against)
    variational = [row for row in weight if row["method"] == "variational"]
    collect("compile time / torch.compile of the plain step", COMPILING, [_compiling(rows, row) for row in variational])
    collect(
        "last-layer Laplace, seconds",
        LAPLACE,
        [r["seconds"] for r in rows if r.get("function") == "last_layer_laplace"],
    )
    collect("prediction / plain passes", PREDICTION, [r["ratio"] for r in rows if r.get("function") == "prediction"])
    lines = []
    for what, limit, values in found:
        if not values:
            lines.append([what, f"{limit:g}", "not measured", ""])
            continue
        within = sum(value <= limit for value in values)
        verdict = "reached" if within == len(values) else f"reached by {within} of {len(values)}"
        span = dict.fromkeys((f"{min(values):.2f}", f"{max(values):.2f}"))
        lines.append([what, f"{limit:g}", " to ".join(span), verdict])
    return _table(("what", "goal, at most", "measured", "verdict"), lines)
