"""docs/adding-a-likelihood.md, followed literally."""

import json

import guides
import pytest

PAGE = "adding-a-likelihood.md"


def test_the_guide_changes_at_most_three_files():
    assert len({title for _, title, _ in guides.blocks(PAGE) if title}) <= 3


@pytest.mark.slow
def test_the_new_likelihood_passes_its_tests_and_trains_and_loads(tmp_path):
    output = guides.follow(PAGE, tmp_path, tests=["tests/likelihoods"])
    assert int(output.split(" passed")[0].split()[-1]) >= 9
    assert "LogisticNoise(noise=5.0, location=300.0, scale=40.0)" in output
    assert "torch.Size([80])" in output
    # The recipe took the units from the data, and the run folder says so.
    spec = json.loads((tmp_path / "runs/line/config.json").read_text())["likelihood"]
    assert spec == {
        "name": "logistic",
        "noise": 5,
        "location": pytest.approx(307, abs=5),
        "scale": pytest.approx(30, abs=10),
    }
