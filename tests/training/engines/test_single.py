"""A network trained in stages, as a stack of one, equals the network that the fused step and the plain path train."""

import logging
import shutil
import signal

import pytest
import torch

import bayesify as bf
from bayesify.training.batches import TensorExamples
from bayesify.training.engines import engine, single
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.single import SingleStep, graphed_steps, staged_steps
from bayesify.training.engines.staged_graphs import StagedSteps
from bayesify.training.engines.staged_step import Stages
from bayesify.training.engines.updates import update_rule

MIXTURE, NORMAL = "scale-mixture:0.75,1,0.01", "normal:0.5,0.1"
ROWS, BATCH = 44, 10  # five batches, the last one of four


def data(rows=ROWS):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def variational(prior=MIXTURE, **settings):
    torch.manual_seed(1)
    network = bf.networks.mlp(3, 2, units=8)
    return bf.Variational(network, "categorical", prior=prior, rho=-2.0, **{"seed": 2**63 + 11, **settings})


def five_steps(path, prior, optimizer, draws):
    """Weights, the optimiser's state and each batch's NLL after an epoch by one of three paths."""
    method = variational(prior)
    method.train()
    made = method.make_optimizer(optimizer, 0.01)
    step = None
    if path == "fused":
        step = FusedStep(method, update_rule(made), draws)
    elif path == "staged":
        step = SingleStep(method, made, draws)
        assert step.stages is not None
    nlls = []
    for number, batch in enumerate(zip(*(part.split(BATCH) for part in data()), strict=True)):
        rate, share = 0.01 * (number + 1), 0.1 * (number + 1)
        if step is None:
            made.param_groups[0]["lr"] = rate
            made.zero_grad()
            objective = method.backward([batch], step=number, share=share, draws=draws)
            made.step()
            nlls.append(objective.nll.detach())
        else:
            nlls.append(step([batch], number, share, rate))
    if step is not None:
        step.record()
    kept = [tensor for slots in made.state.values() for tensor in slots.values() if tensor is not None]
    return [*(parameter.detach() for parameter in method.parameters()), *kept, torch.stack(nlls)]


@pytest.mark.parametrize("prior", [MIXTURE, NORMAL])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("draws", [1, 2])
def test_an_epoch_in_stages_is_the_fused_and_the_plain_one(prior, optimizer, draws):
    plain, fused, staged = (five_steps(path, prior, optimizer, draws) for path in ("plain", "fused", "staged"))
    started = [parameter.detach() for parameter in variational(prior).parameters()]
    for before, after in zip(started, plain, strict=False):
        assert (after - before).abs().max() > 1e-3
    # The narrow part of the mixture multiplies what rounding leaves of a draw.
    for expected, one, other in zip(plain, staged, fused, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=2e-6)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-6)


def test_nothing_is_copied():
    method = variational()
    made = method.make_optimizer("adam", 0.01)
    step = SingleStep(method, made, 1)
    own = [
        method.mu,
        method.rho,
        *(made.state[p][key] for p in method.parameters() for key in ("exp_avg", "exp_avg_sq")),
    ]
    assert [tensor.data_ptr() for tensor in step.state] == [tensor.data_ptr() for tensor in own]
    assert all(tensor.shape == (1, method.mu.shape[0]) for tensor in step.state)


class Replayed(StagedSteps):
    """Steps that are made again and again instead of captured: what a GPU's graph does, without a GPU."""

    def step(self, size):
        self._step(size)
        self.fused.done += 1


def in_stages(monkeypatch, steps=Replayed):
    """Let training believe that it is on a GPU while it chooses its step."""
    choose = engine.Engine._fuse

    def fuse(steps, batch, tell):
        own, steps._device = steps._device, torch.device("cuda")
        choose(steps, batch, tell)
        steps._device = own

    def graphed(method, optimizer, draws, examples, batch_size, _):
        step = SingleStep(method, optimizer, draws)
        return steps and steps(step, step.stages, examples, batch_size)

    monkeypatch.setattr(engine.Engine, "_fuse", fuse)
    monkeypatch.setattr(engine, "graphed_steps", graphed)


SETTINGS = {"batch_size": BATCH, "learning_rate": 0.01, "schedule": "cosine", "kl": "reweighted", "progress": False}


