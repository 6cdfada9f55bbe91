"""Study D's four experiments: what their pages say is what their parts hold, and a stopped one goes on."""

import json

import pytest

from bayesify_studies.experiments import find, normalisation, pruning
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import pruning_networks, pruning_widths, training

TINY = {"data": "digits", "examples": 150, "units": 6, "study_epochs": 2, "epochs": 2, "seeds": 2, "draws": 4}
OWN = {
    "kl-reweighting": {},
    "priors": {"repeats": 2, "nearness": {"examples": 120, "units": 4, "epochs": 2}},
    "normalisation": {"rates": [0.03, 0.1]},
    "pruning": {
        "units": [4, 6],
        "candidate_epochs": 2,
        "candidates": [
            ["scale-mixture:0.1,1,0.00247875", "scale-mixture:0.3,1,0.00247875 uniform,temperature=0.3"],
            ["scale-mixture:0.1,1,0.00247875", "scale-mixture:0.05,1,0.00247875"],
        ],
        "widths": {"units": 3, "epochs": 2, "warm_up": 20, "samples": 5},
    },
}


def tiny(name):
    one = find(name)
    return Experiment(one.name, one.title, one.study, one.question, one.run, quick=TINY | OWN[name])


@pytest.mark.parametrize("name", ["kl-reweighting", "priors", "normalisation"])
def test_a_stopped_experiment_goes_on_and_its_page_holds_the_numbers_of_its_parts(name, tmp_path, monkeypatch):
    own, trained = training.train, []

    def dying(work, part, *rest, **settings):
        trained.append(part)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return own(work, part, *rest, **settings)

    monkeypatch.setattr(training, "train", dying)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tiny(name), tmp_path, progress=False)
    results = reproduce(tiny(name), tmp_path, progress=False)
    # The two parts that were finished are not trained again, the one that was stopped is.
    assert len(trained) == len(set(trained)) + 1
    assert trained[2] == trained[3]
    parts = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "parts").glob("*.json")}
    errors = {
        "kl-reweighting": lambda: ("study_uniform", parts.get("study", {}).get("uniform")),
        "priors": lambda: ("adam_half", parts.get("adam-mixtures", {}).get("half")),
        "normalisation": lambda: ("study_255", parts.get("study-255", {}).get("rates", {}).get("0.1")),
    }
    number, rows = errors[name]()
    assert results["numbers"]["errors"][number]["values"] == [row["error"] for row in rows]
    mean = 100 * sum(row["error"] for row in rows) / len(rows)
    page = (tmp_path / "page.md").read_text()
    assert f"{mean:.2f} ±" in page
    assert "does not test the study" in results["answer"]
    assert any("epochs here and 600 in the study" in one for one in results["shortfalls"])


def test_the_answer_about_reweighting_follows_the_numbers(tmp_path):
    for gain, said in ((-0.003, "it helps"), (0.003, "it hurts"), (0.0, "no significant difference")):
        folder = tmp_path / said.replace(" ", "-")
        (folder / "parts").mkdir(parents=True)
        for way in training.WAYS:
            rows = {
                kl: [network(0.02 + 0.001 * seed + add * (1 + 0.1 * seed) + 1e-5 * (-1) ** seed) for seed in range(4)]
                for kl, add in (("uniform", 0.0), ("reweighted", gain))
            }
            part = rows | {"seconds": 1.0, "machine": "none"}
            (folder / "parts" / f"{way}.json").write_text(json.dumps(part))
        found = find("kl-reweighting").run(Work(folder, TINY))
        assert found.answer.count(said) == 3
        assert found.numbers["gain"]["study"]["mean"] == pytest.approx(gain * 1.15)


def test_a_rate_at_the_end_of_those_tried_is_told():
    assert normalisation._at_the_edge({"a": 0.03, "b": 0.03}, [0.01, 0.03, 0.1]) == []
    (told,) = normalisation._at_the_edge({"a": 0.1, "b": 0.03}, [0.01, 0.03, 0.1])
    assert told.startswith("The largest learning rate tried, 0.1, was chosen for: a")


def network(error):
    seen = [
        {
            "epoch": epoch,
            "error": error,
            "skewness": 0.1,
            "asymmetry": 0.01,
            "in_spike": 0.5,
            "widths": [0.01, 0.01, 0.01],
            "counts": [1] * training.BINS,
        }
        for epoch in (1, 2)
    ]
    elbo = {"loss": 3.0, "nll": 1.0, "kl": 2.0}
    return {"error": error, "again": [], "validation": error, "seen": seen, "elbo": elbo}


