"""A run resumes with its own data alone, and for exactly the epochs asked for."""

import shutil

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bayesify as bf
from bayesify.runs import tensor_files
from bayesify.training import data_identity
from bayesify.training.batches import TensorExamples

KINDS = {
    "point": lambda: bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical"),
    "hmc": lambda: bf.HMC(bf.networks.mlp(2, 3, units=4), "categorical", prior="normal:1", chains=2),
}
PLANS = {"point": {"epochs": 3, "batch_size": 32}, "hmc": {"warm_up": 20, "samples": 10}}


def files(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


class Items(Dataset):
    """A data set that is fetched item by item."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extend", [0, 5])
def test_other_data_is_refused_and_the_run_stays_as_it_is(kind, extend, blobs, tmp_path):
    x, y = blobs
    run = tmp_path / "run"
    KINDS[kind]().fit(blobs, **PLANS[kind], run=run, progress=False)
    method, before = bf.load(run), files(run)
    weights, plan = method.weights(range(4), 0), method.plan
    moved = x.clone()
    moved[70, 1] += 1e-3
    wrong = {
        "trained on 96 examples, got 32;": [
            (x[:32], y[:32]),
            Items(x[:32], y[:32]),
            DataLoader(Items(x[:32], y[:32])),
        ],
        "trained on 96 examples, got 384;": [(x.repeat(4, 1), y.repeat(4))],
        "other values or another order": [
            (moved, y),
            (x, (y + 1) % 3),
            (x.flip(0), y.flip(0)),
            TensorDataset(moved, y),
        ],
    }
    for words, sets in wrong.items():
        for data in sets:
            with pytest.raises(bf.RunError, match=f"not the data of .*{words}") as caught:
                method.resume(data, run, extend=extend, progress=False)
            assert "\n" not in str(caught.value)
    assert files(run) == before
    assert torch.equal(method.weights(range(4), 0), weights)
    assert method.plan == plan


@pytest.mark.parametrize("form", [lambda x, y: (x.numpy(), y.numpy()), TensorDataset, Items])
def test_the_same_data_in_another_form_goes_on(form, blobs, tmp_path):
    KINDS["point"]().fit(blobs, **PLANS["point"], run=tmp_path / "run", progress=False)
    method = bf.load(tmp_path / "run")
    history = method.resume(form(*blobs), tmp_path / "run", extend=5, progress=False)
    assert history["epoch"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert history["step"] == [3 * epoch for epoch in range(1, 9)]


def test_a_loader_must_give_as_many_batches(blobs, tmp_path):
    def loader(size):
        return DataLoader(TensorDataset(*blobs), batch_size=size)

    KINDS["point"]().fit(loader(32), epochs=2, run=tmp_path / "run", progress=False)
    method = bf.load(tmp_path / "run")
    for data in (loader(16), Items(*blobs)):
        with pytest.raises(bf.RunError, match=r"has 3 batches, this data gives [61]: .* same batch size"):
            method.resume(data, tmp_path / "run", extend=2, progress=False)
    assert method.resume(loader(32), tmp_path / "run", extend=2, progress=False)["step"] == [3, 6, 9, 12]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_from_before_there_were_marks_still_goes_on_and_has_one_then(kind, blobs, tmp_path):
    state = tmp_path / "run" / "checkpoint" / "state.safetensors"
    KINDS[kind]().fit(blobs, **PLANS[kind], run=tmp_path / "run", progress=False)
    tensors, held = tensor_files.read(state)
    mark = held.pop("data")
    tensor_files.write(state, tensors, held)
    bf.load(tmp_path / "run").resume(blobs, tmp_path / "run", extend=5, progress=False)
    assert tensor_files.read(state)[1]["data"] == mark


def test_named_inputs_are_the_same_in_any_order():
    a, b, y = torch.randn(8, 2), torch.randn(8, 3), torch.arange(8)
    marks = [
        data_identity.mark(TensorExamples(x, y), 4)
        for x in ({"a": a, "b": b}, {"b": b, "a": a}, {"a": a, "b": b + 1}, {"b": a, "a": b}, (a, b))
    ]
    assert marks[0] == marks[1]
    assert len({mark["digest"] for mark in marks}) == 4


def test_of_large_data_some_rows_stand_for_all(monkeypatch):
    x, y = torch.randn(1000, 3), torch.arange(1000)
    whole = data_identity.mark(TensorExamples(x, y))
    monkeypatch.setattr(data_identity, "_BYTES", 1200)
    some = data_identity.mark(TensorExamples(x, y))
    assert whole != some
    seen = 0
    for row in range(100):
        other = x.clone()
        other[row] += 1
        seen += data_identity.mark(TensorExamples(other, y)) != some
    # 12,000 bytes of which 1,200 are looked at: every tenth row.
    assert seen == 10


def test_a_run_that_stopped_early_is_extended_from_where_it_stopped(tmp_path):
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(40, 2, generator=generator), torch.randint(0, 3, (40,), generator=generator)
    data, validation = (x[:20], y[:20]), (x[20:], y[20:])
    method = KINDS["point"]()
    history = method.fit(
        data, epochs=200, learning_rate=0.05, validation=validation, patience=5, progress=False, run=tmp_path / "run"
    )
    stopped = len(history)
    assert stopped < 100
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for folder, extend, more in (("run", 3, 3), ("copy", 50, 5)):
        again = bf.load(tmp_path / folder).resume(
            data, tmp_path / folder, validation=validation, extend=extend, progress=False
        )
        # The score went on rising, so that patience ends the longer one.
        assert len(again) == stopped + more
        assert bool(again.stopped) == (extend == 50)


def test_what_was_only_saved_says_what_resuming_needs(blobs, tmp_path):
    method = KINDS["point"]()
    method.fit(blobs, epochs=1, progress=False)
    method.save(tmp_path / "saved")
    for one in (method, bf.load(tmp_path / "saved")):
        with pytest.raises(bf.RunError, match=r"has no checkpoint to resume from: .*fit\(data, run=\.\.\.\)") as caught:
            one.resume(blobs, tmp_path / "saved", extend=1, progress=False)
        assert "\n" not in str(caught.value)
    with pytest.raises(bf.RunError, match="there is no run at"):
        method.resume(blobs, tmp_path / "nowhere", progress=False)


def test_a_run_of_another_method_or_network_is_refused_in_one_line(blobs, tmp_path):
    run = tmp_path / "run"
    network = bf.networks.mlp(2, 3, units=8)
    bf.Variational(network, "categorical").fit(blobs, epochs=1, progress=False, run=run)
    bf.Ensemble(network, "categorical", members=2).fit(blobs, epochs=1, progress=False, run=tmp_path / "two")
    before = files(run)
    small = nn.Sequential(nn.Linear(2, 3))
    for method, folder, words in (
        (bf.Ensemble(network, "categorical"), run, r"is a run of variational, which ensemble cannot .*bayesify\.load"),
        (bf.HMC(network, "categorical", prior="normal:1", chains=2), run, "which hmc cannot resume"),
        (bf.Variational(small, "categorical"), run, "the network does not fit"),
        (bf.Variational(network, "categorical", family="low_rank"), run, "the method does not fit .* in the run"),
        (bf.Ensemble(network, "categorical", members=3), tmp_path / "two", "the method does not fit"),
    ):
        with pytest.raises(bf.RunError, match=words) as caught:
            method.resume(blobs, folder, extend=1, progress=False)
        assert "\n" not in str(caught.value)
    assert files(run) == before


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"prior": "laplace:0.01"}, "the prior 'normal:1', this method has 'laplace:0.01'"),
        ({"likelihood": bf.likelihoods.Categorical([1.0, 2.0, 3.0])}, "the likelihood's class_weights"),
        ({"bound": "importance_weighted"}, "the bound 'elbo', this method has 'importance_weighted'"),
    ],
)
def test_another_model_is_refused_and_the_run_stays_as_it_is(other, words, blobs, tmp_path):
    def method(prior="normal:1", likelihood="categorical", rho=-3.0, **settings):
        return bf.Variational(bf.networks.mlp(2, 3, units=4), likelihood, prior=prior, rho=rho, **settings)

    run = tmp_path / "run"
    method().fit(blobs, epochs=2, draws=2, run=run, progress=False)
    before = files(run)
    with pytest.raises(bf.RunError, match=f"was trained with {words}.*: resume needs the same method"):
        method(**other).resume(blobs, run, extend=1, progress=False)
    assert files(run) == before
    # Where it started does not matter any more.
    assert len(method(rho=-5.0).resume(blobs, run, extend=1, progress=False)) == 3
