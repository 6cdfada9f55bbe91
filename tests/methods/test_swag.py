"""SWAG against its definition: the snapshots that it saw, and the paper's formulas on them in numpy."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods.swag import SWAG
from bayesify.training.optimisation import rate_factor


class Watched(SWAG):
    """Remembers the snapshots that it took, and when."""

    def _take(self):
        self.seen = [*getattr(self, "seen", []), (self._step, self.theta.detach().double().numpy().copy())]
        super()._take()


def watched(blobs, epochs=12, **settings):
    torch.manual_seed(0)
    method = Watched(bf.networks.mlp(2, 3, units=2), "categorical", **settings)
    method.fit(blobs, epochs=epochs, batch_size=32, learning_rate=0.05, progress=False)
    return method, np.stack([weights for _, weights in method.seen])


def definition(snapshots: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and deviations as the paper writes them: running first and second moments."""
    first, second, deviations = np.zeros(snapshots.shape[1]), np.zeros(snapshots.shape[1]), []
    for number, weights in enumerate(snapshots):
        first = (number * first + weights) / (number + 1)
        second = (number * second + weights**2) / (number + 1)
        deviations = [*deviations, weights - first][-rank:]
    return first, second - first**2, np.stack(deviations)


@pytest.mark.parametrize(("rank", "every"), [(20, None), (3, None), (5, 2)])
def test_the_moments_are_the_papers(blobs, rank, every):
    method, snapshots = watched(blobs, rank=rank, every=every)
    mean, variance, deviations = definition(snapshots, rank)
    assert np.allclose(method.mean_weights.numpy(), mean, atol=1e-6)
    assert np.allclose(method.variance.numpy(), variance, rtol=1e-4, atol=1e-8)
    count = min(rank, len(snapshots))
    # The ring forgets the oldest; its order does not matter to a draw.
    ours = method.deviations[:count].double().numpy()
    assert np.allclose(np.sort(ours, 0), np.sort(deviations, 0), atol=1e-6)
    expected = np.diag(variance) / 2 + deviations.T @ deviations / (2 * (count - 1))
    assert np.allclose(method.covariance.numpy(), expected, rtol=1e-3, atol=1e-7)


def test_draws_have_the_mean_and_the_covariance_of_the_definition(blobs):
    method, snapshots = watched(blobs, rank=4)
    mean, variance, deviations = definition(snapshots, 4)
    covariance = np.diag(variance) / 2 + deviations.T @ deviations / (2 * 3)
    draws = 20_000
    sampled = method.weights(range(draws), 7).double().numpy() - mean
    z = sampled.mean(0) / np.sqrt(np.diag(covariance) / draws)
    found = sampled.T @ sampled / draws
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / draws)
    z = np.concatenate((z, ((found - covariance) / spread)[np.triu_indices(len(mean))]))
    assert np.abs(z).max() < 4.6  # of about 130 z-scores, one exceeds it with a chance of 6e-4
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 0.1 * covariance.max()


def test_few_far_weights_keep_their_spread_in_single_precision():
    method = SWAG(nn.Linear(1, 1, bias=False), "gaussian:1", rank=2)
    values = [1000.0, 1000.001953125, 999.998046875, 1000.0]
    for value in values:
        method.theta.data.fill_(value)
        method._take()
    assert method.variance.item() == pytest.approx(np.var(values), rel=0.1)
    naive = np.float32(np.mean(np.float32(values) ** 2, dtype=np.float32)) - np.float32(np.mean(values)) ** 2
    assert abs(naive / np.var(values) - 1) > 0.5, "the paper's second moment minus the squared mean would be lost"


def test_snapshots_start_at_their_share_of_the_steps(blobs):
    steps = [step for step, _ in watched(blobs, epochs=10, begin=0.6)[0].seen]
    assert steps == [20, 23, 26, 29]  # 30 steps, the first 18 left out, one at the end of each epoch
    steps = [step for step, _ in watched(blobs, epochs=4, begin=0.0, every=5)[0].seen]
    assert steps == [4, 9]


def test_the_learning_rate_is_held_from_the_first_snapshot_on(blobs):
    torch.manual_seed(0)
    method = SWAG(bf.networks.mlp(2, 3, units=4), "categorical", begin=0.5)
    history = method.fit(blobs, epochs=8, batch_size=32, learning_rate=0.01, schedule="cosine", progress=False)
    rates = history["learning_rate"]
    falling = [0.01 * rate_factor("cosine", (3 * epoch + 2) / 24) for epoch in range(4)]
    assert rates[:4] == pytest.approx(falling)
    assert rates[4:] == pytest.approx([0.005] * 4)


