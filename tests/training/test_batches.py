"""The batches of an epoch: every example once, in the order of the seed, for each member."""

import torch

from bayesify.functional.inputs import count
from bayesify.training.batches import TensorExamples

X, Y = torch.arange(20.0).view(10, 2), torch.arange(10) % 3


def numbers(examples, **more):
    settings = {"batch_size": 4, "seed": 0, "epoch": 0, "members": 1}
    return [batch[0][0] for batch in examples.batches(**{**settings, **more})]


def test_an_epoch_visits_every_example_once_in_an_order_of_its_own():
    epochs = [torch.cat(numbers(TensorExamples(X, Y), epoch=epoch))[:, 0] / 2 for epoch in range(3)]
    for order in epochs:
        assert sorted(order.tolist()) == list(range(10))
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0], torch.arange(10.0))
    assert torch.equal(epochs[0], torch.cat(numbers(TensorExamples(X, Y)))[:, 0] / 2)


def test_members_have_orders_of_their_own_and_the_first_is_shared_with_a_single_network():
    together = list(TensorExamples(X, Y).batches(4, 0, 0, members=3))
    assert len(together[0]) == 3
    assert not torch.equal(together[0][0][0], together[0][1][0])
    assert torch.equal(together[0][0][0], numbers(TensorExamples(X, Y))[0])


def test_skipping_starts_later_in_the_same_order():
    whole = numbers(TensorExamples(X, Y))
    assert all(torch.equal(a, b) for a, b in zip(whole[2:], numbers(TensorExamples(X, Y), skip=2), strict=True))


def test_inputs_stay_with_their_targets():
    for x, y in [batch[0] for batch in TensorExamples(X, Y).batches(3, 1, 0, 1)]:
        assert torch.equal((x[:, 0] / 2).long() % 3, y)


def test_trees_of_inputs_are_cut_together():
    data = ({"a": X, "b": X[:, 0].long()}, Y)
    (x, y) = next(iter(TensorExamples(*data).batches(4, 0, 0, 1)))[0]
    assert torch.equal(x["a"][:, 0].long(), x["b"])
    assert count(x) == 4
    assert torch.equal(x["b"] // 2 % 3, y)
