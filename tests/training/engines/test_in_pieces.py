"""A step on pieces of the flat vectors makes the same updates, and has less in memory at once."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import bayesify as bf
from bayesify import noise
from bayesify.training.engines import compiling, fused
from bayesify.training.engines.compiled_noise import one_operation
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.in_pieces import RefusedError, cut, in_pieces, pieces_of, update_early
from bayesify.training.engines.updates import update_rule
from bayesify_studies.benchmarks import memory, steps

PRIORS = ["normal:0.5", "laplace:1", "student-t:3,1", "scale-mixture:0.75,1,0.01", "log-uniform"]


def data(rows=24):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def variational(**settings):
    torch.manual_seed(1)
    return bf.Variational(bf.networks.mlp(3, 2, units=8, layers=2), "categorical", **{"rho": -2.0, **settings})


def step_of(method, optimizer="adam", draws=1):
    made = method.make_optimizer(optimizer, 0.01)
    method.train()
    x, y = data()
    method.network.traced(x)
    step = FusedStep(method, update_rule(made), draws)
    leaves, layout = pytree.tree_flatten([(x, y)])
    numbers = torch.tensor(step.numbers(0.5, 1e-2))
    return (lambda *tensors: step.run(layout, *tensors)), [*step.state, torch.tensor(3), numbers, *leaves]


def sizes_of(method):
    return [place.shape.numel() for place in method.network.places]


def after(method, optimizer="adam", draws=1, pieces=None):
    """The loss and the state after a whole step, and after one on pieces (not compiled)."""
    run, arguments = step_of(method, optimizer, draws)
    pieces = pieces or pieces_of(sizes_of(method))
    with noise.mixing(one_operation(), pieces=pieces):
        graph = make_fx(run, compiling._decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    other = [tensor.clone() for tensor in arguments]
    on_pieces = cut(graph, pieces)(*in_pieces(other, pieces))
    return [run(*arguments), *arguments], [on_pieces, *other]


def test_large_tensors_have_pieces_of_their_own_and_small_ones_share_them():
    assert pieces_of([800, 4, 500, 5, 50, 1]) == [800, 4, 500, 56]
    assert pieces_of([3, 4]) == [3, 4]
    assert pieces_of([1] * 20) == [20]


@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_gives_the_update_of_the_whole_step(prior):
    for expected, found in zip(*after(variational(prior=prior)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd:momentum=0.9", "adam:weight_decay=0.1", "adamw:weight_decay=0.1"])
def test_every_optimiser_gives_the_update_of_the_whole_step(optimizer):
    for expected, found in zip(*after(variational(), optimizer), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_pieces_of_several_tensors_are_put_together():
    method = variational()
    sizes = sizes_of(method)
    for expected, found in zip(*after(method, pieces=[sum(sizes[:3]), sum(sizes[3:])]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "draws", "reason"),
    [
        ({}, 2, "changes a vector|no draw|reads all pieces"),
        ({"family": "low_rank", "rank": 2}, 1, "no draw"),
        ({"bayesian": "last_layer"}, 1, "no draw"),
    ],
)
def test_a_step_that_mixes_pieces_is_refused(settings, draws, reason):
    with pytest.raises(RefusedError, match=reason):
        after(variational(**settings), draws=draws)


def test_a_pruned_network_is_refused_because_a_width_of_zero_hides_the_noise():
    method = variational()
    method.prune_to(torch.arange(method.network.random_size) % 2 == 0)
    with pytest.raises(RefusedError, match="no draw"):
        after(method)


def test_a_refused_step_is_compiled_whole(monkeypatch):
    monkeypatch.setattr(fused, "WORTH_PIECES", 1)
    method = variational()
    made = method.make_optimizer("adam", 0.01)
    x, y = data()
    assert fused.fused_step(method, made, 2, [(x, y)]) is not None


def test_noise_in_pieces_is_that_of_the_whole_vector():
    keys, pieces = noise.keys(0, noise.Stream.TRAINING), [70, 9, 33]
    with noise.mixing(noise.mix, pieces=pieces):
        found = noise.normal(keys, 112)
    torch.testing.assert_close(found, noise.normal(keys, 112), rtol=1e-5, atol=1e-6)


def test_updates_come_as_soon_as_their_gradient_does_and_never_before_a_reader():
    def step(a, b, x):
        first = x @ x
        second = first @ x
        a_new, b_new = a - first[0], b - second[0]
        a.copy_(a_new)
        b.copy_(b_new)
        return second.sum()

    graph = make_fx(step)(torch.zeros(2), torch.zeros(2), torch.eye(2)).graph
    update_early(graph)
    graph.lint()
    order = [node.target for node in graph.nodes]
    copies = [number for number, target in enumerate(order) if target is torch.ops.aten.copy_.default]
    products = [number for number, target in enumerate(order) if target is torch.ops.aten.mm.default]
    assert products[0] < copies[0] < products[1] < copies[1]


@pytest.mark.slow
def test_a_compiled_step_has_at_most_twice_and_a_fifth_of_plain_training_in_memory():
    measured = memory.measure(prior="normal:1")
    assert measured["path"] == "compiled"
    assert measured["peak_ratio"] <= 2.2


@pytest.mark.slow
def test_compiled_steps_on_pieces_train_as_whole_ones_do(monkeypatch):
    x, y = steps.images(128)

    def trained():
        method = steps.variational(200, "normal:1")
        step, path = steps.training_step(method, x, y)
        assert path == "compiled"
        for _ in range(20):
            step()
        return method

    on_pieces = trained()
    monkeypatch.setattr(fused, "WORTH_PIECES", 1 << 60)
    whole = trained()
    for found, expected in ((on_pieces.mu, whole.mu), (on_pieces.rho, whole.rho)):
        start = steps.variational(200, "normal:1").mu if found is on_pieces.mu else torch.full_like(expected, -5.0)
        assert (found - expected).norm() < 0.01 * (expected - start).norm()
