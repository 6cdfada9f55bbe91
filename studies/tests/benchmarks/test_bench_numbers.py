"""Medians, quartiles, ratios, slopes, floors and verdicts from given timings: arithmetic, never a clock."""

import importlib.util
import itertools
import math
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bayesify_studies.benchmarks import epochs, fleet, floor, goals, machine, memory, scaling, timing

SPEED = Path(__file__).parents[2] / "scripts" / "speed.py"
POSITIVE = st.floats(0.01, 1e3)


@given(st.lists(POSITIVE, min_size=1, max_size=20))
def test_spread_is_numpys_median_and_quartiles(values):
    found = timing.spread(values)
    assert found["median"] == pytest.approx(np.median(values))
    assert found["quartiles"] == pytest.approx(list(np.quantile(values, [0.25, 0.75])))


def test_a_ratio_is_of_medians_and_its_quartiles_are_of_rounds():
    # A machine that slows down threefold in the last round moves both: each round's ratio is still two.
    found = timing.ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert found == {"ratio": 2.0, "quartiles": [2.0, 2.0]}
    found = timing.ratio([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0])
    assert found["ratio"] == 2.5
    assert found["quartiles"] == [1.75, 3.25]


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=8, unique_by=lambda pair: pair[0]))
def test_the_slope_is_scipys_on_logarithms(points):
    x, y = zip(*points, strict=True)
    if max(x) / min(x) < 1.01:
        return
    expected = stats.linregress(np.log(x), np.log(y)).slope
    assert timing.slope(x, y) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_a_power_law_has_its_exponent_as_slope():
    assert timing.slope([1, 2, 4, 8], [3 * size**0.7 for size in (1, 2, 4, 8)]) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="at least two different sizes, got \\[3\\]"):
        timing.slope([3, 3], [1, 2])


def test_a_curve_is_linear_or_better_up_to_five_hundredths():
    sizes = (1, 2, 4, 8)
    for exponent, verdict in ((0.8, True), (1.04, True), (1.06, False)):
        found = scaling.curve(sizes, [[size**exponent] * 3 for size in sizes])
        assert found["slope"] == pytest.approx(exponent)
        assert found["linear_or_better"] is verdict
    bent = scaling.curve((1, 2, 4), [[1.0], [1.0], [4.0]])
    assert bent["steepest"] == pytest.approx(2.0)
    assert bent["slope"] == pytest.approx(1.0)


def test_candidates_take_turns_and_the_first_calls_do_not_count():
    calls = []
    candidates = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    timings = timing.take_turns(candidates, rounds=3, steps=2)
    assert {name: len(values) for name, values in timings.items()} == {"a": 3, "b": 3}
    assert "".join(calls) == "aabb" * 4
    with pytest.raises(ValueError, match="rounds must be an integer of at least 1, got 0"):
        timing.take_turns(candidates, rounds=0)


def test_a_turn_is_filled_but_never_with_too_many_calls():
    assert timing.calls_for(1e3 * timing.SECONDS_PER_TURN) == 1
    assert timing.calls_for(100 * timing.SECONDS_PER_TURN) == 10
    assert timing.calls_for(0.0) == 200


# The floor, by hand for 3-2-1: weights 3*2 + 2*1 = 8, with biases 11; first matrix 6.


def test_bytes_and_products_of_a_plain_step_by_hand():
    passes = floor.plain_passes((3, 2, 1), batch=5)
    assert floor.weights_of((3, 2, 1)) == 11
    # Forwards 11 numbers are read, backwards the 5 beyond the first matrix, and 11 gradients are written.
    assert passes["network"]["bytes"] == 4 * (11 + 5 + 11)
    # First layer: forwards and the weights' gradient, 6 multiply-adds each and example; second: three products of 2.
    assert passes["network"]["products"] == 5 * 2 * (2 * 6 + 3 * 2)
    # Gradient, weight and two moments are read; the last three are written.
    assert passes["update"]["bytes"] == 4 * 11 * (4 + 3)


