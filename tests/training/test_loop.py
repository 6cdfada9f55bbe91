"""The plan is followed: schedules, early stopping, the best state, the user's own functions."""

import logging
import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.training.loop import Plan


def network():
    torch.manual_seed(0)
    return bf.networks.mlp(2, 3, units=8)


def point(**more):
    return bf.PointEstimate(network(), "categorical", **more)


def test_the_learning_rate_follows_its_schedule(blobs):
    history = point().fit(blobs, epochs=4, batch_size=48, learning_rate=0.1, schedule="linear", progress=False)
    assert history["learning_rate"] == pytest.approx([0.1 * (1 - step / 8) for step in (1, 3, 5, 7)])
    history = point().fit(blobs, epochs=2, schedule=lambda progress: 0.5 if progress else 1.0, progress=False)
    assert history["learning_rate"] == pytest.approx([1e-2, 0.5e-2])  # the default for rows of numbers


def test_history_holds_the_epochs_means(blobs):
    x, y = blobs
    method = point(prior="normal:1")
    theta = method.theta.detach().clone()
    history = method.fit(blobs, epochs=1, batch_size=96, learning_rate=1e-12, optimizer="sgd", progress=False)
    outputs = network()(x)
    nll = nn.functional.cross_entropy(outputs, y).item()
    log_prior = torch.distributions.Normal(0.0, 1.0).log_prob(theta).sum().item()
    assert history["nll"][0] == pytest.approx(nll, rel=1e-5)
    assert history["kl"][0] == pytest.approx(-log_prior, rel=1e-5)
    assert history["loss"][0] == pytest.approx(nll - log_prior / 96, rel=1e-5)


def overfitting():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 2, generator=generator)
    y = torch.randint(0, 3, (40,), generator=generator)
    return (x[:20], y[:20]), (x[20:], y[20:])


def test_early_stopping_waits_its_patience_and_no_longer():
    data, validation = overfitting()
    history = point().fit(
        data, epochs=200, learning_rate=0.05, validation=validation, patience=5, progress=False, keep="best"
    )
    scores = history["validation_nll"]
    best = min(range(len(scores)), key=scores.__getitem__)
    assert len(scores) == best + 1 + 5 < 200
    assert "has not improved for 5 epochs" in history.stopped


def test_the_best_state_is_the_one_that_scored_best():
    data, validation = overfitting()
    best, last = point(), point()
    settings = {"epochs": 60, "learning_rate": 0.05, "validation": validation, "progress": False}
    history = best.fit(data, keep="best", **settings)
    last.fit(data, keep="last", **settings)
    scores = history["validation_nll"]
    assert bf.evaluate(best, validation).nll == pytest.approx(min(scores), rel=1e-5)
    assert bf.evaluate(last, validation).nll == pytest.approx(scores[-1], rel=1e-5)
    assert min(scores) < scores[-1] - 0.01


def test_the_best_state_survives_a_kill(tmp_path):
    data, validation = overfitting()
    settings = {"epochs": 30, "learning_rate": 0.05, "validation": validation, "progress": False, "keep": "best"}
    whole, victim = point(), point()
    whole.fit(data, **settings)
    original = victim.objective

    def dies(*args, step, **kwargs):
        if step == 25:
            raise MemoryError
        return original(*args, step=step, **kwargs)

    victim.objective = dies
    with pytest.raises(MemoryError):
        victim.fit(data, run=tmp_path / "run", **settings)
    resumed = bf.load(tmp_path / "run")
    resumed.resume(data, tmp_path / "run", validation=validation, progress=False)
    assert torch.equal(resumed.theta, whole.theta)


