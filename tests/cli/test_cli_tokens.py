"""A network that takes the numbers of words, fitted in Python: every command that reads data keeps them integers."""

import json

import numpy as np
import pytest
import torch
from token_runs import FACTORIES, token_run

import bayesify as bf
from bayesify.workflows.python_runs import as_taken

KINDS = sorted(FACTORIES)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Methods with their data, by name, and the folder of their runs."""
    place = tmp_path_factory.mktemp("tokens")
    found = {name: token_run(place, name) for name in KINDS}
    np.save(place / "new.npy", found["chain"][1][:3].numpy())
    np.save(place / "unknown.npy", found["chain"][1].flip(1).numpy())
    np.savetxt(place / "new.csv", found["chain"][1][:3].numpy(), "%d", ",", header="a,b,c,d,e,f,g", comments="")
    return place, found


@pytest.fixture(params=KINDS)
def case(request, fitted, monkeypatch):
    """The name of a run, its network on the command line, its method, inputs and targets."""
    place, found = fitted
    monkeypatch.chdir(place)
    return (request.param, ["--network", f"token_runs:{request.param}"], *found[request.param])


def test_predict_answers_as_python_does(call, case):
    name, own, method, x, _ = case
    expected = method.predict(x[:3]).confidence
    for source, stdin in (("new.npy", None), ("new.csv", None), ("-", "\n".join(map(json.dumps, x[:3].tolist())))):
        said = call("predict", name, source, *own, "--json", stdin=stdin).json["predictions"]
        assert torch.allclose(torch.tensor([one["confidence"] for one in said]), expected, atol=1e-6)


def test_scores_are_those_of_python(call, case):
    name, own, method, x, y = case
    expected = bf.evaluate(method, (x, y), ood=x.flip(1))
    data = [*own, "--data", f"{name}.npz"]
    scores = call("evaluate", name, *data, "--ood", "unknown.npy", "--json").json
    assert scores["nll"] == pytest.approx(expected.nll, abs=1e-6)
    assert scores["auroc"] == pytest.approx(expected.auroc, abs=1e-6)
    pruned = call("prune", name, *data, "--fraction", 0.5, "--json").json
    assert pruned["after"]["nll"] == pytest.approx(bf.evaluate(bf.prune(method, 0.5), (x, y)).nll, abs=1e-6)
    reported = call("report", name, *data, "--out", "report.html", "--json").json
    assert reported["runs"]["variational"]["nll"] == pytest.approx(expected.nll)


def test_what_is_learned_chosen_and_written_afterwards(call, case, tmp_path):
    name, own, method, x, _ = case
    by = "bald" if name == "Tagger" else "epig"  # which needs one label for each input
    goal, targets = ([], None) if by == "bald" else (["--targets", "unknown.npy"], x.flip(1))
    asked = call("ask", name, f"{name}.npz", *own, "-n", 5, "--by", by, *goal, "--json").json
    assert asked["indices"] == bf.ask(method, x, 5, by, targets=targets).indices
    form = ["--format", "torch-export", "--out", tmp_path / "tokens.pt2", "--draws", 3]
    assert call("export", name, *own, *form).code == 0
    assert (tmp_path / "tokens.pt2").is_file()
    after = call("learn-on", name, *own, "--data", f"{name}.npz", "--out", tmp_path / "on", "--epochs", 1, "--json")
    assert after.json["learned"] == 96
    call("recalibrate", tmp_path / "on", *own, "--data", f"{name}.npz")
    call("unknown", tmp_path / "on", *own, "--data", f"{name}.npz")
    assert all(
        "known" in one for one in call("predict", tmp_path / "on", "new.npy", *own, "--json").json["predictions"]
    )


def test_certify_takes_tokens(call, fitted, monkeypatch):
    place, _ = fitted
    monkeypatch.chdir(place)
    own = ["--network", "token_runs:chain", "--data", "chain.npz"]
    said = call("certify", "chain", *own, "--max-error", 0.6)
    assert said.code == 0
    assert "certified from 120 examples" in said.out


def test_tokens_that_the_network_does_not_have_are_refused(refused, case, tmp_path):
    name, own, *_ = case
    rows = np.ones((3, 7))
    for value, words in (
        (5.5, "inputs must be whole numbers of at most 64 bits, as the network takes them, got 5.5"),
        (1e300, "whole numbers of at most 64 bits"),
        (
            70,
            "Class values must be smaller" if name == "OneHot" else "the largest index is 70, but an embedding has 50",
        ),
    ):
        rows[2, 4] = value
        np.save(tmp_path / "bad.npy", rows)
        refused(["predict", name, tmp_path / "bad.npy", *own], words)


def test_numbers_that_a_network_converts_itself_keep_their_fractions():
    class Mixed(torch.nn.Module):
        """A category in the first column, numbers in the others."""

        def __init__(self):
            super().__init__()
            self.look_up, self.out = torch.nn.Embedding(4, 2), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.out(torch.cat((self.look_up(x[:, 0].long()), x[:, 1:].float()), 1))

    method = bf.PointEstimate(Mixed(), "categorical").eval()
    x = torch.tensor([[3.0, 0.25, -1.5]])
    assert torch.equal(as_taken(method, x), x)
    assert method.network.trace is None, "zeros say nothing about what the network does with inputs"
