"""The noise function against what independent normals, uniforms and bits would do.

Every threshold is a z-score or a p-value whose chance of failing on perfect noise is below one in a thousand; keys are
fixed, so that the outcome never changes. The keys under test are those that a fit uses: small, consecutive numbers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bayesify import noise
from bayesify.noise import Stream

COORDINATES = ("seed", "stream", "network", "step", "draw")
KEYS, ELEMENTS = 1024, 512


def neighbouring_keys(coordinate: str, count: int = KEYS) -> torch.Tensor:
    base = {"seed": 0, "stream": int(Stream.TRAINING), "network": 0, "step": 0, "draw": 0}
    return torch.tensor([noise.key(**{**base, coordinate: value}) for value in range(count)], dtype=torch.int32)


def z_of_product(a: torch.Tensor, b: torch.Tensor) -> float:
    """z-score of the correlation of two standardised, independent variables."""
    return float((a * b).mean() * math.sqrt(a.numel()))


def features(normals: torch.Tensor) -> dict[str, torch.Tensor]:
    """Standardised functions of a normal: its value, its size, its sign and its third Hermite polynomial."""
    return {
        "value": normals,
        "square": (normals**2 - 1) / math.sqrt(2),
        "sign": torch.sign(normals),
        "cube": (normals**3 - 3 * normals) / math.sqrt(6),
    }


@pytest.fixture(scope="module")
def million() -> torch.Tensor:
    """Four draws of a network with 2^20 weights, float64."""
    return noise.normal(noise.keys(0, Stream.TRAINING, draws=range(4)), 2**20).double()


# Distribution


def test_normals_have_the_moments_of_a_normal(million):
    # E x^k and the variance of x^k for k = 1 ... 6
    exact = {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96), 5: (0, 945), 6: (15, 10170)}
    n = million.numel()
    z = {k: float((million**k).mean() - mean) * math.sqrt(n / variance) for k, (mean, variance) in exact.items()}
    assert max(map(abs, z.values())) < 4.0, z


def test_normals_and_uniforms_pass_kolmogorov_and_smirnov(million):
    assert stats.kstest(million[0].numpy(), stats.norm.cdf).pvalue > 1e-3
    uniforms = noise.uniform(noise.keys(0, Stream.DROPOUT), 2**20)[0].double().numpy()
    assert stats.kstest(uniforms, stats.uniform.cdf).pvalue > 1e-3


@pytest.mark.parametrize("threshold", [3.0, 4.0, 4.75])
def test_tails_hold_their_share(million, threshold):
    share = 2 * stats.norm.sf(threshold)
    seen = int((million.abs() > threshold).sum())
    assert stats.binomtest(seen, million.numel(), share).pvalue > 1e-3


def test_uniforms_lie_strictly_inside_the_interval():
    ends = noise.to_unit_interval(torch.tensor([0, 0xFF, -1, -256, 2**31 - 1, -(2**31)], dtype=torch.int32))
    assert ends.dtype == torch.float32
    assert ends.min() > 0.0
    assert ends.max() < 1.0
    assert torch.isfinite(torch.log(ends)).all()
    assert torch.isfinite(torch.log1p(-ends)).all()
    np.testing.assert_allclose(ends[4:].numpy(), 0.5, atol=2**-23)


def test_every_bit_is_fair_and_does_not_know_the_others():
    words = noise.bits(noise.keys(0, Stream.LOCAL, draws=range(2)), 2**19).flatten()
    bits = torch.stack([(words >> position) & 1 for position in range(32)]).double() * 2 - 1
    z = bits.mean(1) * math.sqrt(words.numel())
    assert z.abs().max() < 4.3  # 32 z-scores: chance 5e-4
    correlations = (bits @ bits.T / math.sqrt(words.numel()))[np.triu_indices(32, 1)]
    assert correlations.abs().max() < 4.8  # 496 z-scores: chance 8e-4
    between = bits[:, 1:] @ bits[:, :-1].T / math.sqrt(words.numel())
    assert between.abs().max() < 5.0  # 1024 z-scores, one element to the next: chance 6e-4


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_every_byte_is_uniform(shift):
    words = noise.bits(noise.keys(0, Stream.LOCAL), 2**20).flatten()
    counts = torch.bincount((words >> shift) & 0xFF, minlength=256)
    assert 1e-3 < stats.chisquare(counts.numpy()).pvalue < 1 - 1e-6


def test_signs_are_fair():
    signs = noise.signs(noise.keys(0, Stream.LOCAL, draws=range(4)), 2**18).double()
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) * math.sqrt(signs.numel()) < 4.0


# Independence between elements


def test_elements_do_not_know_their_neighbours(million):
    z = {}
    for (first, a), (second, b) in itertools.product(features(million[:2]).items(), repeat=2):
        for lag in range(1, 33) if first == second else (1, 15, 16, 17, 31, 32):
            z[first, second, lag] = z_of_product(a[:, :-lag], b[:, lag:])
    assert max(map(abs, z.values())) < 5.0  # 200 z-scores: chance 1e-4


def test_the_two_normals_of_a_pair_are_independent(million):
    blocks = million.view(4, -1, 2, noise.LANES)
    first, second = blocks[:, :, 0].flatten(), blocks[:, :, 1].flatten()
    cells = 64
    quantiles = (torch.special.ndtr(torch.stack((first, second))) * cells).long().clamp(max=cells - 1)
    counts = torch.bincount(quantiles[0] * cells + quantiles[1], minlength=cells**2)
    assert 1e-3 < stats.chisquare(counts.numpy()).pvalue < 1 - 1e-6
    # A pair is one hash and a hash of that hash: the angle must be uniform wherever the radius is, tails included.
    radius, angle = torch.hypot(first, second), torch.atan2(second, first) / (2 * math.pi) + 0.5
    for low, high in ((0.0, 0.05), (1.0, 1.01), (3.5, 4.0), (4.0, 9.0)):
        there = angle[(radius >= low) & (radius < high)].numpy()
        assert len(there) > 500
        assert stats.kstest(there, stats.uniform.cdf).pvalue > 1e-3, (low, high)


def test_the_spectrum_is_white(million):
    power = torch.fft.rfft(million[0])[1:-1].abs().square() / million.shape[1]
    assert stats.kstest(power.numpy(), stats.expon.cdf).pvalue > 1e-3
    assert power.max() < math.log(len(power)) + 7.0  # chance e^-7
    # Cumulated, low and high frequencies hold their share (Bartlett's test).
    share = torch.cumsum(power, 0) / power.sum()
    gap = (share - torch.arange(1, len(power) + 1) / len(power)).abs().max()
    assert float(gap) * math.sqrt(len(power)) < 1.95  # Kolmogorov's 1e-3


def test_sums_over_strided_elements_are_normal(million):
    # A row of a weight matrix meets one input: lattice structure would show in sums at regular strides.
    for stride in (2, 3, 16, 32, 400, 784, 1024):
        rows = million[:, : 2**20 // stride * stride].reshape(4, -1, stride)
        sums = rows.sum(1).flatten() / math.sqrt(rows.shape[1])
        below = stats.chi2.cdf(float((sums**2).sum()), len(sums))
        assert 5e-5 < below < 1 - 5e-5, stride  # seven strides: chance 7e-4


# Independence between keys


@pytest.mark.parametrize("coordinate", COORDINATES)
def test_neighbouring_keys_do_not_share_noise(coordinate):
    normals = noise.normal(neighbouring_keys(coordinate), ELEMENTS).double()
    z = {}
    for name, feature in features(normals).items():
        for lag in (1, 2, 3, 4, 7, 8, 16, 64, 256, 512):
            z[name, "same element", lag] = z_of_product(feature[lag:], feature[:-lag])
        for flip in (1, 2, 3, 16, 32, 33, 256):  # elements enter by exclusive or
            other = feature[:, torch.arange(ELEMENTS) ^ flip]
            z[name, "flipped element", flip] = z_of_product(feature[1:], other[:-1])
        for step in (1, 16, 32):
            z[name, "diagonal", step] = z_of_product(feature[1:, step:], feature[:-1, :-step])
            z[name, "within", step] = z_of_product(feature[:, step:], feature[:, :-step])
    assert max(map(abs, z.values())) < 4.8, z  # 92 z-scores: chance 2e-4


@pytest.mark.parametrize("coordinate", COORDINATES)
def test_no_two_keys_and_no_two_elements_are_alike(coordinate):
    normals = noise.normal(neighbouring_keys(coordinate), ELEMENTS).double()
    for rows in (normals, normals.T):
        count, size = rows.shape
        cosines = torch.nn.functional.normalize(rows, dim=1)
        products = (cosines @ cosines.T)[torch.triu(torch.ones(count, count, dtype=torch.bool), 1)]
        # The squared cosine of two random directions has mean 1 / size, and pairs are uncorrelated.
        scaled = products.square() * size
        assert abs(float(scaled.mean() - 1)) * math.sqrt(len(scaled) / 2) < 4.5
        # The chance that any pair is further out than this is below 1e-4.
        bound = stats.norm.isf(1e-4 / len(products) / 2)
        assert float(products.abs().max()) * math.sqrt(size) < bound


@pytest.mark.parametrize("coordinate", COORDINATES)
def test_one_element_over_many_keys_is_normal(coordinate):
    normals = noise.normal(neighbouring_keys(coordinate), ELEMENTS).double()
    pvalues = [stats.kstest(normals[:, element].numpy(), stats.norm.cdf).pvalue for element in range(64)]
    assert min(pvalues) > 1e-5
    assert stats.kstest(pvalues, stats.uniform.cdf).pvalue > 1e-3
    power = torch.fft.rfft2(normals).abs().square()[1 : KEYS // 2, 1:-1].flatten() / normals.numel()
    assert stats.kstest(power[::4].numpy(), stats.expon.cdf).pvalue > 1e-3
    assert power.max() < math.log(len(power)) + 7.0


def test_streams_and_networks_of_one_fit_are_independent():
    keys = [
        noise.key(0, stream, network, step) for stream, network, step in itertools.product(Stream, range(4), range(4))
    ]
    normals = noise.normal(torch.tensor(keys, dtype=torch.int32), 2**14).double()
    z = (normals @ normals.T / math.sqrt(2**14))[np.triu_indices(len(keys), 1)]
    assert z.abs().max() < 5.6  # 12,720 z-scores: chance 3e-4
    assert float(z.square().mean()) == pytest.approx(1.0, abs=0.06)


def test_keys_that_share_a_word_are_still_independent():
    # Among a million keys a hundred pairs share their first word: the second alone must tell them apart.
    first, second = noise.key(0, Stream.TRAINING)
    words = [0, *(1 << place for place in range(31)), 3, 0x55555555]
    keys = torch.tensor([(first, second ^ word) for word in words], dtype=torch.int32)
    feature = features(noise.normal(keys, 2**15).double())
    for name, values in feature.items():
        z = (values @ values.T / math.sqrt(2**15))[np.triu_indices(len(words), 1)]
        assert z.abs().max() < 5.0, name  # 4 times 561 z-scores: chance 1e-3


# Keys


def vector_keys(seed, stream, network, step, draw) -> np.ndarray:
    """A second implementation of `noise.key`, over arrays of small coordinates: `[..., 2]` uint32."""
    with np.errstate(over="ignore"):
        chains = []
        for chain in (0x9E3779B9, 0x85EBCA6B):
            value = np.full(np.broadcast(seed, stream, network, step, draw).shape, chain, np.uint32)
            zero = np.uint32(0)
            for position, word in enumerate((seed, zero, stream, network, step, zero, draw), 1):
                value = (value ^ np.asarray(word, np.uint32)) + np.uint32(0x9E3779B9 * position & 0xFFFFFFFF)
                value = (value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D)
                value = (value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B)
                value = value ^ (value >> np.uint32(16))
            chains.append(value)
    return np.stack(chains, -1)


@pytest.fixture(scope="module")
def grid() -> np.ndarray:
    shape = (10, 11, 10, 100, 10)
    return vector_keys(*np.ogrid[tuple(slice(0, n) for n in shape)]).reshape(*shape, 2)


def test_a_million_neighbouring_coordinates_have_different_keys(grid):
    for at in ((0, 0, 0, 0, 0), (3, 2, 1, 99, 7), (9, 10, 9, 50, 9)):
        assert tuple(grid[at].view(np.int32).tolist()) == noise.key(*at)
    words = grid.reshape(-1, 2).astype(np.uint64)
    whole = (words[:, 0] << np.uint64(32)) | words[:, 1]
    assert len(np.unique(whole)) == len(whole) == 1_100_000
    # Either half alone collides as often as random words do (a birthday count, Poisson).
    expected = len(whole) ** 2 / 2**33
    for half in (0, 1):
        collisions = len(whole) - len(np.unique(words[:, half]))
        assert abs(collisions - expected) / math.sqrt(expected) < 4.0


def test_key_words_are_uniform_and_do_not_know_each_other(grid):
    words = grid.reshape(-1, 2)[::3]
    for half, shift in itertools.product((0, 1), (0, 24)):
        counts = np.bincount((words[:, half] >> shift) & 0xFF, minlength=256)
        assert 1e-3 < stats.chisquare(counts).pvalue < 1 - 1e-6
    bits = ((words[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(len(words), 64).astype(
        np.float32
    ) * 2 - 1
    z = (bits.T @ bits / math.sqrt(len(words)))[np.triu_indices(64, 1)]
    assert np.abs(z).max() < 5.2  # 2016 z-scores: chance 4e-4


def test_wide_and_negative_coordinates_are_kept_apart():
    seeds = [0, 1, -1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**31)]
    steps = [0, 1, 2**31, 2**32, 2**32 + 1, 2**40]
    keys = {noise.key(seed, 2, step=step) for seed in seeds for step in steps}
    assert len(keys) == len(seeds) * len(steps)
    assert all(-(2**31) <= word < 2**31 for key in keys for word in key)
    assert noise.keys(0, 2, draws=()).shape == (0, 2)


def test_moving_a_number_from_one_coordinate_to_another_changes_the_key():
    keys = {noise.key(*(place == index for index in range(5))) for place in range(5)}
    assert len(keys | {noise.key(0, 0, 0, 0, 0)}) == 6


# Equality


@pytest.mark.parametrize("function", [noise.normal, noise.uniform, noise.signs, noise.bits])
@pytest.mark.parametrize(
    ("start", "size"), [(0, 1), (0, 31), (1, 32), (5, 100), (16, 16), (31, 2), (33, 300), (999, 1)]
)
def test_a_chunk_is_a_part_of_the_whole(function, start, size):
    keys = noise.keys(1, Stream.PREDICTION, draws=range(3))
    whole = function(keys, 1000)
    assert torch.equal(function(keys, size, start), whole[:, start : start + size])
    assert torch.equal(function(keys[1], size, start), whole[1, start : start + size])


@pytest.mark.parametrize("function", [noise.normal, noise.uniform, noise.signs, noise.bits, noise.permutation])
def test_vmap_gives_the_same_numbers(function):
    keys = noise.keys(1, Stream.PREDICTION, draws=range(6)).reshape(2, 3, 2)
    batched = function(keys, 77)
    assert batched.shape == (2, 3, 77)
    mapped = torch.vmap(torch.vmap(lambda key: function(key, 77)))(keys)
    assert torch.equal(mapped, batched)
    assert torch.equal(torch.stack([function(key, 77) for key in keys.view(-1, 2)]).view_as(batched), batched)


def test_compiled_noise_is_the_same_noise():
    def everything(keys):
        size, start = 10_001, 3
        words, uniforms = noise.bits(keys, size, start), noise.uniform(keys, size, start)
        return words, uniforms, noise.signs(keys, size, start), noise.normal(keys, 100_003, 5)

    torch.compiler.reset()
    compiled = torch.compile(everything, fullgraph=True)
    for step in (0, 1):  # the second keys must not be baked into the first's code
        keys = noise.keys(2**40, Stream.TRAINING, step=step, draws=range(3))
        eager = everything(keys)
        bits, uniforms, signs, normals = compiled(keys)
        assert torch.equal(bits, eager[0])
        assert torch.equal(uniforms, eager[1])
        assert torch.equal(signs, eager[2])
        torch.testing.assert_close(normals, eager[3], rtol=1e-6, atol=1e-6)


def test_the_numbers_are_the_ones_we_have_always_had():
    # A recorded value: resuming a run relies on it, on every machine and in every version.
    keys = noise.keys(0, Stream.TRAINING, network=1, step=2, draws=(3,))
    assert noise.bits(keys, 4).tolist() == [[2033850697, 1187488008, 1427451904, -157995331]]
    np.testing.assert_allclose(
        noise.normal(keys, 4)[0].numpy(), [0.8723016, 1.231744, -0.7291547, -0.1463013], rtol=1e-5
    )


# Permutations


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_order_is_equally_likely(size):
    keys = torch.from_numpy(vector_keys(0, int(Stream.SHUFFLE), 0, np.arange(60_000), 0).view(np.int32))
    orders = noise.permutation(keys, size)
    assert torch.equal(orders.sort(-1).values, torch.arange(size).expand(60_000, size))
    code = (orders * size ** torch.arange(size)).sum(-1)
    _, counts = code.unique(return_counts=True)
    assert len(counts) == math.factorial(size)
    assert 1e-3 < stats.chisquare(counts.numpy()).pvalue < 1 - 1e-6


def test_a_long_permutation_moves_everything_everywhere():
    keys = noise.keys(0, Stream.SHUFFLE, draws=range(20))
    orders = noise.permutation(keys, 10_000)
    assert torch.equal(orders.sort(-1).values, torch.arange(10_000).expand(20, -1))
    place = torch.arange(10_000, dtype=torch.float64)
    ranks = orders.double()
    correlations = np.array([stats.pearsonr(place.numpy(), row.numpy()).statistic for row in ranks]) * 100
    assert np.abs(correlations).max() < 4.2  # 20 z-scores: chance 5e-4
    fixed = int((orders == torch.arange(10_000)).sum())  # Poisson with mean 20
    assert 5 <= fixed <= 40
    assert len({tuple(row[:5].tolist()) for row in orders}) == 20


@given(
    seed=st.integers(0, 2**63 - 1),
    network=st.integers(0, 2**31),
    step=st.integers(0, 2**63 - 1),
    draws=st.integers(1, 4),
)
def test_a_step_or_seed_in_a_tensor_gives_the_same_keys(seed, network, step, draws):
    expected = noise.keys(seed, noise.Stream.TRAINING, network, step, range(draws))
    for s, t in ((seed, torch.tensor(step)), (torch.tensor(seed), step), (torch.tensor(seed), torch.tensor(step))):
        assert torch.equal(noise.keys(s, noise.Stream.TRAINING, network, t, range(draws)), expected)
    many = torch.func.vmap(lambda s: noise.keys(s, noise.Stream.TRAINING, network, torch.tensor(step), range(draws)))
    assert torch.equal(many(torch.tensor([seed, 5]))[0], expected)


@pytest.mark.parametrize(("size", "start"), [(1, 0), (31, 0), (100, 17), (1000, 313_599)])
def test_made_element_by_element_normals_are_the_same(size, start):
    keys = noise.keys(3, Stream.TRAINING, step=5, draws=range(3))
    expected = noise.normal(keys, size, start)
    # A cosine a quarter turn behind instead of a sine: the last digit may differ.
    torch.testing.assert_close(noise.normal_by_element(keys, size, start), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("size", [100, 200_000])
@pytest.mark.parametrize("start", [2**31 - 40, 2**32 - 40, 7 * 10**9])
def test_the_noise_of_billions_of_elements_goes_on_and_does_not_repeat(size, start):
    keys = noise.keys(3, Stream.TRAINING)
    found = noise.normal(keys, size, start)
    # The same numbers from another first element, on both paths.
    assert torch.equal(noise.normal(keys, 90, start + 7), found[:, 7:97])
    for other in (0, start - 2**31, start - 2**32):
        if other >= 0:
            assert not torch.equal(noise.normal(keys, 100, other), found[:, :100])
    if size > 1000:
        assert abs(float(found.mean())) < 5 / size**0.5
