"""Kernels give the same numbers as the plain stages.

On a GPU, or by Triton's interpreter without one: `TRITON_INTERPRET=1 pytest tests/training/test_kernels.py`.
"""

import os

import pytest
import torch

import bayesify as bf
from bayesify.fleets import Fleet
from bayesify.training.batches import TensorExamples
from bayesify.training.engines.fused import FusedStep, shape_of
from bayesify.training.engines.single import SingleStep
from bayesify.training.engines.stacked_step import StackedStep
from bayesify.training.engines.staged_graphs import StagedSteps
from bayesify.training.engines.staged_step import _Stages
from bayesify.training.engines.updates import update_rule
from bayesify.training.optimisation import make_optimizer

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
MIXTURE, NORMAL = "scale-mixture:0.5,1,0.0015", "normal:0.5,0.1"
FEATURES, CLASSES, BATCH, ROWS = 7, 3, 6, 24
pytestmark = [
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp"),  # the interpreter's sigmoid
]


@pytest.fixture
def launches(monkeypatch):
    triton = pytest.importorskip("triton")
    from bayesify.training.engines import kernel_launches as launches
    from bayesify.training.engines import kernels

    if INTERPRETED:
        tl = triton.language

        class Plain:
            # Looked up when they are called: the interpreter changes what these names stand for while it runs.
            fast_cosf = property(lambda _: tl.cos)
            fast_sinf = property(lambda _: tl.sin)
            log1p = staticmethod(lambda x: tl.log(1.0 + x))

        monkeypatch.setattr(kernels, "libdevice", Plain())
        functions = {"sqrt": "sqrt", "lg2": "log2", "ex2": "exp2", "rcp": lambda x: 1.0 / x}

        def hardware(instruction, x):
            function = functions[instruction.partition(".")[0]]
            return function(x) if callable(function) else getattr(tl, function)(x)

        monkeypatch.setattr(kernels, "_hardware", hardware)
        monkeypatch.setattr(kernels, "_laid_out_as", lambda pair, numbers: pair)
    return launches


def make(prior, optimizer, draws, networks, precision="float32", units=(21, 5)):
    torch.manual_seed(0)
    methods = [
        bf.Variational(
            bf.networks.mlp(FEATURES, CLASSES, units=units), "categorical", prior=prior, seed=2**40 * k - 5, rho=-2.0
        )
        for k in range(networks)
    ]
    fleet = Fleet(methods).to(DEVICE)
    with torch.no_grad():
        for parameter in fleet.parameters:
            parameter.add_(torch.randn_like(parameter) * 0.3)
    step = StackedStep(fleet, make_optimizer(optimizer, fleet.parameters, 1.0), draws, precision)
    # As after some steps: moments that are not zero, squares that are not negative.
    for number, tensor in enumerate(step.state[2:]):
        tensor.copy_(torch.randn_like(tensor) * 0.1 if number % 2 == 0 else torch.rand_like(tensor) * 0.1)
    step.method.train()
    return step


def stages_by_kernels(step):
    stages = step.stages
    sample, update = stages._kernels()
    return _Stages(sample, stages._gradients, update, by_kernels=True)


def same(found, expected, before, tolerance):
    """Changes agree to this share of the largest; what no kernel may write to is the same."""
    for one, other, old in zip(found, expected, before, strict=True):
        moved = (other - old).abs().max()
        assert moved > 0
        assert (one - other).abs().max() <= tolerance * moved + 1e-6


