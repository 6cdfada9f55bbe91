"""Members that make their steps one by one make those of the whole ensemble."""

import torch
from torch import nn

import bayesify as bf
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.member_streams import MemberStreams
from bayesify.training.engines.updates import update_rule


def after_three_steps(make):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
    method = bf.Ensemble(net, "categorical", members=3, prior="normal:1", start="fresh").train()
    optimizer = method.make_optimizer("adam", 0.01)
    step = make(method, update_rule(optimizer))
    losses = []
    for number in range(3):
        batches = [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(3)]
        losses.append(float(step(batches, number, 0.1, 0.01)))
    buffers = [method.get_buffer(name).clone() for name in method.member_buffers]
    return losses, method.theta.detach().clone(), buffers, step


def test_members_one_by_one_make_the_steps_of_the_ensemble():
    losses, theta, buffers, whole = after_three_steps(lambda method, rule: FusedStep(method, rule, 1))
    own_losses, own_theta, own_buffers, streams = after_three_steps(MemberStreams)
    torch.testing.assert_close(own_losses, losses)
    torch.testing.assert_close(own_theta, theta)
    torch.testing.assert_close(own_buffers, buffers)
    assert streams.done == whole.done == 3
    assert not torch.allclose(theta[0], theta[1])


def test_a_trial_puts_back_the_state_of_all_members():
    *_, streams = after_three_steps(MemberStreams)
    assert streams.state[0].shape == streams.method.theta.shape
    assert streams.state[0].data_ptr() == streams.method.theta.data_ptr()
