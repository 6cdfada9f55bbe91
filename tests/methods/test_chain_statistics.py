"""R-hat and effective draws against ArviZ, and where they are known."""

import numpy as np
import pytest

from bayesify.methods.chain_statistics import effective_draws, error_of_means, split_r_hat
from bayesify.methods.convergence import arviz_statistics


def chains(correlation: float, apart: float = 0.0):
    """AR(1) chains of standard deviation 1, `[4, 400, 5]`; the first is shifted by `apart`."""
    noise = np.random.default_rng(3).normal(size=(4, 400, 5))
    values = noise.copy()
    for t in range(1, 400):
        values[:, t] = correlation * values[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    values[0] += apart
    return values


@pytest.mark.parametrize(("correlation", "apart"), [(0.0, 0.0), (0.9, 0.0), (0.5, 2.0)])
def test_they_agree_with_arviz(correlation, apart):
    arviz = arviz_statistics()
    values = chains(correlation, apart)
    expected = [float(arviz.rhat(values[..., k], method="rank")) for k in range(5)]
    assert np.allclose(split_r_hat(values), expected, rtol=1e-10)
    expected = [float(arviz.ess(values[..., k], method="bulk")) for k in range(5)]
    # ArviZ adds one more term at the end of the sum.
    assert np.allclose(effective_draws(values), expected, rtol=0.05)


def test_the_error_of_the_mean_is_that_of_independent_chains():
    # Chains of 4 draws around means of deviation 0.6, predictive deviation 2: 0.6 / sqrt(8) / 2 over many quantities.
    rng = np.random.default_rng(0)
    values = 0.6 * rng.normal(size=(8, 1, 4000)) + np.zeros((8, 4, 1))
    assert error_of_means(values, np.full(4000, 2.0)) == pytest.approx(0.6 / 8**0.5 / 2, rel=0.02)
    # A single chain counts as two halves.
    half = np.concatenate((np.zeros((1, 10, 3)), np.ones((1, 10, 3))), 1)
    assert error_of_means(half, np.ones(3)) == pytest.approx(0.5)


def test_constants_and_chains_that_never_meet():
    values = np.zeros((2, 20, 2))
    values[1, :, 1] = 1.0
    assert split_r_hat(values).tolist() == [1.0, np.inf]
    assert effective_draws(values)[0] == 40
    assert effective_draws(values)[1] < 5


def test_too_few_draws_are_one_clear_line():
    with pytest.raises(ValueError, match="at least 4"):
        split_r_hat(np.zeros((4, 3, 1)))
