"""The paper's regression: the data are the paper's, widths are those of the draws."""

import json
import math

import pytest
import torch

from bayesify.evaluation.seed_statistics import estimate
from bayesify_studies.experiments import regression_bands
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.regression_bands import METHODS, NOISE, curve, examples, measure, with_elbo
from bayesify_studies.experiments.study_f import bands_elbo

TINY = {
    "seeds": 2,
    "examples": 30,
    "units": 5,
    "noise": 0.06,
    "scale": 1.0,
    "epochs": 20,
    "rate": 0.02,
    "answers": 16,
    "hmc": {"chains": 2, "warm_up": 20, "samples": 8},
}


def test_the_data_are_the_papers():
    x, y = examples(20_000, 0)
    assert 0 <= float(x.min()) < 0.001
    assert 0.499 < float(x.max()) <= 0.5
    away = (y - curve(x[:, 0])).double()
    # e moves a point along the curve: to first order the noise is e times the slope
    slope = 1 + 0.6 * math.pi * torch.cos(2 * math.pi * x[:, 0]) + 1.2 * math.pi * torch.cos(4 * math.pi * x[:, 0])
    assert float(away.std()) == pytest.approx(NOISE * float(slope.double().square().mean().sqrt()), rel=0.05)


def test_a_plain_network_has_no_band_and_a_variational_one_has():
    plain, own = (measure(name, 0, TINY) for name in ("point", "variational"))
    assert plain["on"] == plain["off"] == 0.0
    assert plain["ratio"] == 1.0
    assert own["on"] > 0
    assert own["ratio"] == pytest.approx(own["off"] / own["on"], rel=1e-3)
    assert own["low"] <= own["median"] <= own["high"]


def test_the_page_is_written_from_its_parts(tmp_path):
    found = regression_bands.run(Work(tmp_path, TINY, progress=False))
    ratios = [json.loads((tmp_path / "parts" / f"hmc-{seed}.json").read_text())["ratio"] for seed in range(2)]
    assert found.numbers["methods"]["hmc"]["ratio"]["values"] == ratios
    assert len(list((tmp_path / "parts").glob("*.json"))) == 2 * len(METHODS)
    assert len(found.tables[0].rows) == len(METHODS)


def test_the_elbo_stands_beside_that_of_a_network_that_knows_only_the_mean():
    found = with_elbo(0, TINY | {"epochs": 300})
    nothing = found["nothing"]
    assert nothing["loss"] == pytest.approx(nothing["nll"] + nothing["kl"])
    # With widths of zero it would predict the mean of the targets everywhere, at the price of the largest KL.
    y = examples(TINY["examples"], 0)[1].double()
    error = float(y.var(unbiased=False)) / TINY["noise"] ** 2
    assert nothing["nll"] > 0.5 * error + math.log(TINY["noise"] * math.sqrt(2 * math.pi)) - 0.01
    numbers = {"methods": {"variational": {"ratio": estimate([2.0, 2.1])}}}
    told = bands_elbo.tell(Work(None, TINY, progress=False), {"elbo-0": found, "elbo-1": found}, numbers)
    assert told.numbers["below"] in (0, 2)
    assert f"better ELBO with {told.numbers['below']} of 2 seeds" in told.tables[0].note
