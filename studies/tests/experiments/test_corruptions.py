"""Corrupted images: stronger ones are further from the clean image, and what is known exactly is so."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from bayesify_studies.experiments.framework.corruptions import (
    KINDS,
    OF_COLOURS,
    STRENGTHS,
    corrupt,
    cosine_transform,
    jpeg,
    motion_blur,
    rotation,
    zoom_blur,
)


def _images(number: int = 16, side: int = 32) -> torch.Tensor:
    """Smooth coloured images with a dark stripe, each in another place."""
    rough = torch.rand(number, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    images = F.interpolate(rough, (side, side), mode="bicubic").clamp(0.1, 0.9)
    for number, image in enumerate(images):
        image[..., number : number + side // 3] *= 0.4
    return (255 * images).to(torch.uint8)


def _grey(value: int) -> torch.Tensor:
    return torch.full((64, 3, 32, 32), value, dtype=torch.uint8)


@pytest.mark.parametrize("kind", OF_COLOURS)
def test_a_stronger_corruption_is_further_from_the_clean_image(kind: str) -> None:
    clean = _images()
    away = [
        float((corrupt(clean, kind, strength).float() - clean.float()).square().mean().sqrt()) for strength in STRENGTHS
    ]
    assert away[0] > 0.5
    assert all(later > 1.05 * earlier for earlier, later in pairwise(away)), away


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_image_of_whole_numbers_in_their_range(kind: str) -> None:
    clean = _images(4)
    found = corrupt(clean, kind, 5)
    assert found.dtype == torch.uint8
    assert found.shape == clean.shape
    assert torch.equal(found, corrupt(clean, kind, 5))


@pytest.mark.parametrize("kind", ["gaussian_noise", "fog", "motion_blur", "elastic", "impulse_noise"])
def test_what_is_random_follows_the_seed(kind: str) -> None:
    clean = _images(4)
    assert not torch.equal(corrupt(clean, kind, 3, seed=0), corrupt(clean, kind, 3, seed=1))


def test_there_are_fifteen_kinds_for_colours() -> None:
    assert len(OF_COLOURS) == 15


@pytest.mark.parametrize(
    ("kind", "variance"),
    [("gaussian_noise", 0.09**2), ("shot_noise", 0.4 / 60), ("speckle_noise", (0.4 * 0.18) ** 2)],
)
def test_noise_on_grey_has_its_variance(kind: str, variance: float) -> None:
    found = corrupt(_grey(102), kind, 3).double() / 255  # 102 / 255 = 0.4
    count = found.numel()
    z = (found.var() - variance - 1 / (12 * 255**2)) / (variance * math.sqrt(2 / count))  # rounding adds 1/12
    assert abs(float(z)) < 5
    assert abs(float(found.mean() - 0.4)) < 5 * math.sqrt(variance / count)


def test_impulses_are_black_or_white_and_as_many_as_said() -> None:
    found = corrupt(_grey(102), "impulse_noise", 4)
    hit = found != 102
    assert set(found[hit].unique().tolist()) == {0, 255}
    assert abs(float(hit.double().mean()) - 0.1) < 5 * math.sqrt(0.1 * 0.9 / found.numel())


@pytest.mark.parametrize(
    "kind", ["gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur", "contrast", "elastic", "pixelate", "saturate"]
)
def test_one_colour_stays_as_it_is(kind: str) -> None:
    assert torch.equal(corrupt(_grey(77), kind, 5), _grey(77))


def test_contrast_and_brightness_by_hand() -> None:
    image = torch.tensor([[0, 100], [100, 200]], dtype=torch.uint8).expand(1, 3, 2, 2)
    assert corrupt(image, "contrast", 2)[0, 0].tolist() == [[50, 100], [100, 150]]
    assert corrupt(image, "brightness", 5)[0, 0].tolist() == [[107, 207], [207, 255]]  # 0.42 * 255 = 107.1


def test_saturation_keeps_grey_and_doubles_the_distance_from_it() -> None:
    image = torch.tensor([90, 100, 110], dtype=torch.uint8).reshape(1, 3, 1, 1)
    assert corrupt(image, "saturate", 2).flatten().tolist() == [81, 100, 119]


def test_pixelate_averages_blocks() -> None:
    image = torch.arange(32, dtype=torch.uint8).expand(1, 3, 32, 32)
    assert corrupt(4 * image, "pixelate", 3)[0, 0, 0, :6].tolist() == [2, 2, 10, 10, 18, 18]


def test_the_cosine_transform_is_orthogonal_and_small_steps_lose_nothing() -> None:
    matrix = cosine_transform(8)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(8))
    images = _images(3, side=28).float() / 255  # 28 is no multiple of 8
    torch.testing.assert_close(jpeg(images, 1e-3, torch.Generator()), images, atol=1e-4, rtol=0)


def test_a_quarter_turn_is_exact() -> None:
    images = _images(3, side=28).float() / 255
    torch.testing.assert_close(rotation(images, 90, torch.Generator()), images.rot90(1, (-2, -1)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_line_is_turned_by_its_angle(strength: int) -> None:
    line = torch.zeros(1, 1, 33, 33, dtype=torch.uint8)
    line[..., 16, 6:27] = 255
    turned = corrupt(line, "rotation", strength)[0, 0].double()
    across = torch.arange(33) - 16.0
    down = -across[:, None]  # rows count downwards
    angle = 0.5 * math.atan2(2 * float((turned * across * down).sum()), float((turned * (across**2 - down**2)).sum()))
    assert math.degrees(angle) == pytest.approx(15 * strength, abs=1.0)


def test_motion_spreads_a_point_over_a_line_of_its_length() -> None:
    point = torch.zeros(50, 1, 33, 33)
    point[..., 16, 16] = 1
    found = motion_blur(point, 9.0, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.sum((-3, -2, -1)), torch.ones(50))
    across = torch.arange(33) - 16.0
    distance = torch.hypot(across[:, None].expand(33, 33), across.expand(33, 33))
    assert float((found[:, 0] * (distance > 6)).sum()) == 0
    assert float((found[:, 0] * (distance > 3)).sum((-2, -1)).min()) > 0.1


def test_zoom_keeps_the_centre() -> None:
    images = torch.zeros(1, 1, 33, 33)
    images[..., 16, 16] = 1.0
    assert float(zoom_blur(images, 1.45, torch.Generator())[0, 0, 16, 16]) == pytest.approx(1.0, abs=1e-4)


def test_what_is_unknown_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match="fogg"):
        corrupt(_grey(1), "fogg", 1)
    with pytest.raises(ValueError, match="strength must be 1, 2, 3, 4 or 5, got 6"):
        corrupt(_grey(1), "fog", 6)