def test_bytes_of_a_bayesian_step_by_hand():
    one, three = (floor.bayesian_passes((3, 2, 1), batch=5, draws=draws) for draws in (1, 3))
    assert one["sample"]["bytes"] == 4 * 11 * 3  # mu and rho read, theta written
    assert three["sample"]["bytes"] == 4 * 11 * 5
    assert one["update"]["bytes"] == 4 * 11 * (7 + 6)  # g, mu, rho and four moments read; all but g written
    assert three["update"]["bytes"] == 4 * 11 * (9 + 6)
    plain = floor.plain_passes((3, 2, 1), batch=5)["network"]
    assert three["network"] == {name: 3 * value for name, value in plain.items()}


def test_the_network_of_study_b_moves_what_its_formula_says():
    widths = (784, 400, 400, 10)
    size = 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10
    assert floor.weights_of(widths) == size == 478_410
    total = sum(need["bytes"] for need in floor.bayesian_passes(widths, 128).values())
    assert total == 4 * (19 * size - 784 * 400)


def test_more_noise_and_a_prior_without_closed_form_cost_more_operations():
    def operations(**settings):
        return sum(need["operations"] for need in floor.bayesian_passes((3, 2, 1), 5, **settings).values()) / 11

    normal, mixture = operations(prior="normal"), operations(prior="mixture")
    assert mixture - normal == floor.OPERATIONS["mixture"] - floor.OPERATIONS["normal"]
    # A second draw adds its noise twice, the draw itself, its share of the two gradients, and no KL in closed form.
    assert operations(prior="normal", draws=2) - normal == 2 * floor.OPERATIONS["noise"] + floor.OPERATIONS["draw"] + 2


def test_a_pass_takes_as_long_as_what_it_needs_most():
    rates = {"bandwidth": 10.0, "matrix": 100.0, "vector": 50.0}
    need = {"bytes": 20.0, "products": 100.0, "operations": 500.0}
    assert floor.seconds(need, rates) == 10.0
    assert floor.seconds(need, rates | {"vector": None}) == 2.0
    passes = {"one": need, "two": {"bytes": 10.0, "products": 0.0, "operations": 0.0}}
    found = floor.distance(passes, rates, [22_000.0, 33_000.0, 44_000.0])
    assert found["floor_ms"] == 11_000.0
    assert found["times_the_floor"] == 3.0
    assert found["measured_ms_quartiles"] == [27_500.0, 38_500.0]


def test_epochs_that_were_not_run_cost_what_the_later_ones_did():
    # 10 s to compile in the first epoch, 1 s each, 0.5 s between epochs: 4 epochs in 16 s.
    assert epochs.extended(16.0, [11.0, 1.0, 1.0, 1.0], 4) == 16.0
    assert epochs.extended(16.0, [11.0, 1.0, 1.0, 1.0], 600) == pytest.approx(16.0 + 596 * 1.5)


def test_a_grid_is_the_sum_of_its_fleets():
    # 50,000 images in batches of 128 are 391 steps; 600 epochs of 1 ms and of 2 ms.
    assert fleet.minutes_of_a_grid([1.0, 2.0], 128) == pytest.approx(3e-3 * 391 * 600 / 60)


def test_tensors_that_share_memory_are_counted_once():
    whole = torch.zeros(10)
    views = [(("cpu", t.untyped_storage().data_ptr()), t) for t in (whole, whole[:3], whole.view(2, 5))]
    assert memory.bytes_of(views) == 40
    assert memory.highest([8, 8, -8, 4, -12, 10]) == 16


def test_memory_of_a_known_training():
    """A step that holds a weight, its gradient and one more number, and adds two at its peak."""
    size = 1 << 18

    def make():
        weight = torch.zeros(size, requires_grad=True)
        held = torch.zeros(size)

        def step():
            weight.grad = None
            extra = torch.ones(size) + 1.0
            weight.grad = extra * held
            del extra

        return step

    found = memory.tensors_of_training(make)
    assert found["held"] == 4 * 3 * size
    # Without the old gradient two are there; ones and their sum, then the sum and the new gradient, are two more.
    assert found["peak"] == pytest.approx(4 * 4 * size, rel=0.01)


