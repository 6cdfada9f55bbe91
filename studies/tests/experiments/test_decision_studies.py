"""Experiments on series, changed inputs, jackknife+ and recalibrated numbers: their parts by hand, and their pages."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bayesify_studies.experiments import input_shift, jackknife, recalibrated_numbers, shift_streams, time_series
from bayesify_studies.experiments.framework import small_tables
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.framework.verdicts import LONGEST, verdict
from bayesify_studies.experiments.likelihoods import problems

pytestmark = pytest.mark.filterwarnings("ignore::bayesify.errors.BayesifyWarning")
TINY = {"seeds": 2, "epochs": 3, "units": 4, "scored": 60}


@pytest.fixture(autouse=True)
def small_tables_of_our_own(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 8, generator=generator, dtype=torch.float64)
    y = x[:, 0] + 0.1 * torch.randn(400, generator=generator, dtype=torch.float64)
    monkeypatch.setattr(problems, "_READ", {name: lambda: (x, y) for name in problems._READ})


def made(experiment, folder, **settings):
    found = reproduce(replace(experiment, quick=dict(experiment.quick) | settings), folder, progress=False)
    assert len(verdict(found).split()) <= LONGEST
    return found


def part(folder, name):
    return json.loads((folder / "parts" / f"{name}.json").read_text())


def test_the_page_on_jackknife_has_the_numbers_of_its_parts(tmp_path):
    found = made(jackknife.EXPERIMENT, tmp_path / "e", **TINY, rows=80, members=8)
    own = [part(tmp_path / "e", f"power-{seed}") for seed in (0, 1)]
    told = found["numbers"]["coverage"]["power"]["jackknife+"]["values"]
    assert told == [one["jackknife+"]["coverage"] for one in own]
    less = found["numbers"]["width_less_split"]["power"]["values"]
    assert less == pytest.approx([one["jackknife+"]["width"] - one["split"]["width"] for one in own])


def test_the_page_on_recalibrated_numbers_has_the_changes_of_its_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(recalibrated_numbers, "TABLES", ("power",))
    found = made(recalibrated_numbers.EXPERIMENT, tmp_path / "e", **TINY, rows=60, held=100, draws=4)
    own = [part(tmp_path / "e", f"power-variational-{seed}") for seed in (0, 1)]
    change = found["numbers"]["change"]["variance"]["power variational"]["nll"]["values"]
    assert change == pytest.approx([one["variance"]["nll"] - one["none"]["nll"] for one in own])
    assert all(one["none"]["off"] == pytest.approx(abs(one["none"]["coverage"] - 0.9)) for one in own)


def test_the_page_on_series_counts_the_series_within_the_bound(tmp_path):
    found = made(time_series.EXPERIMENT, tmp_path / "e", **TINY, most=300, window=40)
    own = [
        part(tmp_path / "e", f"{name}-{series}-{seed}")
        for name in time_series.ORDERED
        for series in time_series.SERIES
        for seed in (0, 1)
    ]
    within = sum(abs(0.9 - one["adaptive"]["coverage"]) <= one["bound"] for one in own)
    assert found["numbers"]["within_bound"] == within == len(own)


def test_a_series_that_changes_begins_where_its_training_rows_end():
    x = torch.rand(90, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = torch.arange(90.0, dtype=torch.float64)
    training, held, later = time_series.parts_of(x, y, 3, "changing", 5, {"most": 90})
    assert (len(training[1]), len(held[1]), len(later[1])) == (20, 10, 60)
    assert max(training[0][:, 3].max(), held[0][:, 3].max()) <= later[0][0, 3]
    assert (later[0][:, 3].diff() >= 0).all()
    assert len({*training[1].tolist(), *held[1].tolist(), *later[1].tolist()}) == 90
    assert (time_series.parts_of(x, y, 3, "unchanged", 5, {"most": 90})[2][0][:, 3].diff() < 0).any()


def test_windows_are_shares_of_hits_in_a_row():
    inside = torch.tensor([True, False, True, True])
    assert time_series._windows(inside, 2).tolist() == [0.5, 0.5, 1.0]


def test_parts_are_in_units_of_the_training_rows():
    x, y = small_tables.shuffled("power", 0)
    training, other = small_tables.standardised((x[:50], y[:50]), (x[50:], y[50:]))
    assert float(training[0].mean()) == pytest.approx(0, abs=1e-6)
    assert float(training[1].std()) == pytest.approx(1, abs=1e-5)
    assert other[1].tolist() == pytest.approx(((y[50:] - y[:50].mean()) / y[:50].std()).tolist(), abs=1e-5)


@pytest.fixture
def streams(monkeypatch):
    """Scores of our own: known ones are standard normal, changed ones are moved by two."""
    random = np.random.default_rng(0)
    known = {name: random.normal(size=900) for name in ("certainty", "level")}
    moved = {name: random.normal(2, 1, 300) for name in known}
    monkeypatch.setattr(input_shift, "scores_of", lambda *_: (known, {"hot": moved, "few": known}))
    return {"calibration": 200, "before": [100], "after": 300, "length": 150, "streams": 25, "resamplings": 4}


def test_changes_are_seen_and_unchanged_streams_rarely_alarm(tmp_path, streams):
    found = made(input_shift.EXPERIMENT, tmp_path / "e", **streams, problems=["power"])
    own = part(tmp_path / "e", "power")
    assert found["numbers"]["false_alarms"]["power"]["counts"]["0.1"] == sum(one >= 10 for one in own["highest"])
    delays = found["numbers"]["delays"]["power hot 1 100"]
    assert all(0 < delay < 60 for delay in delays)
    # A share of a fifth takes longer, and what did not change is not seen (false alarms: 1% each).
    assert all(one is None or one > max(delays) for one in found["numbers"]["delays"]["power hot 0.2 100"])
    assert found["numbers"]["delays"]["power few 1 100"].count(None) >= 3


def test_a_change_that_is_not_seen_counts_as_the_longest_delay():
    assert input_shift._middle([5, None, None]) == float("inf")
    assert input_shift._middle([5, 7, None]) == 7
    assert input_shift._seen([5, None, -1]) == [5]


def test_the_power_plant_changes_to_its_hot_hours():
    known, changed = shift_streams.scores_of("power", {"units": 4, "epochs": 1, "draws": 3})
    assert set(known) == set(changed["hot"]) == {"certainty", "level", "contrast"}
    assert len(changed["hot"]["level"]) <= len(known["level"]) / 2
