"""Training in a thread is stopped by a function, and what was stopped resumes to the same bits."""

import threading

import pytest
import torch

import bayesify as bf
from bayesify.training.interrupts import deferred_interrupts, stop_when

X = torch.linspace(-1, 1, 24).view(-1, 2)
Y = (X.sum(1) > 0).long()
METHODS = {
    "point": lambda: bf.PointEstimate(bf.networks.mlp(2, 2, units=4), "categorical", start="fresh"),
    "hmc": lambda: bf.HMC(bf.networks.mlp(2, 2, units=4), "categorical", prior="normal:1", chains=2),
}
FITS = {"point": {"epochs": 6, "batch_size": 4}, "hmc": {"warm_up": 20, "samples": 10, "block": 5}}


def in_thread(function):
    """Call in a thread that no signal reaches; the exception, or None."""
    problems = []

    def work():
        try:
            function()
            problems.append(None)
        except BaseException as problem:  # noqa: BLE001 -- an interrupt is no Exception
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(240)
    return problems[0]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("asked", [0, 1, 7, 20])
def test_a_stopped_training_resumes_to_the_same_bits(name, asked, tmp_path):
    whole = METHODS[name]()
    whole.fit((X, Y), **FITS[name], progress=False, compiled=False)
    stopped, questions = METHODS[name](), iter(range(10_000))

    def train():
        with stop_when(lambda: next(questions) >= asked):
            stopped.fit((X, Y), **FITS[name], progress=False, compiled=False, run=tmp_path / "run")

    assert isinstance(in_thread(train), KeyboardInterrupt)
    again = bf.load(tmp_path / "run")
    again.resume((X, Y), tmp_path / "run", progress=False)
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key


def test_a_long_trajectory_is_not_waited_for():
    method, questions = METHODS["hmc"](), []

    def stopped():
        questions.append(None)
        return len(questions) >= 400

    def train():
        with stop_when(stopped):
            method.fit((X, Y), warm_up=2000, samples=10, progress=False, compiled=False)

    assert isinstance(in_thread(train), KeyboardInterrupt)
    # Asked before every leapfrog step: after it says yes, only a few times more.
    assert len(questions) < 420


def test_the_function_holds_for_its_block_and_its_thread():
    def ask():
        with deferred_interrupts() as interrupted:
            return interrupted()

    with stop_when(lambda: True):
        with stop_when(lambda: False):
            assert not ask()
        assert ask()
        others = []
        assert in_thread(lambda: others.append(ask())) is None
        assert others == [False]
    assert not ask()
