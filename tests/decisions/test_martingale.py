"""The watch over inputs gives false alarms no more often than promised, and sees changes soon."""

import json

import numpy as np
import pytest
from scipy import stats

import bayesify as bf
from bayesify.decisions.martingale import Reference, ShiftMonitor


def watched(generator, count, change=0.0, spread=1.0):
    """Scores of inputs; certainties have many ties, as confidences near 1 have."""
    return {
        "certainty": np.minimum(generator.normal(0.8 - change, 0.2 * spread, count), 1.0),
        "level": generator.normal(0, spread, count),
    }


def monitors(repeats, calibration=300, **options):
    for seed in range(repeats):
        generator = np.random.default_rng(seed)
        yield ShiftMonitor(Reference.of(watched(generator, calibration)), seed=seed, **options), generator


def test_false_alarms_are_as_rare_as_promised():
    alarms, repeats = 0, 60
    for monitor, generator in monitors(repeats, risk=0.1):
        monitor.add(watched(generator, 600))
        alarms += monitor.lapsed
    assert alarms <= stats.binom.ppf(0.999, repeats, 0.1)


def test_the_capital_is_a_martingale():
    """Its mean stays 1: after a few inputs, where its variance is small."""
    capitals = []
    for monitor, generator in monitors(400):
        monitor.add(watched(generator, 20))
        capitals.append(monitor.evidence)
    assert abs(np.mean(capitals) - 1) < 4 * np.std(capitals) / np.sqrt(len(capitals))
    assert np.std(capitals) > 0.05


def test_p_values_are_uniform_and_independent():
    monitor, generator = next(monitors(1, calibration=50))
    counts = monitor._counts["level"]
    scores = watched(generator, 3000)["level"]
    places = np.searchsorted(monitor._edges["level"], scores, side="right")
    p = [monitor._p_value(counts, int(place)) for place in places]
    assert stats.kstest(p, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(p[:-1], p[1:])[0, 1]) < 4 / np.sqrt(len(p))


def test_a_change_of_the_inputs_is_seen_soon():
    for options in ({"change": 0.2}, {"spread": 2.0}):
        delays = []
        for monitor, generator in monitors(10):
            monitor.add(watched(generator, 300))
            assert not monitor.lapsed
            monitor.add(watched(generator, 1000, **options))
            assert monitor.lapsed
            delays.append(monitor.lapsed_at - 300)
        assert np.median(delays) < 250


def test_a_change_is_seen_as_soon_after_many_unchanged_inputs():
    """Capital that only shrinks while nothing changes would need 600 inputs here, and later would be gone."""
    delays = []
    for monitor, generator in monitors(3, calibration=1000):
        monitor.add(watched(generator, 30_000))
        assert monitor.evidence > 0.05
        monitor.add(watched(generator, 1000, change=0.2))
        assert monitor.lapsed
        delays.append(monitor.lapsed_at - 30_000)
    assert np.median(delays) < 150


def test_a_reference_survives_json():
    reference = Reference.of(watched(np.random.default_rng(0), 200))
    assert Reference.from_dict(reference.to_dict()) == reference
    assert sum(reference.counts["certainty"]) == 200


@pytest.mark.parametrize(
    ("what", "value"),
    [("counts", 1 << 63), ("counts", 10**400), ("counts", -1), ("counts", None), ("edges", 10**400), ("edges", "x")],
)
def test_a_reference_of_a_stranger_with_impossible_numbers_is_refused(what, value):
    plain = json.loads(json.dumps(Reference.of({"certainty": np.linspace(0, 1, 200)}).to_dict()))
    plain[what]["certainty"][3] = value
    with pytest.raises(bf.RunError, match="the saved reference of inputs cannot be read"):
        Reference.from_dict(plain)
