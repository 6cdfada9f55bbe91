"""Bandits: rewards of acts, learning from them, and that Thompson sampling explores as much as it is uncertain."""

import pytest
import torch

import bayesify as bf
from bayesify.decisions import Mushrooms, play
from bayesify.decisions.bandits import _Rewards


def toy(steps, seed=0):
    """Two kinds of mushroom, which one feature distinguishes."""
    x = torch.tensor([[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 5)
    return Mushrooms(x, torch.tensor([0] * 5 + [1] * 5), steps, seed)


def agent(kind="point", seed=0, rho=-3.0):
    net, likelihood = bf.networks.mlp(4, 1, units=16, layers=1), bf.likelihoods.Gaussian(1.0)
    if kind == "point":
        return bf.PointEstimate(net, likelihood, seed=seed, start="fresh")
    return bf.Variational(net, likelihood, seed=seed, start="fresh", rho=rho)


def test_rewards_are_those_of_the_game():
    game = toy(40_000)
    eaten = torch.tensor([game.reward(step, 1) for step in range(40_000)])
    poisonous = torch.tensor(game.poisonous)
    assert set(eaten[poisonous].tolist()) == {-35.0, 5.0}
    assert set(eaten[~poisonous].tolist()) == {5.0}
    assert {game.reward(step, 0) for step in range(100)} == {0.0}
    # even odds: 20,000 of them have a mean of -15 with a standard error of 20 / sqrt(20,000) = 0.14
    assert abs(float(eaten[poisonous].mean()) + 15) < 3.5 * 20 / float(poisonous.sum()) ** 0.5
    assert abs(float(poisonous.double().mean()) - 0.5) < 3.5 * 0.5 / 200


def test_play_at_random_regrets_what_arithmetic_says():
    game = toy(2000)
    regret = play(agent(), game, steps=2000, epsilon=1.0, updates=0, compiled=False).regret
    # half of the mushrooms are eaten: 1/4 of steps pass an edible one (5), 1/4 eat a poisonous one (15 on average)
    assert abs(float(regret.mean()) - 5.0) < 3.5 * float(regret.std()) / 2000**0.5


@pytest.mark.parametrize(("kind", "epsilon"), [("point", 0.1), ("variational", 0.0)])
def test_an_agent_learns_what_to_eat(kind, epsilon):
    game = toy(250)
    played = play(agent(kind), game, steps=250, epsilon=epsilon, updates=4, learning_rate=0.02, compiled=False)
    assert float(played.regret[-100:].mean()) < 0.5 + 5 * epsilon
    assert float(played.regret[-100:].mean()) < float(played.regret[:50].mean())
    assert played.cumulative[-1] == played.regret.sum()


def test_the_same_seed_plays_the_same_game():
    first, second, other = (
        play(agent("variational", seed), toy(60, seed), steps=60, updates=1, seed=seed, compiled=False)
        for seed in (0, 0, 1)
    )
    assert torch.equal(first.acts, second.acts)
    assert torch.equal(first.regret, second.regret)
    assert not torch.equal(first.acts, other.acts)


def test_a_wide_posterior_tries_what_a_narrow_one_does_not():
    """Without learning, how often the acts change on one mushroom is how unsure the posterior is about the best one."""
    changes = {}
    for rho in (-12.0, 1.0):
        game = Mushrooms(torch.ones(1, 2), torch.zeros(1), 300, 0)
        acts = play(agent("variational", rho=rho), game, steps=300, updates=0, compiled=False).acts
        changes[rho] = float((acts[1:] != acts[:-1]).double().mean())
    assert changes[-12.0] == 0.0
    assert changes[1.0] > 0.3  # a coin has 0.5, with a standard error of 0.03


def test_each_decision_of_dropout_has_a_mask_of_its_own():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)]
    method = bf.MCDropout(torch.nn.Sequential(*layers), bf.likelihoods.Gaussian(1.0)).eval()
    x = torch.randn(2, 4)
    rewards = _Rewards(method, x, 1, seed=3, compiled=False)
    decided = torch.stack([rewards.at(x, step) for step in range(600)]).double()
    drawn = method.draw(x, draws=4000)[..., 0].double()
    # The same function drawn at random: |z| < 4 for means and, by their fourth moments, for variances.
    z = (decided.mean(0) - drawn.mean(0)) / (drawn.var(0) * (1 / 600 + 1 / 4000)).sqrt()
    fourth = (drawn - drawn.mean(0)).pow(4).mean(0) / drawn.var(0).square()
    widths = (decided.var(0) / drawn.var(0) - 1) / ((fourth - 1) * (1 / 600 + 1 / 4000)).sqrt()
    assert float(torch.cat((z, widths)).abs().max()) < 4


@pytest.mark.parametrize("compiled", [False, True])
def test_each_decision_of_an_ensemble_is_a_member_s_all_as_often(compiled, monkeypatch):
    if compiled:
        monkeypatch.setattr("bayesify.decisions.bandits.compile_function", lambda function, _: function)
    method = bf.Ensemble(lambda: bf.networks.mlp(4, 1, units=8), bf.likelihoods.Gaussian(1.0), members=3).eval()
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    rewards = _Rewards(method, x, 1, seed=3, compiled=compiled)
    members = method.draw(x, draws=3)[..., 0]
    decided = torch.stack([rewards.at(x, step) for step in range(600)])
    which = torch.isclose(decided[:, None], members, atol=1e-6).all(-1)
    assert bool((which.sum(1) == 1).all())
    # Each member a third of the time: a chi-squared of 2 degrees of freedom is above 18.4 in one of 10,000.
    counts = which.sum(0).double()
    assert float((counts - 200).square().sum() / 200) < 18.4
    # As many draws as members are all of them.
    both = _Rewards(method, x, 3, seed=3, compiled=False).at(x, 0)
    assert torch.allclose(both, members.mean(0), atol=1e-6)


