"""The distance to HMC as an experiment: from parts alone, resumed, and with words that follow the intervals."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

import bayesify as bf
from bayesify import files
from bayesify.workflows.compare.against_hmc import Comparison
from bayesify.workflows.compare.hmc_settings import SETUPS, Setup
from bayesify_studies.experiments import hmc_distance
from bayesify_studies.experiments.framework.additions import join
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.study_c import elbo_of_solutions, elbo_page

TINY = {
    "data": ["moons", "gap"],
    "seeds": 1,
    "draws": 8,
    "elbo": [],
    "typical": {},
    "elbo_draws": 8,
    "given": {"epochs": 4, "warm_up": 20, "samples": 4, "chains": 2, "units": [3]},
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, options in (("moons", {"n": 60, "test": 30, "noise": 0.4}), ("gap", {"n": 40, "test": 16})):
        monkeypatch.setitem(SETUPS, name, Setup(options, SETUPS[name].model, SETUPS[name].by_method))


def experiment(**settings):
    study = hmc_distance.EXPERIMENT
    return Experiment("hmc-distance", study.title, "C", study.question, study.run, quick={**TINY, **settings})


def test_the_numbers_are_those_of_the_runs_and_parts_alone_make_the_page(tmp_path, monkeypatch):
    results = reproduce(experiment(), tmp_path / "a", progress=False)
    rows = {row["label"]: row["scores"] for row in results["numbers"]["data"]["moons"]["rows"]}
    for label, slug in (("Ensemble of 5", "ensemble"), ("SWAG", "swag")):
        file = tmp_path / "a" / "runs" / "moons" / "seed-0" / slug / "metrics.json"
        distance = json.loads(file.read_text())["distance"]["total_variation"]
        assert rows[label]["total_variation"]["values"] == pytest.approx([distance])
    page = (tmp_path / "a" / "page.md").read_text()
    assert f"{rows['SWAG']['total_variation']['mean']:.4f}" in page
    files = {one["file"].partition(".")[0] for one in results["pictures"]}
    assert files == {"moons-probability", "moons-uncertainty", "gap-bands"}
    # Chains of a few draws have not converged, and the page says so.
    assert len(results["shortfalls"]) == 2
    shutil.rmtree(tmp_path / "a" / "runs")
    (tmp_path / "a" / "results.json").unlink()
    monkeypatch.setattr(Comparison, "scores", None)
    again = reproduce(experiment(), tmp_path / "a", progress=False)
    assert again["numbers"] == results["numbers"]
    assert (tmp_path / "a" / "page.md").read_text() == page


def test_runs_that_are_there_are_used_unless_they_answer_another_question(tmp_path, monkeypatch):
    given = {**TINY["given"], "units": (3,), "data": "gap"}
    comparison = Comparison(given, draws=8)
    comparison.scores(tmp_path / "old", 0, progress=False)
    files.write_json(tmp_path / "old" / "against.json", comparison.question([0]))
    fits = []
    monkeypatch.setattr(bf.PointEstimate, "fit", lambda *_, **__: fits.append(1))
    work = hmc_distance.Work(tmp_path / "new", TINY, progress=False)
    shutil.copytree(tmp_path / "old", tmp_path / "new" / "runs" / "gap")
    part = hmc_distance.one_seed(work, "gap", 0)
    assert fits == []
    metrics = json.loads((tmp_path / "old" / "seed-0" / "point" / "metrics.json").read_text())
    assert part["scores"]["Plain network"] == metrics
    other = hmc_distance.Work(tmp_path / "new", {**TINY, "draws": 9}, progress=False)
    with pytest.raises(ValueError, match="holds another comparison"):
        hmc_distance.one_seed(other, "gap", 0)


def summary(ensemble, variational, *, converged=True):
    rows = [("Ensemble of 5", ensemble), ("Variational", variational), (hmc_distance.hmc_report.FLOOR, [0.0] * 3)]
    apart = hmc_distance.paired(ensemble, variational)
    scores = [{"label": label, "scores": {"total_variation": {"values": values}}} for label, values in rows]
    diagnosis = {"converged": converged, "r_hat": 1.1}
    reference = {"converged": converged, "largest_r_hat": 1.1, "diagnoses": [diagnosis] * 3}
    return {"rows": scores, "paired": {"total_variation": apart}, "reference": reference, "seeds": [0, 1, 2]}


def test_who_is_closest_is_decided_by_paired_intervals():
    clear = summary([0.01, 0.02, 0.03], [0.11, 0.12, 0.135])
    assert hmc_distance.closest(clear) == ("Ensemble of 5", [])
    assert "is closer to HMC than mean-field VI" in hmc_distance._said("moons", clear)
    turned = summary([0.11, 0.12, 0.135], [0.01, 0.02, 0.03])
    assert hmc_distance.closest(turned) == ("Variational", [])
    assert "is farther from HMC than mean-field VI" in hmc_distance._said("moons", turned)
    # Means apart, but not by more than seeds make them.
    level = summary([0.01, 0.2, 0.1], [0.05, 0.1, 0.19])
    assert hmc_distance.closest(level) == ("Ensemble of 5", ["Variational"])
    assert "is not significantly different from mean-field VI" in hmc_distance._said("moons", level)


def test_a_method_that_learned_nothing_is_told():
    clear = summary([0.01, 0.02, 0.03], [0.11, 0.12, 0.135])
    for row, accuracy in zip(clear["rows"], ([0.8, 0.8, 0.8], [0.51, 0.46, 0.8], [0.8, 0.8, 0.8]), strict=True):
        row["scores"]["accuracy"] = {"values": accuracy}
        row["scores"]["total_variation"]["mean"] = 0.1
    assert hmc_distance.at_chance("circles", clear) == {"Variational": 2}
    assert hmc_distance._said("circles", clear).endswith(", which learned nothing on 2 of 3 data sets.")
    assert hmc_distance._lines("circles", clear)[0].meaning.endswith(
        "mean-field VI learned nothing on 2 of 3 data sets"
    )
    (told,) = hmc_distance._shortfalls("circles", clear)
    assert "Variational on 2" in told
    # Where chance is not known, nothing is said.
    assert hmc_distance._shortfalls("gap", clear) == []


def test_nothing_is_claimed_of_a_reference_that_has_not_converged():
    clear = summary([0.01, 0.02, 0.03], [0.11, 0.12, 0.135], converged=False)
    assert hmc_distance._said("moons", clear).startswith("On moons nothing can be said: HMC converged on 0 of 3")
    for row in clear["rows"]:
        row["scores"]["total_variation"]["mean"] = 0.1
    claim, _ = hmc_distance._lines("moons", clear)
    assert claim.meaning.startswith("HMC did not converge")


def test_the_objective_prefers_what_has_the_higher_bound():
    """The words follow the paired intervals of the ELBO, whichever way they point."""

    def parts(warmed, annealed):
        of = {elbo_of_solutions.MEAN_FIELD: [-160.0, -158.0, -161.0]}
        of |= {elbo_of_solutions.WARMED: warmed, elbo_of_solutions.ANNEALED: annealed}
        # The warmed-up network is near HMC on every seed, the others are far from it.
        far = dict.fromkeys(of, 0.2) | {elbo_of_solutions.WARMED: 0.05}
        return [
            {
                "solutions": {
                    label: {"elbo": each[seed], "accuracy": 0.7, "total_variation": far[label] + 0.01 * seed}
                    for label, each in of.items()
                }
            }
            for seed in range(3)
        ]

    prior = elbo_of_solutions.summary(parts([-167.0, -165.0, -169.0], [-135.0, -134.0, -137.0]))
    told = elbo_page.said(prior)
    assert "The ELBO prefers the solution that mean-field VI found" in told
    assert "That network is nearer to HMC (total variation 0.0600 ± 0.0058 and 0.2100 ± 0.0058)" in told
    assert "an ELBO that is 7.3 nats lower" in told
    assert "The annealed family, which is richer, reaches an ELBO that is 24.3 nats higher" in told
    stuck = elbo_page.said(elbo_of_solutions.summary(parts([-150.0, -147.0, -152.0], [-160.0, -158.5, -160.7])))
    assert "did not find the optimum" in stuck
    assert "annealed" not in stuck
    level = elbo_page.said(elbo_of_solutions.summary(parts([-167.0, -150.0, -161.0], [-160.0, -158.5, -160.7])))
    assert "not significant" in level


def test_a_solution_that_is_led_elsewhere_keeps_the_whole_elbo(tmp_path, monkeypatch):
    """A tenth of the KL changes the training, not the bound that judges it."""
    labels = (elbo_of_solutions.MEAN_FIELD, elbo_of_solutions.TENTH)
    monkeypatch.setattr(elbo_of_solutions, "TRAINED", labels)
    work = hmc_distance.Work(
        tmp_path, TINY | {"elbo_draws": 20, "given": TINY["given"] | {"epochs": 60}}, progress=False
    )
    found = elbo_of_solutions.one_seed(work, "moons", 0)["solutions"]
    first, second = (found[label] for label in labels)
    assert second["kl"] > first["kl"] > 0
    assert max(one["elbo"] + one["kl"] for one in (first, second)) < 0  # an expected log-likelihood of labels


def test_the_bound_of_the_prior_is_the_mean_log_likelihood_of_its_networks(tmp_path):
    work = hmc_distance.Work(tmp_path, TINY | {"elbo_draws": 4000}, progress=False)
    prepared = Comparison({"data": "moons"}, methods=["variational"], draws=8).prepared(0)
    found = elbo_of_solutions._knows_nothing(prepared, work["given"], 0, work["elbo_draws"])
    prior, constant = found[elbo_of_solutions.PRIOR], found[elbo_of_solutions.CONSTANT]
    # By hand: a network of three tanh units whose weights are standard normal, 4,000 times.
    x, y = (value.double() for value in prepared.train)
    generator = torch.Generator().manual_seed(1)
    first, bias, last, offset = (
        torch.randn(4000, *shape, generator=generator, dtype=torch.float64) for shape in ((3, 2), (3,), (2, 3), (2,))
    )
    logits = torch.tanh(x @ first.mT + bias[:, None]) @ last.mT + offset[:, None]
    each = logits.log_softmax(-1)[:, torch.arange(len(y)), y.long()].sum(1)
    error = float(each.std()) / 4000**0.5
    assert abs(prior["elbo"] - float(each.mean())) < 4 * (error**2 + prior["standard_error"] ** 2) ** 0.5
    assert constant["elbo"] == pytest.approx(len(y) * math.log(0.5), rel=1e-2)


def test_the_seed_that_is_drawn_has_the_smallest_distance_to_the_medians():
    """The settings name the seeds that the published distances make typical."""
    page = Path(__file__).parents[3] / "docs" / "results" / "hmc-distance.json"
    published = json.loads(page.read_text(encoding="utf-8"))["numbers"]["data"]
    typical = {data: hmc_distance.most_typical(published[data]) for data in ("moons", "circles", "gap")}
    assert typical == hmc_distance.EXPERIMENT.full["typical"]
    one = {"seeds": [0, 1, 2], "rows": [{"label": "A", "scores": {"total_variation": {"values": [0.1, 0.3, 0.2]}}}]}
    assert hmc_distance.most_typical(one) == 2


def test_the_typical_seed_alone_replaces_the_pictures_of_a_published_page(tmp_path):
    settings = TINY | {"data": ["moons"], "typical": {"moons": 1}}
    work = hmc_distance.Work(tmp_path, settings, progress=False)
    work.every(hmc_distance.TYPICAL.parts(work))
    old = [{"file": f"hmc-distance-{data}-probability.png", "caption": "old"} for data in ("moons", "circles")]
    published = {"name": "hmc-distance", "pictures": old, "numbers": {}, "lines": [], "tables": [], "shortfalls": []}
    joined = join(published | {"settings": {}}, work, hmc_distance.TYPICAL)
    files = [one["file"] for one in joined["pictures"]]
    assert files == [*(one["file"] for one in old), "hmc-distance-moons-uncertainty.png"]
    assert "seed 1 (the seed with the most typical distances)" in joined["pictures"][0]["caption"]
    assert joined["pictures"][1]["caption"] == "old"


def test_a_data_set_without_parts_keeps_its_published_elbos(tmp_path):
    work = hmc_distance.Work(tmp_path, TINY | {"elbo": ["circles", "moons"], "seeds": 2}, progress=False)
    labels = (elbo_of_solutions.MEAN_FIELD, elbo_of_solutions.WARMED, elbo_of_solutions.ANNEALED)

    def solutions(first):
        scores = {"accuracy": 0.8, "total_variation": 0.1}
        return {"solutions": {label: scores | {"elbo": first - number} for number, label in enumerate(labels)}}

    found = {"elbo-moons-0": solutions(-100.0), "elbo-moons-1": solutions(-110.0), "elbo-circles-0": solutions(-1.0)}
    published = elbo_of_solutions.summary([solutions(-160.0), solutions(-161.0)])
    for one in published.values():
        del one["total_variation"]
    rows = [{"label": "Variational", "scores": {"total_variation": {"mean": 0.2, "values": [0.19, 0.21]}}}]
    added = elbo_page.tell(work, found, {"elbo": {"circles": published}, "data": {"circles": {"rows": rows}}})
    assert added.numbers["circles"]["Variational, annealed"] == published["Variational, annealed"]
    assert added.numbers["circles"]["Variational"]["elbo"] == published["Variational"]["elbo"]
    assert added.numbers["moons"]["Variational"]["elbo"]["mean"] == pytest.approx(-105.0)
    rows = {row[0]: row[2] for row in added.tables[0].rows}
    # The distance of the comparison stands in for that of the early fit.
    assert rows["circles: Variational"].startswith("0.2000")
    assert rows["circles: Variational, annealed"] == "–"
    assert [line.what.partition(":")[0] for line in added.lines] == ["moons"]
    assert rows["moons: Variational"].startswith("0.1000")
    assert [told.partition(":")[0] for told in added.shortfalls] == ["circles", "moons"]
