"""Downloads with a verified checksum: each file is downloaded into a folder of parts and moved when it is complete.

An interrupted download resumes where it stopped, in the next attempt or the next call. A file without the published
checksum is deleted. The folder of a data set never contains an incomplete file.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bayesify.data import published_files
from bayesify.data.catalogue import KnownDataSet, KnownRegression, RemoteFile
from bayesify.data.errors import DataError
from bayesify.files import move_into_place, replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRIES = 3
PAUSE = 1.0
TIMEOUT = 30.0


def download(known: KnownDataSet, cache: Path, *, progress: bool | None = None) -> Path:
    """Download the missing files of a data set to the user's cache, and return its folder there."""
    folder, parts = cache / known.folders[0], cache / "partial"
    with _locked(parts):
        for file in known.files:
            if not (folder / file.name).is_file():
                fetch(file, folder, parts, progress=progress)
        if isinstance(known, KnownRegression) and not (folder / "splits.npz").is_file():
            _fetch_splits(known, folder, parts)
    return folder


def fetch(file: RemoteFile, folder: Path, parts: Path, *, progress: bool | None = None) -> Path:
    """Download one file into `folder`, from the first mirror that has it with the right checksum."""
    show = sys.stderr.isatty() if progress is None else progress
    reasons = []
    for url in file.urls:
        part = parts / f"{hashlib.sha256((url + file.hash).encode()).hexdigest()[:16]}.part"
        reason = _fetch_from(url, file.hash, part, show=show)
        if reason is None:
            target = folder / file.name
            with _disk_errors(target):
                move_into_place(part, target)
            return target
        reasons.append(f"{url}: {reason}")
    raise DataError(
        f"could not download {file.name}: {'; '.join(reasons)}; check the connection, or put the file in {folder}"
    )


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file completely or not at all; a full disk is a `DataError`."""
    with _disk_errors(path), replacing(path) as temporary, temporary.open("wb") as stream:
        write(stream)


def _fetch_from(url: str, expected: str, part: Path, *, show: bool) -> str | None:
    """Download into `part` from one mirror, resuming where it stopped; None on success, else why it failed."""
    import pooch
    from requests import RequestException

    algorithm, _, digest = expected.rpartition(":")
    reason = "nothing arrived"
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * attempt)
        with _disk_errors(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            part.touch()
        done = part.stat().st_size
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
        get = pooch.HTTPDownloader(progressbar=show, chunk_size=1 << 16, headers=headers, timeout=TIMEOUT)
        try:
            with part.open("ab") as stream:
                get(url, stream, None)
        except OSError as error:
            # The errors of requests are OSErrors, and so is a full disk, for which another mirror does not help.
            if not isinstance(error, RequestException):
                raise DataError(f"{part}: cannot be written ({error.strerror or error})") from error
            reason = _reason(error)
            if _refused(error):
                # A server refuses a range beyond the end, if the part is complete or outdated: start again.
                part.unlink(missing_ok=True)
                if not done:
                    return reason
            continue
        if pooch.file_hash(str(part), alg=algorithm or "sha256") == digest:
            return None
        # A mirror that ignores ranges appends the whole file to the part: only a new start can tell.
        part.unlink()
        reason = "the file does not have the published checksum"
        if not done:
            break
    if part.is_file() and part.stat().st_size == 0:
        part.unlink()
    return reason


def _fetch_splits(known: KnownRegression, folder: Path, parts: Path) -> None:
    """Download the published splits, which are forty small files, verify them together and write them as one file."""
    base = known.files[0].urls[0].rpartition("/")[0]
    names = [f"index_{part}_{k}.txt" for k in range(known.splits) for part in ("train", "test")]
    rows = len(published_files.read_table(folder / known.files[0].name))
    with tempfile.TemporaryDirectory(dir=parts) as name:
        for index in names:
            _fetch_unchecked(f"{base}/{index}", Path(name) / index)
        splits, _ = published_files.read_splits(Path(name), rows)
    digest = hashlib.sha256()
    for k in range(known.splits):
        for part in ("train", "test"):
            digest.update(splits[f"{part}_{k}"].astype("<u4").tobytes())
    if digest.hexdigest() != known.splits_hash:
        raise DataError(f"{base}: the splits of {known.name} do not have the published checksum")
    arrays: dict[str, Any] = {key: numbers.astype(np.uint16) for key, numbers in splits.items()}
    arrays |= {"index_features": np.arange(known.features), "index_target": np.array([known.features])}
    write_whole(folder / "splits.npz", lambda stream: np.savez_compressed(stream, **arrays))


def _fetch_unchecked(url: str, target: Path) -> None:
    import pooch

    for attempt in range(TRIES):
        try:
            with target.open("wb") as stream:
                pooch.HTTPDownloader(headers={"Accept-Encoding": "identity"}, timeout=TIMEOUT)(url, stream, None)
        except OSError as error:
            if attempt == TRIES - 1 or _refused(error):
                raise DataError(f"could not download {url}: {_reason(error)}") from error
            time.sleep(PAUSE * (attempt + 1))
        else:
            return


def _refused(error: OSError) -> bool:
    """Whether the server refused the request (4xx), so that repeating it is pointless."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500


def _reason(error: OSError) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered {status}"
    words = {
        "Timeout": "no answer in time",
        "ConnectionError": "no connection",
        "ChunkedEncoding": "interrupted",
    }
    kinds = "".join(kind.__name__ for kind in type(error).__mro__)
    return next((text for word, text in words.items() if word in kinds), type(error).__name__)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def _locked(parts: Path) -> Iterator[None]:
    """Let one process at a time download; the others wait, then find the files in place."""
    with _disk_errors(parts):
        parts.mkdir(parents=True, exist_ok=True)
        lock = (parts / "lock").open("ab")
    with lock:
        # Windows has no fcntl; two downloads at once may there fail their checksums.
        with suppress(ImportError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
