"""Compiled stages and kernels are used only where they agree with the plain stages."""

from contextlib import contextmanager

import pytest
import torch

import bayesify as bf
from bayesify.fleets import Fleet
from bayesify.training.engines import staged_step as staged
from bayesify.training.engines.stacked_step import StackedStep
from bayesify.training.optimisation import make_optimizer


def make():
    torch.manual_seed(0)
    fleet = Fleet([bf.Variational(bf.networks.mlp(3, 2, units=8), "categorical", seed=seed) for seed in (0, 1)])
    step = StackedStep(fleet, make_optimizer("sgd", fleet.parameters, 1.0), 1)
    step.method.train()
    return step, [torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])]


def wrong(stages):
    return stages._plain._replace(gradients=lambda *given: [2 * one for one in stages._gradients(*given)])


@pytest.mark.parametrize("problem", ["raises", "differs", "none"])
def test_kernels_that_fail_or_differ_leave_the_step_to_the_compiler(problem, monkeypatch, caplog):
    step, leaves = make()
    stages = step.stages

    def compile_stages(by_kernels, *_):
        if not by_kernels:
            return stages._plain
        if problem == "raises":
            raise RuntimeError("out of resources\nand more")
        return (wrong(stages) if problem == "differs" else stages._plain)._replace(by_kernels=True)

    monkeypatch.setattr(stages, "has_kernels", lambda: True)
    monkeypatch.setattr(stages, "_compile", compile_stages)
    before = [tensor.clone() for tensor in step.state]
    step.compile([tuple(leaves)])
    assert stages.by_kernels(leaves) == (problem == "none")
    assert len(caplog.messages) == (problem != "none")
    assert all(torch.equal(one, other) for one, other in zip(step.state, before, strict=True))
    monkeypatch.setattr(stages, "_compile", None)  # what was made for a shape is not made again
    step.compile([tuple(leaves)])


def test_stages_of_the_compiler_that_differ_are_refused(monkeypatch):
    step, leaves = make()
    monkeypatch.setattr(step.stages, "_compile", lambda *_: wrong(step.stages))
    with pytest.raises(ValueError, match="differs"):
        step.compile([tuple(leaves)])


def test_networks_that_have_diverged_are_left_out_of_the_comparison():
    before = [torch.zeros(2), torch.zeros(2, 3)]
    expected = [torch.tensor([1.0, torch.nan]), torch.tensor([[1.0, 2.0, 3.0], [torch.inf, 2.0, 3.0]])]
    found = [tensor.clone() for tensor in expected]
    found[1][1] = 7.0
    staged.check_finite(expected, found, before)
    found[1][0, 0] = 2.0
    with pytest.raises(ValueError, match="differs"):
        staged.check_finite(expected, found, before)


def test_kernels_are_launched_on_the_device_of_the_fleet(monkeypatch):
    step, leaves = make()
    entered, compiled_in = [], []

    @contextmanager
    def on(tensor):
        entered.append(tensor)
        yield
        entered.pop()

    monkeypatch.setattr(torch.cuda, "device_of", on)
    monkeypatch.setattr(step.stages, "compile", lambda *_, **__: compiled_in.extend(entered))
    step.compile([tuple(leaves)])
    assert [tensor is step.state[0] for tensor in compiled_in] == [True]