def test_own_functions_are_asked_for_again_when_resuming(blobs, tmp_path):
    def optimizer(parameters, lr):
        return torch.optim.SGD(parameters, lr=lr, momentum=0.5)

    method = point()
    method.fit(blobs, epochs=2, optimizer=optimizer, progress=False, run=tmp_path / "run")
    with pytest.raises(ValueError, match="give optimizer= again"):
        bf.load(tmp_path / "run").resume(blobs, tmp_path / "run", extend=1, progress=False)
    longer = bf.load(tmp_path / "run")
    longer.resume(blobs, tmp_path / "run", extend=1, optimizer=optimizer, progress=False)
    straight = point()
    straight.fit(blobs, epochs=3, optimizer=optimizer, progress=False)
    assert torch.equal(longer.theta, straight.theta)


def test_extending_says_what_the_schedule_becomes(blobs, tmp_path, caplog):
    method = point()
    method.fit(blobs, epochs=2, schedule="cosine", progress=False, run=tmp_path / "run")
    with caplog.at_level(logging.INFO, logger="bayesify"):
        bf.load(tmp_path / "run").resume(blobs, tmp_path / "run", extend=2, progress=False)
    assert "from 2 to 4 epochs" in caplog.text
    assert "cosine" in caplog.text


def test_a_finished_run_resumed_changes_nothing(blobs, tmp_path):
    method = point()
    method.fit(blobs, epochs=2, progress=False, run=tmp_path / "run")
    again = bf.load(tmp_path / "run")
    history = again.resume(blobs, tmp_path / "run", progress=False)
    assert torch.equal(again.theta, method.theta)
    assert len(history) == 2


@pytest.mark.parametrize("objective", ["expected", "log_expected"])
def test_gaussian_logits_train_by_either_objective(blobs, objective):
    torch.manual_seed(0)
    likelihood = bf.likelihoods.GaussianLogits(objective=objective, samples=50)
    method = bf.PointEstimate(bf.networks.mlp(2, 6, units=16), likelihood)
    method.fit(blobs, epochs=40, learning_rate=2e-2, progress=False)
    assert bf.evaluate(method, blobs).accuracy > 0.95


def test_learned_noise_is_found_and_travels_with_the_run(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(400, 1, generator=generator)
    y = 2 * x[:, 0] - 1 + 0.3 * torch.randn(400, generator=generator)
    method = bf.PointEstimate(nn.Sequential(nn.Linear(1, 1)), bf.likelihoods.Gaussian("learned"))
    method.fit((x, y), epochs=150, batch_size=100, learning_rate=3e-2, progress=False)
    # The maximum-likelihood noise of 400 residuals has a standard error of 0.3 / sqrt(800) = 0.011: within 4.
    noise = method.predict(x[:1]).variance.sqrt().item()
    assert abs(noise - 0.3) < 4 * 0.011
    method.save(tmp_path / "run")
    network = nn.Sequential(nn.Linear(1, 1))
    assert bf.load(tmp_path / "run", network).predict(x[:1]).variance.sqrt().item() == noise


def test_a_plan_is_plain_data():
    import json
    from dataclasses import asdict

    plan = Plan(epochs=3, schedule="cosine", kl="uniform,warm-up=2")
    assert Plan(**json.loads(json.dumps(asdict(plan)))) == plan


def test_a_score_that_is_not_a_number_is_not_the_best():
    # Weights of 10 make an infinite logit of 1e38, and the softmax of two of them is no number; smaller weights do not.
    net = nn.Linear(1, 2, bias=False)
    nn.init.constant_(net.weight, 10.0)
    x, y = torch.ones(8, 1), torch.arange(8) % 2
    method = bf.PointEstimate(net, "categorical", prior="normal:1")
    history = method.fit(
        (x, y),
        epochs=30,
        batch_size=8,
        learning_rate=1.0,
        optimizer="sgd",
        validation=(torch.full((2, 1), 1e38), torch.tensor([0, 1])),
        keep="best",
        progress=False,
    )
    scores = history["validation_nll"]
    assert math.isnan(scores[0])
    assert math.isfinite(scores[-1])
    assert float(method.theta.detach().abs().max()) < 3.4
