"""One, two and four processes train the same network: the weights agree after 50 steps."""

from pathlib import Path

import pytest
import torch
from together import run_cases, why_not

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

METHODS = (
    "point",
    "mc_dropout",
    "weight_estimator",
    "local",
    "flipout",
    "low_rank",
    "ivon",
    "swag",
    "sgld",
    "sghmc",
    "laplace",
)
OTHERS = (
    "full_rank",
    "mixture_prior",
    "sghmc_found_step",
    "sgld_whole_data",
    "laplace_kronecker",
    "laplace_without_training",
    "ensemble",
    "batch_norm",
    "batch_norm_few_examples",
    "swag_batch_norm",
    "convolutions",
    "batch_not_in_front",
    "gaussian_logits",
    "clipped",
    "accumulated",
    "bfloat16",
    "averaged",
    "validated",
    "dataset",
    "loader",
    "augmented",
    "other_starts",
)
# The sums of a part are rounded to 8 bits there.
LOOSE = {"bfloat16": 1e-2}
# Eigenvectors of a matrix change much where it changes little; `test_laplace` compares what is made of them.
NOT_COMPARED = ("input_vectors", "output_vectors")


def difference(one, other):
    """The largest relative difference of the tensors of two processes, and the name of the tensor."""
    assert one.keys() == other.keys()
    compared = [name for name in one if not any(part in name for part in NOT_COMPARED)]
    return max(
        (float((one[name].double() - other[name].double()).norm() / (one[name].double().norm() + 1e-30)), name)
        for name in compared
    )


@pytest.fixture(scope="module")
def methods(tmp_path_factory):
    return run_cases(HERE / "training_cases.py", tmp_path_factory.mktemp("methods"), (1, 2, 4), METHODS)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    # Three processes: no batch of 24, 22 or 2 examples has three equal parts but the first.
    return run_cases(HERE / "training_cases.py", tmp_path_factory.mktemp("others"), (1, 3), OTHERS)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("size", [2, 4])
def test_every_method_has_the_weights_of_one_process(methods, name, size):
    (alone,) = methods[1]
    for process in methods[size]:
        assert not isinstance(process[name], str), process[name]
        assert difference(alone[name], process[name])[0] < 1e-5


@pytest.mark.parametrize("name", OTHERS)
def test_every_setting_has_the_weights_of_one_process(others, name):
    (alone,) = others[1]
    for process in others[3]:
        assert not isinstance(process[name], str), process[name]
        assert difference(alone[name], process[name])[0] < LOOSE.get(name, 1e-5)


def test_the_processes_have_the_same_bits(methods, others):
    for results in (methods[4], others[3]):
        first, *rest = results
        for process in rest:
            for case, tensors in process.items():
                for name, tensor in tensors.items():
                    assert torch.equal(tensor, first[case][name]), (case, name)