def test_only_the_latest_interactions_are_learned_from():
    """Rewards turn round half way: with a short memory the agent follows, with a long one it does not."""

    class Turning:
        acts = 2

        def context(self, step):
            return torch.ones(2)

        def inputs(self, context):
            return torch.cat((context.expand(2, -1), torch.eye(2)), 1)

        def reward(self, step, act):
            return 1.0 if (act == 1) == (step < 150) else -1.0

        def best(self, step):
            return 1.0

    late = {}
    for memory in (20, 5000):
        played = play(
            agent(), Turning(), steps=260, epsilon=0.2, memory=memory, updates=4, learning_rate=0.02, compiled=False
        )
        late[memory] = float(played.regret[180:260].mean())
    assert late[20] < 0.6  # a fifth at random: 0.2
    assert late[5000] > 1.2


def test_features_stand_beside_both_acts_or_beside_eating_alone():
    x, poisonous = torch.tensor([[1.0, 0.0]]), torch.zeros(1)
    both, eating = (Mushrooms(x, poisonous, 1, shown=shown).inputs(x[0]) for shown in ("both", "eating"))
    assert both.tolist() == [[1, 0, 1, 0], [1, 0, 0, 1]]
    assert eating.tolist() == [[0, 0, 1, 0], [1, 0, 0, 1]]


def test_the_first_decisions_are_chance_and_the_same_for_all_agents():
    """A network that eats nothing eats half of the first ones: 100 of 200, with a standard error of 7.1."""
    firsts = []
    for kind in ("point", "variational"):
        unwilling = agent(kind)
        with torch.no_grad():
            (unwilling.theta if kind == "point" else unwilling.mu).zero_()
        acts = play(unwilling, toy(300), steps=300, first_by_chance=200, updates=0, compiled=False).acts
        assert abs(int(acts[:200].sum()) - 100) < 3.5 * 7.1
        firsts.append((acts[:200], int(acts[200:].sum())))
    assert torch.equal(firsts[0][0], firsts[1][0])
    assert firsts[0][1] == 0  # all rewards are zero, and the first of them is passing


def test_a_learning_rate_may_depend_on_the_decisions_made():
    ends = []
    for steps in (10, 30):
        own = agent()
        play(own, toy(30), steps=steps, updates=1, learning_rate=lambda done: 0.01 * (done <= 10), compiled=False)
        ends.append(own.theta.detach().clone())
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], agent().theta)


def test_a_prior_that_counts_more_holds_the_weights_nearer_to_zero():
    """And a function of the decisions made is asked at each of them."""
    norms, asked = {}, []
    for weight in (0.0, 30.0):
        own = bf.PointEstimate(
            bf.networks.mlp(4, 1, units=16, layers=1), bf.likelihoods.Gaussian(1.0), prior="normal:0.1", start="fresh"
        )

        def counted(done, weight=weight):
            asked.append(done)
            return weight

        play(own, toy(100), steps=100, epsilon=0.5, updates=2, learning_rate=0.02, prior_weight=counted, compiled=False)
        norms[weight] = float(own.theta.detach().norm())
    assert norms[30.0] < 0.5 * norms[0.0]
    assert asked == [*range(1, 101)] * 2


def test_compiled_decisions_are_the_plain_ones_and_each_has_its_own_weights():
    own, inputs = agent("variational", rho=0.0), toy(1).inputs(torch.tensor([1.0, 0.0]))
    own.network.traced(inputs)
    plain, compiled = (_Rewards(own, inputs, 1, 3, compiled) for compiled in (False, True))
    rewards = torch.stack([plain.at(inputs, step) for step in range(400)])
    assert torch.allclose(rewards[:20], torch.stack([compiled.at(inputs, step) for step in range(20)]), atol=1e-5)
    with torch.no_grad():
        own.mu.add_(0.5)  # learning goes on: what is compiled reads the weights as they are
    assert torch.allclose(plain.at(inputs, 0), compiled.at(inputs, 0), atol=1e-5)
    assert not torch.allclose(plain.at(inputs, 0), rewards[0])
    with torch.no_grad():
        own.mu.sub_(0.5)
        drawn = own.network.outputs(own.weights(range(4000), 9), inputs)[0].reshape(4000, 2)
    # the same distribution as the method's own draws: means within 3.5 standard errors
    error = (drawn.var(0) / 4000 + rewards.var(0) / 400).sqrt()
    assert bool(((drawn.mean(0) - rewards.mean(0)).abs() < 3.5 * error).all())
    assert len(rewards.unique(dim=0)) == 400


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="first_by_chance must be an integer of at least 0, got -1"):
        play(agent(), toy(5), steps=5, first_by_chance=-1)
    with pytest.raises(ValueError, match="unknown shown 'eat'; did you mean 'eating'"):
        Mushrooms(torch.ones(1, 2), torch.zeros(1), 1, shown="eat")
    with pytest.raises(ValueError, match="epsilon must be from 0 to 1, got 2"):
        play(agent(), toy(5), steps=5, epsilon=2)
    with pytest.raises(ValueError, match="steps must be an integer of at least 1, got 0"):
        play(agent(), toy(5), steps=0)
