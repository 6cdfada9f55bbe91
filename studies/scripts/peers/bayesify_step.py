"""Ours, one candidate for each thing that a peer offers; the path of each is chosen as in `fit`."""

from bayesify import IVON, SGHMC, networks
from bayesify.likelihoods import Categorical
from bayesify_studies.benchmarks import steps

PACKAGE = "bayesify"
COMPILED = True


def candidates(widths, x, y, _n_data):
    units = list(widths[1:-1])

    def network():
        return networks.mlp(widths[0], widths[-1], units=units)

    methods = {
        "variational, mixture": steps.Variational(network(), Categorical(), prior=steps.MIXTURE),
        "variational, normal": steps.Variational(network(), Categorical(), prior="normal:1"),
        "flipout, normal": steps.Variational(network(), Categorical(), prior="normal:1", estimator="flipout"),
        "ivon": IVON(network(), Categorical(), prior="normal:1"),
        "sghmc": SGHMC(network(), Categorical(), prior="normal:1"),
    }
    return {name: steps.training_step(method, x, y, compiled=COMPILED)[0] for name, method in methods.items()}
