"""What the pages say about Python runs: every block, every formula, every table of arguments, every command."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn

import bayesify as bf
from bayesify.cli import main
from bayesify.likelihoods import Categorical, Gaussian
from bayesify.methods import METHODS
from bayesify.report.alerts import GAP
from bayesify.serving.predictions import table_of
from bayesify.training.warnings import FROZEN_KL, STANDARD_ERRORS, STILL_FALLING, STUCK_WIDTH

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def run(path, known, chosen=slice(None)):
    """Run a page's blocks of Python, one after the other, on what is `known`; a block that names a file becomes it."""
    text = path.read_text(encoding="utf-8")
    for block in list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))[chosen]:
        if named := re.match(r"# (\w+\.py)\n", block[1]):
            Path(named[1]).write_text(block[1])
            continue
        # The lines keep their numbers, so that an error says where on the page it is.
        above = "\n" * text[: block.start(1)].count("\n")
        exec(compile(above + block[1], str(path), "exec"), known)
    return known


def rows(path, heading):
    """The cells of the table that starts with this heading, without its head."""
    table = path.read_text(encoding="utf-8").split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in table.splitlines()[2:]]


def plain(cell):
    return cell.strip("`")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Everything that the blocks of docs/python.md define, and the folder that they were run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        return run(DOCS / "python.md", {}) | {"here": Path.cwd()}


def test_the_blocks_leave_what_they_say(page):
    for file in ("reliability.png", "mine.html", "runs/mine/model.safetensors", "test.npz", "mynet.py"):
        assert (page["here"] / file).is_file(), file
    assert len(page["bnn"].history) == 65
    # An example that others copy must be a posterior: right where it has seen data, in doubt where not.
    assert page["result"].accuracy > 0.9
    assert bf.evaluate(page["bnn"], page["test"], ood=page["test"][0] + 10).auroc > 0.8
    assert page["curve"].risk[page["curve"].threshold >= page["threshold"]][-1] <= 0.02


def test_pruned_weights_are_counted_and_the_file_stays_as_large(page, tmp_path):
    whole, small = page["bnn"], page["small"]
    zeros = int((small.mean_weights == 0).sum())
    assert zeros == round(0.75 * (2 * 20 + 20 * 2))
    assert f"{zeros} weights are zero" in str(small.summary())
    sizes = [
        (method.save(tmp_path / name) / "model.safetensors").stat().st_size
        for name, method in (("a", whole), ("b", small))
    ]
    assert sizes[1] >= sizes[0]


def test_every_argument_of_fit_is_in_the_table_with_its_default():
    told = {plain(name): default for name, default, _ in rows(DOCS / "python.md", "argument")}
    parameters = list(inspect.signature(bf.Method.fit).parameters.values())[1:]
    assert list(told) == [parameter.name for parameter in parameters]
    for parameter in parameters[1:]:
        assert eval(plain(told[parameter.name])) == parameter.default, parameter.name


@pytest.mark.parametrize("heading, of, count", [("classes", "p", 8), ("numbers", "r", 6)])
def test_the_formulas_of_the_tables_are_what_is_computed(page, heading, of, count):
    known = {"torch": torch, "nn": nn, of: page[of]}
    if heading == "classes":
        known["q"] = page["p"].draw_probs
    else:
        r = page["r"]
        known |= {"m": r.likelihood.mean(r.outputs), "v": r.likelihood.noise_variance(r.outputs)}
    computed = 0
    for name, *_, formula in rows(DOCS / "python.md", heading):
        if not re.fullmatch(r"`[^`]*`", formula):
            continue
        found = getattr(page[of], re.match(r"\w+", plain(name))[0])
        found = found() if callable(found) else found
        torch.testing.assert_close(found, eval(plain(formula), dict(known)), atol=1e-5, rtol=1e-4, msg=name)
        computed += 1
    assert computed == count


def test_the_chance_below_a_value_is_that_of_the_table(page):
    r = page["r"]
    (formula,) = (re.match(r"`(.*?)`", row[-1])[1] for row in rows(DOCS / "python.md", "numbers") if "cdf(" in row[0])
    known = {"torch": torch, "values": page["heights"], "m": r.likelihood.mean(r.outputs)}
    known["v"] = r.likelihood.noise_variance(r.outputs)
    torch.testing.assert_close(r.cdf(page["heights"]), eval(formula, known))


