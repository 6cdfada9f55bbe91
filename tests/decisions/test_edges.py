"""Edges of images: directions are found, and brightness, place and slant change little."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.decisions.edges import TURNS, edges, upright

SIDE = 28


def bars(angles, width=2.5, slant=0.0, right=0.0):
    """Images `[n, 28, 28]` of a soft bar through the middle, sheared by `slant` and moved to the right."""
    at = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    rows, columns = torch.meshgrid(at, at, indexing="ij")
    columns = columns - slant * rows - right
    made = []
    for angle in angles:
        off = math.cos(angle) * columns + math.sin(angle) * rows
        along = math.cos(angle) * rows - math.sin(angle) * columns
        made.append(torch.sigmoid(4 * (width - off.abs())) * torch.sigmoid(4 * (8 - along.abs())))
    return torch.stack(made)


def test_ink_is_centred_and_stands_upright():
    slanted = bars([0.0], slant=0.3, right=2.0)
    made = upright(slanted)
    rows = torch.arange(SIDE, dtype=torch.float64)
    mass = made.sum()
    row, column = (made[0].sum(1) @ rows) / mass, (made[0].sum(0) @ rows) / mass
    assert abs(float(row) - 13.5) < 0.05
    assert abs(float(column) - 13.5) < 0.05
    together = ((rows - row)[:, None] * (rows - column)[None] * made[0]).sum() / mass
    before = ((rows - 13.5)[:, None] * (rows - 15.5)[None] * slanted[0]).sum() / slanted.sum()
    assert abs(float(together)) < 0.02 * abs(float(before))
    torch.testing.assert_close(made, bars([0.0]), atol=0.25, rtol=0.0)  # up to what interpolation blurs


def test_a_bar_has_the_edges_of_its_two_sides():
    # An upright bar has gradients to the right and to the left: turns 0 and half of all.
    found = edges(bars([0.0]))[0].reshape(TURNS, -1).square().sum(1)
    assert set(found.argsort(descending=True)[:2].tolist()) == {0, TURNS // 2}
    # Its neighbours have cos(45 degrees)^4, a quarter, of them; the ends of the bar add a little.
    assert float(found[0] + found[TURNS // 2]) > 0.5


def test_brightness_place_and_slant_change_less_than_another_shape():
    plain, cross = bars([0.0]), bars([0.0]).maximum(bars([math.pi / 2]))
    mine = edges(plain)
    torch.testing.assert_close(edges(7.0 * plain + 3.0), mine)
    other = float((edges(cross) - mine).norm())
    for changed in (bars([0.0], slant=0.3), bars([0.0], right=3.0), bars([0.0], width=3.2)):
        assert float((edges(changed) - mine).norm()) < 0.5 * other


def test_rows_and_channels_are_the_same_images():
    images = bars([0.0, 1.0])
    for same in (images.flatten(1), images[:, None]):
        torch.testing.assert_close(edges(same), edges(images))
    assert torch.equal(edges(torch.full((1, SIDE, SIDE), 0.3)), torch.zeros(1, edges(images).shape[1]).double())


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2))


def test_a_check_by_edges_is_saved_and_refuses_another_shape(tmp_path):
    torch.manual_seed(0)
    y = torch.randint(2, (120,))
    angles = (math.pi / 2 * y + 0.15 * torch.randn(120)).tolist()
    x = bars(angles).float()
    bnn = bf.PointEstimate(net(), "categorical")
    bnn.fit((x, y), epochs=3, learning_rate=0.01, progress=False)
    check = bf.UnknownInputs(bnn, x, layer="edges", neighbours=1, coverage=0.95)
    new = bars((0.1 * torch.randn(20)).tolist()).float()
    crosses = new.maximum(bars([math.pi / 2]).float())
    assert float(check.accept(new).double().mean()) > 0.8
    assert not check.accept(crosses).any()
    bnn.save(tmp_path)
    check.save(tmp_path)
    again = bf.UnknownInputs.load(tmp_path, bf.load(tmp_path, network=net()))
    assert torch.equal(again.score(crosses), check.score(crosses))


@pytest.mark.parametrize("shape", [(5, 64), (5, 3, 28, 28), (5, 28, 12), (5, 785)])
def test_other_inputs_are_refused(shape):
    with pytest.raises(ValueError, match='layer="edges" needs grey images of at least 16 x 16 pixels, got'):
        edges(torch.randn(shape))
