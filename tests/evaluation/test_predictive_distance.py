"""Distances between predictives: by hand, by quadrature, by their properties, and the floor that sampling leaves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import bayesify as bf
from bayesify.evaluation.predictive_distance import agreement, distance, halves, mean_distance, total_variation
from bayesify.likelihoods import Categorical, Gaussian, Poisson
from bayesify.predictive import Predictive


def of_probs(probs):
    """A predictive with these class probabilities, `[draws, batch, classes]`."""
    return Predictive(torch.tensor(probs, dtype=torch.float64).log(), Categorical())


def of_normals(means, noise=1.0):
    """A predictive of equal mixtures of normals around these means, `[draws, batch]`."""
    return Predictive(torch.tensor(means, dtype=torch.float64).unsqueeze(-1), Gaussian(noise))


def test_of_classes_as_computed_by_hand():
    one = of_probs([[[0.9, 0.1], [0.5, 0.5]], [[0.7, 0.3], [0.1, 0.9]]])  # means 0.8, 0.2 and 0.3, 0.7
    other = of_probs([[[0.6, 0.4], [0.6, 0.4]], [[0.4, 0.6], [0.8, 0.2]]])  # means 0.5, 0.5 and 0.7, 0.3
    assert total_variation(one, other).tolist() == pytest.approx([0.3, 0.4])
    found = distance(one, other)
    # The first input is a tie that goes to class 0, which both then say; the second is not.
    assert found.agreement == agreement(one, other) == 0.5
    assert found.total_variation == pytest.approx(0.35)
    # Standard deviations over two draws are half their difference: 0.1 and 0.2 over 0.1 and 0.1.
    assert found.std_ratio == pytest.approx(0.3 / 0.2)
    assert found.epistemic_ratio == pytest.approx(float(one.epistemic.sum() / other.epistemic.sum()))
    assert found.mean_distance is None


def test_total_variation_of_two_normals_is_the_closed_form():
    for apart in (0.1, 1.0, 3.0):
        exact = 2 * stats.norm.cdf(apart / 2) - 1
        found = float(total_variation(of_normals([[apart]]), of_normals([[0.0]])))
        # One crossing, which falls on no edge: below the exact value by at most a cell's share of it.
        assert exact - 2e-4 < found <= exact + 1e-9


def test_total_variation_of_mixtures_is_the_integral():
    means, reference = [[-1.0, 0.0], [0.5, 3.0], [2.0, 3.2]], [[-0.5, 1.0], [1.5, 1.5]]
    one, other = of_normals(means, 0.4), of_normals(reference, 0.7)
    for place in range(2):

        def difference(y, place=place):
            p = np.mean([stats.norm.pdf(y, mean[place], 0.4) for mean in means])
            q = np.mean([stats.norm.pdf(y, mean[place], 0.7) for mean in reference])
            return 0.5 * abs(p - q)

        exact = integrate.quad(difference, -8, 10, limit=500)[0]
        assert float(total_variation(one, other)[place]) == pytest.approx(exact, abs=5e-4)
        coarse = [float(total_variation(one, other, cells)[place]) for cells in (1, 10, 100)]
        assert coarse == sorted(coarse)
        assert coarse[-1] <= exact + 1e-6


def test_total_variation_of_counts_is_the_sum():
    one = Predictive(torch.tensor([[[0.5]], [[1.5]]], dtype=torch.float64), Poisson())
    other = Predictive(torch.tensor([[[1.0]]], dtype=torch.float64), Poisson())
    rates = [float(rate) for rate in one.likelihood.mean(one.outputs).reshape(-1)]
    rate = float(other.mean.reshape(()))
    k = np.arange(200)
    exact = 0.5 * np.abs(np.mean([stats.poisson.pmf(k, r) for r in rates], 0) - stats.poisson.pmf(k, rate)).sum()
    assert float(total_variation(one, other).reshape(())) == pytest.approx(exact, abs=1e-6)


def test_several_targets_of_an_input_are_compared_each_with_its_own():
    means, reference = torch.tensor([[[0.0, 1.0]], [[2.0, 1.5]]]), torch.tensor([[[0.5, 1.0]], [[0.5, 4.0]]])
    one, other = (Predictive(part.double(), Gaussian(1.0)) for part in (means, reference))
    found = total_variation(one, other)
    assert found.shape == (1, 2)
    for target in range(2):
        alone = total_variation(of_normals(means[..., target].tolist()), of_normals(reference[..., target].tolist()))
        assert float(found[0, target]) == pytest.approx(float(alone), abs=1e-12)
    # Classes at two places of a sequence.
    places = [[[[0.9, 0.1], [0.2, 0.8]]]]
    sides = [
        Predictive(torch.tensor(p, dtype=torch.float64).log(), Categorical(class_dim=-1))
        for p in (places, [[[[0.5, 0.5], [0.2, 0.8]]]])
    ]
    assert total_variation(*sides).tolist() == [pytest.approx([0.4, 0.0])]


def test_of_numbers_as_computed_by_hand():
    one, other = of_normals([[1.0], [3.0]], 2.0), of_normals([[0.0], [2.0]], math.sqrt(3.0))
    found = distance(one, other)
    # Means 2 and 1; variances 4 + 1 and 3 + 1.
    assert found.mean_distance == mean_distance(one, other) == pytest.approx(0.5)
    assert found.std_ratio == pytest.approx(math.sqrt(5) / 2)
    assert found.epistemic_ratio == pytest.approx(1.0)
    assert found.agreement is None


def test_disjoint_answers_are_one_apart():
    sure = of_probs([[[1.0, 0.0]]]), of_probs([[[0.0, 1.0]]])
    assert distance(*sure).total_variation == 1.0
    assert distance(*sure).agreement == 0.0
    # Also where all that a method says lies beyond the last cell.
    assert float(total_variation(of_normals([[1000.0]]), of_normals([[0.0]]))) == pytest.approx(1.0, abs=1e-8)


probabilities = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3).map(lambda p: [one / sum(p) for one in p])


@given(st.lists(probabilities, min_size=2, max_size=4), st.lists(probabilities, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_total_variation_of_classes_is_a_distance(first, second):
    one, other = of_probs([[p] for p in first]), of_probs([[p] for p in second])
    apart, back = float(total_variation(one, other)), float(total_variation(other, one))
    assert apart == pytest.approx(back, abs=1e-12)
    assert 0 <= apart <= 1
    # The largest difference in the chance of any event is what it is by definition.
    difference = (one.probs - other.probs)[0]
    assert apart == pytest.approx(float(difference.clamp(min=0).sum()), abs=1e-12)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.floats(0.1, 2.0))
@settings(max_examples=8, deadline=None)
def test_nothing_is_apart_from_itself(means, noise):
    same = of_normals([[mean] for mean in means], noise)
    found = distance(same, same)
    assert found.total_variation == 0.0
    assert found.std_ratio == found.epistemic_ratio == 1.0
    assert found.mean_distance == 0.0


@pytest.fixture(scope="module")
def sampled(blobs_module):
    """The same posterior with 2 and with 32 chains of 10 draws each."""
    found = {}
    for chains in (2, 32):
        network = bf.networks.mlp(2, 3, units=3, layers=1, activation="tanh")
        found[chains] = bf.HMC(network, "categorical", chains=chains)
        found[chains].fit(blobs_module, warm_up=40, samples=10, progress=False, compiled=False)
    return found


@pytest.fixture(scope="module")
def blobs_module():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(48) % 3
    centres = torch.tensor([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])
    return centres[y] + 0.8 * torch.randn(48, 2, generator=generator), y


def test_halves_are_the_even_and_the_odd_chains(sampled, blobs_module):
    x = blobs_module[0][:5]
    for method in sampled.values():
        whole, even, odd = halves(method, x, seed=7)
        by_chain = method.predictions_by_chain(x, every_class=True)  # [chains, draws, inputs, classes]
        for part, first in ((even, 0), (odd, 1)):
            torch.testing.assert_close(part.probs, by_chain[first::2].mean((0, 1)), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(whole.probs, by_chain.mean((0, 1)), rtol=1e-4, atol=1e-6)


def test_the_floor_falls_with_the_number_of_chains(sampled, blobs_module):
    floors = {}
    for chains, method in sampled.items():
        _, even, odd = halves(method, blobs_module[0])
        floors[chains] = distance(even, odd).total_variation
    # Sixteen times the draws: a quarter on average; half leaves room for what 10 draws of a chain share.
    assert floors[32] < 0.5 * floors[2]


def test_what_cannot_be_compared_is_refused(sampled, blobs_module):
    classes, numbers = of_probs([[[0.5, 0.5]]]), of_normals([[0.0]])
    with pytest.raises(ValueError, match="of one kind, got classification and regression"):
        distance(classes, numbers)
    with pytest.raises(ValueError, match=r"for the same inputs, got shapes \[1, 2\] and \[2, 2\]"):
        distance(classes, of_probs([[[0.5, 0.5], [0.5, 0.5]]]))
    with pytest.raises(TypeError, match="predictive must be a Predictive, as predict returns it, got Tensor"):
        distance(torch.zeros(3), classes)
    with pytest.raises(ValueError, match="use mean_distance"):
        agreement(numbers, numbers)
    with pytest.raises(ValueError, match="use agreement"):
        mean_distance(classes, classes)
    with pytest.raises(ValueError, match="cells must be an integer of at least 1, got 0"):
        total_variation(numbers, numbers, 0)
    alone = bf.HMC(bf.networks.mlp(2, 3, units=3, layers=1), "categorical", chains=1)
    with pytest.raises(ValueError, match="at least 2 chains, got 1 chains with 0 draws each"):
        halves(alone, blobs_module[0])
    assert sampled[2].chains == 2


def test_a_ratio_to_no_spread_is_infinite_and_of_none_to_none_is_one():
    point = of_probs([[[0.7, 0.3]]])
    spread = of_probs([[[0.9, 0.1]], [[0.5, 0.5]]])
    assert distance(spread, point).std_ratio == math.inf
    assert distance(point, spread).std_ratio == pytest.approx(0.0, abs=1e-12)
    assert distance(point, point).std_ratio == 1.0
