"""Pieces of work side by side: the answers of one after the other, and every setting of threads as it was."""

import os
import threading

import pytest
import torch

from bayesify import Variational, networks, parallel
from bayesify.likelihoods import Categorical, GaussianLogits
from bayesify.methods import prediction
from bayesify.parallel import side_by_side
from bayesify.predictive import averages

CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.fixture(params=[2, 3, 17])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_are_in_order_and_come_from_several_threads_that_share_the_cores(threads):
    workers = parallel.workers_for(CPU)
    together = threading.Barrier(workers, timeout=120)

    def work(number):
        together.wait()  # breaks unless as many run at once
        return number * number, threading.get_ident(), torch.get_num_threads(), torch.is_grad_enabled()

    results = side_by_side(work, range(5 * workers), CPU)
    assert [result[0] for result in results] == [number * number for number in range(5 * workers)]
    assert len({result[1] for result in results}) == workers
    assert {result[2:] for result in results} == {(threads // workers, False)}
    assert torch.get_num_threads() == threads


def test_later_threads_begin_with_the_number_of_the_process(threads):
    side_by_side(abs, range(34), CPU)
    seen = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [threads]


def test_work_inside_work_and_few_pieces_run_in_the_caller(threads):
    inner = side_by_side(lambda a: sum(side_by_side(lambda b: a * b, range(40), CPU)), range(40), CPU)
    assert inner == [780 * a for a in range(40)]
    uneven = range(parallel.workers_for(CPU) + 1)
    for pieces, device, worth in ((uneven, CPU, True), (range(40), CPU, False), (range(40), META, True)):
        idents = side_by_side(lambda _: threading.get_ident(), pieces, device, worth=worth)
        assert set(idents) == {threading.get_ident()}


def test_autocast_goes_along_and_errors_come_back(threads):
    with torch.autocast("cpu", torch.bfloat16):
        kinds = side_by_side(lambda _: (torch.ones(2, 2) @ torch.ones(2, 2)).dtype, range(40), CPU)
    assert set(kinds) == {torch.bfloat16}
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda number: 1 // (number - 20), range(40), CPU)
    assert side_by_side(abs, range(40), CPU) == list(range(40))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork here")
def test_a_forked_process_makes_threads_of_its_own(threads):
    side_by_side(abs, range(40), CPU)
    child = os.fork()
    if not child:
        os._exit(side_by_side(abs, range(40), CPU) != list(range(40)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("likelihood", [Categorical(), GaussianLogits(samples=20)])
@pytest.mark.parametrize("asked", [{"draws": 40}, {"by": "moments"}])
def test_answers_are_those_of_one_thread(asked, likelihood, threads, monkeypatch):
    bnn = Variational(networks.mlp(5, 3 * likelihood.parameters_per_class, units=30), likelihood)
    x = torch.randn(90, 5, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(averages, "_PIECE_ELEMENTS", 1 << 8)
    alone = bnn.predict(x, batch_size=4, **asked)
    expected = alone.probs, alone.aleatoric
    seen, run = set(), side_by_side

    def watched(work, pieces, device, *, worth=True):
        return run(lambda piece: (seen.add(threading.get_ident()), work(piece))[1], pieces, device, worth=worth)

    monkeypatch.setattr(parallel, "side_by_side", watched)
    for module, name in ((prediction, "_WORTH_A_CORE"), (prediction, "LOOP_FROM_WEIGHTS"), (averages, "_WORTH_CORES")):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(prediction, "_CACHED_ELEMENTS", 1)
    got = bnn.predict(x, batch_size=4, **asked)
    torch.testing.assert_close(got.outputs, alone.outputs)
    assert threading.get_ident() not in seen
    torch.testing.assert_close((got.probs, got.aleatoric), expected)
