"""Noise that is made again where it is needed again gives the numbers of noise that is kept."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bayesify import noise
from bayesify.training.engines.compiled_noise import one_operation
from bayesify.training.engines.repeated_noise import repeat_noise

SIZE = 5000


def draw_and_use_again(mean, width, step):
    eps = noise.normal(noise.keys(0, noise.Stream.TRAINING, step=step), SIZE)[0]
    drawn = mean + width * eps
    slope = torch.cos(drawn).sum() * drawn  # something between the two uses that is no noise
    width.add_(slope * eps)
    return drawn


def traced():
    torch.manual_seed(0)
    example = torch.randn(SIZE), torch.rand(SIZE), torch.tensor(3)
    with noise.mixing(one_operation(), one_by_one=True):
        return make_fx(draw_and_use_again, tracing_mode="fake", _allow_non_fake_inputs=True)(*example), example


def hashes(graph):
    return sum(node.target is torch.ops.bayesify.mix.default for node in graph.graph.nodes)


def test_each_use_has_its_own_expression_and_the_results_are_the_same():
    graph, example = traced()
    before, kept = hashes(graph), [tensor.clone() for tensor in example]
    expected = graph(*kept)
    assert repeat_noise(graph, fewest=1000) == 1
    # The hashes of the key stay shared, only those of the counters are made again.
    assert before < hashes(graph) < 2 * before
    given = [tensor.clone() for tensor in example]
    torch.testing.assert_close(graph(*given), expected, rtol=0, atol=0)
    torch.testing.assert_close(given, kept, rtol=0, atol=0)
    # By elements or in pairs, it is the same noise up to rounding.
    torch.testing.assert_close(expected, draw_and_use_again(*(t.clone() for t in example)), rtol=1e-5, atol=1e-5)


def test_small_noise_is_kept():
    graph, _ = traced()
    assert repeat_noise(graph, fewest=SIZE + 1) == 0
