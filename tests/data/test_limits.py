"""Files that expand to too much, headers that claim too much, tables with very many columns."""

import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest

import bayesify as bf
from bayesify.data import DataError, expansion, npz, published_files
from bayesify.workflows.inputs import read_inputs

NUMBERS = bf.data.Preparation("none", columns=(bf.data.Column("a"),), mean=(0.0,), scale=(1.0,))


def refused(action, words):
    """An error of one line, and no more memory than a few megabytes beyond the limit."""
    tracemalloc.start()
    with pytest.raises(DataError, match=words) as caught:
        action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < 20 << 20
    return str(caught.value)


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setenv("BAYESIFY_MAX_EXPANDED", str(4 << 20))


def test_archives_that_expand_beyond_the_limit(tmp_path, limit):
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((10**6, 2)), y=np.zeros(10**6))
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    line = refused(lambda: bf.data.from_npz(tmp_path / "bomb.npz"), "expands to more than 0.00391 GiB")
    assert "set BAYESIFY_MAX_EXPANDED to a larger number of bytes" in line
    refused(lambda: read_inputs([str(tmp_path / "bomb.npz")], NUMBERS, None), "expands to more")
    for name, pack in (("l.gz", gzip.compress), ("l.xz", lzma.compress)):
        (tmp_path / name).write_bytes(pack(bytes(10 << 20)))
        refused(lambda path=tmp_path / name: published_files.read_bytes(path), "expands to more")
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("data_batch_1.bin")
        member.size = 10 << 20
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    refused(lambda: published_files.read_cifar([tmp_path / "c.tar.gz"]), "expands to more")


def test_what_is_not_compressed_has_no_limit(tmp_path, limit):
    np.savez(tmp_path / "large.npz", x=np.zeros((10**6, 1)), y=np.arange(10**6) % 2)
    assert len(bf.data.from_npz(tmp_path / "large.npz", test=10).x_train) == 10**6 - 10


@pytest.mark.parametrize("value", ["0", "-1", "1e9", "2 GB"])
def test_the_limit_is_a_number_of_bytes(monkeypatch, value):
    monkeypatch.setenv("BAYESIFY_MAX_EXPANDED", value)
    with pytest.raises(DataError, match="BAYESIFY_MAX_EXPANDED must be a whole number of bytes above 0"):
        expansion.most_bytes()


def header(shape, dtype="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": dtype})
    return stream.getvalue()


@pytest.mark.parametrize("shape", [(10**12,), (1 << 40, 1 << 40), (-5, 3)])
def test_a_header_that_claims_terabytes_is_what_is_wrong(tmp_path, shape):
    (tmp_path / "x.npy").write_bytes(header(shape) + bytes(80))
    line = refused(lambda: read_inputs([str(tmp_path / "x.npy")], NUMBERS, None), "damaged; its header states")
    assert "batch" not in line
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header(shape) + bytes(80))
        archive.writestr("y.npy", header((1,)) + bytes(8))
    refused(lambda: bf.data.from_npz(tmp_path / "a.npz"), r"a\.npz: x: damaged; its header states")


@pytest.mark.parametrize("dtype", ["u1", ">f8", "<f4", "?", "<U3", "i8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0, 3), (4,), (3, 5), (2, 3, 4)])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, dtype, order, shape):
    values = (np.random.default_rng(0).integers(0, 9, shape)).astype(dtype).copy(order=order)
    np.save(tmp_path / "x.npy", values)
    np.savez_compressed(tmp_path / "x.npz", x=values, y=values)
    for array in (npz.read_array(tmp_path / "x.npy", lambda names: names[0]), npz.read_npz(tmp_path / "x.npz")["x"]):
        assert array.dtype == values.dtype
        assert array.shape == values.shape
        assert np.array_equal(array, values)
        assert array.flags.writeable


def test_python_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "o.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    refused(lambda: read_inputs([str(tmp_path / "o.npy")], NUMBERS, None), "Python objects, which are never loaded")
    refused(lambda: bf.data.from_npz(tmp_path / "o.npz"), "Python objects, which are never loaded")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_may_have_30_000_columns(tmp_path, separator):
    columns = 30_000
    rows = [[str(column + row) for column in range(columns)] for row in range(4)]
    names = [f"column{number}" for number in range(columns)]
    (tmp_path / "wide.csv").write_text("\n".join(separator.join(row) for row in [names, *rows]) + "\n")
    assert bf.data.from_csv(tmp_path / "wide.csv", kind="regression", test=1).x_train.shape == (3, columns - 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in this file system")
@pytest.mark.parametrize("name", ["t.csv", "a.npz", "x.npy", "i.png"])
def test_a_pipe_is_refused_and_never_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    layout = bf.data.Preparation("none", image=bf.data.ImageLayout(2, 2), mean=(0.0,), scale=(1.0,))
    preparation = layout if name == "i.png" else NUMBERS
    refused(lambda: read_inputs([str(tmp_path / name)], preparation, None), "it is a pipe, not a regular file")
    if name in {"t.csv", "a.npz"}:
        refused(lambda: bf.data.open_data(tmp_path / name), "it is a pipe, not a regular file")


def test_a_small_parquet_file_does_not_claim_more_rows_than_the_limit(tmp_path, limit):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"x": np.zeros(2_000_000), "y": np.zeros(2_000_000)}), path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="expands to more than"):
        bf.data.from_csv(path)


def test_texts_of_an_arrow_file_that_are_no_utf8_are_damage(tmp_path):
    pa, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    table = pa.table({"kind": ["kindkind", "b"] * 9, "y": [0, 1] * 9})
    with ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    content = (tmp_path / "t.arrow").read_bytes()
    for word in (b"kindkind", b"kind\x00"):
        (tmp_path / "t.arrow").write_bytes(content.replace(word, b"\xc5" + word[1:]))
        with pytest.raises(DataError, match=r"t\.arrow"):
            bf.data.from_csv(tmp_path / "t.arrow")
