"""The end of a process that trained with others: threads that still have work are waited for."""

import sys
import threading

import pytest

from bayesify.distributed import group


@pytest.mark.skipif(sys.platform != "linux", reason="the states of threads are read from /proc")
def test_a_thread_that_waits_for_a_processor_is_waited_for(monkeypatch):
    monkeypatch.setattr(group.dist, "is_initialized", lambda: False)
    over, ended = threading.Event(), []

    def work():
        while not over.is_set():
            pass
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    timer = threading.Timer(1.0, over.set)
    timer.start()
    group._end()
    assert ended
    thread.join()
    timer.join()


def test_an_end_without_other_threads_takes_a_moment_alone(monkeypatch):
    monkeypatch.setattr(group.dist, "is_initialized", lambda: False)
    monkeypatch.setattr(group, "_other_threads_run", lambda: False)
    slept = []
    monkeypatch.setattr(group.time, "sleep", slept.append)
    group._end()
    assert slept == [group._LAST_MOMENT]
