"""A loss that diverges once is rolled back to half the rate; a batch that does not fit in memory is split."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS
from bayesify.training.plan import Plan
from bayesify.training.recovery import Snapshot, is_out_of_memory

OPTIMISED = sorted(name for name, kind in METHODS.items() if kind.plan_type is Plan)
SETTINGS = {
    "ensemble": {"members": 3},
    "mc-dropout": {"p": 0.2},
    "variational": {"prior": "normal:1"},
    "ivon": {"prior": "normal:1", "hessian_init": 0.1},
    "laplace": {"prior": "normal:1"},
    "sgld": {"prior": "normal:1", "chains": 2},
    "sghmc": {"prior": "normal:1", "chains": 2},
}
FIT = {"epochs": 6, "batch_size": 32, "learning_rate": 2e-2, "progress": False}  # 3 steps an epoch


def make(name, network=None, **more):
    torch.manual_seed(1)
    return METHODS[name](
        network or bf.networks.mlp(2, 3, units=16), "categorical", **{**SETTINGS.get(name, {}), **more}
    )


def bad_at(method, steps):
    """Make the gradient NaN at these steps, the first time that each is made."""
    original, left = method.backward, set(steps)

    def backward(*args, step, **kwargs):
        objective = original(*args, step=step, **kwargs)
        if step in left:
            left.discard(step)
            for parameter in method.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(math.nan)
        return objective

    method.backward = backward


def halved_from(share):
    return lambda done: 1.0 if done < share else 0.5


def equal(first, second):
    return all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


@pytest.mark.parametrize("name", [name for name in OPTIMISED if name != "swag"])  # it plans its rates itself
def test_a_rollback_gives_the_bits_of_half_the_rate_from_the_last_good_epoch(name, blobs, caplog):
    expected, victim = make(name), make(name)
    expected.fit(blobs, **FIT, schedule=halved_from(0.5))
    bad_at(victim, [10])  # in epoch 4; three are good
    history = victim.fit(blobs, **FIT, on_nan="rollback")
    assert equal(expected, victim)
    assert history["epoch"] == [*range(1, 7)]
    assert history["rollbacks"] == [None] * 3 + [1] * 3
    assert "diverged in epoch 4: back to epoch 3, with the learning rate times 0.5 (0.01)" in caplog.text


def test_swag_goes_on_with_snapshots_of_finite_weights(blobs):
    victim = make("swag")
    bad_at(victim, [10])
    assert victim.fit(blobs, **FIT, on_nan="rollback")["learning_rate"][-1] == FIT["learning_rate"] / 2
    assert torch.isfinite(victim.predict(blobs[0], draws=5).outputs).all()


def test_a_rollback_before_the_first_good_epoch_starts_again(blobs, caplog):
    expected, victim = make("variational"), make("variational")
    expected.fit(blobs, **FIT | {"learning_rate": 1e-2})
    bad_at(victim, [0, 1])
    victim.fit(blobs, **FIT, on_nan="rollback")
    assert equal(expected, victim)
    assert "back to the start" in caplog.text


def test_a_run_that_was_rolled_back_is_resumed_with_its_rate(blobs, tmp_path):
    class Killed(Exception):
        pass

    class Kill(bf.callbacks.Callback):
        def on_epoch_end(self, method, record):
            if record["epoch"] == 5:
                raise Killed

    expected, victim = make("variational"), make("variational")
    expected.fit(blobs, **FIT, schedule=halved_from(0.5))
    bad_at(victim, [10])
    with pytest.raises(Killed):
        victim.fit(blobs, **FIT, on_nan="rollback", run=tmp_path / "run", callbacks=[Kill()])
    resumed = bf.load(tmp_path / "run")
    history = resumed.resume(blobs, tmp_path / "run", progress=False)
    assert equal(expected, resumed)
    assert history["rollbacks"][-1] == 1


def test_what_diverges_at_any_rate_stops_after_ten_rollbacks(blobs, caplog):
    method = make("point")
    original = method.backward

    def backward(*args, step, **kwargs):
        objective = original(*args, step=step, **kwargs)
        method.theta.grad.fill_(math.inf)
        return objective

    method.backward = backward
    start = method.theta.detach().clone()
    with pytest.raises(bf.TrainingError, match="diverged in epoch 1"):
        method.fit(blobs, **FIT, on_nan="rollback")
    assert torch.equal(method.theta, start)
    assert caplog.text.count("back to the start") == 10


def test_a_rate_that_is_too_high_is_lowered_until_training_works(blobs, caplog):
    """The weights explode, still finite, an epoch before the loss does: only the start is a good state."""

    def regression():
        torch.manual_seed(0)
        return bf.PointEstimate(bf.networks.mlp(2, 1, units=8), bf.likelihoods.Gaussian(0.1))

    data = (blobs[0], blobs[0][:, 0])
    steep = {"epochs": 40, "batch_size": 96, "optimizer": "sgd", "learning_rate": 0.1, "progress": False}
    with pytest.raises(bf.TrainingError):
        regression().fit(data, **steep)
    history = regression().fit(data, **steep, on_nan="rollback")
    assert history["rollbacks"][-1] >= 3
    assert "back to the start" in caplog.text
    assert math.isfinite(history["nll"][-1])
    assert len(history) == 40


def test_the_setting_is_checked(blobs):
    with pytest.raises(ValueError, match="unknown on_nan 'rolback'; did you mean 'rollback'"):
        make("point").fit(blobs, on_nan="rolback")
    with pytest.raises(ValueError, match="halves the learning rate: give a learning_rate"):
        make("sgld").fit(blobs, on_nan="rollback", progress=False)


def short_of_memory(method, largest):
    """Fail like an accelerator whenever more than `largest` examples are in one backward pass; count the passes."""
    original, sizes = method.backward, []

    def backward(batches, **kwargs):
        sizes.append(batches[0][1].shape[0])
        if sizes[-1] > largest:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return original(batches, **kwargs)

    method.backward = backward
    return sizes


@pytest.mark.parametrize("name", OPTIMISED)
def test_a_batch_that_does_not_fit_is_split_and_the_objective_stays(name, blobs, caplog):
    expected, victim = make(name), make(name)
    expected.fit(blobs, **FIT, accumulate=4)
    sizes = short_of_memory(victim, 8)
    victim.fit(blobs, **FIT)
    assert equal(expected, victim)  # the same bits as if it had been asked for
    assert victim.plan.accumulate == 4
    assert victim.plan.batch_size == 32
    assert sizes[:4] == [32, 16, 8, 8]
    assert (
        "not enough memory for the gradient of a batch: it is now computed in 4 parts; batch size (32)" in caplog.text
    )


def test_a_split_batch_has_the_gradient_of_the_whole_one(blobs):
    whole, split = make("variational"), make("variational")
    whole.fit(blobs, **FIT | {"epochs": 1, "optimizer": "sgd"})
    short_of_memory(split, 16)
    split.fit(blobs, **FIT | {"epochs": 1, "optimizer": "sgd"})
    torch.testing.assert_close(whole.mu, split.mu, rtol=1e-5, atol=1e-7)


def test_one_example_that_does_not_fit_is_an_error_and_nothing_has_changed(blobs):
    method = make("point")
    start = method.theta.detach().clone()
    short_of_memory(method, 0)
    with pytest.raises(torch.OutOfMemoryError):
        method.fit(blobs, **FIT)
    assert torch.equal(method.theta, start)


def test_running_statistics_are_never_counted_twice(blobs):
    """Between parts batch normalisation has changed: on a CPU that is an error, never another result."""
    method = make("point", nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    original, calls = method.backward, []

    def backward(batches, **kwargs):
        calls.append(None)
        if len(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(batches, **kwargs)

    method.backward = backward
    with pytest.raises(torch.OutOfMemoryError):
        method.fit(blobs, **FIT, accumulate=2)


def test_what_counts_as_out_of_memory():
    said = "[enforce fail at alloc_cpu.cpp:119] data. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
    assert is_out_of_memory(RuntimeError(said))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_a_snapshot_does_not_change_with_what_it_was_taken_of():
    tensor, records = torch.zeros(3), [{"epoch": 1}]
    snapshot = Snapshot.of({"a": tensor}, {"history": records, "progress": {"step": 1}})
    tensor.add_(1)
    records.append({"epoch": 2})
    tensors, state = snapshot.taken(torch.device("cpu"))
    assert not tensors["a"].any()
    tensors["a"].add_(1)
    state["history"].append({"epoch": 3})
    assert not snapshot.tensors["a"].any()
    assert snapshot.state["history"] == [{"epoch": 1}]
