"""The kernel makes the numbers of `noise.normal`: on a GPU, or by Triton's interpreter (`TRITON_INTERPRET=1`)."""

import os

import pytest
import torch

from bayesify import noise

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(("size", "start"), [(1, 0), (31, 0), (1000, 0), (1000, 7), (5000, 16), (40, 33)])
def test_the_kernel_makes_the_numbers_of_the_plain_function(size, start):
    pytest.importorskip("triton")
    from bayesify import noise_kernel

    keys = noise.keys(2**40 + 5, noise.Stream.TRAINING, step=3, draws=range(3))
    made = noise_kernel.normal(keys if INTERPRETED else keys.cuda(), size, start).cpu()
    assert made.shape == (3, size)
    torch.testing.assert_close(made, noise.normal(keys, size, start), atol=1e-5, rtol=1e-5)
