"""Our Laplace approximation: the curvature over some batches, from a network that is trained already."""

from bayesify import LaplaceApproximation, networks
from bayesify.likelihoods import Categorical
from bayesify.training.batches import TensorExamples

PACKAGE = "bayesify"
BATCHES = {"laplace, diagonal": 10, "laplace, kronecker": 50}


def candidates(widths, x, y, _n_data):
    return {name: _fit(name.partition(", ")[2], count, widths, x, y) for name, count in BATCHES.items()}


def _fit(structure, batches, widths, x, y):
    network = networks.mlp(widths[0], widths[-1], units=list(widths[1:-1]))
    method = LaplaceApproximation(network, Categorical(), prior="normal:1", structure=structure)
    # One step, and what `fit` does before the first: what follows is the curvature alone.
    method.fit((x, y), epochs=1, batch_size=x.shape[0], compiled=False, progress=False)
    data = TensorExamples(x.repeat(batches, 1), y.repeat(batches))
    return lambda: method._conclude(data)
