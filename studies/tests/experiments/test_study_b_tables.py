"""Study B's tables: choices on validation, every seed refitted and tested once, differences that images and seeds show."""

import json
from copy import deepcopy

import pytest
import torch

from bayesify.errors import TrainingError
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.mnist_table import PUBLISHED, as_the_study, ours, run
from bayesify_studies.experiments.study_b import page as study_b_page
from bayesify_studies.experiments.study_b import tables, training
from bayesify_studies.experiments.study_b.comparison import compare

SETTINGS = {
    "data": "digits",
    "examples": 300,
    "tested": 200,
    "seeds": 2,
    "draws": 4,
    "pictured": 8,
    "ways": {
        "study": {"widths": [8], "choose_at": [8], "kinds": as_the_study(2)},
        "ours": {
            "widths": [8, 12],
            "choose_at": [8],
            "kinds": ours(4, 3, [1.0], ["scale-mixture:0.75,1,0.002"], rate=0.03),
        },
    },
}
for way in SETTINGS["ways"].values():
    for settings in way["kinds"].values():
        for one in settings:
            one |= {"pixels": "255", "batch": 16}
# A setting that cannot win: its steps are too small to learn anything.
SETTINGS["ways"]["ours"]["kinds"]["mixture"].insert(
    0, SETTINGS["ways"]["ours"]["kinds"]["mixture"][0] | {"rate": 1e-6, "prior": "scale-mixture:0.5,1,0.002"}
)
EXPERIMENT = Experiment("tiny-table", "a tiny table", "B", "does it work?", run, SETTINGS, SETTINGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("table")
    reproduce(EXPERIMENT, out, progress=False)
    return out


def test_the_choice_is_made_on_validation_and_refitted_everywhere(folder):
    chosen = json.loads((folder / "parts" / "choose-ours-mixture-8.json").read_text())
    errors = [row["error"] for row in chosen["rows"]]
    assert chosen["best"] == 1
    assert errors[1] < errors[0] - 0.1
    for units in (8, 12):
        part = json.loads((folder / "parts" / f"final-ours-mixture-{units}.json").read_text())
        assert part["setting"] == chosen["chosen"]
        assert part["tested"] == 200
        assert len(part["draws"]["seeds"]) == len(part["mean"]["seeds"]) == 2
    assert [epoch for epoch, _ in chosen["rows"][1]["curve"]] == [1, 2, 3, 4]
    # Scored with other draws than the curve's last point, but by the same weights.
    assert chosen["rows"][1]["curve"][-1][1] == pytest.approx(errors[1], abs=0.1)


def test_what_the_page_prints_is_what_the_parts_hold(folder):
    page = (folder / "page.md").read_text()
    results = json.loads((folder / "results.json").read_text())
    for kind in ("dropout", "gaussian", "mixture"):
        part = json.loads((folder / "parts" / f"final-ours-{kind}-12.json").read_text())
        errors = [one["error"] for one in part["draws"]["seeds"]]
        assert sum(part["draws"]["wrong"].values()) == round(200 * sum(errors))
        assert f"{100 * sum(errors) / 2:.2f} ±" in page
        assert results["numbers"]["error"][f"ours-{kind}-12-draws"]["values"] == errors
    assert "On 300 training images only" in results["answer"]
    assert any("400 units" in one for one in results["shortfalls"])
    assert len(results["pictures"]) == 3


def test_a_finished_part_is_not_computed_again(folder, monkeypatch):
    (folder / "results.json").unlink()
    (folder / "parts" / "final-ours-plain-8.json").unlink()
    before = (folder / "parts" / "final-ours-plain-12.json").read_bytes()
    computed = []
    final = training.final

    def counted(work, *cell):
        computed.append(cell[:3])
        return final(work, *cell)

    monkeypatch.setattr(training, "final", counted)
    monkeypatch.setattr(training, "choose", None)
    reproduce(EXPERIMENT, folder, progress=False)
    assert computed == [("ours", "plain", 8)]
    assert (folder / "parts" / "final-ours-plain-12.json").read_bytes() == before
    assert not any((folder / "runs").iterdir())


def test_a_fleet_that_was_stopped_keeps_its_curve(tmp_path, monkeypatch):
    setting = SETTINGS["ways"]["ours"]["kinds"]["mixture"][1]
    whole, parts = Work(tmp_path / "a", SETTINGS, progress=False), Work(tmp_path / "b", SETTINGS, progress=False)
    data = training.images(whole, setting, held_out=True)
    assert set(data) == {"train", "validation", "inputs", "classes"}

    def make():
        return [training.network(setting, 8, data, 3)]

    expected, _ = training._fit(whole, whole.folder / "f", make(), [setting], data)
    error = training.error

    def stop(method, *rest):
        seen = parts.folder / "f" / "curves.json"
        if seen.is_file() and len(json.loads(seen.read_text())) == 2:
            raise KeyboardInterrupt
        return error(method, *rest)

    monkeypatch.setattr(training, "error", stop)
    with pytest.raises(KeyboardInterrupt):
        training._fit(parts, parts.folder / "f", make(), [setting], data)
    monkeypatch.setattr(training, "error", error)
    found, _ = training._fit(parts, parts.folder / "f", make(), [setting], data)
    # The epoch whose scoring was stopped had been trained: its point is lost, and nothing else.
    assert found[0] == [point for point in expected[0] if point[0] != 3]
    assert expected[0][-1][1] < expected[0][0][1]


def part(wrong_by_seed, images=1000):
    wrong = sum(torch.tensor([n in one for n in range(images)]).int() for one in wrong_by_seed)
    return {
        "tested": images,
        "mean": {
            "seeds": [{"error": len(one) / images} for one in wrong_by_seed],
            "wrong": {str(n): int(wrong[n]) for n in wrong.nonzero()[:, 0].tolist()},
        },
    }


def test_one_is_better_only_where_seeds_and_images_say_so():
    many = part([set(range(50 + s)) for s in range(5)])
    few = part([set(range(20 + s % 2)) for s in range(5)])
    found = compare(few, many)
    assert found["sign"] == -1
    assert found["over_images"]["mean"] == pytest.approx(found["over_seeds"]["mean"])
    assert compare(many, few)["sign"] == 1
    # Every seed errs on one image more, always the same: seeds are sure, images are not.
    one_more = part([set(range(20 + s % 2)) | {999} for s in range(5)])
    found = compare(one_more, few)
    assert found["over_seeds"]["mean"] == pytest.approx(0.001)
    assert found["sign"] == 0


def test_full_presets_have_what_was_asked_for():
    for name in ("mnist-table", "fashion-table"):
        full = find(name).settings("full")
        assert full["seeds"] == 5
        assert full["examples"] is None
        assert full["ways"]["ours"]["widths"] == [200, 400, 800, 1200]
        study = full["ways"]["study"]["kinds"]["gaussian"][0]
        assert study["rate"] == pytest.approx(1e-3 * study["batch"])
        assert set(find(name).settings("quick")) == set(full)
    assert PUBLISHED.targets == {400: 0.0130, 1200: 0.0125}
    missed = deepcopy(SETTINGS) | {"examples": None}
    cell = {"draws": {"seeds": [{"error": 0.0140}, {"error": 0.0144}]}}
    work = Work(None, missed)
    told = study_b_page._shortfalls(work, PUBLISHED, {("ours", "mixture", 400): cell}, 400)
    assert any("0.12 points more" in one for one in told)


def test_networks_that_diverge_are_counted_and_left_out(tmp_path, monkeypatch):
    """The study's steps are long: where one network of several stops being finite, the others are what is tested."""
    settings = deepcopy(SETTINGS)
    work = Work(tmp_path, settings, progress=False)
    setting = settings["ways"]["study"]["kinds"]["mixture"][0]
    right = training.network

    def last_one_wild(setting, units, data, seed):
        method = right(setting, units, data, seed)
        if seed == 0:
            with torch.no_grad():
                method.mu.fill_(1e30)
        return method

    whole = training.final(work, "study", "mixture", 8, setting)
    monkeypatch.setattr(training, "network", last_one_wild)
    rest = training.final(Work(tmp_path / "again", settings, progress=False), "study", "mixture", 8, setting)
    assert (whole["diverged"], rest["diverged"]) == (0, 1)
    assert [one["error"] for one in rest["mean"]["seeds"]] == [whole["mean"]["seeds"][1]["error"]]
    table = tables.errors(work, PUBLISHED, {("study", "mixture", 8): rest})
    assert all("(1 diverged)" in row[1] for row in table.rows)
    assert "The mean is over the other seeds" in table.note


def test_a_cell_in_which_all_diverge_is_told_and_has_no_error(tmp_path):
    settings = deepcopy(SETTINGS)
    settings["ways"]["study"]["kinds"]["gaussian"][0]["rate"] = 1e30
    work = Work(tmp_path, settings, progress=False)
    lost = training.final(work, "study", "gaussian", 8, settings["ways"]["study"]["kinds"]["gaussian"][0])
    assert lost["diverged"] == 2
    table = tables.errors(work, PUBLISHED, {("study", "gaussian", 8): lost | {"units": 8}})
    assert [row[1] for row in table.rows] == ["all 2 diverged"]
    every = {("study", "gaussian", 8): lost, ("study", "gaussian", 12): part([set()]) | {"setting": {}}}
    assert "all 2 diverged" in tables.errors(work, PUBLISHED, every).rows[0]
    line = study_b_page._study_lines(work, PUBLISHED, {("study", "gaussian", 8): lost})[0]
    assert line.ours == "all 2 networks diverged"


def test_a_choice_among_networks_that_diverge_is_refused(tmp_path):
    settings = deepcopy(SETTINGS)
    settings["ways"]["ours"]["kinds"]["mixture"][0]["rate"] = 1e30
    with pytest.raises(TrainingError, match=r"settings \[0\] diverged"):
        training.choose(Work(tmp_path, settings, progress=False), "ours", "mixture", 8)


def test_baselines_that_the_study_trained_for_longer_are_not_compared_as_if_they_were_ours():
    setting = as_the_study()["plain"][0]
    assert setting["epochs"] == 10
    seeds = [{"error": error} for error in (0.020, 0.021, 0.022)]
    cell = {"kind": "plain", "units": 400, "setting": setting, "weights": {}, "mean": {"seeds": seeds}}
    (line,) = study_b_page._study_lines(Work(None, {"examples": None}), PUBLISHED, {("study", "plain", 400): cell})
    assert line.published == "1.74%"
    assert "not comparable: the study trained these for 50 or 100 epochs" in line.meaning