def test_weights_that_are_not_random_are_at_the_mean_of_the_snapshots(blobs):
    method, snapshots = watched(blobs, bayesian="last_layer")
    draws = method.weights(range(5), 0)
    fixed = method.network.random_size
    assert fixed < method.network.size
    assert torch.allclose(
        draws[:, fixed:], torch.from_numpy(snapshots.mean(0)[fixed:]).float().expand(5, -1), atol=1e-6
    )
    assert (draws[:, :fixed].std(0) > 0).all()


@pytest.mark.parametrize("batch_size", [32, 40])
def test_running_statistics_are_those_of_each_draws_own_weights(blobs, batch_size):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    method = SWAG(network, "categorical", held_draws=5)
    method.fit(blobs, epochs=8, batch_size=batch_size, learning_rate=0.05, progress=False)
    assert method.held == 5
    p = method.predict(blobs[0], draws=100, seed=9)
    assert p.outputs.shape[0] == 5
    weights, kept = method.weights(range(5), 9), method.draw_buffers(range(5), 9)
    for theta, own in [*zip(weights, (dict(zip(kept, row)) for row in zip(*kept.values())))]:
        first = method.network.unflatten(theta)
        hidden = blobs[0] @ first["0.weight"].T + first["0.bias"]
        # Batches count by their size, so the mean is that of the data, whatever the last batch is.
        assert torch.allclose(own["1.running_mean"], hidden.mean(0), atol=1e-5)
        pieces = hidden.split(batch_size)
        inside = sum(len(piece) * piece.var(0) for piece in pieces) / 96
        assert torch.allclose(own["1.running_var"], inside, rtol=1e-4)
    row = next(row for row in range(5) if torch.equal(method._draws([row], method.seed)[0], weights[0]))
    assert torch.equal(method.get_buffer("held_1/running_mean")[row], kept["1.running_mean"][0])
    module = method.network.module(method.mean_weights).eval()
    hidden = module[0](blobs[0])
    assert torch.allclose(module[1].running_mean, hidden.mean(0), atol=1e-5)
    assert torch.allclose(module(blobs[0]), method.predict(blobs[0], by="mean").outputs[0], atol=1e-5)


def test_a_draw_is_a_function_of_its_number(blobs):
    method, _ = watched(blobs)
    assert method.held is None
    assert torch.equal(method.weights([3], 5)[0], method.weights(range(10), 5)[3])
    assert not torch.equal(method.weights([3], 5), method.weights([3], 6))


def test_before_the_first_snapshot_it_answers_with_its_weights(blobs):
    torch.manual_seed(0)
    method = SWAG(bf.networks.mlp(2, 3, units=4), "categorical")
    assert method.held == 1
    assert torch.equal(method.weights([0], 0)[0], method.theta.detach())
    assert torch.equal(method.mean_weights, method.theta.detach())


def test_it_is_as_wide_as_the_noise_of_descent_on_a_quadratic():
    # SGD on (w - s)^2 / 2 with s = -1 or 1 at a step: w <- (1 - rate) w + rate s, of variance rate / (2 - rate).
    x, y = torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]])

    class Coins:
        def __len__(self):
            return 1500

        def __iter__(self):
            signs = torch.randint(0, 2, (1500,), generator=torch.Generator().manual_seed(0))
            return iter([(x[:1], y[sign : sign + 1]) for sign in signs])

    network = nn.Linear(1, 1)
    nn.init.zeros_(network.bias)
    method = SWAG(network, "gaussian:1", bayesian=["bias"], every=10, begin=0.1)
    method.fit(Coins(), n_data=2, epochs=1, optimizer="sgd", learning_rate=0.3, progress=False)
    count = int(method.count)
    expected = 0.3 / (2 - 0.3)
    # Ten steps apart, snapshots are all but independent (0.7^10 = 0.03); a bounded w has lighter tails than a normal.
    assert count == 135
    assert method.variance.item() == pytest.approx(expected, abs=4 * expected * math.sqrt(2 / count))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": 1}, "rank must be"),
        ({"begin": 1.0}, "begin must be"),
        ({"every": 0}, "every must be"),
        ({"held_draws": 0}, "held_draws must be"),
        ({"rank": 10**12}, "GiB"),
    ],
)
def test_what_it_cannot_do_is_one_clear_line(settings, words):
    with pytest.raises(ValueError, match=words) as caught:
        SWAG(bf.networks.mlp(2, 3, units=4), "categorical", **settings)
    assert "\n" not in str(caught.value)
