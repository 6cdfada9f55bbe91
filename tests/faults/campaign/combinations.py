"""Random combinations of method, prior, likelihood, shapes, types and settings: each works, or is refused in one line.

What works must be right. The numbers are compared with others that are computed in another way: the loss with NLL and
KL, the prediction with the mean over the draws' own distributions, each input alone with the whole batch, and the
weights that were saved and loaded.
"""

import math
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

from rows import Row

FULL, SHORT, BLOCK = 3_000, 60, 25
METHODS = (
    *("point", "ensemble", "mc-dropout", "variational", "ivon", "laplace", "swag", "sgld", "sghmc", "hmc"),
    *("variational", "variational"),
)
PRIORS = (
    *(None, "normal:1", "normal:fan_in", "laplace:1", "cauchy:1", "student-t:3,1", "scale-mixture:0.5,1,0.1", "flat"),
    *("log-uniform", "normal:half-cauchy(1)", "laplace:inverse-gamma(1,1)", "normal:learned", "normal:0.01"),
)
# name: outputs for so many targets, and what the targets are
LIKELIHOODS = {
    "categorical": "classes",
    "bernoulli": "binary",
    "gaussian": "numbers",
    "gaussian:0.5": "numbers",
    "gaussian:heteroscedastic": "numbers",
    "laplace": "numbers",
    "student-t": "numbers",
    "poisson": "counts",
    "negative-binomial": "counts",
    "ordinal:3": "classes",
    "gaussian-logits": "classes",
}
OPTIONS = {
    "variational": (
        {},
        {"family": "full_rank"},
        {"family": "low_rank"},
        {"estimator": "local"},
        {"estimator": "flipout"},
        {"bayesian": "last_layer"},
    ),
    "laplace": ({}, {"structure": "diagonal"}, {"structure": "full"}, {"bayesian": "last_layer"}),
    "ensemble": ({"members": 2},),
    "mc-dropout": ({"p": 0.2},),
    "sgld": ({"chains": 2},),
    "sghmc": ({"chains": 2},),
    "hmc": ({"chains": 2},),
}


def rows(ledger, short):
    """One row."""
    import forked

    wanted, began = (SHORT if short else FULL), time.monotonic()
    tried, worked, wrong = 0, 0, 0
    for first in range(0, wanted, BLOCK):

        def trial(first=first):
            return _in_a_child(forked, first, min(BLOCK, wanted - first))

        facts = ledger.trial(f"combinations {first}", trial)
        if facts is None:
            continue
        tried, worked, wrong = tried + facts["tried"], worked + facts["worked"], wrong + len(facts["wrong"])
        for line in facts["wrong"]:
            print(line, file=sys.stderr, flush=True)
    if tried:
        note = f"{worked:,} trained and agreed with other computations, {tried - worked - wrong:,} refused in one line"
        yield Row(
            "combination of settings",
            "methods, priors, likelihoods",
            tried,
            tried - wrong,
            wrong,
            time.monotonic() - began,
            note,
        )


def _in_a_child(forked, first, count):
    import json

    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"

        def attempt():
            worked, wrong = 0, []
            for number in range(first, first + count):
                outcome, line = check(number)
                worked += outcome == "worked"
                wrong += [line] if outcome == "wrong" else []
            answer.write_text(json.dumps({"tried": count, "worked": worked, "wrong": wrong}))
            return 0

        code, text, _ = forked.run(attempt, 3000)
        if code != 0:
            return {
                "tried": count,
                "worked": 0,
                "wrong": [f"combinations from {first}: exit code {code}: {text[-300:]}"],
            }
        return json.loads(answer.read_text())


def check(number):
    """Train one combination: `worked`, `refused` or `wrong`, and a line that says what was tried and what happened."""
    import torch

    import bayesify as bf

    chance = random.Random(f"combination {number}")
    said = _chosen(chance)
    text = f"combination {number}: {said}"
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            why = _tried(said, chance)
    except (ValueError, TypeError, bf.TrainingError, MemoryError) as refusal:
        return (
            ("wrong", f"{text}: {refusal!r:.300}")
            if "\n" in str(refusal) or not str(refusal)
            else ("refused", f"{text}: {refusal}")
        )
    except Exception as error:  # noqa: BLE001 -- what is looked for
        return "wrong", f"{text}: {type(error).__name__}: {error!s:.300}"
    return ("wrong", f"{text}: {why}") if why else ("worked", text)


