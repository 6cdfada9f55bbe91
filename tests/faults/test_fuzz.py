"""Damaged files: thousands of mutated runs and data files are read, or refused in one line that names the file.

`FUZZ_FILES=100000 pytest tests/faults/test_fuzz.py` or `FUZZ_MINUTES=10 pytest ...` runs for longer; the counts of each
outcome are printed with `-s`. `FUZZ_SEED` starts with other mutations.
"""

import copy
import gzip
import json
import logging
import lzma
import os
import random
import shutil
import time
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

import bayesify as bf
from bayesify import runs
from bayesify.data import published_files
from bayesify.data.images import open_image
from bayesify.runs import tensor_files
from bayesify.workflows import load, run_data
from bayesify.workflows.inputs import read_inputs
from bayesify.workflows.recipe import make_recipe, read_config_file

FILES = int(os.environ.get("FUZZ_FILES", "2500"))
MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
REFUSALS = (bf.RunError, bf.data.DataError)


def spread(content, chance, mutations=4):
    """A few bits flipped, bytes replaced, parts cut, repeated or moved."""
    content = bytearray(content)
    for _ in range(chance.randint(1, mutations)):
        if not content:
            break
        place = chance.randrange(len(content))
        # Headers are at the beginning and, in an archive, at the end: they get most of the damage.
        place = min(place, chance.choice((8, 64, 400, len(content) - 1)))
        place = len(content) - 1 - place if chance.random() < 0.2 else place
        length = chance.choice((1, 2, 4, 8, 100))
        kind = chance.randrange(7)
        if kind == 0:
            content[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[place] = chance.choice((0, 1, 127, 128, 255, ord("-"), ord("9"), ord("["), ord("{"), ord('"')))
        elif kind == 2:
            del content[place : place + length]
        elif kind == 3:
            content[place:place] = content[max(0, place - length) : place] * chance.choice((1, 3, 50))
        elif kind == 4:
            del content[place:]
        elif kind == 5:
            content[place : place + length] = chance.randbytes(length)
        else:
            content[place : place + length] = chance.choice(
                (b"99999999999", b"-1", b"1e999", b"null", b"[[[[", b"\xff\xff")
            )
    return bytes(content)


ODD = (
    None,
    True,
    -1,
    0,
    10**9,
    10**30,
    1.5,
    float("nan"),
    "",
    "x",
    [],
    [[]],
    {},
    {"a": 1},
    [None],
    ["x", 3],
    "a:b",
    1 << 64,
)


def odd_json(content, chance):
    """One to three values anywhere in the JSON replaced by values of other types and sizes, or left out."""
    value = json.loads(content)
    for _ in range(chance.randint(1, 3)):
        place = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.75:
                place = place[key]
                continue
            if chance.random() < 0.15:
                del place[key]
            else:
                place[key] = copy.deepcopy(chance.choice(ODD))
            break
    return json.dumps(value).encode()


def header_changed(content, chance):
    """The JSON header of a safetensors file changed, with the right length before it."""
    length = int.from_bytes(content[:8], "little")
    header = odd_json(content[8 : 8 + length], chance)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run with everything in it, interrupted and whole, and one file of each format."""
    place = tmp_path_factory.mktemp("originals")
    torch.manual_seed(0)
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    rows = "".join(
        f"{a:.3f},{b:.3f},{'ab'[label]},{label}\n" for (a, b), label in zip(x.tolist(), y.tolist(), strict=True)
    )
    (place / "t.csv").write_text("one,two,kind,target\n" + rows)
    np.savez(place / "a.npz", x=x.numpy(), y=y.numpy())
    np.savez_compressed(place / "c.npz", x=x.numpy().astype(">f8"), y=y.numpy())
    np.save(place / "x.npy", np.zeros((3, 3)))
    grey = np.random.default_rng(0).integers(0, 255, (12, 10), dtype=np.uint8)
    Image.fromarray(grey).save(place / "i.png")
    Image.fromarray(np.stack([grey] * 3, -1)).convert("P").save(place / "p.png", transparency=3)
    Image.fromarray(grey).save(
        place / "j.jpg",
        exif=b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00",
    )
    idx = bytes((0, 0, 8, 1)) + (100).to_bytes(4, "big") + bytes(range(100))
    (place / "l.gz").write_bytes(gzip.compress(idx))
    (place / "l.xz").write_bytes(lzma.compress(idx))
    (place / "table.txt").write_text("1 2 3\n4 5 6\n")
    from bayesify.workflows.recipe import Recipe
    from bayesify.workflows.train import train

    recipe = Recipe(data=str(place / "t.csv"), units=(4,), epochs=2, target="target")
    train(recipe, place / "run", progress=False)
    shutil.copytree(place / "run", place / "stopped")
    config = json.loads((place / "run" / "config.json").read_text())
    (place / "stopped" / "config.json").write_text(json.dumps(config | {"complete": False}))
    return place


def read_run(folder):
    """What commands do with a stranger's run, without its training."""
    method = bf.load(folder)
    config = runs.read_config(folder)
    preparation = run_data.preparation_of(config, folder)
    assert preparation.shape is not None
    try:
        method.predict(torch.zeros(2, 4), draws=2)
    except (ValueError, TypeError) as refusal:
        # A configuration may describe another input or another output than the network has.
        raise bf.RunError(f"{folder}: {refusal}") from None


def read_checkpoint(folder):
    tensor_files.read(folder / runs.STATE)
    load.is_complete(folder)


def read_settings_of(folder):
    try:
        make_recipe(read_config_file(folder), {})
    except (ValueError, TypeError) as refusal:
        # The command line answers both with exit code 2 and the message; the file is named or a setting is.
        raise bf.RunError(f"{folder}: {refusal}") from None


def targets(place):
    """Each kind of file: where it is, how it is mutated, and what reads it."""
    spread_or_odd = (spread, odd_json, odd_json)
    image = (spread,)
    csv, npz = bf.data.from_csv, bf.data.from_npz
    numbers = bf.data.Preparation("none", columns=tuple(map(bf.data.Column, "abc")), mean=(0.0,) * 3, scale=(1.0,) * 3)
    inputs = lambda path: read_inputs([str(path)], numbers, None)  # noqa: E731
    return {
        "config": (place / "run", "config.json", spread_or_odd, read_run),
        "config, interrupted": (place / "stopped", "config.json", spread_or_odd, read_run),
        "settings": (place / "run", "config.json", spread_or_odd, read_settings_of),
        "model": (place / "run", "model.safetensors", (spread, header_changed), read_run),
        "state": (place / "stopped", "checkpoint/state.safetensors", (spread, header_changed), read_run),
        "checkpoint": (place / "run", "checkpoint/state.safetensors", (spread, header_changed), read_checkpoint),
        "history": (place / "run", "history.jsonl", (spread,), read_run),
        "csv": (place, "t.csv", (spread,), csv),
        "npz": (place, "a.npz", (spread,), npz),
        "npz, compressed": (place, "c.npz", (spread,), npz),
        "npy": (place, "x.npy", (spread,), inputs),
        "png": (place, "i.png", image, open_image),
        "png, palette": (place, "p.png", image, open_image),
        "jpeg": (place, "j.jpg", image, open_image),
        "gz": (place, "l.gz", (spread,), lambda path: published_files.read_idx(path, 1)),
        "xz": (place, "l.xz", (spread,), lambda path: published_files.read_idx(path, 1)),
        "table": (place, "table.txt", (spread,), published_files.read_table),
    }


def test_no_damage_ends_in_anything_but_one_line(originals, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESIFY_MAX_EXPANDED", str(1 << 26))
    monkeypatch.setattr(logging.getLogger("bayesify"), "disabled", True)
    kinds = targets(originals)
    for name, (folder, file, _, _) in kinds.items():
        if folder != originals:
            shutil.copytree(folder, tmp_path / name)
        assert (folder / file).is_file()
    counts, wrong, began, number = Counter(), [], time.monotonic(), 0
    while number < FILES or time.monotonic() - began < 60 * MINUTES:
        name = list(kinds)[number % len(kinds)]
        folder, file, mutations, read = kinds[name]
        chance = random.Random(f"{SEED} {number}")
        content = chance.choice(mutations)((folder / file).read_bytes(), chance)
        whole = tmp_path / name if folder != originals else tmp_path
        (whole / file).write_bytes(content)
        number += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(whole if folder != originals else whole / file)
            counts[name, "read"] += 1
        except REFUSALS as refusal:
            counts[name, "refused"] += 1
            if "\n" in str(refusal) or str(whole) not in str(refusal):
                wrong.append(
                    f"{name}, mutation {number - 1}: not one line with the file's name: {str(refusal)[:200]!r}"
                )
        except Exception as error:  # noqa: BLE001 -- this is what the test looks for
            counts[name, "uncaught"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(f"{name}, mutation {number - 1}, {where.filename}:{where.lineno}: {error!r:.200}")
    print(f"\n{number} files in {time.monotonic() - began:.0f} s, seed {SEED}")
    for name in kinds:
        print(f"{name:22}", {outcome: counts[name, outcome] for outcome in ("read", "refused", "uncaught")})
    assert not wrong, "\n".join(wrong[:40])
    # Some damage is harmless, but most must be noticed, or nothing is being tested.
    assert sum(counts[name, "refused"] for name in kinds) > number / 3
