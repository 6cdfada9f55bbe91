"""Every cell of `docs/compatibility.md` does what the page says: it works, or it is refused in one line before work starts.

`python tests/methods/test_compatibility.py` prints the tables as they should be.
"""

import functools
import itertools
import logging
import random
import re
import tempfile
from pathlib import Path

import pytest
import torch
from test_protocol import SETTINGS
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS
from bayesify.methods.variational.estimators import ESTIMATORS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

# Choices within a method that change what is possible: each is a row.
CHOICES = {
    "variational": {
        "": {},
        **{name: {"estimator": name} for name in ESTIMATORS if name != "weight"},
        "full_rank": {"family": "full_rank"},
        "low_rank": {"family": "low_rank", "rank": 2},
        "stick_the_landing": {"gradient": "stick_the_landing"},
        "importance_weighted": {"bound": "importance_weighted"},
    },
    "laplace": {structure: {"structure": structure} for structure in ("kronecker", "diagonal", "full")},
}
# Less work than the protocol's settings, where that saves time.
QUICKER = {
    "ensemble": {"members": 2},
    "swag": {"begin": 0.0, "rank": 2, "held_draws": 2},
    "sgld": {"samples": 3, "chains": 1},
    "sghmc": {"samples": 3, "chains": 1},
    "hmc": {"chains": 2},
}
ROWS = {
    ", ".join(filter(None, (name, choice))): (name, {**SETTINGS[name], **QUICKER.get(name, {}), **settings})
    for name in METHODS
    for choice, settings in CHOICES.get(name, {"": {}}).items()
}


class Recurrent(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.layer, self.head = nn.GRU(1, 3, batch_first=True), nn.Linear(3, outputs)

    def forward(self, x):
        return self.head(self.layer(x.unsqueeze(-1))[0][:, -1])


class Attention(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.enter, self.head = nn.Linear(1, 2), nn.Linear(2, outputs)
        self.attend = nn.MultiheadAttention(2, 1, batch_first=True)

    def forward(self, x):
        x = self.enter(x.unsqueeze(-1))
        return self.head(self.attend(x, x, x, need_weights=False)[0].mean(1))


class Embedded(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.table, self.head = nn.Embedding(2, 3), nn.Linear(3, outputs)

    def forward(self, x):
        return self.head(self.table((x > 0).long()).mean(1))


class Tied(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, outputs)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x).tanh()).tanh())


def plain(outputs, *between):
    return nn.Sequential(nn.Linear(2, 3), *between, nn.Tanh(), nn.Linear(3, outputs))


