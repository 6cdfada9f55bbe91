"""The weighting of the KL: shares of the batches, warm-up and temperature, and its text form."""

import itertools

import pytest

import bayesify as bf


def test_uniform_shares_follow_the_sizes_of_the_batches():
    sizes = [25, 25, 10]
    shares = [bf.KL().share(batch, 3, size, 60) for batch, size in enumerate(sizes)]
    assert shares == pytest.approx([25 / 60, 25 / 60, 10 / 60])


@pytest.mark.parametrize("batches", [1, 3, 2000])  # 2^2000 is beyond a float
def test_reweighted_shares_halve_from_batch_to_batch_and_sum_to_one(batches):
    shares = [bf.KL("reweighted").share(batch, batches, 10, 10 * batches) for batch in range(batches)]
    assert sum(shares) == pytest.approx(1.0)
    assert all(later == pytest.approx(earlier / 2) for earlier, later in itertools.pairwise(shares))


def test_the_factor_grows_to_the_temperature():
    kl = bf.KL(warm_up=4, temperature=0.5)
    assert [kl.factor(epoch) for epoch in (0, 2, 4, 100)] == pytest.approx([0.0, 0.25, 0.5, 0.5])


def test_only_without_warm_up_and_temperature_is_the_objective_the_elbo():
    assert bf.KL("reweighted").exact
    assert not bf.KL(warm_up=1).exact
    assert not bf.KL(temperature=0.9).exact


@pytest.mark.parametrize(
    "text", ["uniform", "reweighted", "uniform,warm-up=5.0", "reweighted,warm-up=2.5,temperature=0.1"]
)
def test_the_text_form_is_read_and_written(text):
    assert str(bf.KL.parse(text)) == text
    assert bf.KL.parse(bf.KL.parse(text)) == bf.KL.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unifrom", "unknown KL weighting 'unifrom'; did you mean 'uniform'"),
        ("uniform,warmup=5", "unknown KL option 'warmup'; did you mean 'warm-up'"),
        ("uniform,warm-up=five", "KL option warm-up needs a number, got 'five'"),
        ("uniform,warm-up=-1", "warm_up must be"),
        ("uniform,temperature=0", "temperature must be"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text, message):
    with pytest.raises(ValueError, match=message):
        bf.KL.parse(text)
