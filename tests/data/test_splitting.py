"""Splits, withheld classes and label noise: exact sizes, uniform chances, nothing lost, nothing seen twice."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesify import data


@settings(max_examples=60)
@given(
    n=st.integers(3, 400),
    shares=st.lists(st.floats(0.05, 1), min_size=1, max_size=4),
    seed=st.integers(0, 2**63),
    classes=st.integers(0, 5),
)
def test_parts_are_disjoint_and_of_the_size_asked_for_stratified_or_not(n, shares, seed, classes):
    total = math.fsum(shares)
    shares = [share / total for share in shares]
    labels = torch.arange(n) % classes if classes else None
    ends = [0, *(round(n * min(math.fsum(shares[: last + 1]), 1.0)) for last in range(len(shares)))]
    if any(start == end for start, end in itertools.pairwise(ends)):
        with pytest.raises(data.DataError, match="leave a part empty"):
            data.split(n, shares, seed, labels)
        return
    parts = data.split(n, shares, seed, labels)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(n))
    assert all(abs(len(part) - share * n) <= 1 for part, share in zip(parts, shares, strict=True))
    assert all(torch.equal(part, part.sort().values) for part in parts)


@settings(max_examples=60)
@given(labels=st.lists(st.integers(0, 4), min_size=20, max_size=300), seed=st.integers(0, 1000))
def test_a_stratified_part_has_every_class_in_proportion(labels, seed):
    labels = torch.tensor(labels)
    _, test = data.split(len(labels), (0.75, 0.25), seed, labels)
    whole, part = torch.bincount(labels, minlength=5), torch.bincount(labels[test], minlength=5)
    assert float((part - whole * 0.25).abs().max()) <= 2


@pytest.mark.parametrize("stratified", [False, True])
def test_every_example_and_every_pair_is_equally_likely_to_be_tested(stratified):
    n, tested, repeats = 40, 10, 2000
    labels = torch.arange(n) % 2 if stratified else None
    counts, together = torch.zeros(n), 0
    for seed in range(repeats):
        _, test = data.split(n, (n - tested, tested), seed, labels)
        counts[test] += 1
        together += int({0, 2} <= set(test.tolist()))
    share = tested / n
    z = (counts - repeats * share) / math.sqrt(repeats * share * (1 - share))
    # The largest of 40 is beyond 4.5 with a chance of 40 * 7e-6; chi-square over 40 by its normal approximation.
    assert float(z.abs().max()) < 4.5
    assert abs(float((z**2).sum()) * (1 - 1 / n) - n) < 5 * math.sqrt(2 * n)
    # Examples 0 and 2 are of one class: of 20 examples, 5 are tested when stratified, of 40 examples 10 when not.
    both = 5 / 20 * 4 / 19 if stratified else 10 / 40 * 9 / 39
    assert abs(together - repeats * both) < 4.5 * math.sqrt(repeats * both * (1 - both))


def test_a_split_is_a_function_of_its_seed():
    first, again, other = (data.split(1000, (0.5, 0.5), seed)[0] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    # Two random halves share a quarter of a thousand: hypergeometric, standard deviation 7.9.
    shared = len(set(first.tolist()) & set(other.tolist()))
    assert abs(shared - 250) < 5 * 7.9


def test_counts_may_leave_examples_out():
    parts = data.split(100, (30, 20))
    assert [len(part) for part in parts] == [30, 20]
    assert len(set(torch.cat(parts).tolist())) == 50


@pytest.mark.parametrize(
    "n, parts, complaint",
    [
        (10, (6, 5), "add up to 11, more than the 10"),
        (10, (0.9, 0.2), "more than one"),
        (10, (0.99, 0.01), "leave a part empty"),
        (10, (5, 0.5), "all counts .* or all shares"),
        (10, (), "positive counts or shares"),
        (10, (-1, 5), "positive counts or shares"),
        (10, (True, 5), "positive counts or shares"),
        (10, (float("nan"), 0.5), "positive counts or shares"),
        (0, (0.5, 0.5), "of at least one example"),
    ],
)
def test_impossible_parts_are_refused(n, parts, complaint):
    with pytest.raises(data.DataError, match=complaint):
        data.split(n, parts)


def test_labels_of_another_length_are_refused():
    with pytest.raises(data.DataError, match="stratify must hold 10 labels"):
        data.split(10, (0.5, 0.5), 0, torch.zeros(9))


def test_withheld_classes_leave_training_and_become_the_unknown():
    digits = data.load("digits")
    known = data.withhold(digits, ["7", 2])
    assert known.class_names == ("0", "1", "3", "4", "5", "6", "8", "9")
    assert known.withheld == ("2", "7")
    old = torch.tensor([int(name) for name in known.class_names])
    stay = ~torch.isin(digits.y_train, torch.tensor([2, 7]))
    assert torch.equal(old[known.y_train], digits.y_train[stay])
    assert torch.equal(known.x_train, digits.x_train[stay])
    gone = torch.isin(digits.y_test, torch.tensor([2, 7]))
    assert torch.equal(known.unknown, digits.x_test[gone])
    assert torch.equal(torch.tensor([2, 7])[known.unknown_labels], digits.y_test[gone])
    assert len(known.x_test) + len(known.unknown) == len(digits.x_test)
    assert torch.equal(known.test_rows, digits.test_rows[~gone])


def test_classes_can_be_withheld_one_after_another_and_prepared():
    digits = data.load("digits")
    twice = data.withhold(data.withhold(digits, "7"), "2")
    assert twice.withheld == ("7", "2")
    once = data.withhold(digits, ("2", "7"))
    assert torch.equal(twice.y_train, once.y_train)
    names = [twice.withheld[label] for label in twice.unknown_labels.tolist()]
    assert sorted(names) == sorted(once.withheld[label] for label in once.unknown_labels.tolist())
    prepared = twice.prepare("126")
    assert torch.equal(prepared.unknown, prepared.preparation.apply(twice.unknown))


def test_impossible_withholding_is_refused():
    digits, moons = data.load("digits"), data.load("moons")
    with pytest.raises(data.DataError, match="did you mean 'upper'"):
        data.withhold(moons, "uper")
    with pytest.raises(data.DataError, match="numbered 0 to 9, got 10"):
        data.withhold(digits, 10)
    with pytest.raises(data.DataError, match="numbered 0 to 1, got 7"):
        data.withhold(moons, "7")
    # Text is the name of a class that is called by a number, not its place.
    with pytest.raises(data.DataError, match="unknown class of digits '10'"):
        data.withhold(digits, "10")
    with pytest.raises(data.DataError, match="unknown class of digits '7'"):
        data.withhold(data.withhold(digits, "7"), "7")
    with pytest.raises(data.DataError, match="leaves 1; keep at least 2"):
        data.withhold(moons, "upper")
    with pytest.raises(data.DataError, match="withhold classes first, then prepare"):
        data.withhold(digits.prepare(), 7)


def test_label_noise_swaps_each_pair_with_its_probability_and_nothing_else():
    y = torch.arange(50_000) % 10
    noisy = data.label_noise(y, {(1, 7): 0.3, (4, 9): 0.1}, seed=2)
    for first, second, probability in ((1, 7, 0.3), (7, 1, 0.3), (4, 9, 0.1), (9, 4, 0.1)):
        became = noisy[y == first]
        assert set(became.tolist()) == {first, second}
        share = float((became == second).double().mean())
        assert abs(share - probability) < 4.5 * math.sqrt(probability * (1 - probability) / 5000)
    others = torch.isin(y, torch.tensor([0, 2, 3, 5, 6, 8]))
    assert torch.equal(noisy[others], y[others])
    assert torch.equal(noisy, data.label_noise(y, {(1, 7): 0.3, (4, 9): 0.1}, seed=2))
    assert not torch.equal(noisy, data.label_noise(y, {(1, 7): 0.3, (4, 9): 0.1}, seed=3))
    assert torch.equal(data.label_noise(data.label_noise(y, {(1, 7): 1.0}), {(7, 1): 1.0}), y)
    assert torch.equal(data.label_noise(y, {(1, 7): 0.0}), y)


@pytest.mark.parametrize(
    "pairs, complaint",
    [
        ({(1, 7): 1.5}, "in \\[0, 1\\], got 1.5"),
        ({(1, 2): 0.1, (2, 3): 0.1}, "one pair only"),
        ({(1, 77): 0.1}, "label 77"),
    ],
)
def test_impossible_label_noise_is_refused(pairs, complaint):
    with pytest.raises(data.DataError, match=complaint):
        data.label_noise(torch.arange(10), pairs)
    with pytest.raises(data.DataError, match="must be integers"):
        data.label_noise(torch.zeros(3), {})