def test_a_fit_in_stages_is_the_plain_one_with_its_history_and_its_best_epoch(monkeypatch):
    fitted = []
    for staged in (False, True):
        if staged:
            in_stages(monkeypatch)
        method = variational()
        method.fit(data(), epochs=4, compiled=staged, validation=data(20), keep="best", draws=2, **SETTINGS)
        fitted.append(method)
    plain, other = fitted
    assert (plain.plan.compiled, other.plan.compiled) == (False, True)
    for expected, found in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    for name in ("nll", "kl", "loss", "validation_nll", "learning_rate"):
        assert other.history[name] == pytest.approx(plain.history[name], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_run_in_stages_that_is_resumed_is_the_whole_one_to_the_bit(optimizer, monkeypatch, tmp_path):
    in_stages(monkeypatch)
    settings = {**SETTINGS, "schedule": "constant", "optimizer": optimizer, "compiled": True}
    whole, half = variational(), variational()
    whole.fit(data(), epochs=4, **settings)
    half.fit(data(), epochs=2, run=tmp_path / "run", **settings)
    resumed = bf.load(tmp_path / "run")
    resumed.resume(data(), tmp_path / "run", extend=2, progress=False)
    assert resumed.plan.compiled
    for expected, found in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("at", [1, 5, 7, 10, 13])  # five steps in an epoch
def test_a_run_in_stages_that_is_interrupted_anywhere_goes_on_to_the_same_bits(at, monkeypatch, tmp_path):
    made = []

    class Interrupted(Replayed):
        def step(self, size):
            super().step(size)
            made.append(size)
            if len(made) == at:
                signal.raise_signal(signal.SIGINT)

    settings = {**SETTINGS, "optimizer": "adam", "compiled": True, "epochs": 3}
    in_stages(monkeypatch)
    whole, stopped = variational(), variational()
    whole.fit(data(), **settings)
    in_stages(monkeypatch, Interrupted)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(data(), run=tmp_path / "run", **settings)
    assert len(made) == at
    for resumed in (stopped, bf.load(tmp_path / "run")):
        copied = tmp_path / str(id(resumed))
        shutil.copytree(tmp_path / "run", copied)
        resumed.resume(data(), copied, progress=False)
        for expected, found in zip(whole.parameters(), resumed.parameters(), strict=True):
            assert torch.equal(found, expected)
        assert resumed.history["nll"] == pytest.approx(whole.history["nll"], rel=1e-12)
        assert resumed.history["learning_rate"] == whole.history["learning_rate"]


def test_where_nothing_is_captured_the_plain_path_is_taken_and_recorded(monkeypatch):
    in_stages(monkeypatch, steps=None)
    method = variational()
    method.fit(data(), epochs=1, compiled=True, **SETTINGS)
    assert method.plan.compiled is False


def asked(method, optimizer="adam", monkeypatch=None, stages=None):
    """The arguments of `staged_steps`, with kernels that seem to be available."""
    if monkeypatch is not None:
        monkeypatch.setattr(Stages, "has_kernels", lambda _: True)
        monkeypatch.setattr(Stages, "_compile", stages)
    examples = TensorExamples(*data())
    made = method.make_optimizer(optimizer, 0.01)
    return made, (1, examples, BATCH, [examples.fetch(torch.arange(BATCH))])


def test_without_kernels_the_step_is_not_staged(caplog):
    method = variational()
    made, given = asked(method)
    assert staged_steps(method, made, *given) is None
    assert not caplog.messages


def test_with_kernels_it_is_at_the_precision_of_torch_s_products(monkeypatch):
    for setting, precision in (("highest", "float32"), ("high", "tf32"), ("medium", "tf32")):
        method = variational()
        made, given = asked(
            method, "adam", monkeypatch, lambda stages, by_kernels, *_: stages._plain._replace(by_kernels=by_kernels)
        )
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(setting)
        try:
            steps = staged_steps(method, made, *given)
        finally:
            torch.set_float32_matmul_precision(before)
        assert isinstance(steps, StagedSteps)
        assert steps.stages.precision == precision


@pytest.mark.parametrize("problem", ["raise", "differ"])
def test_kernels_that_fail_leave_the_step_to_be_fused_for_one_logged_reason(problem, monkeypatch, caplog):
    def stages(stages, by_kernels, *_):
        assert by_kernels  # what fails is not compiled in stages: the fused step is better
        if problem == "raise":
            raise RuntimeError("out of resources\nand more")
        return stages._plain._replace(gradients=lambda *given: [2 * one for one in stages._gradients(*given)])

    method = variational()
    made, given = asked(method, "adam", monkeypatch, stages)
    monkeypatch.setattr(
        single, "fused_step", lambda method, made, draws, _: FusedStep(method, update_rule(made), draws)
    )
    before = [parameter.detach().clone() for parameter in method.parameters()]
    with caplog.at_level(logging.WARNING, "bayesify"):
        steps = graphed_steps(method, made, *given)
    assert type(steps.fused) is FusedStep
    assert len(caplog.messages) == 1
    assert ("out of resources" if problem == "raise" else "differs") in caplog.messages[0]
    assert all(torch.equal(one, other) for one, other in zip(method.parameters(), before, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"prior": "normal:half-cauchy(1)"},
        {"prior": {"*.bias": "cauchy:2", "*": "laplace:0.5"}},
        {"estimator": "local"},
        {"family": "full_rank"},
        {"gradient": "stick_the_landing"},
        {"bound": "importance_weighted"},
        {"bayesian": "last_layer"},
    ],
)
def test_what_no_fleet_does_in_stages_is_left_to_the_fused_step(settings, monkeypatch, caplog):
    method = variational(**settings)
    made, given = asked(method, "adam", monkeypatch)
    assert staged_steps(method, made, *given) is None
    assert not caplog.messages


def test_an_optimiser_with_another_order_or_of_another_kind_is_too(monkeypatch):
    for optimizer in (lambda parameters, lr: torch.optim.Adam(list(parameters)[::-1], lr=lr), "rmsprop"):
        method = variational()
        made, given = asked(method, optimizer, monkeypatch)
        assert staged_steps(method, made, *given) is None