def test_the_peak_of_a_gpu_has_the_gradients_in_it(monkeypatch):
    """Its allocator counts from a moment at which the old gradients are there: they are not to be left out twice."""
    size = 1 << 18
    # A weight, its gradient and one more number before the step; four at its peak, once the old gradient is gone.
    told = {"memory_allocated": 4 * 3 * size, "max_memory_allocated": 4 * 4 * size}
    for name in ("synchronize", "reset_peak_memory_stats", *told):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: told.get(name))

    def make():
        weight, held = torch.zeros(size, requires_grad=True), torch.zeros(size)

        def step():
            weight.grad = None
            weight.grad = (torch.ones(size) + 1.0) * held

        return step

    found = memory.tensors_of_training(make, "cuda")
    assert found == {"held": 4 * 3 * size, "peak": 4 * 4 * size}


def test_memory_of_plain_training_is_four_numbers_a_weight():
    found = memory.measure(units=100, batch_size=2, prior="normal:1", compiled=False)
    assert found["plain_numbers_per_weight"] == pytest.approx(4, rel=0.01)
    # A mean, a width, a gradient and two moments of each (the gradients stay until the next step), and the start.
    assert 6 <= found["variational_numbers_per_weight"] <= 10
    assert found["ratio"] == pytest.approx(found["variational_held_bytes"] / found["plain_held_bytes"])
    assert found["variational_peak_bytes"] >= found["variational_held_bytes"] * 0.7


def test_goals_are_reached_missed_or_not_measured():
    goal = goals.Goal("a step", 1.5, "cpu", "step/x")
    measured = {"cpu": {"parts": {"step/x": {"ratio": 1.8, "ratio_quartiles": [1.7, 1.9]}}}}
    (missed,) = goals.judge(measured, (goal,))
    assert (missed.value, missed.quartiles, missed.reached) == (1.8, (1.7, 1.9), False)
    assert missed.words == "missed by 20%"
    measured["cpu"]["parts"]["step/x"]["ratio"] = 1.5
    assert goals.judge(measured, (goal,))[0].words == "reached"
    assert goals.judge({}, (goal,))[0].words == "not measured"
    measured["cpu"]["parts"]["step/x"] = {"failed": "no compiler"}
    assert goals.judge(measured, (goal,))[0].reached is None


def test_every_goal_looks_where_something_is_measured():
    spec = importlib.util.spec_from_file_location("speed", SPEED)
    speed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(speed)
    for goal in goals.GOALS:
        assert goal.part in speed.parts(goal.device), goal
    assert len({(goal.what, goal.device) for goal in goals.GOALS}) == len(goals.GOALS)


def test_a_machine_is_described_without_saying_whose_it_is(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nmodel name : Some Chip 9000\nmodel name : Other\n")
    found = machine.describe("cpu", file)
    assert found["processor"] == "Some Chip 9000"
    assert found["threads"] == torch.get_num_threads()
    assert platform.node() not in str(found)
    assert machine.processor(tmp_path / "absent")
    with pytest.raises(ValueError, match="unknown device 'cdua'; did you mean 'cuda'"):
        machine.usable("cdua")


def test_small_measurements_hang_together():
    found = scaling.measure(over=["prediction"], sizes=[2, 4], rounds=2)["curves"]["prediction"]
    assert found["x"] == [2, 4]
    assert found["slope"] == pytest.approx(math.log2(found["ms"][1] / found["ms"][0]))
    together = fleet.ensemble(units=8, batch_size=4, members=2, rounds=2, compiled=False)
    assert together["ratio"] == pytest.approx(together["fleet_ms"] / together["separate_ms"])
    limit = floor.measure(units=8, batch_size=4, rounds=1, compiled=False)
    for who in ("plain", "variational"):
        each = [need["floor_ms"] for need in limit[who]["passes"].values()]
        assert limit[who]["floor_ms"] == pytest.approx(sum(each))
    assert all(a > 0 for a in itertools.chain([limit["floor_ratio"]], (v for v in limit["rates"].values() if v)))
    whole = epochs.measure(units=8, batch_size=16, epochs=3, n_data=64, compiled=False)
    assert whole["seconds_of_600_epochs"] > whole["seconds"]
    with pytest.raises(ValueError, match="unknown curve 'drws'; did you mean 'draws'"):
        scaling.measure(over=["drws"])
    with pytest.raises(ValueError, match="at least two sizes, got \\[4\\]"):
        scaling.measure(over=["draws"], sizes=[4])
    with pytest.raises(ValueError, match="members must be an integer of at least 1, got 0"):
        fleet.ensemble(members=0)
