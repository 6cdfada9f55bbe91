"""Files that are complete or absent: what is synced and when, and what killed processes left behind."""

import os
from pathlib import Path

import pytest

from bayesify import files


@pytest.mark.skipif(os.name != "posix", reason="only POSIX can sync a folder")
def test_a_text_is_on_the_disk_before_it_takes_its_place_and_the_place_after(tmp_path, monkeypatch):
    done, sync, move = [], os.fsync, Path.replace

    def fsync(descriptor):
        at = os.fstat(descriptor)
        done.append("synced the folder" if at.st_ino == tmp_path.stat().st_ino else f"synced {at.st_size} bytes")
        sync(descriptor)

    def replace(self, target):
        done.append(f"moved to {Path(target).name}")
        return move(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    files.write_text(tmp_path / "config.json", "12345")
    assert done == ["synced 5 bytes", "moved to config.json", "synced the folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere it is not known whether a process runs")
def test_leftovers_of_killed_processes_are_deleted_and_no_others(tmp_path, dead_process):
    for name in (f".model.safetensors.{dead_process}.1", f".model.safetensors.{os.getpid()}.1", ".mine", "notes.1.2"):
        (tmp_path / name).write_text("half")
    (tmp_path / f".state.safetensors.{dead_process}.2").mkdir()
    (tmp_path / f".state.safetensors.{dead_process}.2" / "state.safetensors").write_text("half")
    assert not files.is_empty(tmp_path)
    files.remove_leftovers(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([f".model.safetensors.{os.getpid()}.1", ".mine", "notes.1.2"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f".config.json.{os.getpid()}.1").write_text("half")
    assert files.is_empty(tmp_path / "other")
