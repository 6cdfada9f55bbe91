"""Agents: their posteriors against exact ones, their rules against arithmetic, and what they learn."""

import numpy as np
import pytest
import torch

import bayesify as bf
from bayesify.decisions import (
    LinearAgent,
    LogisticAgent,
    MethodAgent,
    NeuralLinearAgent,
    linear_bandit,
    mushroom_bandit,
    play_bandit,
    quadratic_bandit,
)


def test_the_linear_posterior_is_exact():
    random = np.random.default_rng(0)
    x, y = random.standard_normal((30, 2)), random.standard_normal(30)
    agent, at_once = (LinearAgent(2, 2, prior=2.0, noise=0.5) for _ in range(2))
    for row, reward in zip(x, y, strict=True):
        agent.learn(row, 1, reward)
    at_once.learn_all(x, 1, y)
    design = np.column_stack((x, np.ones(30)))
    covariance = np.linalg.inv(design.T @ design / 0.25 + np.eye(3) / 4)
    mean = covariance @ design.T @ y / 0.25
    for one in (agent, at_once):
        assert np.allclose(one.covariance[1], covariance)
        assert np.allclose(one.mean[1], mean)
        assert np.allclose(one.mean[0], 0)
    agent.forget()
    assert np.allclose(agent.covariance, 4 * np.eye(3))


def test_thompson_sampling_acts_as_often_as_an_act_is_best():
    agent, seen = LinearAgent(2, 1, prior=1.0, noise=1.0, seed=1), np.array([0.5])
    agent.learn(seen, 0, 1.0)
    mean, variance = agent.mean @ [0.5, 1.0], [one @ [0.5, 1.0] @ [0.5, 1.0] for one in agent.covariance]
    best = torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor((mean[0] - mean[1]) / np.sqrt(sum(variance))))
    share = np.mean([agent.act(seen) == 0 for _ in range(4000)])
    assert abs(share - float(best)) < 3.5 * (float(best) * (1 - float(best)) / 4000) ** 0.5


def test_ucb_takes_the_act_that_it_knows_less_and_greedy_the_higher_mean():
    agents = {by: LinearAgent(2, 1, by=by, prior=1.0, noise=1.0, spread=1.0) for by in ("ucb", "greedy")}
    seen = np.ones(1)
    for agent in agents.values():
        for _ in range(20):
            agent.learn(seen, 0, 0.2)
    # Act 0: mean 0.2 * 40 / 41, variance 2 / 41; act 1: mean 0, variance 2.
    assert agents["greedy"].act(seen) == 0
    assert agents["ucb"].act(seen) == 1


def test_the_logistic_posterior_is_near_the_exact_one():
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 1))
    outcomes = random.random(60) < 1 / (1 + np.exp(-(1.5 * x[:, 0] - 0.5)))
    agent = LogisticAgent(1, 1, prior=1.5)
    for row, outcome in zip(x, outcomes, strict=True):
        agent.learn(row, 0, 3.0 if outcome else -2.0)
    model = agent.models[0]
    model._refit(50)
    grid = np.linspace(-6, 6, 241)
    slope, intercept = np.meshgrid(grid, grid, indexing="ij")
    logits = slope[..., None] * x[:, 0] + intercept[..., None]
    log = -(np.logaddexp(0, -logits * np.where(outcomes, 1, -1))).sum(-1) - (slope**2 + intercept**2) / (2 * 1.5**2)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = np.array([(weights * slope).sum(), (weights * intercept).sum()])
    std = np.sqrt([(weights * (slope - mean[0]) ** 2).sum(), (weights * (intercept - mean[1]) ** 2).sum()])
    # The bound makes the normal a little narrow; its centre is right to a third of a standard deviation.
    assert (np.abs(model.mean - mean) < 0.33 * std).all()
    ratio = np.sqrt(np.diag(model.covariance)) / std
    assert ((ratio > 0.75) & (ratio < 1.05)).all()
    # Rewards are between the two values that were seen.
    assert -2 < model.reward(np.array([0.3, 1.0]), 0.0) < 3
    assert model.values == [-2.0, 3.0]


def test_rewards_before_the_second_value_count_when_it_comes():
    late, early = LogisticAgent(1, 1), LogisticAgent(1, 1)
    for reward in (1.0, 1.0, 1.0, 0.0):
        late.learn(np.array([0.5]), 0, reward)
    for reward in (0.0, 1.0, 1.0, 1.0):
        early.learn(np.array([0.5]), 0, reward)
    for agent in (late, early):
        agent.models[0]._refit(30)
    assert np.allclose(late.models[0].mean, early.models[0].mean)
    assert late.models[0].counts[0] == 4
    assert late.models[0].higher[0] == 3


