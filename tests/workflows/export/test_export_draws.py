"""The tensors of the draws give the outputs of `predict`, for every method and three kinds of networks, before any tracing."""

import pytest
import torch
from exportable import PAIRS, fitted

from bayesify.workflows.export.graph import make_plan
from bayesify.workflows.export.one_draw import run

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("method", "network"), PAIRS)
def test_the_tensors_of_a_draw_are_the_function_that_predict_draws(method, network):
    bnn, x = fitted(method, network)
    count = min(3, bnn.held or 3)
    plan = make_plan(bnn, draws=count, seed=1, by="draws", threshold=None, example=x[:6])
    draws = plan.tensors()
    assert draws.count == count
    if draws.centre:  # linearised: the graph has its own rules, tried in the other tests
        tensors = draws.shared | {name: draws.centre[name] for name in draws.varying}
        ours, theirs = run(bnn.network, tensors, x), bnn.predict(x, by="mean").outputs[0]
        assert torch.allclose(ours, theirs, atol=1e-5)
        return
    for draw, expected in enumerate(bnn.predict(x, draws=count, seed=1).outputs):
        ours = run(bnn.network, draws.shared | draws.one(draw), x)
        assert torch.allclose(ours, expected, atol=1e-5)


def test_what_all_draws_share_is_kept_once():
    bnn, x = fitted("last layer", "cnn")
    draws = make_plan(bnn, draws=4, seed=0, by="draws", threshold=None, example=x[:6]).tensors()
    assert set(draws.varying) == {"weight:fc.weight", "weight:fc.bias"}
    assert draws.shared["weight:first.weight"].shape == (4, 1, 3, 3)


def test_a_network_that_draws_random_numbers_itself_is_refused():
    import bayesify as bf

    class Noisy(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.randn(3)

    torch.manual_seed(0)
    bnn = bf.PointEstimate(Noisy(2, 3), "categorical")
    bnn.fit((torch.randn(20, 2), torch.arange(20) % 3), epochs=1, progress=False)
    with pytest.raises(ValueError, match="draws from torch's generator"):
        bf.export(bnn, "never.pt2", "torch-export")
