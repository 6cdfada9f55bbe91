"""docs/adding-a-score.md, followed to the letter on a copy of the package: two source files, and the score is everywhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bayesify

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-score.md"
METRIC, SCORES = "metrics/classification.py", "evaluation/scores.py"
CHECK = """
from bayesify.evaluation.scores import SCORES
from bayesify.report import MethodResult, model_card
from bayesify.report.scoring import reported_scores

assert result.mce >= result.ece >= 0
assert list(result.to_dict())[7:9] == ["ece", "mce"]
assert f"mce{result.mce:>37.4f}" in str(result)
assert "mce: largest gap" in bf.Evaluation.__doc__
shown = MethodResult("variational", "Mine", bnn, result, bnn.predict(x), y)
assert f"| maximum calibration error | {result.mce:.4f} |" in model_card(shown, name="mine")
column = reported_scores("classification")["mce"].column
assert (column.title, column.better, column.write(0.25)) == ("MCE", "lower", "0.250")
line = bf.PointEstimate(bf.networks.mlp(2, 1), "gaussian:1")
assert bf.evaluate(line, (x, x[:, 0])).mce is None
"""


@pytest.fixture(scope="module")
def blocks():
    """The page's blocks of Python: function, entry, column, test, and how to try it."""
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 5
    return found


@pytest.fixture(scope="module")
def package(tmp_path_factory, blocks):
    """A copy of the package with the page's edits in it."""
    function, entry, column, *_ = blocks
    root = tmp_path_factory.mktemp("copy")
    copy = Path(shutil.copytree(Path(bayesify.__file__).parent, root / "bayesify"))
    metric, scores = copy / METRIC, copy / SCORES
    text = metric.read_text("utf-8")
    name = re.match(r"def (\w+)", function)[1]
    metric.write_text(text.replace("__all__ = [", f'__all__ = ["{name}", ', 1) + "\n\n" + function, "utf-8")
    text = scores.read_text("utf-8")
    assert text.count("    rmse: float | None") == 1
    text = text.replace("    rmse: float | None", f"{entry}    rmse: float | None")
    before, after = text.split("REPORTED = {\n", 1)
    scores.write_text(f"{before}REPORTED = {{\n{column}{after.split(chr(10), 1)[1]}", "utf-8")
    return root


def run(code, package):
    where = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=where, cwd=package, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_score_is_computed_and_shown_everywhere(package, blocks):
    where = f"assert bf.__file__.startswith({str(package)!r})\n"
    assert float(run(f"{blocks[4]}\n{where}{CHECK}", package).split()[0]) > 0


def test_the_example_of_the_function_and_the_test_on_the_page_pass(package, blocks):
    test = f"import pytest\nfrom bayesify import metrics\n{blocks[3]}\ntest_maximum_calibration_error_by_hand()\n"
    example = (
        "import doctest\nimport bayesify as bf\n"
        "found = doctest.DocTestFinder().find(metrics.maximum_calibration_error, globs={'bf': bf})\n"
        "assert doctest.DocTestRunner().run(found[0]) == (0, 1)\n"
    )
    run(test + example, package)


def test_the_table_on_the_page_names_every_key_of_a_score(blocks):
    from bayesify.evaluation.scores import Score

    page = PAGE.read_text("utf-8")
    named = re.findall(
        r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", page.split("| key |")[1].split("\n\n")[0], re.MULTILINE))
    )
    assert set(named) == set(Score.__dataclass_fields__) - {"name"}
