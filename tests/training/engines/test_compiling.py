"""What a compiled function is made of, what it gives, and that the same one is not compiled twice."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import bayesify as bf
from bayesify import noise
from bayesify.training.engines import compiling
from bayesify.training.engines.compiled_noise import one_operation
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.updates import update_rule


def normals(step):
    return noise.normal(noise.keys(3, noise.Stream.TRAINING, step=step, draws=range(2)), 100)


class Seen(TorchDispatchMode):
    """The names of the operations that torch is asked for."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_the_hash_as_one_operation_is_the_same_hash():
    edges = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31), 0xFFFF, 0x10000, -0x8000], dtype=torch.int32)
    words = torch.cat((edges, noise.bits(noise.keys(0, noise.Stream.LOCAL)[0], 10_000))).view(-1, 8)
    operation, expected = one_operation(), noise.mix(words)
    assert torch.equal(operation(words), expected)
    assert torch.equal(torch.vmap(operation)(words), expected)
    assert torch.equal(torch.vmap(operation, 1, 1)(words), expected)
    # Written out by the compiler, it is the same once more.
    assert torch.equal(compile_function(operation, (words,))(words), expected)


def test_compiled_keys_bits_and_normals_are_the_plain_ones_at_every_step():
    def everything(step):
        keys = noise.keys(2**40 + 5, noise.Stream.TRAINING, step=step, draws=range(3))
        local = noise.fold(keys, 4)
        return keys, noise.bits(local, 1000, 3), noise.normal(local, 10_003, 5)

    compiled = compile_function(everything, (torch.tensor(0),))
    for step in (0, 7, 2**33):
        for found, expected in zip(compiled(torch.tensor(step)), everything(torch.tensor(step)), strict=True):
            if expected.is_floating_point():
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=3e-6)
            else:
                assert torch.equal(found, expected)


def test_compiled_normals_are_as_near_to_the_exact_ones_as_the_plain_ones():
    keys = noise.keys(7, noise.Stream.TRAINING, draws=range(4))
    found = compile_function(lambda keys: noise.normal(keys, 64_000), (keys,))(keys)
    pairs = torch.arange(32_000, dtype=torch.int32).view(-1, noise.LANES)
    h, g = noise.two_hashes(keys.unsqueeze(-2), pairs)
    radius = torch.sqrt(-2 * torch.log(noise.to_unit_interval(h).double()))
    angle = (g >> 8).double() * (2 * math.pi / 2**24)
    exact = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), -2).view(4, -1)
    errors = [(numbers - exact).abs() for numbers in (found, noise.normal(keys, 64_000))]
    assert errors[0].square().mean() <= 1.1 * errors[1].square().mean()
    assert float(errors[0].max()) < 2.5e-6


