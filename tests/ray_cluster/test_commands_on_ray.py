"""Comparisons, cross-validation, slices and experiments on Ray: the numbers of one process, through the command line."""

import json
from dataclasses import replace

import pytest

from bayesify.cli import main
from bayesify.jobs import make_engine
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.regression_bands import EXPERIMENT

SMALL = ("--data", "moons", "--units", "4", "--epochs", "2")
COMPARISON = ("compare", *SMALL, "--methods", "point,variational", "--draws", "5")
ON_RAY, ALONE = ("--engine", "ray"), ("--threads", "1")
# What depends on the time that something took, or on where.
TIMED = {"seconds", "cost", "machine", "machines"}


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(part) for name, part in value.items() if name not in TIMED}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def read(path):
    return without_times(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("repeated", [("--seeds", "2"), ("--folds", "2")])
def test_comparisons_on_ray_have_the_scores_of_one_process(cluster, repeated, tmp_path):
    for name, where in (("ray", ON_RAY), ("alone", ALONE)):
        assert main([*COMPARISON, *repeated, *where, "--out", str(tmp_path / name)]) == 0
    on_ray, alone = (read(tmp_path / name / "comparison.json") for name in ("ray", "alone"))
    assert on_ray["rows"] == alone["rows"]
    assert len({row["nll"] for row in on_ray["rows"]}) == 2
    assert not (tmp_path / "ray" / "parts").exists()


@pytest.mark.parametrize(
    "settings",
    [
        ("--method", "ensemble", "--members", "3", *SMALL),
        ("--method", "hmc", "--chains", "2", "--warm-up", "20", "--samples", "10", "--data", "moons", "--units", "2"),
    ],
)
def test_slices_trained_on_ray_have_the_bits_of_one_process(cluster, settings, tmp_path):
    for name, where in (("ray", ON_RAY), ("alone", ALONE)):
        assert main(["train", *settings, "--slices", "2", *where, "--out", str(tmp_path / name)]) == 0
    on_ray, alone = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("ray", "alone"))
    assert on_ray == alone


def test_the_parts_of_an_experiment_on_ray_have_the_numbers_of_one_process(cluster, tmp_path):
    tiny = replace(
        EXPERIMENT,
        quick=EXPERIMENT.quick
        | {"seeds": 1, "epochs": 3, "units": 4, "hmc": {"chains": 2, "warm_up": 20, "samples": 10}},
    )
    for name, engine in (("ray", make_engine("ray")), ("alone", make_engine(threads=1))):
        reproduce(tiny, tmp_path / name, engine=engine, progress=False)
    parts = sorted(path.name for path in (tmp_path / "ray" / "parts").iterdir())
    assert len(parts) > 2
    for part in parts:
        assert read(tmp_path / "ray" / "parts" / part) == read(tmp_path / "alone" / "parts" / part)
