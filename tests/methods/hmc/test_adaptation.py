"""Warm-up learns what it should: the target acceptance, the variances, and a length that decorrelates."""

import numpy as np
import pytest
import torch

from bayesify.methods.hmc.adaptation import DualAveraging, PooledVariance, TrajectoryLength, chees_slope, halton
from bayesify.methods.hmc.hamiltonian import Leapfrog, state_at
from bayesify.methods.hmc.sampler import Sampler


class Scaled:
    """Independent normals with variances from 1/10 to 10."""

    def __init__(self, size):
        self.size, self.variance = size, torch.logspace(-1, 1, size)

    def value(self, position):
        return -0.5 * (position.double().square() / self.variance.double()).sum(-1)

    def gradient(self, position):
        return -position / self.variance.to(position.dtype)


def sampler(size=20, warm_up=200, chains=16, **more):
    wide = 3 * torch.randn(chains, size, generator=torch.Generator().manual_seed(1))
    made = Sampler(Scaled(size), wide, warm_up=warm_up, **more)
    made.find_step_size()
    return made


@pytest.mark.parametrize("target", [0.65, 0.8, 0.9])
def test_the_step_size_reaches_the_target_acceptance(target):
    chains = sampler(warm_up=400, target_accept=target)
    for iteration in range(400):
        chains.iterate(iteration)
    acceptance = torch.stack([chains.iterate(400 + number).acceptance for number in range(100)])
    # 1600 acceptances: their mean has a standard error of about 0.006, and the step size one of its own.
    assert abs(float(acceptance.mean()) - target) < 0.05


def test_dual_averaging_finds_the_root_of_a_noisy_curve():
    """A known curve, acceptance = exp(-step), whose target of 0.8 is at step -log 0.8 = 0.223."""
    generator = np.random.default_rng(0)
    search = DualAveraging.start(5.0, 0.8, ambition=10.0)
    for _ in range(2000):
        search.update(np.clip(np.exp(-search.step_size) + 0.05 * generator.normal(), 0, 1))
    assert abs(search.average / 0.2231 - 1) < 0.05


def test_the_mass_matrix_is_the_inverse_of_the_variances():
    chains = sampler(warm_up=300)
    for iteration in range(300):
        chains.iterate(iteration)
    ratio = chains.adaptation.inverse_mass / chains.target.variance
    # The last window holds about 105 iterations of 16 chains: even at half of them effective, a variance is known to
    # sqrt(2 / 800) = 5%; 20 of them stay within 4 standard errors.
    assert float((ratio - 1).abs().max()) < 0.2


def test_trajectories_grow_from_far_too_short_ones():
    chains = sampler(warm_up=300)
    chains.adaptation.length = TrajectoryLength(log_length=np.log(0.05))
    for iteration in range(300):
        chains.iterate(iteration)
    # A unit-mass normal is decorrelated by a quarter turn, pi / 2; jittered lengths want a larger maximum.
    assert 1.5 < chains.adaptation.length.length < 12


def test_the_slope_is_that_of_the_criterion():
    target, mass = Scaled(3), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    position, momentum = torch.randn(2, 32, 3, generator=generator, dtype=torch.float64)
    start, moves = state_at(target, position), Leapfrog(target, position)
    scale = mass.sqrt()

    def end(steps, step_size=0.001):
        return moves.propose(start, momentum, mass, step_size, steps)

    def criterion(proposal, centre):
        after = (proposal.end.position / scale - centre).square().sum(-1)
        before = (position / scale - (position / scale).mean(0)).square().sum(-1)
        return float((after - before).square().mean() / 4)

    middle = end(700)
    centre = (middle.end.position / scale).mean(0)  # held: the estimator leaves out the mean's own motion
    numeric = (criterion(end(701), centre) - criterion(end(699), centre)) / 0.002
    # Steps are so short that every end is accepted with probability one to five digits.
    assert chees_slope(start, middle, mass) == pytest.approx(numeric, rel=1e-3)


def test_variances_are_pooled_within_chains():
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(50, 4, 3)) + 10 * np.arange(4)[None, :, None]
    pooled = PooledVariance(torch.zeros(4, 3, dtype=torch.float64))
    for one in draws:
        pooled.add(torch.tensor(one))
    expected = draws.var(0, ddof=1).mean(0)
    found = pooled.shrunk(torch.full((3,), 7.0, dtype=torch.float64))
    assert np.allclose(found, (196 * expected + 5 * 7) / 201, rtol=1e-10)


def test_halton_numbers_fill_the_interval_evenly():
    numbers = sorted(halton(index) for index in range(1, 64))
    assert np.allclose(numbers, np.arange(1, 64) / 64)
    assert [halton(index) for index in (1, 2, 3, 4)] == [0.5, 0.25, 0.75, 0.125]
