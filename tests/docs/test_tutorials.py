"""The tutorials run as notebooks, and what their sentences claim is so."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import bayesify as bf

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "packaging" / "notebooks.py"
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.fixture(scope="module")
def notebooks():
    spec = importlib.util.spec_from_file_location("notebooks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def share(method, inputs, threshold):
    return method.predict(inputs).accept(at_least=threshold).double().mean().item()


def make_it_bayesian(known):
    plain, bnn = known["plain"], known["bnn"]
    test = known["x_test"], known["y_test"]
    before, after = bf.evaluate(plain, test), bf.evaluate(bnn, test)
    assert abs(before.accuracy - after.accuracy) < 0.02
    assert after.ece > before.ece
    confident, _ = known["confident_mistakes"](plain)
    assert known["confident_mistakes"](bnn)[0] < confident / 2
    assert known["confident_mistakes"](known["laplace"])[0] < confident
    assert (known["again"].predict(test[0]).labels == known["answers"].labels).all()
    # The cure that the page names, on one half of the examples for the other.
    mine, others = [tuple(part[half::2] for part in test) for half in (0, 1)]
    assert bf.evaluate(bf.recalibrate(known["again"], mine, by="temperature"), others).ece < after.ece / 2


def know_when_it_does_not_know(known):
    plain, bnn, unseen, x_test = known["plain"], known["bnn"], known["unseen"], known["x_test"]
    fixed = share(plain, unseen, 0.9) - share(bnn, unseen, 0.9)
    assert fixed > 0.1
    assert share(bnn, x_test, 0.9) < share(plain, x_test, 0.9)
    thresholds = [
        bf.risk_coverage(method.predict(known["x_held"]), known["y_held"]).threshold_at(0.9) for method in (plain, bnn)
    ]
    equal = share(plain, unseen, thresholds[0]) - share(bnn, unseen, thresholds[1])
    assert abs(equal) < fixed
    for part in ("aleatoric", "epistemic"):
        assert known["strange"].score(part).mean() > 2 * known["known"].score(part).mean()
    assert bf.evaluate(bnn, (x_test, known["y_test"]), ood=unseen).auroc > 0.85
    assert known["check"].accept(known["noise"]).double().mean() < 0.05
    assert known["check"].accept(x_test).double().mean() > 0.95


def priors_and_hyperpriors(known):
    narrow, middle, wide = known["models"].values()
    inside = [bf.evaluate(bnn, known["train"]).nll for bnn in (narrow, middle, wide)]
    outside = [bf.evaluate(bnn, known["held"]).nll for bnn in (narrow, middle, wide)]
    bounds = [bnn.elbo(known["train"]).value for bnn in (narrow, middle, wide)]
    assert inside[0] > inside[1] > inside[2]
    assert outside[0] > outside[2] > outside[1]
    assert bounds[1] > bounds[0] > bounds[2]
    assert 0.05 < known["low"] < known["middle"] < known["high"] < 3
    assert bf.evaluate(known["learned"], known["held"]).nll < outside[0]
    assert list(known["layered"].prior.scale_names) == ["scale[0.*]", "scale[2.*]"]
    assert bf.evaluate(known["learned"], known["test"]).rmse < 0.9


def pruning(known):
    curve, by_size, share = known["curve"], known["by_size"], known["share"]
    assert share >= 0.25
    # Close as long as few weights are gone.
    at_half = list(curve.fractions).index(0.5)
    assert abs(curve.error[at_half] - by_size.error[at_half]) < 0.02
    assert known["after"] < known["before"] + 0.02
    weights = 64 * 100 + 100 * 10
    assert (known["drawn"] == 0).all(0).sum() == round(share * weights)


def a_guarantee(known):
    assert known["wrong"] <= 0.02
    assert known["accepted"].double().mean() > 0.5
    with pytest.raises(ValueError, match="needs at least 149 calibration examples, got 40"):
        bf.calibrate(known["bnn"], (known["x_held"][:40], known["y_held"][:40]), max_error=0.02)
    # Promised on average: three standard errors of the examples that promise and of those that try.
    promising, trying = len(known["x_held"]), len(known["x_test"])
    assert known["contained"] > 0.95 - 3 * (0.05 * 0.95 * (1 / promising + 1 / trying)) ** 0.5
    assert known["inside"] > 0.9 - 3 * (0.1 * 0.9 * (1 / 120 + 1 / 122)) ** 0.5


def your_own_loop(known):
    near, far = known["before"]
    assert far >= near
    near, far = known["after"]
    assert far < near - 0.1
    right = (known["torch"].stack(known["draws"]).mean(0).argmax(-1) == known["test"][1]).double().mean()
    assert right > 0.85
    assert bf.evaluate(known["bnn"], known["test"]).accuracy > 0.88


def serving(known):
    assert known["server"].returncode == 0
    assert known["accepted"]["noise"] == 0
    assert known["accepted"]["digits"] > 0.5
    first = bf.load("runs/digits").predict(known["x"][1500:1600])
    confidences = [answer["confidence"] for answer in known["digit_answers"]]
    assert confidences == pytest.approx(first.confidence[:5].tolist(), abs=1e-5)


CLAIMS = {
    claim.__name__.replace("_", "-"): claim
    for claim in (
        make_it_bayesian,
        know_when_it_does_not_know,
        priors_and_hyperpriors,
        pruning,
        a_guarantee,
        your_own_loop,
        serving,
    )
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_notebook_runs_and_its_sentences_are_so(page, notebooks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A server that the page starts must find this package too.
    monkeypatch.setenv("PYTHONPATH", str(Path(bf.__file__).parents[1]))
    known = {"__name__": "notebook"}
    try:
        for cell in notebooks.notebook(page).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{page.name} {cell.id}", "exec"), known)
        assert capsys.readouterr().out.count("\n") >= 4
        CLAIMS[page.stem](known)
    finally:
        if "server" in known and known["server"].poll() is None:
            known["server"].kill()
            known["server"].wait()


def test_every_tutorial_has_its_claims_tested():
    assert [page.stem for page in PAGES] == sorted(CLAIMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_valid_complete_and_the_same_each_time(page, notebooks):
    made = notebooks.notebook(page)
    nbformat.validate(made)
    assert made == notebooks.notebook(page)
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [cell.source for cell in made.cells if cell.cell_type == "code"] == [block.strip("\n") for block in blocks]
    # Every link of a notebook is an address, and every page behind it is in the menu.
    links = re.findall(r"\]\(([^)]+)\)", "".join(cell.source for cell in made.cells if cell.cell_type == "markdown"))
    docs = ROOT / "docs"
    for link in links:
        name = link.removeprefix(notebooks.SITE).partition("#")[0].rstrip("/")
        assert link.startswith(notebooks.SITE)
        assert (docs / f"{name}.md").exists() or (docs / name / "README.md").exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_is_short_enough_to_finish(page):
    assert 60 <= len(page.read_text(encoding="utf-8").splitlines()) <= 120


def test_the_script_writes_one_file_for_each_page(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "new" / "folder"], capture_output=True, text=True, check=True
    )
    files = [tmp_path / "new" / "folder" / f"{page.stem}.ipynb" for page in PAGES]
    assert done.stdout.splitlines() == [str(file) for file in files]
    for file in files:
        nbformat.validate(nbformat.read(file, as_version=4))


def test_wrong_use_is_one_line(notebooks, tmp_path):
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "say where to write: python packaging/notebooks.py build/notebooks\n"
    (tmp_path / "empty.md").write_text("# Nothing to run\n")
    with pytest.raises(ValueError, match=r"empty\.md has no block that begins with ```python"):
        notebooks.notebook(tmp_path / "empty.md")