def test_every_public_name_of_a_predictive_is_on_the_page():
    text = (DOCS / "python.md").read_text().partition("## `Predictive`")[2].partition("\n## ")[0]
    answer = bf.Predictive(torch.zeros(2, 3, 2), Categorical())
    public = {name for name in (*dir(bf.Predictive), *vars(answer)) if not name.startswith("_")}
    said = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    assert public - said == set()


def test_the_commands_of_the_page_work(page, monkeypatch, capsys):
    monkeypatch.chdir(page["here"])
    commands = re.findall(r"^    bayesify (.*)$", (DOCS / "python.md").read_text(), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        assert main(command.split()) == 0, f"{command}: {capsys.readouterr().err}"


@pytest.fixture
def moons(tmp_path, monkeypatch):
    """What a reader of a short snippet has: a network and data."""
    monkeypatch.chdir(tmp_path)
    x, y = make_moons(120, noise=0.2, random_state=0)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    return {"bf": bf, "net": net, "x": x, "y": y, "x_new": x[:5], "x_test": x, "y_test": y, "x_other": x + 10}


def test_the_readme_runs(moons):
    run(ROOT / "README.md", moons)


def test_the_page_of_the_methods_runs(moons):
    run(DOCS / "methods" / "README.md", moons)


def test_the_skeleton_is_tried_as_its_page_says(moons, monkeypatch):
    spec = importlib.util.spec_from_file_location("skeleton_method", DOCS / "skeleton_method.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.setitem(METHODS, "last-iterates", None)
    spec.loader.exec_module(module)
    # The blocks after it are for the library: test_adding_a_method.py follows them.
    run(DOCS / "adding-a-method.md", moons, slice(1, 2))


def test_the_blocks_and_the_pictures_on_the_page_of_reports_are_drawn(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    known = run(DOCS / "report.md", {"bnn": page["bnn"], "x": page["test"][0], "y": page["test"][1]})
    assert (tmp_path / "digits.html").is_file()
    known |= {name: getattr(bf.plots, name) for name in bf.plots.__all__}
    known |= {"r": page["r"], "x1": page["at"], "y1": page["heights"]}
    known |= {"images": torch.rand(3, 8, 8), "captions": ["one", "two", "three"]}
    called = [call for row in rows(DOCS / "report.md", "call") for call in re.findall(r"`([^`]+)`", row[0])]
    for call in called:
        assert eval(call, known).figure is not None, call
    assert {re.match(r"\w+", call)[0] for call in called} == set(bf.plots.__all__)
    for calls, _, more in rows(DOCS / "report.md", "call"):
        for name in re.findall(r"`(\w+)\(", calls):
            taken = set(inspect.signature(getattr(bf.plots, name)).parameters)
            assert set(re.findall(r"`([a-z_]+)[=`]", more)) <= taken, name


def test_the_thresholds_of_the_alerts_are_those_on_the_page_of_reports():
    told = {row[0]: row[1] for row in rows(DOCS / "report.md", "alert")}
    assert f"less than {FROZEN_KL:.0%}" in told["KL frozen"]
    assert f"less than {STUCK_WIDTH:.0%}" in told["widths stuck"]
    assert (
        f"by more than {100 * GAP:.0f} percentage points and {STANDARD_ERRORS:.0f} standard errors"
        in told["overconfident"]
    )
    assert f"over {STILL_FALLING:.0%}" in told["not converged"]


def test_the_server_sends_what_its_page_lists():
    pytest.importorskip("fastapi")
    from bayesify.serving import v1_routes
    from bayesify.serving.predictions import accepted

    class Model:
        class_names = ("no", "yes")
        check = None

    listed = {row[0]: [re.findall(r"`(\w+)`", cell) for cell in row[1:]] for row in rows(DOCS / "serving.md", "path")}
    for column, outputs, likelihood in (
        (0, torch.zeros(3, 1, 2), Categorical()),
        (1, torch.zeros(3, 1, 1), Gaussian()),
    ):
        table = table_of(bf.Predictive(outputs, likelihood))
        table["accepted"] = accepted(table, None, None)
        Model.kind = likelihood.kind
        (record,) = v1_routes._records(Model, table)
        assert listed["`/v2`"][column] == list(table)
        assert listed["`/v1`"][column] == list(record)
