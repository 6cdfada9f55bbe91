"""The benchmark of shared prefixes counts what the formula says, and its table shows it."""

import pytest

from bayesify_studies.benchmarks import shared_prefix, speed_page


@pytest.mark.parametrize("network", shared_prefix.NETWORKS)
def test_the_work_of_shared_draws_is_that_of_the_formula(network):
    if network == "transformer":
        pytest.importorskip(
            "transformers", reason="transformers is not installed: pip install 'bayesify[integrations]'"
        )
    result = shared_prefix.measure(network=network, blocks=4, draws=6, inputs=2, rounds=1)
    assert result["passes_expected"] == (4 - 1 + 6) / 4
    # The stem runs once and the head in every draw; both are small.
    assert result["passes_of_work"] == pytest.approx(result["passes_expected"], rel=0.05)
    assert result["largest_difference"] == 0.0
    (line,) = shared_prefix.lines(result)
    assert "6 draws of the last of 4 blocks" in line
    table = speed_page.prefix_table({f"prefix/{network}": result, "memory": {}})
    assert f"| {network} | 6 draws of the last 1 of 4 | 2.25 |" in table


def test_an_unknown_network_is_refused():
    with pytest.raises(ValueError, match=r"unknown network .perceptron.; known: resnet, transformer"):
        shared_prefix.measure(network="perceptron")
