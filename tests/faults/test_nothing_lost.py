"""Interrupts, overwriting, half-finished runs and odd loaders: nothing is lost, nothing is silently left out."""

import os
import pickle
import signal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

import bayesify as bf


def point(**more):
    torch.manual_seed(0)
    return bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical", **more)


def interrupt_at(method, moment):
    original = method.backward

    def backward(*args, step, **kwargs):
        if step == moment:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, step=step, **kwargs)

    method.backward = backward


@pytest.mark.parametrize("moment", [4, 5])
def test_an_interrupt_on_an_epochs_last_step_keeps_that_epoch(blobs, tmp_path, moment):
    settings = {"epochs": 4, "batch_size": 32, "validation": blobs, "keep": "best", "progress": False}
    whole, victim = point(), point()
    expected = whole.fit(blobs, **settings)
    interrupt_at(victim, moment)
    with pytest.raises(KeyboardInterrupt):
        victim.fit(blobs, run=tmp_path / "run", **settings)
    history = bf.load(tmp_path / "run").resume(blobs, tmp_path / "run", validation=blobs, progress=False)
    assert history["epoch"] == [1, 2, 3, 4]
    assert history["loss"] == expected["loss"]
    assert history["validation_nll"] == expected["validation_nll"]
    assert torch.equal(bf.load(tmp_path / "run").theta, whole.theta)


def test_an_interrupt_on_the_very_last_step_finds_the_work_done(blobs, tmp_path):
    victim, whole = point(), point()
    interrupt_at(victim, 5)
    victim.fit(blobs, epochs=2, batch_size=32, run=tmp_path / "run", progress=False)
    whole.fit(blobs, epochs=2, batch_size=32, progress=False)
    assert torch.equal(bf.load(tmp_path / "run").theta, whole.theta)
    assert bf.load(tmp_path / "run").complete


def test_loading_an_interrupted_run_gives_its_last_checkpoint(blobs, tmp_path, caplog):
    victim = point()
    interrupt_at(victim, 4)
    with pytest.raises(KeyboardInterrupt):
        victim.fit(blobs, epochs=4, batch_size=32, run=tmp_path / "run", progress=False)
    loaded = bf.load(tmp_path / "run")
    assert torch.equal(loaded.theta, victim.theta)
    assert not torch.equal(loaded.theta, point().theta)
    assert not loaded.complete
    assert "interrupted after step 5" in caplog.text


@pytest.mark.parametrize(
    "wrong", [{"keep": "best"}, {"optimizer": "adm"}, {"epochs": 0}, {"data": (torch.full((4, 2), torch.nan), None)}]
)
def test_a_refused_fit_leaves_the_run_it_would_have_replaced(blobs, tmp_path, wrong):
    run = tmp_path / "run"
    point().fit(blobs, epochs=2, run=run, progress=False)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    data = (wrong.pop("data")[0], torch.zeros(4, dtype=torch.long)) if "data" in wrong else blobs
    with pytest.raises(ValueError):
        point().fit(data, run=run, overwrite=True, progress=False, **wrong)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_saving_never_replaces_what_is_not_ours(tmp_path):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(bf.RunError, match="not a run: it is not overwritten"):
        point().save(tmp_path)
    assert (tmp_path / "config.json").read_text() == '{"mine": 1}'


def test_saving_another_method_over_a_run_leaves_nothing_of_the_old_one(blobs, tmp_path):
    point().fit(blobs, epochs=3, run=tmp_path / "run", progress=False)
    other = bf.Variational(bf.networks.mlp(2, 3, units=4), "categorical")
    other.save(tmp_path / "run")
    assert len(bf.load(tmp_path / "run").history) == 0
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_what_the_constructor_was_told_survives_loading(tmp_path):
    bf.Variational(bf.networks.mlp(2, 3, units=4), "categorical", start="normal:0.1", seed=7).save(tmp_path / "a")
    loaded = bf.load(tmp_path / "a")
    assert loaded.start == "normal:0.1"
    assert loaded.seed == 7

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 3)

        def forward(self, x):
            return {"low": self.a(x), "high": -self.a(x)}

    bf.PointEstimate(Two(), "categorical", output=lambda r: r["high"]).save(tmp_path / "b")
    with pytest.raises(bf.RunError, match="give output="):
        bf.load(tmp_path / "b", network=Two())
    assert bf.load(tmp_path / "b", network=Two(), output=lambda r: r["high"]).network.output is not None