@pytest.mark.parametrize("prior", [MIXTURE, NORMAL])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("draws", "networks"), [(1, 1), (3, 1), (1, 3), (3, 3)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_by_kernels_is_the_plain_step(launches, prior, optimizer, draws, networks, precision, monkeypatch):
    # Places start at 0, 147, 168, 273, 278 and 293: in the middle of the noise's blocks of 32. Several programs a place.
    monkeypatch.setattr(launches, "_BLOCK", 32)
    step = make(prior, optimizer, draws, networks, precision)
    stages = step.stages
    assert launches.suits(stages)
    x, y = torch.randn(BATCH, FEATURES, device=DEVICE), torch.randint(0, CLASSES, (BATCH,), device=DEVICE)
    numbers = torch.tensor([(0.5 + k, *step.rule.numbers(0.01 * (k + 1), 4)) for k in range(networks)])
    numbers, number = numbers.to(DEVICE), torch.tensor(2**33 + 5, device=DEVICE)
    results = []
    for made in (stages._plain, stages_by_kernels(step)):
        copies = [tensor.clone() for tensor in step.state]
        *draws_of_all, keys = made.sample(copies, number)
        nll = stages._make(made, copies, number, numbers, stages._cast([x, y]))
        results.append((draws_of_all, keys, nll, copies))
    (theta, keys, nll, expected), (found_theta, found_keys, found_nll, found) = results
    assert torch.equal(keys, found_keys)
    for one, other in zip(found_theta, theta, strict=True):
        assert one.dtype == other.dtype == stages.dtype
        torch.testing.assert_close(one, other, rtol=2**-7 if precision == "bfloat16" else 1e-6, atol=1e-6)
    torch.testing.assert_close(found_nll, nll, rtol=2**-6 if precision == "bfloat16" else 1e-6, atol=1e-6)
    # The narrow part of a mixture, of width 0.0015, multiplies what rounding leaves of a draw.
    same(found, expected, step.state, 5e-2 if precision == "bfloat16" else 1e-3)


def test_many_tensors_take_several_launches(launches, monkeypatch):
    monkeypatch.setattr(launches, "_PLACES", 4)
    step = make(MIXTURE, "adam", 2, 2)
    stages = step.stages
    assert len(list(launches._by_launch(stages))) == 2
    x, y = torch.randn(BATCH, FEATURES, device=DEVICE), torch.randint(0, CLASSES, (BATCH,), device=DEVICE)
    numbers = torch.tensor(step.numbers(0.5, 0.01), device=DEVICE)
    results = []
    for made in (stages._plain, stages_by_kernels(step)):
        copies = [tensor.clone() for tensor in step.state]
        stages._make(made, copies, torch.tensor(3, device=DEVICE), numbers, [x, y])
        results.append(copies)
    same(results[1], results[0], step.state, 1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_batch_counter_and_sum_by_kernels_are_those_of_torch(launches, precision):
    step = make(NORMAL, "adam", 2, 3, precision)
    x, y = torch.randn(ROWS, FEATURES, device=DEVICE), torch.randint(0, CLASSES, (ROWS,), device=DEVICE)
    steps = StagedSteps(step, step.stages, TensorExamples(x, y), 16)
    table = [[(0.1 * n + k, *step.rule.numbers(0.01 + k, n)) for k in range(3)] for n in range(2)]
    steps.begin(torch.randperm(ROWS, device=DEVICE).view(1, -1), table, 2**35, 0)
    # The last is a batch of 8, and a trial beyond the end of the data must not fail.
    for size in (16, 8, 8):
        leaves = step.stages._cast([x[:size], y[:size]])
        step.stages._compiled[shape_of(leaves)] = stages_by_kernels(step)
        assert step.stages.by_kernels([x[:size], y[:size]])
        before = [tensor.clone() for tensor in (*step.state, steps.nll)]
        at = int(steps.batch)
        if precision == "float32" or not INTERPRETED:  # which cuts digits off where a GPU rounds
            steps._check(size)
        assert int(steps.batch) == at
        assert all(torch.equal(one, other) for one, other in zip((*step.state, steps.nll), before, strict=True))
        rows = steps.order[0, (at * 16 + torch.arange(size, device=DEVICE)).clamp(max=ROWS - 1)]
        (inputs, targets), keys, numbers = launches.fetch(step.stages, steps, size)
        torch.testing.assert_close(inputs.float(), x[rows], rtol=2**-7 if precision == "bfloat16" else 0, atol=0)
        assert torch.equal(targets, y[rows])
        assert torch.equal(keys, step.stages._keys(step.stack.seeds, torch.tensor(2**35 + at, device=DEVICE)))
        assert torch.equal(numbers, steps.numbers[min(at, 1)])
        steps._by_kernels.add(size)
        steps._step(size)
        assert int(steps.batch) == at + 1
        assert (steps.nll > before[-1]).all()


@pytest.mark.parametrize(("prior", "optimizer", "draws"), [(MIXTURE, "adam", 1), (NORMAL, "sgd", 2)])
def test_one_network_s_epoch_by_kernels_is_the_fused_one(launches, prior, optimizer, draws):
    x, y = torch.randn(ROWS, FEATURES, device=DEVICE), torch.randint(0, CLASSES, (ROWS,), device=DEVICE)
    order = torch.randperm(ROWS, device=DEVICE)
    trained = []
    for path in ("fused", "kernels"):
        torch.manual_seed(1)
        network = bf.networks.mlp(FEATURES, CLASSES, units=(21, 5))
        method = bf.Variational(network, "categorical", prior=prior, seed=2**63 + 5, rho=-2.0).to(DEVICE)
        method.train()
        made = method.make_optimizer(optimizer, 0.01)
        if path == "fused":
            step = FusedStep(method, update_rule(made), draws)
            for number, rows in enumerate(order.split(16)):
                step([(x[rows], y[rows])], number, 0.5, 0.01)
        else:
            step = SingleStep(method, made, draws)
            steps = StagedSteps(step, step.stages, TensorExamples(x, y), 16)
            steps.begin(order.view(1, -1), [step.numbers(0.5, 0.01, ahead) for ahead in range(2)], 0, 0)
            for size in (16, 8):
                step.stages._compiled[shape_of([x[:size], y[:size]])] = stages_by_kernels(step)
                steps._check(size)
                steps._by_kernels.add(size)
                steps._step(size)
        trained.append(list(method.parameters()))
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_network_that_has_diverged_does_not_fail_the_check_of_the_others(launches):
    step = make(NORMAL, "sgd", 1, 2)
    x, y = torch.randn(ROWS, FEATURES, device=DEVICE), torch.randint(0, CLASSES, (ROWS,), device=DEVICE)
    steps = StagedSteps(step, step.stages, TensorExamples(x, y), ROWS)
    steps.begin(torch.arange(ROWS, device=DEVICE).view(1, -1), [[(0.1, 0.01)] * 2], 0, 0)
    step.stages._compiled[shape_of([x, y])] = stages_by_kernels(step)
    step.state[0][1, 3] = torch.nan
    steps._check(ROWS)


def test_what_the_kernels_do_not_do_is_left_to_the_compiler(launches):
    assert not launches.suits(make("student-t:3,1", "adam", 1, 1).stages)
    assert not launches.suits(make(NORMAL, "sgd:momentum=0.9", 1, 1).stages)
