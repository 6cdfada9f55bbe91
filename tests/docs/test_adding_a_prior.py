"""docs/adding-a-prior.md, followed literally."""

import guides
import pytest

PAGE = "adding-a-prior.md"


def test_the_guide_changes_at_most_three_files():
    assert len({title for _, title, _ in guides.blocks(PAGE) if title}) <= 3


@pytest.mark.slow
def test_the_new_prior_passes_its_tests_and_trains_and_loads(tmp_path):
    output = guides.follow(PAGE, tmp_path, tests=["tests/priors"])
    # Density, draws, slopes, KL, text form; class, methods and example of the docstring.
    assert int(output.split(" passed")[0].split()[-1]) >= 9
    assert "logistic:fan_in (scale 0.7071; KL by Monte Carlo)" in output
