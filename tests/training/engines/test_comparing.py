"""A compiled step is accepted where it rounds otherwise, and refused where it computes something else."""

import logging

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.training.engines import fused
from bayesify.training.engines.comparing import check_same, unchanged
from bayesify.training.engines.fused import fused_step


def deep():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())]
    method = bf.Variational(nn.Sequential(*layers, nn.Linear(16, 3)), "categorical", prior="normal:1")
    method.network.training_precision = "bfloat16"
    return method


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(64, 16, generator=generator), torch.randint(0, 3, (64,), generator=generator)


def accepted(method, change, monkeypatch, optimizer="adam"):
    monkeypatch.setattr(fused, "compile_function", lambda function, _: change(function))
    return fused_step(method, method.make_optimizer(optimizer, 1e-3), 1, [batch()]) is not None


@pytest.mark.parametrize("optimizer", ["adam", "sgd:momentum=0.9"])
def test_a_step_that_rounds_in_other_places_is_accepted_in_bfloat16(optimizer, monkeypatch):
    method = deep()

    def rounded_elsewhere(function):
        def run(*tensors):
            # As if a compiler had kept all digits between operations, which it does inside a kernel.
            method.network.training_precision = "full"
            try:
                return function(*tensors)
            finally:
                method.network.training_precision = "bfloat16"

        return run

    assert accepted(method, rounded_elsewhere, monkeypatch, optimizer)


def other_labels(*tensors):
    return (*tensors[:-1], tensors[-1].roll(1))


def other_noise(*tensors):
    # The state, the step number, its numbers, x and y.
    return (*tensors[:-4], tensors[-4] + 1, *tensors[-3:])


@pytest.mark.parametrize("wrong", [other_labels, other_noise])
@pytest.mark.parametrize("optimizer", ["adam", "sgd:momentum=0.9"])
def test_a_step_on_other_labels_or_other_noise_is_refused_in_bfloat16(wrong, optimizer, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING, "bayesify"):
        assert not accepted(
            deep(), lambda function: lambda *tensors: function(*wrong(*tensors)), monkeypatch, optimizer
        )
    assert "differs from the plain one in" in caplog.text


def test_the_error_names_the_tensor_and_how_far_it_is_off():
    old, plain, compiled = torch.zeros(4), torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 3.0])
    with pytest.raises(ValueError, match="differs from the plain one in mu by 100%"):
        check_same([plain], [compiled], [old], names=["mu"])
    with pytest.raises(ValueError, match="differs"):
        check_same([plain], [torch.full((4,), torch.nan)], [old])
    check_same([plain], [plain + 0.01], [old])


def test_tensors_are_as_before_after_a_trial_that_fails():
    tensor = torch.ones(3)

    def trial():
        with unchanged([tensor]):
            tensor.mul_(2)
            raise RuntimeError("trial")

    with pytest.raises(RuntimeError, match="trial"):
        trial()
    assert torch.equal(tensor, torch.ones(3))


def test_a_change_of_signs_may_differ_by_more_where_the_moments_agree():
    before, right = torch.zeros(100), torch.ones(100)
    other = right.clone()
    other[0] = -1.0  # a gradient near zero with another sign: the update is off by a fifth of its length
    check_same([right], [other], [before], names=["mu"], rounded=["mu"])
    with pytest.raises(ValueError, match="in mu by 20%"):
        check_same([right], [other], [before], names=["mu"])
    other[1] = -1.0
    with pytest.raises(ValueError, match="in mu by 28%"):
        check_same([right], [other], [before], names=["mu"], rounded=["mu"])