def test_agents_learn_what_to_eat_and_the_same_seed_plays_the_same_game():
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (60, 6)).astype(float)
    poisonous = x[:, 0] > 0.5
    for make in (LogisticAgent, LinearAgent):
        options = {"noise": 5.0, "prior": 10.0} if make is LinearAgent else {"spread": 0.5, "prior": 2.0}
        played = [
            play_bandit(
                make(2, 6, seed=3, **options), mushroom_bandit(x, poisonous, steps=600), seed=3, first_by_chance=30
            )
            for _ in range(2)
        ]
        assert torch.equal(played[0].acts, played[1].acts)
        assert torch.equal(played[0].regret, played[1].regret)
        assert float(played[0].regret[-200:].mean()) < 0.25 * float(played[0].regret[:60].mean())


def test_thompson_sampling_and_ucb_learn_a_linear_bandit():
    regret = {
        by: [
            float(
                play_bandit(
                    LinearAgent(5, 4, by=by, seed=s), linear_bandit(5, 4, noise=2.0, steps=600), seed=s
                ).cumulative[-1]
            )
            for s in range(6)
        ]
        for by in ("thompson", "ucb")
    }
    random = [
        float(
            play_bandit(
                LinearAgent(5, 4, epsilon=1.0, seed=s), linear_bandit(5, 4, noise=2.0, steps=600), seed=s
            ).cumulative[-1]
        )
        for s in range(6)
    ]
    assert np.mean(regret["thompson"]) < 0.3 * np.mean(random)
    assert np.mean(regret["ucb"]) < 0.3 * np.mean(random)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bf.LaplaceApproximation(bf.networks.mlp(5, 1, units=8, layers=1), "gaussian:1", prior="normal:1"),
        lambda: bf.Ensemble(bf.networks.mlp(5, 1, units=8, layers=1), "gaussian:1", members=3),
    ],
)
def test_any_method_can_play(make):
    torch.manual_seed(0)
    agent = MethodAgent(make, 2, 3, grow=2.0, epochs=30, learning_rate=0.05, seed=1)
    played = play_bandit(agent, linear_bandit(2, 3, noise=0.3, steps=150, seed=1), seed=1)
    assert float(played.regret[-60:].mean()) < 0.5 * float(played.regret[:16].mean())
    assert agent.memory.used == 150


def test_neural_linear_learns_what_no_linear_agent_can():
    torch.manual_seed(0)
    bandit = quadratic_bandit(3, 2, noise=0.1, steps=500, seed=2)
    network = bf.networks.mlp(5, 1, units=32)
    before = [parameter.clone() for parameter in network.parameters()]
    agent = NeuralLinearAgent(network, 3, 2, noise=0.5, updates=60, learning_rate=5e-3, grow=1.3, seed=0)
    deep, shallow = (play_bandit(one, bandit, seed=0) for one in (agent, LinearAgent(3, 2, noise=0.5)))
    assert float(deep.regret[-200:].mean()) < 0.6 * float(shallow.regret[-200:].mean())
    # The network that was given is copied.
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_what_is_impossible_is_refused():
    agent = LogisticAgent(1, 1)
    for reward in (0.0, 1.0):
        agent.learn(np.ones(1), 0, reward)
    with pytest.raises(ValueError, match="use LinearAgent"):
        agent.learn(np.ones(1), 0, 2.0)
    with pytest.raises(ValueError, match=r"context must be \[1\]"):
        agent.act(np.ones(2))
    with pytest.raises(ValueError, match="by"):
        LinearAgent(2, 1, by="luck")
    with pytest.raises(ValueError, match="epsilon"):
        LinearAgent(2, 1, epsilon=2.0)
    with pytest.raises(ValueError, match="prior and noise"):
        LinearAgent(2, 1, noise=0.0)
    with pytest.raises(ValueError, match="grow"):
        MethodAgent(lambda: None, 2, 1, grow=1.0)
    for one in (LinearAgent(2, 1), LogisticAgent(2, 1), MethodAgent(lambda: None, 2, 1)):
        with pytest.raises(ValueError, match="context must be finite"):
            one.act(np.array([np.nan]))
        with pytest.raises(ValueError, match="act must be a whole number from 0 to 1, got 2"):
            one.learn(np.ones(1), 2, 1.0)
        with pytest.raises(ValueError, match="reward must be a finite number, got nan"):
            one.learn(np.ones(1), 1, float("nan"))
    with pytest.raises(ValueError, match="the bandit has 5 acts, the agent 4: give it acts=5"):
        play_bandit(LinearAgent(4, 2), linear_bandit(5, 2, steps=10))
    with pytest.raises(TypeError, match="takes a ContextualBandit, got list"):
        play_bandit(LinearAgent(4, 2), [])
    with pytest.raises(TypeError, match=r"nn\.Sequential"):
        NeuralLinearAgent(torch.nn.Linear(3, 1), 2, 1)