def test_what_both_passes_need_is_computed_once_and_what_changes_between_is_not(monkeypatch):
    x = torch.linspace(-30.0, 30.0, 64)

    def step(x, state):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(torch.nn.functional.softplus(x).sum(), x)
        before = state.exp()
        state.add_(slope)
        return slope, before, state.exp()

    seen = []
    share = compiling._share_repeated

    def watched(graph):
        share(graph)
        seen.extend(node.target for node in graph.graph.nodes)

    monkeypatch.setattr(compiling, "_share_repeated", watched)
    compiled = compile_function(step, (x, torch.zeros(64)))
    # One for softplus and its slope, one before and one after the state has changed.
    assert seen.count(torch.ops.aten.exp.default) == 3
    for found, expected in zip(compiled(x, torch.zeros(64)), step(x, torch.zeros(64)), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_trace_has_one_node_for_each_hash_and_the_compiler_has_no_call_of_it():
    step = torch.tensor(5)
    with noise.mixing(one_operation()):
        graph = make_fx(normals, tracing_mode="fake")(step)
    # A key folds seven words, an element's normal needs three hashes.
    assert sum(node.target is torch.ops.bayesify.mix.default for node in graph.graph.nodes) == 10
    compiled = compile_function(normals, (step,))
    with Seen() as plain:
        one_operation()(torch.arange(3, dtype=torch.int32))
    with Seen() as seen:
        compiled(step)
    assert "bayesify::mix" in plain.names
    assert "bayesify::mix" not in seen.names
    # Outside of a trace nothing is different.
    with Seen() as eager:
        normals(step)
    assert "bayesify::mix" not in eager.names


def test_the_compiler_writes_each_hash_out_once(monkeypatch):
    # Repeated parts are found again in the end, so that only the length of the way there tells: 8^4 and more.
    from torch._inductor.codegen.cpp import CppVecOverrides

    written = []
    before = CppVecOverrides.bitwise_xor
    monkeypatch.setattr(CppVecOverrides, "bitwise_xor", staticmethod(lambda a, b: written.append(1) or before(a, b)))
    with config.patch(force_disable_caches=True):
        compile_function(lambda keys: noise.normal(keys, 4096), (noise.keys(0, noise.Stream.TRAINING),))
    # Three hashes have nine of them, and two more enter: a few times that, for the radius and for the angle.
    assert 0 < len(written) <= 100


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """The compiler's folder, empty; and how often it found what was asked for there, and how often not."""
    pick_vec_isa()  # found out once, and kept in the usual folder
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    counters.clear()
    return lambda: tuple(counters["inductor"][f"fxgraph_cache_{outcome}"] for outcome in ("hit", "miss", "bypass"))


def fused(seed, batches, compiled=True):
    torch.manual_seed(1)
    method = bf.Variational(nn.Linear(3, 2), "categorical", seed=seed)
    method.train()
    method.network.traced(batches[0][0])
    step = FusedStep(method, update_rule(method.make_optimizer("sgd", 0.1)), 1)
    if compiled:
        step.compile(batches)
    return method, step


def test_the_second_fit_of_a_shape_finds_the_first_s_step_whatever_its_seed(empty):
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(24, 3, generator=generator), torch.arange(24) % 2)]
    means = []
    for seed, count in ((0, (0, 1, 0)), (0, (1, 1, 0)), (2**63 + 1, (2, 1, 0))):
        method, step = fused(seed, batches)
        assert empty() == count
        step(batches, 4, 1.0, 0.1)
        means.append(method.mu.detach().clone())
    assert torch.equal(means[0], means[1])
    # The other seed's step has that seed's noise: that of the plain path.
    plain, _ = fused(2**63 + 1, batches, compiled=False)
    optimizer = plain.make_optimizer("sgd", 0.1)
    plain.backward(batches, step=4, share=1.0)
    optimizer.step()
    torch.testing.assert_close(means[2], plain.mu.detach(), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(means[0], means[2], rtol=1e-3)


def test_tensors_that_a_function_knows_are_not_compiled_in(empty):
    def adding(known):
        return lambda x: x + known.sum(0)

    x, one, other = torch.zeros(2), torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]])
    found = [compile_function(adding(known), (x,))(x).tolist() for known in (one, other, one)]
    assert found == [[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]
    assert empty() == (2, 1, 0)


def moved(number, x):
    return x * 2 + number


def test_a_tensor_that_is_given_twice_is_two_inputs():
    one, other = torch.arange(4.0), torch.ones(4)
    compiled = compile_function(lambda first, second: first - 2 * second, (one, one))
    assert torch.equal(compiled(one, other), one - 2 * other)


def test_numbers_and_shapes_that_differ_are_another_function(empty):
    for size, number, count in ((2, 1.0, (0, 1, 0)), (3, 1.0, (0, 2, 0)), (2, 4.0, (0, 3, 0)), (3, 1.0, (1, 3, 0))):
        x = torch.ones(size)
        assert compile_function(partial(moved, number), (x,))(x).tolist() == [2 + number] * size
        assert empty() == count


def test_code_for_another_number_of_threads_is_another_function(empty):
    threads = torch.get_num_threads()
    try:
        for number, count in ((1, (0, 1, 0)), (2, (0, 2, 0)), (1, (1, 2, 0))):
            torch.set_num_threads(number)
            assert compile_function(partial(moved, 1.0), (torch.ones(2),))(torch.ones(2)).tolist() == [3.0, 3.0]
            assert empty() == count
    finally:
        torch.set_num_threads(threads)
