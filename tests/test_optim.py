"""`bf.optim.IVON` is `bf.IVON` in the place of an optimiser."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesify as bf
from bayesify.training.batches import TensorExamples


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))


def loop(net, optimizer, data, epochs, batch, draws=1, parts=1):
    for epoch in range(epochs):
        for ((x, y),) in TensorExamples(*data).batches(batch, 0, epoch, 1):
            for _ in range(draws):
                with optimizer.sampled_params(train=True):
                    optimizer.zero_grad()
                    for inputs, targets in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
                        (F.cross_entropy(net(inputs), targets) * (len(targets) / len(y))).backward()
            optimizer.step()


@pytest.mark.parametrize(("draws", "parts"), [(1, 1), (2, 1), (1, 4)])
def test_it_gives_what_fit_gives(blobs, draws, parts):
    fitted = bf.IVON(network(), "categorical", prior="normal:0.7", hessian_init=0.1)
    fitted.fit(blobs, epochs=6, batch_size=32, learning_rate=0.1, draws=draws, progress=False)
    net = network()
    optimizer = bf.optim.IVON(net.parameters(), 96, lr=0.1, prior_scale=0.7, hessian_init=0.1, batch_size=32)
    loop(net, optimizer, blobs, 6, 32, draws, parts)
    mean = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    std = torch.cat([optimizer.std(parameter).flatten() for parameter in net.parameters()])
    torch.testing.assert_close(mean, fitted.mean.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(std, fitted.std, rtol=1e-4, atol=1e-6)


def test_prediction_draws_have_the_posteriors_spread(blobs):
    net = network()
    optimizer = bf.optim.IVON(net.parameters(), 96, lr=0.1, hessian_init=0.1, batch_size=96)
    loop(net, optimizer, blobs, 5, 96)
    draws = []
    for _ in range(2000):
        with optimizer.sampled_params():
            draws.append(net[2].weight.detach().clone())
    drawn = torch.stack(draws)
    # The standard error of a mean of 2,000 draws is std / sqrt(2000), that of a standard deviation std / sqrt(4000).
    std = optimizer.std(net[2].weight)
    assert float(((drawn.mean(0) - net[2].weight.detach()) / std * 2000**0.5).abs().max()) < 4.5
    assert float(((drawn.std(0) / std - 1) * 4000**0.5).abs().max()) < 4.5


def test_its_state_travels(blobs):
    net = network()
    optimizer = bf.optim.IVON(net.parameters(), 96, hessian_init=0.1, batch_size=32)
    loop(net, optimizer, blobs, 2, 32)
    other = copy.deepcopy(net)
    again = bf.optim.IVON(other.parameters(), 96, hessian_init=0.1, batch_size=32)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    loop(net, optimizer, blobs, 2, 32)
    loop(other, again, blobs, 2, 32)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_groups_schedulers_and_clipping_work_as_in_torch(blobs):
    net = network()
    net[0].bias.requires_grad_(False)
    groups = [{"params": net[0].parameters(), "prior_scale": 0.1}, {"params": net[2].parameters(), "lr": 0.2}]
    optimizer = bf.optim.IVON(groups, 96)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=3)
    frozen = net[0].bias.detach().clone()
    for _ in range(3):
        with optimizer.sampled_params(train=True):
            F.cross_entropy(net(blobs[0]), blobs[1]).backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        assert float(norm) > 0.01
        optimizer.step()
        scheduler.step()
    assert torch.equal(net[0].bias, frozen)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.0, 0.0])
    assert float(optimizer.std(net[0].weight).max()) <= 0.1 * 2**0.5


def test_mistakes_are_named(blobs):
    net = network()
    optimizer = bf.optim.IVON(net.parameters(), n_data=96)
    with pytest.raises(RuntimeError, match="has no gradients"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="no parameter has a gradient"), optimizer.sampled_params(train=True):
        pass
    with pytest.raises(RuntimeError, match="already active"), optimizer.sampled_params():
        optimizer.sampled_params().__enter__()
    for settings, message in (({"n_data": 0}, "n_data"), ({"lr": -1.0}, "lr"), ({"beta1": 1.0}, "beta1")):
        with pytest.raises(ValueError, match=message):
            bf.optim.IVON(net.parameters(), **{"n_data": 96, **settings})


def test_a_group_that_is_added_later_is_trained(blobs):
    net = network()
    optimizer = bf.optim.IVON(net[2].parameters(), n_data=96)
    optimizer.add_param_group({"params": net[0].parameters(), "lr": 0.05})
    before = net[0].weight.detach().clone()
    loop(net, optimizer, blobs, 1, 96)
    assert not torch.equal(net[0].weight, before)
    assert bool((optimizer.std(net[0].weight) > 0).all())
