"""Batches from a loader, or augmented ones, are copied to where a graph reads them; other shapes need no graph."""

import logging
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.training.engines import batch_graphs, engine, fused
from bayesify.training.engines.batch_graphs import BatchGraphs

ROWS, BATCH = 23, 5  # the last batch has three


class Stream:
    def wait_stream(self, _):
        pass


@pytest.fixture
def device(monkeypatch):
    """What stands for a GPU: a capture changes nothing, a replay makes the step from the numbers in place."""
    state = SimpleNamespace(capturing=None, replays=0, problem=None)
    make, choose = BatchGraphs._make, engine.Engine._fuse

    @contextmanager
    def capture(graph, stream):
        state.capturing = graph
        yield
        state.capturing = None

    def _make(steps):
        if state.capturing is None:
            return make(steps)
        if state.problem is not None:
            raise state.problem
        nll = torch.zeros(())

        def replay():
            state.replays += 1
            nll.copy_(make(steps))

        state.capturing.replay = replay
        return nll

    def fuse(steps, batch, tell):
        own, steps._device = steps._device, torch.device("cuda")
        choose(steps, batch, tell)
        steps._device = own

    monkeypatch.setattr(torch.cuda, "device_of", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(BatchGraphs, "_make", _make)
    monkeypatch.setattr(engine.Engine, "_fuse", fuse)
    monkeypatch.setattr(fused, "compile_function", lambda function, _: function)
    return state


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 2, generator=generator)
    return x, (x[:, 0] > 0).long()


def shuffled():
    return DataLoader(TensorDataset(*data()), BATCH, shuffle=True, generator=torch.Generator().manual_seed(5))


def noisy(x):
    return x + 0.1 * torch.randn_like(x)


def trained(kind, *, compiled):
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    method = bf.IVON(network, "categorical") if kind == "ivon" else bf.Variational(network, "categorical", rho=-3.0)
    given = {"data": data(), "augment": noisy} if kind == "augmented" else {"data": shuffled()}
    method.fit(**given, epochs=3, batch_size=BATCH, learning_rate=0.01, compiled=compiled, progress=False)
    assert method.plan.compiled is compiled
    return [*method.state_dict().values(), torch.tensor(method.history["nll"])]


@pytest.mark.parametrize("kind", ["loader", "augmented", "ivon"])
def test_replays_make_the_updates_of_the_plain_path(kind, device, caplog):
    plain = trained(kind, compiled=False)
    assert device.replays == 0
    with caplog.at_level(logging.WARNING, "bayesify"):
        replayed = trained(kind, compiled=True)
    assert not [text for text in caplog.messages if "step" in text]
    # Four of the five batches of each epoch are whole.
    assert device.replays == 3 * (ROWS // BATCH)
    for one, other in zip(replayed, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_where_nothing_can_be_captured_the_compiled_step_goes_on_to_the_same_numbers(device, caplog):
    replayed = trained("loader", compiled=True)
    device.problem, device.replays = RuntimeError("not permitted\nand more"), 0
    with caplog.at_level(logging.WARNING, "bayesify"):
        one_by_one = trained("loader", compiled=True)
    assert "steps are not replayed (not permitted): they are made one by one" in caplog.messages
    assert device.replays == 0
    for one, other in zip(one_by_one, replayed, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_trial_leaves_no_trace_in_the_weights(device):
    torch.manual_seed(0)
    method = bf.Variational(torch.nn.Linear(2, 2), "categorical")
    made = fused.fused_step(method.train(), method.make_optimizer("adam", 0.1), 1, [data()])
    before = [tensor.clone() for tensor in made.state]
    assert batch_graphs.batch_graphs(made, [data()]) is not None
    for tensor, old in zip(made.state, before, strict=True):
        assert torch.equal(tensor, old)
