"""Acquisition functions against brute force over all labels on tiny cases."""

import itertools

import pytest
import torch

import bayesify as bf
from bayesify.decisions import acquisition, acquisition_scores, batchbald, choose_from, epig


def probabilities(draws, inputs, classes, seed=0, sharpness=2.0):
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(draws, inputs, classes, generator=generator).double()).softmax(-1)


def predictive(probs):
    return bf.Predictive(probs.log(), bf.likelihoods.Categorical())


def entropy_of(distribution):
    return -sum(float(p) * float(p.log()) for p in distribution.flatten() if p > 0)


def joint_information(probs, members):
    """I(labels; draw) by listing all labels of the members."""
    configurations = itertools.product(range(probs.shape[-1]), repeat=len(members))
    per_draw = torch.stack(
        [
            torch.stack([probs[:, m, c] for m, c in zip(members, labels, strict=True)]).prod(0)
            for labels in configurations
        ],
        1,
    )
    return entropy_of(per_draw.mean(0)) - sum(entropy_of(row) for row in per_draw) / len(per_draw)


def test_scores_are_their_definitions():
    probs = probabilities(5, 4, 3)
    answer, mean = predictive(probs), probs.mean(0)
    for i in range(4):
        assert float(acquisition_scores(answer, "entropy")[i]) == pytest.approx(entropy_of(mean[i]))
        assert float(acquisition_scores(answer, "bald")[i]) == pytest.approx(joint_information(probs, [i]), abs=1e-9)
        assert float(acquisition_scores(answer, "variation_ratio")[i]) == pytest.approx(1 - float(mean[i].max()))


def test_epig_is_the_mean_information_of_two_labels():
    pool, targets = probabilities(6, 3, 3), probabilities(6, 4, 3, seed=1)
    for i in range(3):
        total = 0.0
        for j in range(4):
            joint = torch.einsum("da,db->ab", pool[:, i], targets[:, j]) / 6
            total += entropy_of(joint.sum(0)) + entropy_of(joint.sum(1)) - entropy_of(joint)
        assert float(epig(pool, targets)[i]) == pytest.approx(total / 4, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_batchbald_takes_the_greedy_steps_of_brute_force(seed):
    probs = probabilities(4, 7, 3, seed)
    chosen, gains = batchbald(probs, 3)
    expected = []
    for _ in range(3):
        left = [i for i in range(7) if i not in expected]
        expected.append(max(left, key=lambda i: joint_information(probs, [*expected, i])))
    assert chosen == expected
    assert float(gains.sum()) == pytest.approx(joint_information(probs, expected), abs=1e-9)


def test_batchbald_does_not_ask_for_the_same_thing_twice():
    probs = probabilities(8, 1, 2, sharpness=200.0).repeat(1, 5, 1)
    other = probabilities(8, 1, 2, seed=3, sharpness=1.0)
    both = torch.cat((probs, other), 1)
    assert acquisition_scores(predictive(both), "bald").argmin() == 5
    assert 5 in batchbald(both, 2)[0]
    assert 5 not in choose_from(predictive(both), 2, "bald").indices


def test_sampled_configurations_give_nearly_the_exact_information(monkeypatch):
    probs = probabilities(10, 12, 3)
    exact, gains = batchbald(probs, 6)
    monkeypatch.setattr(acquisition, "_CONFIGURATIONS", 9)
    sampled, estimates = batchbald(probs, 6)
    assert joint_information(probs, sampled) > 0.97 * joint_information(probs, exact)
    assert float(estimates.sum()) == pytest.approx(float(gains.sum()), rel=0.05)


def test_numbers_are_asked_for_by_the_share_of_noise():
    outputs = torch.tensor([[[0.0], [0.0]], [[2.0], [0.2]]])
    answer = bf.Predictive(outputs, bf.likelihoods.Gaussian(1.0))
    torch.testing.assert_close(
        acquisition_scores(answer, "bald"), 0.5 * (1 + torch.tensor([1.0, 0.01])).log(), rtol=1e-4, atol=1e-6
    )
    assert choose_from(answer, 1, "variance").indices == [0]
    for by in ("epig", "batchbald", "entropy"):
        with pytest.raises(
            ValueError, match=f"^{by} is not for a method that predicts numbers: use bald, variance, random$"
        ):
            choose_from(answer, 1, by)


def test_random_is_uniform_and_skips_what_was_asked():
    answer = predictive(probabilities(2, 500, 2))
    scores = acquisition_scores(answer, "random")
    assert 0 <= float(scores.min()) < 0.02
    assert 0.98 < float(scores.max()) <= 1
    assert float(scores.mean()) == pytest.approx(0.5, abs=4 * (1 / 12 / 500) ** 0.5)
    first = choose_from(answer, 10, "random").indices
    second = choose_from(answer, 10, "random", skip=first).indices
    assert not set(first) & set(second)
    for by in ("batchbald", "bald"):
        assert not set(choose_from(answer, 20, by, skip=first).indices) & set(first)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"n": 0}, "at least 1, got 0"),
        ({"n": 5}, "left in the pool, 4, got 5"),
        ({"n": 1, "by": "bold"}, "bald"),
        ({"n": 1, "skip": [9]}, "skip must be numbers of the pool"),
        ({"n": 1, "skip": torch.tensor([True, False, False, False])}, r"got True; .* torch.nonzero\(mask\)"),
        ({"n": 1, "targets": predictive(probabilities(2, 4, 2))}, "targets are for epig, got by='bald'"),
    ],
)
def test_impossible_wishes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        choose_from(predictive(probabilities(2, 4, 2)), **settings)


def test_batchbald_never_takes_an_input_twice():
    probs = probabilities(3, 4, 2)
    assert sorted(batchbald(probs, 4)[0]) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="may be chosen, 4, got 5"):
        batchbald(probs, 5)
    with pytest.raises(ValueError, match="may be chosen, 2, got 3"):
        batchbald(probs, 3, allowed=torch.tensor([True, False, True, False]))


@pytest.mark.parametrize("by", ["bald", "batchbald", "epig"])
def test_one_draw_cannot_disagree_and_is_refused_with_what_works(by):
    one = predictive(probabilities(1, 4, 2))
    with pytest.raises(ValueError, match=r"there is one draw here.*use entropy, or a method with a posterior"):
        choose_from(one, 1, by)
    assert choose_from(one, 1, "entropy").scores[0] > 0


def test_numbers_of_a_plain_network_with_one_noise_cannot_be_ranked():
    one = bf.Predictive(torch.randn(1, 4, 1), bf.likelihoods.Gaussian(0.5))
    with pytest.raises(ValueError, match=r"every input has the same variance.*use random"):
        choose_from(one, 1, "variance")
    varying = bf.Predictive(torch.tensor([[[0.0, 1.0], [0.0, 3.0]]]), bf.likelihoods.Gaussian("heteroscedastic"))
    assert choose_from(varying, 1, "variance").indices == [1]
