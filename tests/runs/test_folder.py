"""Run folders, processes that were started together, and one that is killed while it claims a folder."""

import os
import signal
from pathlib import Path

import pytest

import bayesify as bf
from bayesify import runs


@pytest.mark.parametrize("name, refused", [("mine", True), ("mine-1", False), ("mine-10", True)])
def test_several_processes_do_not_train_into_one_folder(name, refused, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    if refused:
        with pytest.raises(bf.RunError, match=r"2 processes \(WORLD_SIZE\) would train 2 unrelated copies"):
            runs.claim(tmp_path / name, overwrite=False)
    else:
        runs.claim(tmp_path / name, overwrite=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    runs.claim(tmp_path / name, overwrite=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_killed_while_it_claims_a_folder_leaves_nothing_that_stays(tmp_path):
    child = os.fork()
    if child == 0:
        touch = Path.touch

        def touch_and_die(self, *args, **kwargs):
            touch(self, *args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        Path.touch = touch_and_die
        runs.claim(tmp_path / "run", overwrite=False)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(list((tmp_path / "run").iterdir())) == 1
    runs.claim(tmp_path / "run", overwrite=False)
    assert not list((tmp_path / "run").iterdir())
