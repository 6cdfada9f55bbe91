"""Processes that draw their own weights: the KL counts once, and IVON's curvature is that of one process."""

from pathlib import Path

import pytest
import torch
from together import run_cases, why_not

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
REFUSED = {
    "refused_for_point": "point draws no weights in a step",
    "refused_mode": "unknown distributed 'mine'",
    "refused_bound": "is not a sum over examples",
    "refused_data": "different training data",
    "refused_settings": "different settings",
    "refused_loader": "read different batches from their loaders",
}
CASES = (
    *("variational_on_copies", "ivon_on_copies", "ivon_curvature", "variational_width"),
    *("predicted", "evaluated", "apart", "hmc"),
    *REFUSED,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_cases(HERE / "own_draws_cases.py", tmp_path_factory.mktemp("own"), (1, 4), CASES)


def close(one, other, tolerance=1e-5):
    return all(
        float((one[name].double() - other[name].double()).norm()) <= tolerance * float(one[name].double().norm())
        for name in one
    )


@pytest.mark.parametrize("case", ["variational_on_copies", "ivon_on_copies"])
def test_four_processes_with_a_draw_each_are_one_process_with_four_draws(results, case):
    # All parts of a batch are the same, so nothing but the draws differs between the processes.
    (alone,) = results[1]
    for process in results[4]:
        assert close(alone[case], process[case])


def test_the_curvature_of_ivon_does_not_shrink_with_the_number_of_processes(results):
    # Averaging gradients before they meet the noise would give 2 / 4. The estimate averages over some 300 steps of four
    # draws, each with a standard deviation of 2 sqrt(2) around 2: an error of 0.08, of which four are allowed.
    for size in (1, 4):
        for process in results[size]:
            assert float(process["ivon_curvature"]["hessian"]) == pytest.approx(2.0, abs=0.33 if size == 4 else 0.66)


def test_the_kl_counts_once(results):
    # The exact posterior has precision 1 + 16. A KL that counts four times would give 4 + 16: the mean would be 15%
    # smaller, and the width 8%.
    for process in results[4]:
        found = process["variational_width"]
        assert float(found["mean"]) == pytest.approx(float(found["exact mean"]), rel=0.05)
        assert float(found["std"]) == pytest.approx(float(found["exact std"]), rel=0.04)


def test_predictions_and_scores_are_those_of_one_process(results):
    (alone,) = results[1]
    for process in results[4]:
        for name in ("draws", "moments", "few", "alone"):
            assert torch.allclose(alone["predicted"][name], process["predicted"][name], atol=1e-6)
        assert close(alone["evaluated"], process["evaluated"], 1e-6)
        # Each asked about other inputs, and got the predictions for them.
        assert float(process["predicted"]["own inputs"].abs().max()) < 1e-6


def test_processes_that_opt_out_have_nothing_to_do_with_each_other(results):
    weights = [process["apart"]["mu"] for process in results[4]]
    assert all(not torch.allclose(weights[0], other) for other in weights[1:])
    assert torch.equal(weights[0], results[1][0]["apart"]["mu"])


def test_chains_over_processes_have_the_draws_of_one_process(results):
    (alone,) = results[1]
    for process in results[4]:
        assert close(alone["hmc"], process["hmc"], 1e-6)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused_in_every_process(results, case):
    for process in results[4]:
        assert isinstance(process[case], str)
        assert REFUSED[case] in process[case]