def _chosen(chance):
    method = chance.choice(METHODS)
    return {
        "method": method,
        "prior": chance.choice(PRIORS),
        "likelihood": chance.choice(list(LIKELIHOODS)),
        "options": chance.choice(OPTIONS.get(method, ({},))),
        "examples": chance.choice((1, 2, 7, 24)),
        "inputs": chance.choice((1, 3, (2, 2))),
        "dtype": chance.choice(("float32", "float32", "float64")),
        "batch_size": chance.choice((1, 5, 24, 100)),
        "draws": chance.choice((1, 1, 2)),
        "kl": chance.choice(("uniform", "uniform", "reweighted", "uniform,temperature=0.5", "uniform,warm-up=1")),
        "settings": chance.choice(
            (
                {},
                {},
                {"accumulate": 2},
                {"clip_norm": 1.0},
                {"ema": 0.9},
                {"precision": "bfloat16"},
                {"schedule": "cosine"},
                {"optimizer": "sgd"},
            )
        ),
    }


def _tried(said, chance):
    """What is wrong with the numbers of one combination; an empty text where nothing is."""
    import torch
    from torch import nn

    import bayesify as bf

    generator = torch.Generator().manual_seed(chance.randrange(1000))
    torch.manual_seed(0)
    dtype = getattr(torch, said["dtype"])
    shape = said["inputs"] if isinstance(said["inputs"], tuple) else (said["inputs"],)
    x = torch.randn(said["examples"], *shape, generator=generator).to(dtype)
    kind = LIKELIHOODS[said["likelihood"]]
    noise = torch.randn(said["examples"], generator=generator)
    y = {
        "classes": noise.abs().long() % 3,
        "binary": (noise > 0).long(),
        "numbers": noise.to(dtype),
        "positive": noise.exp().to(dtype),
        "counts": noise.abs().mul(3).long(),
    }[kind]
    if kind == "binary":
        y = y.to(dtype)
    likelihood = bf.likelihoods.parse(said["likelihood"])
    width = 3 if kind == "classes" else 2 if "heteroscedastic" in said["likelihood"] else 1
    if said["likelihood"].startswith("ordinal"):
        width = 1
    if said["likelihood"] == "gaussian-logits":
        width = 6
    network = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 5), nn.Tanh(), nn.Linear(5, width)).to(dtype)
    method = bf.methods.METHODS[said["method"]](network, likelihood, prior=said["prior"], **said["options"])
    if said["method"] == "hmc":
        history = method.fit((x, y), warm_up=20, samples=4, progress=False)
    else:
        more = dict(said["settings"])
        history = method.fit(
            (x, y),
            epochs=2,
            batch_size=said["batch_size"],
            learning_rate=1e-3,
            draws=said["draws"],
            kl=said["kl"],
            progress=False,
            **more,
        )
    return _wrong_numbers(method, history, x, y, said, network)


def _wrong_numbers(method, history, x, y, said, network):
    import torch

    import bayesify as bf

    record = history.records[-1]
    if not all(math.isfinite(record[name]) for name in ("loss", "nll", "kl")):
        return "the history is not finite"
    if said["method"] != "hmc" and said["kl"] == "uniform":
        expected = record["nll"] + record["kl"] / len(x)
        if abs(record["loss"] - expected) > 1e-4 * max(1.0, abs(expected)):
            return f"the loss {record['loss']} is not NLL + KL / N = {expected}"
    p = method.predict(x, draws=6, seed=1)
    outputs = p.outputs.double()
    if not bool(torch.isfinite(outputs).all()):
        return "the outputs are not finite"
    if method.likelihood.kind == "classification":
        probabilities = p.probs.double()
        if not torch.allclose(probabilities.sum(-1), torch.ones(len(x), dtype=torch.float64), atol=1e-5):
            return "the probabilities do not sum to one"
        if said["likelihood"] == "categorical":
            expected = outputs.softmax(-1).mean(0)
            if not torch.allclose(probabilities, expected, atol=1e-5):
                return "the probabilities are not the mean of the draws' softmax"
            direct = expected[torch.arange(len(x)), y].log()
            if not torch.allclose(p.log_prob(y).double(), direct, atol=1e-3):
                return "the log-probability of the targets is another"
    elif said["likelihood"] == "gaussian:0.5":
        means = outputs[..., 0]
        direct = torch.distributions.Normal(means, 0.5).log_prob(y.double()).logsumexp(0) - math.log(len(means))
        if not torch.allclose(p.log_prob(y).double().flatten(), direct, rtol=1e-3, atol=1e-3):
            return "the log-density of the targets is another"
    elif not bool(torch.isfinite(p.log_prob(y)).all()):
        return "the log-density of the targets is not finite"
    alone = torch.cat([method.predict(x[i : i + 1], draws=6, seed=1).outputs for i in range(min(3, len(x)))], 1)
    if not torch.allclose(alone.double(), outputs[:, :3], rtol=1e-3, atol=1e-4):
        return "an input alone is answered otherwise than in a batch"
    with tempfile.TemporaryDirectory() as folder:
        method.save(Path(folder) / "run")
        again = bf.load(Path(folder) / "run", network=network)
        if not torch.equal(again.predict(x, draws=6, seed=1).outputs, p.outputs):
            return "saved and loaded, it predicts otherwise"
    return ""
