"""Runs in the folder layout of the Hugging Face Hub: `config.json`, `model.safetensors` and a model card, `README.md`.

A run folder has this layout already. `save` copies what belongs to a model, without checkpoints and without the place
of the data on this machine, and writes a card where there is none. Nothing in such a folder is executed when it is
loaded.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesify import runs
from bayesify.errors import RunError, first_line
from bayesify.files import check_regular, reason, replacing, write_json, write_text
from bayesify.methods import Method
from bayesify.report.unscored_card import unscored_card
from bayesify.workflows.load import load as load_run

__all__ = ["load", "push", "save"]

_FILES = (
    runs.CONFIG,
    runs.MODEL,
    runs.HISTORY,
    runs.METRICS,
    runs.GUARANTEES,
    runs.CERTIFICATE,
    runs.UNKNOWN,
    runs.CARD,
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def save(run: str | Path | Method, folder: str | Path, *, licence: str = "other", overwrite: bool = False) -> Path:
    """Write a run in the folder layout of the Hugging Face Hub.

    Args:
        run: a run folder, or a fitted method.
        folder: the folder to write; it is made where it does not exist.
        licence: of the model, for a new card: an identifier such as `apache-2.0`.
        overwrite: replace a run that is in the folder.

    Returns:
        The folder. `bf.load` and `bf.hub.load` read it.

    Raises:
        RunError: `run` is no run, or the folder holds something else.

    Examples:
        >>> folder = bf.hub.save(bnn, "clouds", licence="mit")
        >>> {"README.md", "config.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
        True
        >>> torch.equal(bf.hub.load(folder).predict(x).probs, bnn.predict(x).probs)
        True

    """
    target = Path(folder)
    if target.is_dir() and any(target.iterdir()):
        if not overwrite:
            raise RunError(f"{target} is not empty: choose another folder, or replace it (overwrite=True)")
        runs.check_no_other_content(target)
    if isinstance(run, Method):
        kept = run.run
        with tempfile.TemporaryDirectory() as place:
            try:
                source = run.save(Path(place) / "run")
            finally:
                run.run = kept  # the method still belongs to its own run
            return _copy(source, target, licence)
    source = Path(run)
    if source.resolve() == target.resolve():
        raise RunError(f"{source} is the run itself: choose another folder")
    return _copy(source, target, licence)


def push(
    run: str | Path | Method,
    repository: str,
    *,
    private: bool = True,
    licence: str = "other",
    token: str | None = None,
    message: str = "A run of bayesify",
) -> str:
    """Upload a run to the Hugging Face Hub (`pip install huggingface_hub`, and `hf auth login` before).

    Args:
        run: a run folder, or a fitted method.
        repository: its name there, such as `you/clouds`. It is made where it does not exist.
        private: whether a new repository is private.
        licence: of the model, for a new card.
        token: of your account; None takes the one that you logged in with.
        message: of the commit.

    Returns:
        The address of the commit.

    Raises:
        RunError: the name is not one, or the upload failed.
        ImportError: huggingface_hub is not installed.

    Examples:
        >>> bf.hub.push(bnn, "you/clouds")  # doctest: +SKIP

    """
    hub = _library()
    _check_name(repository)
    with tempfile.TemporaryDirectory() as place:
        folder = save(run, Path(place) / repository.rpartition("/")[2], licence=licence)
        try:
            api = hub.HfApi(token=token)
            api.create_repo(repository, private=private, exist_ok=True, repo_type="model")
            done = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message, repo_type="model")
        except Exception as problem:
            raise RunError(f"{repository} could not be uploaded: {first_line(problem)}") from problem
    return str(getattr(done, "commit_url", done))


def load(
    name: str | Path,
    *,
    revision: str | None = None,
    network: Any = None,
    output: Callable[[Any], Tensor] | None = None,
    device: str = "cpu",
    token: str | None = None,
) -> Method:
    """Read a run from a folder, or download it from the Hugging Face Hub.

    Only the files of a run are downloaded. Nothing in them is executed: a network of your own has to be given.

    Args:
        name: a folder, or the name of a repository, such as `you/clouds`. A folder of that name comes first.
        revision: a branch, a tag or a commit of the repository. Name a commit where the weights must not change.
        network: the module, or a function that makes it, for a network that is not built in.
        output: the function that picks the network's output, where the method was made with one.
        device: where to put the method.
        token: of your account, for a private repository.

    Returns:
        The method, in evaluation mode.

    Raises:
        RunError: there is no such run, or it is damaged.
        ImportError: huggingface_hub is not installed, and the name is not that of a folder.

    Examples:
        >>> folder = bf.hub.save(bnn, "shared-clouds")
        >>> type(bf.hub.load("shared-clouds")).__name__
        'Variational'

    """
    folder = Path(name)
    if not folder.is_dir():
        text = str(name)
        _check_name(text)
        hub = _library()
        try:
            found = hub.snapshot_download(text, revision=revision, allow_patterns=list(_FILES), token=token)
        except Exception as problem:
            raise RunError(
                f"there is no folder {text}, and it could not be downloaded: {first_line(problem)}"
            ) from problem
        folder = Path(found)
    elif revision is not None:
        raise RunError(f"{folder} is a folder, which has no revisions: leave out revision")
    return load_run(folder, network, device, output)


def _copy(source: Path, target: Path, licence: str) -> Path:
    config = runs.read_config(source)
    target.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        file = source / name
        (target / name).unlink(missing_ok=True)
        if name != runs.CONFIG and file.is_file():
            check_regular(file)
            _check_inside(file, source)
            try:
                with replacing(target / name, file.stat().st_size) as temporary:
                    shutil.copyfile(file, temporary)
            except OSError as problem:
                raise RunError(f"cannot write {target / name}: {reason(problem)}") from None
    write_json(target / runs.CONFIG, _published(config))
    if not (target / runs.CARD).exists():
        write_text(target / runs.CARD, unscored_card(config, _scores(source), name=target.name, licence=licence))
    return target


def _check_inside(file: Path, source: Path) -> None:
    """Refuse a link to a file elsewhere, whose content would be published; the Hub's own cache links to its blobs."""
    found, folder = file.resolve(), source.resolve()
    if found.parent not in {folder, folder.parent.parent / "blobs"}:
        raise RunError(f"{file} is a link to a file outside the run, and is not copied: replace it by a copy")


def _published(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the place of the data on this machine."""
    data = config.get("data")
    if not isinstance(data, dict) or not data.get("path"):
        return config
    return config | {"data": data | {"path": Path(str(data["path"]).partition("?")[0]).name}}


def _scores(source: Path) -> dict[str, Any]:
    try:
        content = json.loads((source / runs.METRICS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RunError(f"{name!r} is neither a folder nor the name of a repository, such as you/clouds")


def _library() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise ImportError("bf.hub needs huggingface_hub: pip install 'bayesify[hub]'") from None
