"""The experiment on unknown inputs: its cells against scores computed here, and a page from the numbers of its parts."""

import json
from dataclasses import replace

import pytest
import torch

from bayesify.decisions import UnknownInputs
from bayesify.errors import TrainingError
from bayesify.metrics import auroc
from bayesify_studies.experiments import ood
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.framework.verdicts import LONGEST, verdict
from bayesify_studies.experiments.ood import cells, unknown_inputs
from bayesify_studies.experiments.ood.settings import DIGITS, QUICK

SMALL = DIGITS | {"epochs": 2, "tested": 40, "unknown": ["scribbles"], "seeds": 2}
TINY = QUICK | {"draws": 5, "methods": ["point", "variational"], "problems": {"digits": SMALL}}
pytestmark = pytest.mark.filterwarnings("ignore::bayesify.errors.BayesifyWarning")


def test_the_page_has_the_numbers_of_its_parts(tmp_path):
    found = reproduce(replace(ood.EXPERIMENT, quick=TINY), tmp_path / "e", progress=False)
    told = [json.loads((tmp_path / "e" / "parts" / f"digits-variational-{s}.json").read_text()) for s in (0, 1)]
    values = found["numbers"]["auroc"]["scribbles"]["variational"]["knn"]["values"]
    assert values == pytest.approx([one["auroc"]["scribbles"]["knn"] for one in told])
    assert told[0]["both"]["known"] <= told[0]["sure"]["known"]
    # A plain network has one draw, which cannot disagree with another.
    assert "mutual_information" not in found["numbers"]["auroc"]["scribbles"]["point"]
    assert "A confidence of 90%" in (tmp_path / "e" / "page.md").read_text()


def test_scores_and_thresholds_are_those_of_the_library():
    bnn, data = cells.trained(SMALL, "variational", 0, "cpu")
    inputs = {"known": data.test[0][:60], "scribbles": unknown_inputs.scribbles(data.preparation, 30, 1)}
    found = cells.measured(bnn, data.train[0], inputs, data.test[1][:60], TINY)
    for name, by, layer in (("entropy", "entropy", None), ("knn", "knn", "input")):
        check = UnknownInputs(bnn, data.train[0], by, layer=layer, draws=5)
        scores = {kind: check.score(x) for kind, x in inputs.items()}
        assert found["auroc"]["scribbles"][name] == pytest.approx(auroc(scores["known"], scores["scribbles"]))
        shares = [float(check.accept(x).double().mean()) for x in inputs.values()]
        assert list(cells_accepted(found, name)) == pytest.approx(shares)


class Raw:
    """A preparation that changes nothing."""

    @staticmethod
    def apply(x):
        return x


def cells_accepted(found, name):
    return (found["accepted"][kind][name] for kind in ("known", "scribbles"))


def test_scribbles_are_drawn_by_their_seed():
    _, data = cells.trained(SMALL | {"epochs": 1}, "point", 0, "cpu")
    first, again, other = (unknown_inputs.scribbles(data.preparation, 5, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape[1:] == data.train[0].shape[1:]


def test_digits_are_turned_by_a_right_angle_to_either_side():
    x = torch.arange(6.0).reshape(1, 1, 2, 3).repeat(40, 1, 1, 1)[..., :2]
    made = unknown_inputs.turned(x, 3)
    sides = {tuple(one.flatten().tolist()) for one in made}
    # [[0, 1], [3, 4]] turned to the left and to the right.
    assert sides == {(1.0, 4.0, 0.0, 3.0), (3.0, 0.0, 4.0, 1.0)}


def test_noise_is_uniform_and_drawn_by_its_seed():
    made = unknown_inputs.unknown("noise", Raw(), 50, 1)
    assert torch.equal(made, unknown_inputs.unknown("noise", Raw(), 50, 1))
    z = (made.double().mean() - 127.5) / (73.9 / made.numel() ** 0.5)  # sd of a uniform byte: 73.9
    assert abs(z) < 4


def test_a_training_that_diverged_is_recorded_and_told(tmp_path, monkeypatch):
    real = cells.trained

    def sometimes(problem, method, seed, device):
        if (method, seed) == ("point", 1):
            raise TrainingError("the loss diverged")
        return real(problem, method, seed, device)

    monkeypatch.setattr(cells, "trained", sometimes)
    found = reproduce(replace(ood.EXPERIMENT, quick=TINY), tmp_path / "e", progress=False)
    assert any("1 of 2 trainings of Plain network diverged" in one for one in found["shortfalls"])
    assert len(found["numbers"]["auroc"]["scribbles"]["point"]["knn"]["values"]) == 1


def test_the_verdict_follows_the_numbers():
    areas = {"ensemble": {"entropy": {"mean": 0.991}, "knn": {"mean": 0.968}}}
    found = {"name": "ood", "answer": "long", "numbers": {"auroc": {"fashion-mnist": areas, "notmnist": areas}}}
    assert "0.991 with an ensemble's entropy and 0.968 with the default check" in verdict(found)
    assert len(verdict(found).split()) <= LONGEST