class Batches:
    """Ten batches of ten, without a length."""

    def __init__(self, x, y):
        self.x, self.y, self.read = x, y, 0

    def __iter__(self):
        for start in range(0, 90, 10):
            self.read += 1
            yield self.x[start : start + 10], self.y[start : start + 10]


def test_an_iterable_without_a_length_is_read_to_its_end(blobs):
    source = Batches(*blobs)
    history = point().fit(source, epochs=2, n_data=90, progress=False)
    assert history["step"] == [9, 18]
    with pytest.raises(TypeError, match="readable more than once"):
        point().fit(iter(list(source)), n_data=90, progress=False)


def test_a_sampler_of_a_subset_counts_its_own_examples(blobs):
    data = TensorDataset(*blobs)
    loader = DataLoader(data, batch_size=10, sampler=SubsetRandomSampler(range(30)))
    method = point(prior="normal:1")
    method.fit(loader, epochs=1, learning_rate=1e-12, optimizer="sgd", progress=False)
    kl = method.kl().item()
    (record,) = method.history.records
    assert record["loss"] == pytest.approx(record["nll"] + kl / 30, rel=1e-4)


def test_validation_is_a_mean_over_the_examples_that_were_scored(blobs):
    x, y = blobs
    loader = DataLoader(TensorDataset(x, y), batch_size=10, sampler=SubsetRandomSampler(range(30)))

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(x[i], y[i]) for i in range(30)])

    for validation in (loader, DataLoader(Stream(), batch_size=7)):
        method = point()
        history = method.fit(blobs, epochs=1, validation=validation, progress=False)
        assert history["validation_nll"][0] == pytest.approx(bf.evaluate(method, (x[:30], y[:30])).nll, rel=1e-5)
        assert bf.evaluate(method, validation).examples == 30


def test_labels_out_of_range_deep_in_a_dataset_are_one_clear_line(blobs):
    x, y = blobs

    class Late(Dataset):
        def __len__(self):
            return 96

        def __getitem__(self, index):
            return x[index], y[index] + 7 * (index == 90)

    with pytest.raises(ValueError, match="outputs"):
        point().fit(Late(), epochs=1, progress=False)


def test_a_last_batch_of_one_is_refused_only_where_it_cannot_be_trained_on(blobs):
    x, y = blobs
    point().fit((x[:33], y[:33]), epochs=1, batch_size=32, progress=False)
    normalised = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    with pytest.raises(ValueError, match="choose another batch_size than 32"):
        bf.PointEstimate(normalised, "categorical").fit((x[:33], y[:33]), epochs=1, batch_size=32, progress=False)


@pytest.mark.parametrize("seed", [0.5, "1", None, 1 << 70, True])
def test_seeds_are_integers(blobs, seed):
    with pytest.raises(ValueError, match="seed must be an integer"):
        point().fit(blobs, seed=seed, progress=False)


def test_large_activations_are_answered_in_small_pieces(monkeypatch):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1), nn.Flatten())
    network.append(nn.Linear(2 * 64, 3))
    method = bf.Variational(network, "categorical", rho=-2.0)
    x = torch.randn(20, 1, 8, 8)
    expected = method.predict(x, draws=6).outputs
    from bayesify.methods import prediction as module

    seen = []
    original = method.network.outputs

    def outputs(theta, part, **kwargs):
        seen.append(theta.shape[0] * part.shape[0])
        return original(theta, part, **kwargs)

    monkeypatch.setattr(module, "PASS_ELEMENTS", 4 * 64 * 5)
    monkeypatch.setattr(method.network, "outputs", outputs)
    torch.testing.assert_close(method.predict(x, draws=6).outputs, expected)
    assert max(seen) <= 5
    assert sum(seen) == 20 * 6


def test_methods_can_be_pickled_by_python(blobs):
    method = bf.Variational(lambda: bf.networks.mlp(2, 3, units=4), "categorical")
    method.fit(blobs, epochs=1, progress=False)
    again = pickle.loads(pickle.dumps(method))
    assert torch.equal(again.predict(blobs[0], draws=3).outputs, method.predict(blobs[0], draws=3).outputs)
