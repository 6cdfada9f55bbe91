"""The objective is exact: an epoch's losses add up to the ELBO, and its optimum is the known one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify import noise
from bayesify.training.batches import TensorExamples

N = 23  # a prime: every batch size but one leaves a ragged last batch


def data(width: int = 2):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(N, width, generator=generator).double()
    return x, (x.sum(1, keepdim=True) - 0.3 + torch.randn(N, 1, generator=generator).double())


def network(width: int = 2) -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(width, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def recorded(method: bf.Method, monkeypatch, **plan):
    """Every step's (batch size, share, loss, nll, kl) of a fit in which the weights do not move."""
    steps = []
    objective = method.objective

    def spy(batches, **given):
        result = objective(batches, **given)
        parts = [part.item() for part in (result.loss, result.nll, result.kl)]
        steps.append((batches[0][1].shape[0], given["share"], *parts))
        return result

    monkeypatch.setattr(method, "objective", spy)
    history = method.fit(data(), optimizer="sgd", learning_rate=1e-30, progress=False, **plan)
    return np.array(steps), history


@given(st.integers(1, 3000), st.integers(1, 200), st.sampled_from(["uniform", "reweighted"]))
@settings(max_examples=200, deadline=None)
def test_the_shares_of_an_epoch_sum_to_one(n_data, batch_size, weighting):
    kl = bf.KL(weighting)
    batches = -(-n_data // batch_size)
    sizes = [min(batch_size, n_data - start) for start in range(0, n_data, batch_size)]
    shares = [kl.share(i, batches, size, n_data) for i, size in enumerate(sizes)]
    assert math.fsum(shares) == pytest.approx(1.0, abs=1e-12)
    if weighting == "uniform":
        assert shares == [size / n_data for size in sizes]
    if weighting == "reweighted" and 1 < batches < 40:
        exact = [2 ** (batches - i) / (2**batches - 1) for i in range(1, batches + 1)]
        assert shares == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("weighting", ["uniform", "reweighted"])
@pytest.mark.parametrize("batch_size", [5, 8, 22, 100])
def test_an_epoch_of_losses_is_the_elbo_whatever_the_batches(monkeypatch, batch_size, weighting):
    bnn = bf.Variational(network(), bf.likelihoods.Gaussian(0.5), prior="laplace:0.4", rho=-45.0)
    steps, history = recorded(bnn, monkeypatch, epochs=2, batch_size=batch_size, kl=weighting)
    # Widths of 3e-20 in float64: draws are the mean to the last digit, so the sum is exact.
    x, y = data()
    with torch.no_grad():
        residual = (y - network()(x)) / 0.5
    nll = (0.5 * residual**2 + math.log(0.5) + 0.5 * math.log(2 * math.pi)).sum().item()
    mean, std = bnn.mu.detach(), bnn.std
    kl = (math.log(0.8) + mean.abs() / 0.4 - 0.5 * math.log(2 * math.pi * math.e) - std.log()).sum().item()
    for epoch in np.split(steps, 2):
        size, share, loss, _, kls = epoch.T
        assert size.sum() == N
        assert share.sum() == pytest.approx(1.0, abs=1e-12)
        assert (size * loss).sum() == pytest.approx(nll + kl, rel=1e-10)
        np.testing.assert_allclose(kls, kl, rtol=1e-10)
    assert history["loss"] == pytest.approx([(nll + kl) / N] * 2, rel=1e-10)
    assert history["nll"] == pytest.approx([nll / N] * 2, rel=1e-10)
    assert history["kl"] == pytest.approx([kl] * 2, rel=1e-10)


@pytest.mark.parametrize("weighting", ["uniform", "reweighted"])
def test_an_epoch_of_losses_has_the_elbo_as_its_mean_with_real_noise(monkeypatch, weighting):
    sums = {}
    for batch_size, draws in ((23, 1), (9, 1), (9, 4)):
        bnn = bf.Variational(network(), bf.likelihoods.Gaussian(0.5), prior="scale-mixture:0.5,1,0.1", rho=-1.0)
        steps, _ = recorded(bnn, monkeypatch, epochs=80, batch_size=batch_size, draws=draws, kl=weighting)
        size, _, loss, _, _ = steps.T
        sums[batch_size, draws] = (size * loss).reshape(80, -1).sum(1)
    reference = sums.pop((23, 1))
    for other in sums.values():
        error = math.sqrt((reference.var(ddof=1) + other.var(ddof=1)) / 80)
        assert abs(reference.mean() - other.mean()) / error < 4.0  # four z-scores: chance 6e-5
    # Four draws average; they do not add up.
    assert sums[9, 4].std() < 0.8 * sums[9, 1].std()


def test_temperature_and_warm_up_multiply_the_divergence_and_nothing_else(monkeypatch):
    kl = bf.KL("reweighted", warm_up=2.0, temperature=0.5)
    bnn = bf.Variational(network(), bf.likelihoods.Gaussian(0.5), rho=-45.0)
    steps, _ = recorded(bnn, monkeypatch, epochs=4, batch_size=6, kl=kl)
    size, share, loss, nll, kls = steps.T
    np.testing.assert_allclose(loss, nll + share * kls / size, rtol=1e-12)
    plain = np.tile([8 / 15, 4 / 15, 2 / 15, 1 / 15], 4)
    warm = np.minimum(1.0, np.arange(16) / 4 / 2)
    np.testing.assert_allclose(share, plain * warm * 0.5, rtol=1e-12)
    assert bf.KL.parse(str(kl)) == kl
    assert [note for note in bnn.summary().notes if "not the ELBO" in note] != []


@pytest.mark.parametrize("estimator", ["weight", "local", "flipout"])
def test_the_loss_by_hand_from_the_noise_itself(estimator):
    x, y = data()
    layer = nn.Linear(2, 1).double()
    bnn = bf.Variational(layer, bf.likelihoods.Gaussian(0.5), prior="cauchy:0.7", estimator=estimator, rho=-1.0)
    loss = bnn.loss(x[:7], y[:7], n_data=N, step=5, draws=3).item()
    keys = noise.keys(0, noise.Stream.TRAINING, step=5, draws=range(3))
    weights = bnn.mu.detach() + bnn.std * noise.normal(keys, 3).double()
    log_prior = -torch.log(math.pi * 0.7 * (1 + (weights / 0.7) ** 2)).sum(1)
    kl = -(bnn.std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum() - log_prior.mean()
    if estimator == "weight":
        outputs = torch.einsum("nf,df->dn", x[:7], weights[:, :2]) + weights[:, 2:]
    else:
        outputs = bnn._training_outputs(x[:7], 5, 3)[0][..., 0].detach()
    residual = (y[:7, 0] - outputs) / 0.5
    nll = (0.5 * residual**2).mean() + math.log(0.5) + 0.5 * math.log(2 * math.pi)
    assert loss == pytest.approx((nll + kl / N).item(), rel=1e-6)  # the noise itself is float32


def test_the_number_of_examples_is_that_of_the_data_not_of_the_loader():
    x, y = data()
    bnn = bf.Variational(network(), bf.likelihoods.Gaussian(0.5), rho=-45.0)
    loader = DataLoader(TensorDataset(x, y), batch_size=5, drop_last=True)
    history = bnn.fit(loader, epochs=1, optimizer="sgd", learning_rate=1e-30, progress=False)
    (record,) = history.records
    # 20 of 23 examples were seen: the record is about those, and the divergence is still shared over 23.
    seen = bnn.likelihood.log_prob(network()(x[:20])[None], y[:20])
    assert record["nll"] == pytest.approx(-seen.mean().item(), rel=1e-10)
    assert record["loss"] == pytest.approx(record["nll"] + record["kl"] / N, rel=1e-10)


def exact_ridge(x, y, noise_scale: float, prior_scale: float | None):
    design = np.concatenate((x.numpy(), np.ones((len(x), 1))), 1)
    penalty = 0.0 if prior_scale is None else (noise_scale / prior_scale) ** 2
    return np.linalg.solve(design.T @ design + penalty * np.eye(design.shape[1]), design.T @ y.numpy())[:, 0]


@pytest.mark.parametrize("prior_scale", [None, 0.3])
@pytest.mark.parametrize("batch_size", [N, 8])
def test_a_point_estimate_is_least_squares_and_with_a_prior_ridge_regression(batch_size, prior_scale):
    x, y = data(3)
    prior = None if prior_scale is None else bf.priors.Normal(prior_scale)
    point = bf.PointEstimate(nn.Linear(3, 1).double(), bf.likelihoods.Gaussian(0.5), prior=prior)
    epochs = 500 if batch_size == N else 250
    schedule = "constant" if batch_size == N else lambda done: 0.98 ** (250 * done)
    point.fit(
        (x, y),
        epochs=epochs,
        batch_size=batch_size,
        optimizer="sgd",
        learning_rate=0.08,
        schedule=schedule,
        progress=False,
    )
    # Exact with the whole data in a step; with batches the step size of the end, 5e-4, is what remains.
    tolerance = 1e-8 if batch_size == N else 3e-3
    np.testing.assert_allclose(point.mean_weights.numpy(), exact_ridge(x, y, 0.5, prior_scale), atol=tolerance)
    without = exact_ridge(x, y, 0.5, None)
    assert np.abs(exact_ridge(x, y, 0.5, 0.3) - without).max() > 0.02


class OneMembersBatches(TensorExamples):
    """The batches that one member of an ensemble sees."""

    def __init__(self, x, y, member: int) -> None:
        super().__init__(x, y)
        self.member = member

    def batches(self, batch_size, seed, epoch, members, skip=0):
        for batch in super().batches(batch_size, seed, epoch, self.member + 1, skip):
            yield [batch[self.member]]

    def to(self, device):
        return self


@pytest.mark.parametrize("prior", [None, "normal:0.5"])
@pytest.mark.parametrize("normalised", [False, True])
def test_a_member_is_a_point_estimate_with_its_start_and_its_order(normalised, prior):
    x, y = data()
    torch.manual_seed(9)
    middle = nn.BatchNorm1d(3) if normalised else nn.Identity()
    net = nn.Sequential(nn.Linear(2, 3), middle, nn.Tanh(), nn.Linear(3, 1)).double()
    plan = {"epochs": 3, "batch_size": 5, "optimizer": "sgd:momentum=0.9", "learning_rate": 0.02, "seed": 11}
    ensemble = bf.Ensemble(net, bf.likelihoods.Gaussian(0.5), members=3, prior=prior)
    starts = ensemble.theta.detach().clone()
    ensemble.fit((x, y), **plan, progress=False)
    for member in range(3):
        single = bf.PointEstimate(net, bf.likelihoods.Gaussian(0.5), prior=prior)
        single.theta.data.copy_(starts[member])
        single.fit(OneMembersBatches(x, y, member), **plan, progress=False)
        torch.testing.assert_close(ensemble.theta[member], single.theta, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ensemble.draw(x)[member], single.draw(x)[0], rtol=1e-9, atol=1e-9)
        assert not torch.allclose(starts[member], ensemble.theta[member], atol=1e-2)
    assert not torch.allclose(starts[0], starts[1])
    orders = [next(TensorExamples(x, y).batches(5, 11, 0, 3))[member][1] for member in range(3)]
    assert not torch.equal(orders[0], orders[1])
