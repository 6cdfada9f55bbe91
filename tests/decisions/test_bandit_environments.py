"""Bandits in Gymnasium's form: regret by hand, the published rewards, and the same luck for all agents."""

import sys

import numpy as np
import pytest

from bayesify.decisions import (
    as_gymnasium,
    linear_bandit,
    mushroom_bandit,
    quadratic_bandit,
    table_bandit,
    wheel_bandit,
)


def test_regret_is_what_arithmetic_says_on_a_table():
    rewards = np.array([[1.0, 4.0], [2.0, -1.0]])
    bandit = table_bandit([[0.0], [1.0]], rewards, steps=6)
    context, _ = bandit.reset(seed=3)
    by_hand = 0.0
    for step in range(6):
        row, act = int(context[0]), step % 2
        context, reward, terminated, truncated, info = bandit.step(act)
        assert reward == rewards[row, act]
        assert info["regret"] == info["expected_regret"] == rewards[row].max() - rewards[row, act]
        assert info["best"] == (1, 0)[row]
        assert (terminated, truncated) == (False, step == 5)
        by_hand += rewards[row].max() - rewards[row, act]
    assert bandit.total_regret == by_hand > 0


def test_an_unlucky_reward_counts_against_the_expected_best():
    bandit = mushroom_bandit([[1.0]], [1], steps=200)
    bandit.reset(seed=0)
    infos = [(bandit.step(1)[1], bandit.done) for _ in range(200)]
    rewards = [reward for reward, _ in infos]
    assert set(rewards) == {-35.0, 5.0}
    # The best act, passing, gives 0: a poisonous mushroom costs 35, or -5 with luck.
    assert bandit.total_regret == -sum(rewards)
    # 200 even odds: 3.5 standard errors of 20 / sqrt(200).
    assert abs(np.mean(rewards) + 15) < 3.5 * 20 / 200**0.5


def test_contexts_and_luck_depend_on_the_seed_and_not_on_the_acts():
    def played(act, seed):
        bandit = linear_bandit(3, 2, steps=20)
        contexts, rewards = [bandit.reset(seed=seed)[0]], []
        for step in range(20):
            context, reward, *_ = bandit.step(act(step))
            contexts.append(context)
            rewards.append(reward)
        return np.stack(contexts), np.array(rewards)

    always, sometimes = played(lambda _: 1, 5), played(lambda step: 1 if step % 2 else 0, 5)
    assert np.array_equal(always[0], sometimes[0])
    assert np.array_equal(always[1][1::2], sometimes[1][1::2])
    assert not np.array_equal(always[0], played(lambda _: 1, 6)[0])


def test_the_wheel_pays_in_its_outer_ring_by_the_quarter():
    bandit, steps = wheel_bandit(0.6, steps=4000), 4000
    context, _ = bandit.reset(seed=1)
    outer, seen = 0, {}
    for _ in range(steps):
        before = context
        context, reward, _, _, info = bandit.step(0)
        assert abs(reward - 1.2) < 0.06
        assert np.hypot(*before) <= 1
        if np.hypot(*before) > 0.6:
            outer += 1
            seen.setdefault((bool(before[0] > 0), bool(before[1] > 0)), set()).add(info["best"])
            assert info["regret"] > 48
        else:
            assert info["best"] == 0
    # The ring has 1 - 0.6^2 of the area: 3.5 standard errors of a share.
    assert abs(outer / steps - 0.64) < 3.5 * (0.64 * 0.36 / steps) ** 0.5
    assert sorted(len(acts) for acts in seen.values()) == [1, 1, 1, 1]
    assert set().union(*seen.values()) == {1, 2, 3, 4}


def test_quadratic_rewards_are_the_same_for_a_context_and_its_opposite():
    bandit = quadratic_bandit(3, 2, noise=0.0, steps=5)
    context, _ = bandit.reset(seed=0)
    means = bandit.situations(np.random.default_rng(0)).expected
    assert np.allclose(means, bandit.situations(np.random.default_rng(0)).rewards)
    assert context.shape == (2,)


@pytest.mark.parametrize("make", [wheel_bandit, linear_bandit, quadratic_bandit, lambda: mushroom_bandit([[1.0]], [0])])
def test_gymnasium_accepts_the_environment(make):
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    environment = as_gymnasium(make())
    assert isinstance(environment, gymnasium.Env)
    # Gymnasium advises against spaces without limits, which contexts have.
    with pytest.warns(UserWarning, match="infinity"):
        check_env(environment, skip_render_check=True)


def test_bandits_work_without_gymnasium(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    bandit = linear_bandit(2, 2, steps=2)
    bandit.reset(seed=0)
    bandit.step(0)
    with pytest.raises(ImportError, match=r"bayesify\[bandits\]"):
        _ = bandit.action_space


def test_what_is_impossible_is_refused_in_one_line():
    bandit = linear_bandit(2, 2, steps=1)
    with pytest.raises(ValueError, match="reset"):
        bandit.step(0)
    bandit.reset(seed=0)
    for act in (2, -1, 0.5, True, None, "a", float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"from 0 to 1, got {act!r}"):
            bandit.step(act)
    bandit.step(np.float64(0))
    with pytest.raises(ValueError, match="over after 1"):
        bandit.step(0)
    with pytest.raises(ValueError, match="delta"):
        wheel_bandit(1.0)
    with pytest.raises(ValueError, match="finite"):
        table_bandit([[np.nan]], [[1.0]])
    with pytest.raises(ValueError, match=r"\[n, features\]"):
        mushroom_bandit([[1.0]], [0, 1])
    with pytest.raises(ValueError, match="x must be finite"):
        mushroom_bandit([[np.inf]], [0])
    with pytest.raises(ValueError, match="noise"):
        linear_bandit(noise=-1)
