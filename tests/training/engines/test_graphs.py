"""Replayed steps see the batches of the plain path, and their graphs are captured on the device of the data.

Where there is no graph for a size of batch, training goes on without it to the same numbers.
"""

import logging
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils import _pytree as pytree

import bayesify as bf
from bayesify.errors import TrainingError
from bayesify.fleets import Fleet
from bayesify.training.batches import TensorExamples
from bayesify.training.engines import engine, fused, member_streams, single, staged_step
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.single import SingleStep
from bayesify.training.engines.stacked_step import StackedStep
from bayesify.training.engines.staged_graphs import StagedSteps
from bayesify.training.engines.updates import update_rule
from bayesify.training.warnings import without_warnings
from bayesify_studies.benchmarks.steps import Epochs

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


LAST = ROWS % BATCH
REASONS = {
    "compiler": "no such operation",
    "numbers": "the compiled step differs from the plain one",
    "trial": "out of memory",
    "capture": "not permitted",
}


class Device:
    """What stands for a GPU and a compiler; `problem` is what goes wrong with the last, smaller batch."""

    def __init__(self, monkeypatch):
        self.problem, self.device, self.stream, self.graph, self.used = "", "first", "own", None, set()
        make, choose = GraphedSteps._step, engine.Engine._fuse

        class Stream:
            def __init__(stream, name="side"):
                stream.name = name

            def wait_stream(stream, other):
                assert other.name != stream.name

        @contextmanager
        def entered(**changes):
            before = {name: getattr(self, name) for name in changes}
            self.__dict__.update(changes)
            try:
                yield
            finally:
                self.__dict__.update(before)

        @contextmanager
        def capture(graph, stream):
            before, self.stream = self.stream, stream.name
            with entered(graph=graph):
                yield
            self.stream = before  # not after a failure, as with torch's own

        def _step(steps, size):
            assert self.device == "second"
            self.used.add(type(steps))
            failing = size == LAST and self.stream == "side"
            if self.graph is None:
                make(steps, size)
                if failing and self.problem == "trial":
                    raise torch.OutOfMemoryError("out of memory\nand more")
            elif failing and self.problem == "capture":
                raise RuntimeError("not permitted\nand more")
            else:  # a capture changes nothing: it is the replay that makes the step
                self.graph.replay = lambda: make(steps, size)

        def compiled(function, example):
            failing = any(tensor.shape[:1] == (LAST,) and tensor.dtype == torch.int64 for tensor in example)
            if failing and self.problem == "compiler":
                raise NotImplementedError("no such operation\nand more")
            if failing and self.problem == "numbers" and function.__name__ != "_update":
                return lambda *given: pytree.tree_map(lambda found: 2 * found, function(*given))
            return function

        def fuse(steps, batch, tell):
            own, steps._device = steps._device, torch.device("cuda")
            choose(steps, batch, tell)
            steps._device = own

        def faster(step, examples, batch_size):
            step.compile([examples.fetch(torch.arange(batch_size))])
            return step.graphed(examples, batch_size)

        monkeypatch.setattr(torch.cuda, "device_of", lambda _: entered(device="second"))
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream(self.stream))
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: entered(stream=stream.name))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
        monkeypatch.setattr(torch.cuda, "graph", capture)
        monkeypatch.setattr(GraphedSteps, "_step", _step)
        monkeypatch.setattr(fused, "compile_function", compiled)
        for part in (staged_step, member_streams):
            monkeypatch.setattr(part, "compile_function", compiled)
        monkeypatch.setattr(engine.Engine, "_fuse", fuse)
        monkeypatch.setattr(StackedStep, "faster", faster)


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def variational(seed=0):
    torch.manual_seed(1)
    return bf.Variational(bf.networks.mlp(2, 2, units=4), "categorical", prior="normal:1", rho=-3.0, seed=seed)


def trained(kind, *, compiled):
    """Weights and each epoch's NLL after a fit of this kind."""
    examples = parts()
    settings = {"epochs": 3, "batch_size": BATCH, "compiled": compiled, "progress": False}
    if "fleet" in kind:
        fleet = Fleet([variational(), variational(1)])
        data = (examples.x[0], examples.y)
        nll = fleet.fit([data, data] if "own data" in kind else data, learning_rates=[0.01, 0.02], **settings)
        return [*(parameter.detach() for parameter in fleet.parameters), torch.tensor(nll)]
    method, x = (ensemble(), examples.x) if kind == "ensemble" else (variational(), examples.x[0])
    with without_warnings():
        method.fit((x, examples.y), learning_rate=0.01, schedule="cosine", **settings)
    assert method.plan.compiled is compiled
    return [*(parameter.detach() for parameter in method.parameters()), torch.tensor(method.history["nll"])]


def in_stages(method, optimizer, draws, examples, batch_size, batches):
    step = SingleStep(method, optimizer, draws)
    step.compile(batches)
    return StagedSteps(step, step.stages, examples, batch_size)


def ours(caplog):
    """What this library logged; the compiler logs its own trace."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("bayesify")]


@pytest.mark.parametrize("problem", REASONS)
@pytest.mark.parametrize("kind", ["single", "single in stages", "ensemble", "fleet in stages", "fleet with own data"])
def test_where_the_last_batch_has_no_graph_training_goes_on_to_the_same_numbers(
    kind, problem, device, monkeypatch, caplog
):
    if kind == "single in stages":
        monkeypatch.setattr(single, "staged_steps", in_stages)
    plain = trained(kind, compiled=False)
    assert not device.used
    replayed = trained(kind, compiled=True)
    assert device.used == {StagedSteps if "stages" in kind else GraphedSteps}
    assert not ours(caplog)
    device.problem = problem
    with caplog.at_level(logging.WARNING, "bayesify"):
        found = trained(kind, compiled=True)
    reason = REASONS[problem]
    (message,) = ours(caplog)
    assert message.startswith(f"steps on batches of 3 are not replayed ({reason}")
    assert message.endswith("): they are made one by one")
    for one, other, expected in zip(found, replayed, plain, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, expected, rtol=1e-3, atol=1e-5)
    assert (device.device, device.stream) == ("first", "own")


def test_a_network_that_has_diverged_by_its_last_batch_is_reported_as_such(device):
    method, examples = variational(), parts()
    # Nothing is equal to a number that is not one: the compiled step cannot be compared any more.
    with pytest.raises(TrainingError, match="diverged in epoch 1"):
        method.fit(
            (examples.x[0], examples.y),
            optimizer="sgd",
            learning_rate=1e30,
            epochs=2,
            batch_size=BATCH,
            compiled=True,
            progress=False,
        )
    assert device.used == {GraphedSteps}


def test_a_benchmark_of_replays_refuses_steps_that_are_made_one_by_one():
    """Where a capture failed, the steps are still right, and their time is that of something else."""

    class Made(GraphedSteps):
        def __init__(self, graph):
            self.graph, self._graphs = graph, {}
            self.fused = SimpleNamespace(numbers=lambda *_, **__: (0.0,))

        def begin(self, *_):
            pass

        def step(self, size):
            self._graphs[size] = self.graph

    examples = TensorExamples(torch.zeros(8, 3), torch.zeros(8, dtype=torch.int64))
    Epochs(Made(object()), examples, 4).step()
    with pytest.raises(ValueError, match="only replays are to be timed"):
        Epochs(Made(None), examples, 4).step()
