"""Every reader of files, an example of each file, and mutations of it: for `test_fuzz.py` and the campaign."""

import contextlib
import copy
import gzip
import json
import logging
import lzma
import math
import random
import shutil
import signal
import traceback
import warnings
from collections import Counter

import numpy as np
import safetensors.torch
import torch
from fixed_clock import fixed_clock
from PIL import Image

import bayesify as bf
from bayesify import runs
from bayesify.data import published_files
from bayesify.data.images import open_image
from bayesify.decisions import saved_check
from bayesify.decisions.refusal import promised
from bayesify.methods import saving
from bayesify.runs import guarantees, pair, tensor_files
from bayesify.serving.promises import Promises
from bayesify.workflows import guarantees as promises
from bayesify.workflows import load, run_data
from bayesify.workflows.inputs import read_inputs
from bayesify.workflows.recipe import make_recipe, read_config_file

REFUSALS = (bf.RunError, bf.data.DataError)
# A reader that computes for longer hangs, and so does one that waits for longer.
SECONDS, WAITING = 20, 300
# Readers that build a network and predict take ten times as long as others: they get an eighth as many files.
SLOW, SHARE = {"config", "config, interrupted", "history, loaded", "guarantees, loaded", "config, half replaced"}, 8
# Changed by somebody who computes the checksums anew.
SIGNED = {"promises, signed", "check for unknown inputs, signed"}


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


def signed_promises(content, chance):
    """The promises of a run changed, with the right checksum: a stranger can compute it too."""
    whole = json.loads(content)
    changed = json.loads(odd_json(json.dumps(whole["content"]).encode(), chance))
    try:
        checksum = guarantees.checksum(changed, whole["weights"])
    except ValueError:  # NaN, which has no checksum
        checksum = whole["checksum"]
    return json.dumps(whole | {"content": changed, "checksum": checksum}).encode()


def signed_check(content, chance):
    """The settings or the tensors of a check for unknown inputs changed, with the right checksum."""
    tensors = safetensors.torch.load(content)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["bayesify"])
    name = chance.choice(list(tensors))
    if chance.random() < 0.5:
        value = tensors[name]
        odd = (value[:0], value.flatten(), value[..., :1], value.int(), value.unsqueeze(0), torch.cat([value, value]))
        tensors[name] = chance.choice((*odd, value * math.nan, torch.zeros(3, 1, 1), torch.zeros(0))).contiguous()
    state = json.loads(odd_json(json.dumps(header["state"]).encode(), chance))
    header |= {"state": state, "checksum": tensor_files.checksum(tensors, state)}
    return safetensors.torch.save(tensors, {"bayesify": json.dumps(header)})


def make_originals(place):
    """A run with everything in it, interrupted and whole, and one file of each format."""
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
    (place / "l.gz").write_bytes(gzip.compress(idx, mtime=0))
    (place / "l.xz").write_bytes(lzma.compress(idx))
    (place / "table.txt").write_text("1 2 3\n4 5 6\n")
    from bayesify.workflows.recipe import Recipe
    from bayesify.workflows.train import train

    recipe = Recipe(data=str(place / "t.csv"), units=(4,), epochs=2, target="target")
    with fixed_clock():
        train(recipe, place / "run", progress=False)
    shutil.copytree(place / "run", place / "stopped")
    config = json.loads((place / "run" / "config.json").read_text())
    (place / "stopped" / "config.json").write_text(json.dumps(config | {"complete": False}))
    _more_originals(place, x, y)


def _more_originals(place, x, y):
    import pandas as pd

    frame = pd.DataFrame({"one": x[:, 0].numpy(), "kind": ["ab"[k] for k in y.tolist()], "target": y.numpy()})
    frame.to_parquet(place / "t.parquet")
    frame.to_feather(place / "t.feather")
    (place / "t.csv.gz").write_bytes(gzip.compress((place / "t.csv").read_bytes(), mtime=0))
    (place / "c.toml").write_text('data = "moons"\nmethod = "point"\nepochs = 3\nunits = [4]\nprior = "normal:1"\n')
    weights = saving.weights_digest(bf.load(place / "run"))
    guarantees.write(place / "run", {"threshold": {"at_least": 0.8, "weights": weights}}, weights)
    certificate = {"format": promises.FORMAT, "version": 1, "promises": [{"kind": "error", "at_least": 0.8}]}
    (place / "run" / "certificate.json").write_text(json.dumps(certificate))
    description = json.loads((place / "run" / "config.json").read_text())
    checksum = tensor_files.checksum_of(place / "run" / "model.safetensors")
    shutil.copytree(place / "run", place / "replaced")
    (place / "replaced" / pair.NEXT).write_text(json.dumps({"tensors": checksum, "config": description}))
    _promised(place)