def test_pruning_runs_and_its_page_holds_the_numbers_of_its_parts(tmp_path):
    results = reproduce(tiny("pruning"), tmp_path, progress=False)
    part = json.loads((tmp_path / "parts" / "adam-6-mixtures.json").read_text())
    row = part["(1/10, 1, e^-6)"]["snr"]
    told = results["numbers"]["errors"]["Adam, (1/10, 1, e^-6) | 6 | snr"]
    assert [told[f"{one['fraction']:g}"]["values"] for one in row] == [one["errors"] for one in row]
    # Nothing is pruned at 0: no image changes sides, and both rules err alike.
    assert row[0]["more"] == row[0]["fewer"] == [0, 0]
    assert row[0]["errors"] == part["(1/10, 1, e^-6)"]["magnitude"][0]["errors"]
    for one in row:
        changed = [(a - b) / 150 for a, b in zip(one["more"], one["fewer"], strict=True)]
        assert [new - old for new, old in zip(one["errors"], row[0]["errors"], strict=True)] == pytest.approx(changed)
    # Every round's choice is the least of its own candidates, and the page owns up to having looked more than once.
    rounds = results["numbers"]["rounds"]
    for place, candidates in enumerate(OWN["pruning"]["candidates"], 1):
        choice = json.loads((tmp_path / "parts" / f"choice-{place}.json").read_text())
        least = min(candidates, key=lambda name: (choice[name]["pruned"], choice[name]["error"]))
        assert rounds[place - 1]["prior"] == least
    assert results["numbers"]["chosen"] == rounds[1]
    assert "used more than once" in results["answer"]
    # What is said of every seed holds for the least of them.
    kept = [json.loads((tmp_path / "parts" / f"study-{u}.json").read_text())["study"]["widths_kept"] for u in (4, 6)]
    least = min(min(own) for own in kept) ** 2
    line = next(one for one in results["lines"] if "random initial ones" in one["what"])
    assert line["meaning"].startswith(f"in every seed, at least {100 * least:.0f}%")
    # The target is missed by such networks, and the page says so.
    assert any("Target 1.32% missed" in one for one in results["shortfalls"])


def test_a_loss_is_seen_where_an_interval_lies_above_zero():
    def row(errors, images):
        whole = {"fraction": 0.0, "errors": [0.01] * 4}
        last = {"fraction": 0.98, "errors": errors, "more": [5] * 4, "fewer": [0] * 4, "images": {"interval": images}}
        return {"snr": [whole, last]}

    assert not pruning_networks.losses(row([0.009, 0.011, 0.012, 0.008], [-0.001, 0.001]))["seen"]
    assert pruning_networks.losses(row([0.012, 0.013, 0.012, 0.013], [-0.001, 0.001]))["seen"]
    found = pruning_networks.losses(row([0.009, 0.011, 0.012, 0.008], [0.0001, 0.001]))
    assert found["seen"]
    assert found["p"] == pytest.approx([2 / 32] * 4)


def test_orders_are_judged_by_the_posterior_that_is_taken_to_be_right():
    import torch

    from bayesify import Variational, networks

    method = Variational(lambda: networks.mlp(12, 3, layers=0), "categorical", prior="normal:1", rho="uniform:-5,-2")
    test = torch.randn(40, 12, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
    same = pruning_widths.against(method, method.mean_weights, method.std, test)
    assert same["ratio"] == pytest.approx(1.0)
    assert same["rank_correlation"] == pytest.approx(1.0)
    assert same["errors"]["own"] == same["errors"]["widths"] == same["errors"]["reference"]
    # Twice too small everywhere: the ratio tells, and no order changes.
    wider = pruning_widths.against(method, method.mean_weights, 2 * method.std, test)
    assert wider["ratio"] == pytest.approx(0.5)
    assert wider["errors"] == same["errors"]
    # The other way round: what goes first now went last.
    turned = pruning_widths.against(method, 1 / method.mean_weights, 1 / method.std, test)
    assert turned["rank_correlation"] == pytest.approx(-1.0)


def test_a_hump_that_the_count_of_modes_leaves_out_is_told():
    one = {f"{pruning.MIXTURE}, 400": 1, f"{pruning.MIXTURE}, 1200": 1}
    (told,) = pruning._flat_humps(one, 400)
    assert "400 units and Adam" in told
    assert pruning._flat_humps({f"{pruning.MIXTURE}, 400": 2}, 400) == []
