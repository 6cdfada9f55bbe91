"""Replayed steps see the batches of the plain path, and their graphs are captured on the device of the data."""

from contextlib import contextmanager, nullcontext

import pytest
import torch

import bayesify as bf
from bayesify.training.examples import TensorExamples
from bayesify.training.graphs import GraphedSteps
from bayesify.training.step import FusedStep
from bayesify.training.updates import update_rule

ROWS, BATCH, MEMBERS = 23, 5, 3  # five batches, the last one of three


class Parts(torch.nn.Module):
    """A network of two inputs, one of them whole numbers."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(4, 3), torch.nn.Linear(5, 2)

    def forward(self, numbers, kind):
        return self.linear(torch.cat((numbers, self.table(kind)), 1))


def parts():
    generator = torch.Generator().manual_seed(0)
    # Columns of another tensor: what is looked up need not be contiguous.
    numbers = torch.randn(2, ROWS, generator=generator).T
    kind = torch.randint(0, 4, (ROWS,), generator=generator)
    return TensorExamples((numbers, kind), (numbers[:, 0] > 0).long())


def ensemble():
    torch.manual_seed(1)
    return bf.Ensemble(Parts(), "categorical", members=MEMBERS, seed=3).train()


def graphed_ensemble():
    method = ensemble()
    fused = FusedStep(method, update_rule(method.make_optimizer("adam", 0.01)), 1)
    return method, GraphedSteps(fused, parts(), BATCH, MEMBERS)


@pytest.mark.parametrize("skip", [0, 2])
def test_every_member_is_trained_on_its_own_rows_in_its_own_order(skip):
    examples, plain = parts(), ensemble()
    made, rates, total = plain.make_optimizer("adam", 0.01), [0.01 * (number + 1) for number in range(5)], 0.0
    for number, batch in enumerate(examples.batches(BATCH, seed=7, epoch=2, members=MEMBERS, skip=skip), skip):
        made.param_groups[0]["lr"] = rates[number]
        made.zero_grad()
        objective = plain.backward(batch, step=10 + number, share=0.2)
        made.step()
        total += float(objective.nll.detach()) * len(batch[0][1])
    method, graphed = graphed_ensemble()
    numbers = [
        graphed.fused.numbers(0.2, rate, ahead=number - skip) for number, rate in enumerate(rates) if number >= skip
    ]
    graphed.begin(examples.orders(7, 2, MEMBERS), numbers[:1] * skip + numbers, 10, skip)
    for size in [5, 5, 5, 5, 3][skip:]:
        graphed._step(size)
    assert not torch.equal(plain.theta, ensemble().theta)
    torch.testing.assert_close(method.theta, plain.theta, rtol=1e-4, atol=1e-6)
    assert float(graphed.nll) == pytest.approx(total, rel=1e-5)


def test_a_graph_is_captured_where_the_data_is_whatever_device_was_used_before(monkeypatch):
    now, captured, replayed = ["first"], [], []

    @contextmanager
    def on(device):
        before, now[0] = now[0], device
        yield
        now[0] = before

    class Stream:
        def __init__(self):
            self.device = now[0]

        def wait_stream(self, other):
            assert other.device == self.device

    class Graph:
        def replay(self):
            replayed.append(captured[-1])

    @contextmanager
    def capture(_, stream=None):
        captured.append("first" if stream is None else stream.device)  # torch keeps a stream of the first capture
        yield

    monkeypatch.setattr(torch.cuda, "device_of", lambda _: on("second"))
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(FusedStep, "compile", lambda *_: None)
    _, graphed = graphed_ensemble()
    graphed.begin(parts().orders(7, 0, MEMBERS), [graphed.fused.numbers(0.2, 0.01)] * 5, 0, 0)
    for size in (5, 5, 3):
        graphed.step(size)
    assert captured == ["second"] * 2
    assert replayed == ["second"] * 3
    assert now == ["first"]