NETWORKS = {
    "batch norm": lambda outputs: plain(outputs, nn.BatchNorm1d(3)),
    "layer norm": lambda outputs: plain(outputs, nn.LayerNorm(3)),
    "dropout": lambda outputs: plain(outputs, nn.Dropout(0.2)),
    "Conv2d": lambda outputs: nn.Sequential(
        nn.Unflatten(1, (1, 1, 2)), nn.Conv2d(1, 2, (1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(2, outputs)
    ),
    "Conv1d": lambda outputs: nn.Sequential(
        nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, outputs)
    ),
    "recurrent": Recurrent,
    "attention": Attention,
    "embedding": Embedded,
    "tied weights": Tied,
}
X = torch.tensor(list(itertools.product((-1.5, -0.5, 0.5, 1.5), repeat=2)))
LABELS, CURVE = (X.sum(1) > 0).long(), X[:, :1].sin()
# Targets, and how many outputs they need.
LIKELIHOODS = {
    "categorical": (LABELS, 2),
    "bernoulli": (LABELS.float(), 1),
    "gaussian:0.5": (CURVE, 1),
    "gaussian:learned": (CURVE, 1),
    "gaussian:half-cauchy(1)": (CURVE, 1),
    "gaussian:heteroscedastic": (CURVE, 2),
    "student-t:4,0.5": (CURVE, 1),
    "mixture:2": (CURVE, 6),
    "quantile:0.1,0.5,0.9": (CURVE, 3),
    "ordinal:2": (LABELS, 1),
    "poisson": (LABELS.float(), 1),
    "negative-binomial:0.5": (LABELS.float(), 1),
    "gaussian-logits:log_expected,10": (LABELS, 4),
    "gaussian-logits:expected,10": (LABELS, 4),
}
PRIORS = (
    "normal:1",
    "normal:fan_in",
    "laplace:1",
    "cauchy:1",
    "student-t:3,1",
    "scale-mixture:0.5,1,0.1",
    "flat",
    "log-uniform",
    "normal:half-cauchy(1)",
    "laplace:inverse-gamma(1,1)",
    "normal:learned",
)


def make(row, likelihood="categorical", network=plain, **more):
    name, settings = ROWS[row]
    torch.manual_seed(0)
    return METHODS[name](network(LIKELIHOODS[likelihood][1]), likelihood, **{**settings, **more})


def fit(method, likelihood="categorical", **more):
    """Train a little; a refusal must come before the first step."""
    before = {key: tensor.clone() for key, tensor in method.state_dict().items()}
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2}
    if method.name == "hmc":
        settings = {"warm_up": 20, "samples": 3, "max_leapfrogs": 20}
    elif getattr(method, "bound", "elbo") != "elbo":
        settings["draws"] = 2
    try:
        method.fit((X, LIKELIHOODS[likelihood][0]), progress=False, **{**settings, **more})
    except (ValueError, TypeError):
        after = method.state_dict()
        assert all(torch.equal(tensor, after[key]) for key, tensor in before.items()), "refused, but only after work"
        assert len(method.history) == 0
        raise
    return method


def judge(method, **more):
    answer = method.predict(X, draws=3, **more)
    if answer.likelihood.kind == "classification":
        assert torch.isfinite(answer.probs).all()
        torch.testing.assert_close(answer.probs.sum(-1), torch.ones(len(X)))
    else:
        assert torch.isfinite(answer.mean).all()
        assert (answer.variance > 0).all()
    return answer


@functools.cache
def fitted(row):
    return fit(make(row))


def trained(**settings):
    return lambda row: judge(fit(make(row), **settings))


def modelled(likelihood="categorical", network=plain, **settings):
    return lambda row: judge(fit(make(row, likelihood, network, **settings), likelihood))


def prior_from_yesterday(row):
    source = bf.Variational(plain(2), "categorical")
    judge(fit(make(row, prior=bf.priors.Posterior(source))))


def prior_around_given_weights(row):
    judge(fit(make(row, prior="pretrained:0.1", start="given")))


def prior_for_tomorrow(row):
    judge(fit(make("variational", prior=bf.priors.Posterior(fitted(row)))))


def resumed(row):
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        fit(make(row), run=run)
        again = bf.load(run, network=plain(2))
        assert torch.equal(judge(again).outputs, judge(fitted(row)).outputs)
        again.resume((X, LABELS), run, extend=1, progress=False)
        judge(again)


def pruned(by):
    def cell(row):
        small = bf.prune(fitted(row), 0.5, by=by)
        assert (small.mean_weights == 0).sum() == 6
        judge(small)

    return cell


TABLES = {
    "Priors": {
        **{f"`{prior}`": modelled(prior=prior) for prior in PRIORS},
        "`Posterior(bnn)`": prior_from_yesterday,
        "`pretrained:0.1`": prior_around_given_weights,
    },
    "Likelihoods": {f"`{likelihood}`": modelled(likelihood) for likelihood in LIKELIHOODS},
    "Networks": {
        **{name: modelled(network=network) for name, network in NETWORKS.items()},
        "last layer only": modelled(bayesian="last_layer"),
    },
    "Training": {
        "`draws=3`": trained(draws=3),
        "`patience=`": trained(validation=(X, LABELS), patience=1),
        '`keep="best"`': trained(validation=(X, LABELS), keep="best"),
        '`kl="reweighted"`': trained(kl="reweighted"),
        "warm-up": trained(kl="uniform,warm-up=1"),
        "temperature": trained(kl="uniform,temperature=0.5"),
        '`optimizer="sgd"`': trained(optimizer="sgd"),
        '`schedule="cosine"`': trained(schedule="cosine"),
        "save, resume": resumed,
    },
    "Answers": {
        '`by="mean"`': lambda row: judge(fitted(row), by="mean"),
        '`by="moments"`': lambda row: judge(fitted(row), by="moments"),
        '`prune(by="snr")`': pruned("snr"),
        '`prune(by="magnitude")`': pruned("magnitude"),
        "`Posterior(it)`": prior_for_tomorrow,
    },
}
CELLS = [(table, row, column) for table, columns in TABLES.items() for row in ROWS for column in columns]


