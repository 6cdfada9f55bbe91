"""The leapfrog integrator has the three properties that make HMC right: reversible, volume-preserving, second order."""

import itertools
import math
from contextlib import nullcontext

import pytest
import torch
from threadpoolctl import threadpool_info

from bayesify.methods.hmc.hamiltonian import Leapfrog, Proposal, State, _Graph, choose_end, kinetic_energy, state_at


class Bent:
    """A bent, non-Gaussian density in two dimensions, in float64."""

    size = 2

    def value(self, position):
        a, b = position.double().unbind(-1)
        return -0.5 * a**2 - 0.5 * ((b - a**2) / 0.7) ** 2

    def gradient(self, position):
        a, b = position.unbind(-1)
        residual = (b - a**2) / 0.49
        return torch.stack((-a + 2 * a * residual, -residual), -1)


def chains(count=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    position, momentum = torch.randn(2, count, 2, generator=generator, dtype=torch.float64)
    return state_at(Bent(), position), momentum


MASS = torch.tensor([0.5, 2.0], dtype=torch.float64)


def leapfrog(count=64):
    return Leapfrog(Bent(), torch.zeros(count, 2, dtype=torch.float64))


def test_a_trajectory_run_backwards_returns_to_its_start():
    start, momentum = chains()
    position, end_momentum, gradient = leapfrog().follow(start, momentum, MASS, 0.1, 25)
    end = State(position, Bent().value(position), gradient)
    back, back_momentum, _ = leapfrog().follow(end, -end_momentum, MASS, 0.1, 25)
    assert not torch.allclose(position, start.position, atol=0.1)
    assert torch.allclose(back, start.position, atol=1e-9)
    assert torch.allclose(-back_momentum, momentum, atol=1e-9)


def test_a_trajectory_preserves_volume():
    def end(point):
        point = point.unsqueeze(0)
        state = state_at(Bent(), point[:, :2].clone())
        position, momentum, _ = leapfrog(1).follow(state, point[:, 2:].clone(), MASS, 0.15, 12)
        return torch.cat((position, momentum), 1)[0]

    point, width = torch.tensor([0.4, -0.3, 0.8, 0.5], dtype=torch.float64), 1e-5
    columns = [(end(point + width * unit) - end(point - width * unit)) / (2 * width) for unit in torch.eye(4).double()]
    jacobian = torch.stack(columns, 1)
    assert abs(float(torch.linalg.det(jacobian)) - 1) < 1e-7
    assert (jacobian - torch.eye(4)).abs().max() > 0.5  # the map itself is far from the identity


def test_the_error_in_energy_is_of_second_order():
    start, momentum = chains()
    errors = []
    for step_size in (0.1, 0.05, 0.025, 0.0125):
        proposal = leapfrog().propose(start, momentum, MASS, step_size, round(1.0 / step_size))
        errors.append(float(proposal.energy_change.abs().mean()))
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert all(abs(order - 2) < 0.15 for order in orders[1:]), orders


def test_each_pair_of_ends_is_in_detailed_balance():
    """pi(q) N(p) a(q -> q') = pi(q') N(p') a(q' -> q), trajectory by trajectory, exactly."""
    start, momentum = chains(256)
    moves = leapfrog(256)
    there = moves.propose(start, momentum, MASS, 0.6, 5)
    back = moves.propose(there.end, -there.momentum, MASS, 0.6, 5)
    forward = torch.exp(start.log_density - kinetic_energy(momentum, MASS)) * there.acceptance
    backward = torch.exp(there.end.log_density - kinetic_energy(there.momentum, MASS)) * back.acceptance
    assert 0.2 < float(there.acceptance.mean()) < 0.95  # a step large enough for acceptance to matter
    assert torch.allclose(forward, backward, rtol=1e-8, atol=1e-300)


def test_a_lost_energy_is_a_divergence_and_never_accepted():
    start, momentum = chains(3)
    change = torch.tensor([0.1, 2000.0, float("nan")], dtype=torch.float64)
    proposal = Proposal(State(start.position + 1, start.log_density, start.gradient), momentum, change, change)
    assert proposal.diverging.tolist() == [False, True, True]
    state, accepted = choose_end(start, proposal, torch.full((3,), 1e-7))
    assert accepted.tolist() == [True, False, False]
    assert torch.equal(state.position[1:], start.position[1:])


def test_groups_of_chains_in_threads_go_where_all_go_together():
    start, momentum = chains()
    groups = Leapfrog(Bent(), start.position, workers=4)
    together = leapfrog().follow(start, momentum, MASS, 0.1, 20)
    for found, expected in zip(groups.follow(start, momentum, MASS, 0.1, 20), together, strict=True):
        assert torch.allclose(found, expected, atol=1e-12)


def test_threads_of_groups_start_with_as_many_threads_as_torch_has():
    """Compiled code never asks torch, and a matrix product in it would take OpenMP's own number."""
    start, momentum = chains()
    before, seen = torch.get_num_threads(), []

    class Watched(Bent):
        def gradient(self, position):
            found = threadpool_info()
            seen.append(
                {one["num_threads"] for one in found if one["internal_api"] == "openmp" and "torch" in one["filepath"]}
            )
            return super().gradient(position)

    torch.set_num_threads(before + 2)
    try:
        Leapfrog(Watched(), start.position, workers=2).follow(start, momentum, MASS, 0.1, 1)
    finally:
        torch.set_num_threads(before)
    if not all(seen):
        pytest.skip("torch has no OpenMP of its own here")
    assert seen == [{before + 2}] * 2


@pytest.mark.slow
def test_a_compiled_step_goes_where_the_plain_one_goes():
    start, momentum = chains()
    fast = Leapfrog(Bent(), start.position, fast=True)
    if fast.path == "plain":
        pytest.skip("nothing compiles here")
    for found, expected in zip(
        fast.follow(start, momentum, MASS, 0.1, 20), leapfrog().follow(start, momentum, MASS, 0.1, 20), strict=True
    ):
        assert torch.allclose(found, expected, atol=1e-9)


def test_a_step_is_recorded_on_the_stream_of_its_own_device(monkeypatch):
    class Stream:
        def __init__(self, device):
            self.device = device

        def wait_stream(self, other):
            assert other.device == self.device

    given = []

    def capture(_, stream=None):
        given.append(stream)  # without one, torch takes a stream of the device that was first captured on
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    position = torch.zeros(2, 3)
    _Graph(lambda position, momentum, *_: (position, momentum, position), position)
    assert [stream.device for stream in given] == [position.device]
