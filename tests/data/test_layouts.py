"""Every layout of every file kind gives the same data; every kind of damage gives one line that names the file."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile

import numpy as np
import pytest
import torch

from bayesify import data
from bayesify.data import loading, published_files

RANDOM = np.random.default_rng(0)
IMAGES = {"train": RANDOM.integers(0, 256, (30, 5, 4), np.uint8), "t10k": RANDOM.integers(0, 256, (9, 5, 4), np.uint8)}
LABELS = {"train": np.arange(30, dtype=np.uint8) % 10, "t10k": np.arange(9, dtype=np.uint8)}


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder, suffix=".gz", dot="-"):
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for what, array, number in (("images", IMAGES[part], 3), ("labels", LABELS[part], 1)):
            content = idx(array)
            path = folder / f"{part}-{what}{dot}idx{number}-ubyte{suffix}"
            path.write_bytes(gzip.compress(content, mtime=0) if suffix else content)


def offline(monkeypatch):
    def refuse(known, cache, **_):
        raise data.DataError(f"would download {known.name}")

    monkeypatch.setattr(loading, "download", refuse)


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("suffix, dot", [(".gz", "-"), ("", "-"), ("", ".")])
def test_idx_files_are_read_packed_or_not_in_either_folder(root, folder, suffix, dot):
    write_mnist(root / folder, suffix, dot)
    mnist = data.load("mnist")
    assert np.array_equal(mnist.x_train.numpy(), IMAGES["train"])
    assert np.array_equal(mnist.y_test.numpy(), LABELS["t10k"])
    assert mnist.y_test.dtype == torch.int64


def test_the_user_cache_is_looked_in_after_the_data_folder(root, cache):
    write_mnist(cache / "mnist")
    assert len(data.load("mnist").x_train) == 30
    assert next(row for row in data.available() if row.name == "mnist").where == str(cache / "mnist")


def test_a_folder_with_a_file_missing_does_not_count(root, monkeypatch):
    offline(monkeypatch)
    write_mnist(root / "mnist")
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(data.DataError, match="would download mnist"):
        data.load("mnist")


def test_a_changed_file_is_read_again(root):
    write_mnist(root / "mnist", "")
    assert int(data.load("mnist").y_test[0]) == 0
    (root / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS["t10k"][::-1]) + b"")
    (root / "mnist" / "t10k-images-idx3-ubyte").write_bytes(idx(IMAGES["t10k"]))
    assert int(data.load("mnist").y_test[0]) == 8


@pytest.mark.parametrize(
    "damage, complaint",
    [
        (lambda whole: gzip.compress(idx(IMAGES["train"]), mtime=0)[:-20], "truncated or damaged"),
        (lambda whole: b"", "truncated or damaged|not an idx file"),
        (lambda whole: b"not gzip at all", "truncated or damaged"),
        (lambda whole: whole[:40] + bytes([whole[40] ^ 0xFF]) + whole[41:], "truncated or damaged"),
        (lambda whole: gzip.compress(b"hello", mtime=0), "not an idx file of 3-dimensional"),
        (
            lambda whole: gzip.compress(idx(IMAGES["train"])[:-7], mtime=0),
            "expected 30x5x4 values by its header, got 593",
        ),
        (
            lambda whole: gzip.compress(idx(IMAGES["train"][:4]), mtime=0),
            "has 4 images but train-labels.* has 30 labels",
        ),
        (lambda whole: gzip.compress(idx(LABELS["train"]), mtime=0), "not an idx file of 3-dimensional"),
    ],
)
def test_a_damaged_idx_file_is_named(root, damage, complaint):
    write_mnist(root / "mnist")
    path = root / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(data.DataError, match=complaint) as caught:
        data.load("mnist")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_beyond_the_classes_are_refused(root):
    write_mnist(root / "mnist", "")
    (root / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS["t10k"] + 3))
    with pytest.raises(data.DataError, match="label 11, expected 0 to 9"):
        data.load("mnist")


@pytest.fixture
def batches(monkeypatch):
    """Six small batches of CIFAR records."""
    monkeypatch.setattr(published_files, "CIFAR_RECORDS", 20)
    records = RANDOM.integers(0, 256, (6, 20, 3073), np.uint8)
    records[:, :, 0] %= 10
    return dict(zip(published_files.CIFAR_BATCHES, records, strict=True))


def write_cifar(root, batches, layout):
    folder = root / ("cifar-10-batches-bin" if layout == "folder" else "cifar10")
    folder.mkdir()
    if layout == "archive":
        with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
            # Not in their order, and with the files that the official archive also holds.
            for name in ["readme.html", *reversed(batches)]:
                content = batches[name].tobytes() if name in batches else b"text"
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}" + (".bin" if name in batches else ""))
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return
    for name, batch in batches.items():
        packed = lzma.compress(batch.tobytes(), preset=0) if layout == "xz" else batch.tobytes()
        (folder / f"{name}.bin{'.xz' if layout == 'xz' else ''}").write_bytes(packed)


@pytest.mark.parametrize("layout", ["xz", "folder", "archive"])
def test_cifar10_is_the_same_from_every_layout_and_from_the_unpacked_copy(root, cache, batches, layout):
    write_cifar(root, batches, layout)
    for _ in range(2):
        cifar = data.load("cifar10")
        assert cifar.x_train.shape == (100, 3, 32, 32)
        third = batches["data_batch_3"]
        assert np.array_equal(cifar.x_train[40:60].numpy().reshape(20, -1), third[:, 1:])
        assert np.array_equal(cifar.y_train[40:60].numpy(), third[:, 0])
        assert np.array_equal(cifar.x_test.numpy().reshape(20, -1), batches["test_batch"][:, 1:])
        loading.cifar_records.cache_clear()
    # Writing into a tensor must not reach the unpacked copy.
    cifar.x_train.zero_()
    assert int(data.load("cifar10").x_train.max()) > 0
    assert [path.suffix for path in (cache / "unpacked").iterdir()] == [".npy"]


def test_a_truncated_unpacked_copy_is_made_again_and_an_unwritable_cache_does_no_harm(root, cache, batches):
    write_cifar(root, batches, "folder")
    data.load("cifar10")
    (copy,) = (cache / "unpacked").iterdir()
    copy.write_bytes(copy.read_bytes()[:1000])
    loading.cifar_records.cache_clear()
    assert len(data.load("cifar10").x_train) == 100
    assert copy.stat().st_size > 1000
    copy.unlink()
    copy.parent.rmdir()
    copy.parent.write_text("a file where the folder should be")
    loading.cifar_records.cache_clear()
    assert len(data.load("cifar10").x_train) == 100


@pytest.mark.parametrize("layout", ["xz", "folder", "archive"])
def test_damaged_cifar10_is_named(root, cache, batches, layout):
    write_cifar(root, batches, layout)
    path = next(path for path in sorted(root.rglob("*")) if path.is_file())
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(data.DataError) as caught:
        data.load("cifar10")
    assert str(path) in str(caught.value)
    assert not (cache / "unpacked").exists()


def test_cifar10_with_impossible_labels_or_a_batch_missing_is_refused(root, batches):
    batches["data_batch_2"][5, 0] = 10
    write_cifar(root, batches, "folder")
    with pytest.raises(data.DataError, match=r"data_batch_2.bin: has the label 10"):
        data.load("cifar10")
    (root / "cifar-10-batches-bin" / "data_batch_2.bin").unlink()
    del batches["data_batch_2"]
    write_cifar(root, batches, "archive")
    with pytest.raises(data.DataError, match=r"has no data_batch_2.bin"):
        data.load("cifar10")


TABLE = np.round(RANDOM.normal(size=(40, 9)), 4)
TRAIN, TEST = np.arange(40)[::-1][:36], np.arange(40)[::-1][36:]


def write_uci(folder, layout):
    folder.mkdir(parents=True)
    text = "\n".join("\t".join(map(str, row)) + " " for row in TABLE) + "\n"
    if layout == "ours":
        (folder / "data.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        np.savez(folder / "splits.npz", index_features=np.arange(8), index_target=8, train_0=TRAIN, test_0=TEST)
    else:
        (folder / "data.txt").write_text(text)
        for name, rows in {"train_0": TRAIN, "test_0": TEST, "features": range(8), "target": [8]}.items():
            (folder / f"index_{name}.txt").write_text("".join(f"{row:.18e}\n" for row in rows))


@pytest.mark.parametrize(
    "folder, layout", [("uci-regression/concrete", "ours"), ("UCI_Datasets/concrete/data", "index files")]
)
def test_uci_tables_are_read_from_both_layouts(root, folder, layout):
    write_uci(root / folder, layout)
    concrete = data.load("uci/concrete")
    assert np.array_equal(concrete.x_train.numpy(), TABLE[TRAIN, :8])
    assert np.array_equal(concrete.y_test.numpy(), TABLE[TEST, 8])


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        ("data.txt.gz", gzip.compress(b"1 2\n3\n", mtime=0), "line 2: expected 2 numbers, got 1"),
        ("data.txt.gz", gzip.compress(b"1 2\n3 x\n", mtime=0), "expected numbers separated by white space"),
        ("data.txt.gz", gzip.compress(b"1 2\n3 nan\n", mtime=0), "not finite, the first in row 1"),
        ("data.txt.gz", gzip.compress(b"\n", mtime=0), "the file is empty"),
        ("data.txt.gz", gzip.compress(b"1 2\n3 4\n", mtime=0), "split 0 must use each of the 2 rows"),
        ("data.txt.gz", b"1 2", "truncated or damaged"),
        ("splits.npz", b"PK\x03\x04 nothing", "truncated or damaged"),
        ("splits.npz", b"", "the file is empty"),
    ],
)
def test_a_damaged_uci_set_is_refused(root, name, content, complaint):
    folder = root / "uci-regression" / "concrete"
    write_uci(folder, "ours")
    (folder / name).write_bytes(content)
    with pytest.raises(data.DataError, match=complaint) as caught:
        data.load("uci/concrete")
    assert str(folder) in str(caught.value)


def test_an_archive_of_splits_with_python_objects_is_never_loaded(root):
    folder = root / "uci-regression" / "concrete"
    write_uci(folder, "ours")
    np.savez(folder / "splits.npz", train_0=np.array([{"a": 1}], dtype=object), test_0=TEST)
    with pytest.raises(data.DataError, match=r"splits.npz: .*holds Python objects"):
        data.load("uci/concrete")


@pytest.mark.parametrize("content, complaint", [(b"p,x\n", "line 1: expected 23 letters"), (b"", "expected 8124 rows")])
def test_a_damaged_mushroom_table_is_refused(root, content, complaint):
    (root / "mushroom").mkdir()
    (root / "mushroom" / "agaricus-lepiota.data").write_bytes(content)
    with pytest.raises(data.DataError, match=complaint):
        data.load("mushroom")