def outcome(table, row, column):
    return decided(TABLES[table][column], row)


def decided(cell, row):
    """What a cell does: `yes` or `no`. Anything but an answer or a one-line refusal is an error of ours."""
    refusal = ""
    try:
        cell(row)
    except (ValueError, TypeError) as problem:
        refusal = str(problem) or type(problem).__name__
    if not refusal:
        return "yes"
    assert "\n" not in refusal
    assert 20 < len(refusal) < 300, refusal
    return "no"


def read_page():
    """The page's tables: title, row and column of each cell, with the first word in it."""
    said, title, columns = {}, "", None
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            title, columns = line.lstrip("# "), None
        elif line.startswith("|") and title in TABLES:
            first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            if columns is None:
                columns = cells
            elif set(first) - set("-: "):
                said |= {(title, first, column): cell.split()[0] for column, cell in zip(columns, cells, strict=True)}
    return said


SAID = read_page()


def name_of(cell):
    return "-".join(re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in cell)


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_a_cell_does_what_the_page_says(cell, caplog):
    caplog.set_level(logging.ERROR, logger="bayesify")
    assert cell in SAID, "docs/compatibility.md has no such cell: python tests/methods/test_compatibility.py prints it"
    assert outcome(*cell) == SAID[cell]


def test_the_page_and_the_tests_have_the_same_cells():
    assert set(SAID) == set(CELLS)


def combinations(wanted):
    """A fair sample of a row with a prior, a likelihood and a network, by a fixed seed."""
    chance = random.Random(0)
    choices = (list(ROWS), PRIORS, list(LIKELIHOODS), list(NETWORKS))
    return [tuple(chance.choice(part) for part in choices) for _ in range(wanted)]


@pytest.mark.parametrize("combination", combinations(150), ids=name_of)
def test_a_combination_is_refused_where_one_of_its_parts_is(combination, caplog):
    caplog.set_level(logging.ERROR, logger="bayesify")
    row, prior, likelihood, network = combination
    parts = (("Priors", f"`{prior}`"), ("Likelihoods", f"`{likelihood}`"), ("Networks", network))
    expected = {SAID[table, row, column] for table, column in parts}
    cell = modelled(likelihood, NETWORKS[network], prior=prior)
    assert decided(cell, row) == ("yes" if expected == {"yes"} else "no")


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_page_of_the_same_shape(name):
    page = (PAGE.parent / "methods" / f"{name}.md").read_text()
    wanted = ("Idea and formula", "When to use it", "Cost", "Distance to HMC", "Limits")
    found = re.findall(r"^## (.+)$", page, re.MULTILINE)
    missing = [heading for heading in wanted if heading not in found]
    assert not missing, f"docs/methods/{name}.md lacks {missing}"
    assert "../results/hmc-distance.md" in page
    assert "../compatibility.md" in page


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.getLogger("bayesify").setLevel(logging.ERROR)
    for title, table in TABLES.items():
        print(f"## {title}\n\n| | {' | '.join(table)} |\n|{' --- |' * (len(table) + 1)}")
        for row in ROWS:
            print(f"| {row} | {' | '.join(outcome(title, row, column) for column in table)} |", flush=True)
        print()