def _promised(place):
    """A run with a recalibration, promises of each kind, and a check for unknown inputs."""
    shutil.copytree(place / "replaced", place / "promised", ignore=shutil.ignore_patterns(pair.NEXT, "*.json*"))
    for name in ("config.json", "history.jsonl"):
        shutil.copy(place / "run" / name, place / "promised" / name)
    method = bf.load(place / "promised")
    x = torch.randn(120, 4, generator=torch.Generator().manual_seed(1))
    data = (x, method.predict(x, draws=5, seed=0).labels)
    bf.recalibrate(method, data, "isotonic", draws=5)
    bf.calibrate(method, data, 0.3, 0.9, draws=5, seed=0)
    bf.conformal(method, data, 0.1, draws=5, seed=0)
    part = promises.Part(*data, "these")
    promises.watch_inputs(method, part, 5, 0)
    promises.mark_used(method, part)
    promises.write(method, place / "promised")
    bf.UnknownInputs(method, x, layer="last", draws=5).save(place / "promised")


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


def use_promises(folder):
    """What commands and the server do with the promises and the check of a stranger's run."""
    method = bf.load(folder)
    x = torch.zeros(2, 4)
    predictive = method.predict(x, draws=5, seed=0)
    try:
        assert predictive.probs.shape[0] == 2
        served = Promises(method)
        if served.conformal is not None:
            served.conformal.sets(predictive)
        for refusal in promised(method):
            refusal.accept(predictive)
        promises.all_certificates(method)
        check = saved_check(method)
        if check is not None:
            check.accept(x)
    except ValueError as refusal:
        # A promise may be for other draws or classes than these: the message says so, without a file.
        raise bf.RunError(f"{folder}: {refusal}") from None
    promises.used_rows(folder)


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
        "history": (place / "run", "history.jsonl", (spread,), runs.read_history),
        "history, loaded": (place / "run", "history.jsonl", (spread,), read_run),
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
        "csv.gz": (place, "t.csv.gz", (spread,), csv),
        "parquet": (place, "t.parquet", (spread,), csv),
        "feather": (place, "t.feather", (spread,), csv),
        "toml": (place, "c.toml", (spread,), read_settings_of),
        "guarantees": (place / "run", "guarantees.json", spread_or_odd, guarantees.read),
        "guarantees, loaded": (place / "run", "guarantees.json", spread_or_odd, read_run),
        "certificate": (place / "run", "certificate.json", spread_or_odd, promises.read_certificate),
        "config, half replaced": (place / "replaced", pair.NEXT, spread_or_odd, read_run),
        "promises, signed": (place / "promised", "guarantees.json", (signed_promises,), use_promises),
        "check for unknown inputs, signed": (place / "promised", runs.UNKNOWN, (signed_check,), use_promises),
    }


class HungError(BaseException):
    """A reader took longer than `SECONDS`."""


class Attempts:
    """Mutated files, read one after the other.

    Args:
        originals: where `make_originals` made its files.
        place: an empty folder for the mutated ones.
        seed: of the mutations.
        signed: the kinds of `SIGNED`, instead of all others.

    Attributes:
        counts: by kind of file and outcome: `read`, `refused`, or what must not happen: `uncaught`, `unclear`, `hung`.
        wrong: a line for each that must not happen.

    """

    def __init__(self, originals, place, seed, *, signed=False):
        self.kinds = {name: kind for name, kind in targets(originals).items() if (name in SIGNED) is signed}
        self.originals, self.place, self.seed = originals, place, seed
        self.counts, self.wrong = Counter(), []
        names = list(self.kinds)
        self._order = [n for turn in range(SHARE) for n in names if turn == 0 or n not in SLOW]
        logging.getLogger("bayesify").disabled = True
        for name, (folder, file, _, _) in self.kinds.items():
            if folder != originals:
                shutil.copytree(folder, place / name)
            assert (folder / file).is_file()
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, _hung)

    def make(self, number):
        """Mutate one file, and read it."""
        name = self._order[number % len(self._order)]
        folder, file, mutations, _ = self.kinds[name]
        chance = random.Random(f"{self.seed} {number}")
        content = chance.choice(mutations)((folder / file).read_bytes(), chance)
        self.read(name, content, f"mutation {number}")

    def read(self, name, content, about, around=contextlib.nullcontext):
        """Read one content of this kind; `around()` is entered while it is read."""
        folder, file, _, read = self.kinds[name]
        whole = self.place / name if folder != self.originals else self.place
        (whole / file).write_bytes(content)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(WAITING)
        try:
            with warnings.catch_warnings(), around():
                warnings.simplefilter("ignore")
                read(whole if folder != self.originals else whole / file)
            outcome, why = "read", ""
        except REFUSALS as refusal:
            clear = "\n" not in str(refusal) and str(whole) in str(refusal)
            outcome, why = (
                ("refused", "") if clear else ("unclear", f"not one line with the file's name: {refusal!s:.200}")
            )
        except HungError:
            outcome, why = "hung", f"took more than {SECONDS} s"
        except Exception as error:  # noqa: BLE001 -- this is what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome, why = "uncaught", f"{where.filename}:{where.lineno}: {error!r:.200}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        self.counts[name, outcome] += 1
        if why:
            self.wrong.append(f"{name}, {about}: {why}")


def _hung(*_):
    raise HungError
