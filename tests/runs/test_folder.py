"""Run folders and processes that were started together."""

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
