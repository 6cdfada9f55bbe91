"""The fused step makes the same updates as the plain path, for everything that it claims."""

import json
import logging
from itertools import cycle

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.training.engines import fused
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.fused import FusedStep, fused_step
from bayesify.training.engines.updates import update_rule
from bayesify_studies.benchmarks import memory, steps

PRIORS = [
    "normal:0.5",
    "laplace:1",
    "cauchy:1",
    "student-t:3,1",
    "scale-mixture:0.75,1,0.01",
    "log-uniform",
    "normal:half-cauchy(1)",
    "laplace:learned",
    "3.*=normal:1;*=pretrained:0.1",
    "pretrained:half-normal(0.1)",
]
OPTIMIZERS = [
    "sgd",
    "sgd:momentum=0.9",
    "sgd:momentum=0.9,nesterov=true,weight_decay=0.1",
    "adam",
    "adam:weight_decay=0.1",
    "adamw:weight_decay=0.1",
]


def data(rows=24):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def variational(**settings):
    torch.manual_seed(1)
    return bf.Variational(bf.networks.mlp(3, 2, units=8, layers=1), "categorical", **{"rho": -2.0, **settings})


def plain_steps(method, optimizer, batches, draws=1, steps=3):
    method.train()
    for number in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (number + 1)
        optimizer.zero_grad()
        objective = method.backward(batches, step=number, share=0.25, draws=draws)
        optimizer.step()
        method.absorb(objective)
    return objective.nll.detach()


def fused_steps(fused, batches, steps=3):
    for number in range(steps):
        nll = fused(batches, number, 0.25, 0.01 * (number + 1))
    fused.record()
    return nll


def assert_same(one, other, **tolerance):
    for (name, expected), found in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def compare(make, optimizer, draws=1, compiled=False, batches=None, **tolerance):
    batches = batches or [data()] * make().members
    one, other = make(), make()
    theirs, ours = one.make_optimizer(optimizer, 0.01), other.make_optimizer(optimizer, 0.01)
    other.train()
    other.network.traced(batches[0][0])
    fused = FusedStep(other, update_rule(ours), draws)
    if compiled:
        fused.compile(batches)
    torch.testing.assert_close(
        fused_steps(fused, batches), plain_steps(one, theirs, batches, draws), rtol=1e-4, atol=1e-5
    )
    assert_same(one, other, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})
    # The optimiser is left as it would be: a checkpoint does not tell which path wrote it.
    for mine, torchs in zip(ours.state.values(), theirs.state.values(), strict=True):
        for key, value in torchs.items():
            if value is not None:
                torch.testing.assert_close(torch.as_tensor(mine[key]), torch.as_tensor(value), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("estimator", ["weight", "local", "flipout"])
def test_every_prior_and_estimator_gives_the_plain_path_s_updates(prior, estimator):
    compare(lambda: variational(prior=prior, estimator=estimator), "adam", draws=2)


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "full_rank"},
        {"family": "low_rank", "rank": 3, "prior": "laplace:half-normal(1)"},
        {"gradient": "stick_the_landing"},
        {"bound": "importance_weighted"},
        {"bayesian": "last_layer", "prior": "flat"},
        {"prior": {"*.bias": "cauchy:2", "*": "laplace:0.5"}},
    ],
)
def test_so_does_every_family_gradient_and_bound(settings):
    compare(lambda: variational(**settings), "adam", draws=2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimiser_gives_torch_s_updates(optimizer):
    compare(lambda: variational(prior="normal:1"), optimizer)


@pytest.mark.parametrize("kind", ["point", "ensemble", "mc-dropout"])
def test_other_methods_with_running_statistics_and_dropout_too(kind):
    def make():
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        return bf.methods.METHODS[kind](network, "categorical", **({"members": 3} if kind == "ensemble" else {}))

    # Not Adam: the bias before a normalisation has no gradient but rounding, which Adam would blow up.
    compare(make, "sgd:momentum=0.9")


def test_members_that_are_compiled_together_have_batches_of_their_own():
    """Compiled on one batch for all: a trace that took it for one input would train every member on the last one's."""

    def fitted(compiled):
        torch.manual_seed(1)
        method = bf.Ensemble(bf.networks.mlp(3, 2, units=8, layers=1), "categorical", members=3, start="given")
        before = method.theta.detach().clone()
        settings = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 1, "batch_size": 8, "progress": False}
        history = method.fit(data(), compiled=compiled, **settings)
        return method.theta.detach() - before, history["nll"][0], method.plan.compiled

    (plain, nll, _), (found, fused_nll, compiled) = fitted(False), fitted(True)
    assert compiled
    # From the same start, the members differ only in the order of their examples.
    assert (plain[0] - plain[1]).norm() > 0.01 * plain[0].norm()
    torch.testing.assert_close(found, plain, rtol=1e-3, atol=1e-6)
    assert fused_nll == pytest.approx(nll, rel=1e-5)


def natural(**settings):
    torch.manual_seed(1)
    network = bf.networks.mlp(3, 2, units=8, layers=1)
    method = bf.IVON(network, "categorical", hessian_init=0.1, prior="normal:0.5", **settings)
    method.effective_data.fill_(24 / 0.25)  # as it is for this batch and this share
    return method


@pytest.mark.parametrize(
    ("settings", "compiled"), [({}, False), ({"bayesian": "last_layer"}, False), ({"bayesian": "last_layer"}, True)]
)
def test_ivon_s_own_update_too(settings, compiled):
    compare(lambda: natural(**settings), "adam", draws=2, compiled=compiled)


def test_ivon_s_update_of_learned_noise_too():
    def make():
        torch.manual_seed(1)
        method = bf.IVON(bf.networks.mlp(3, 1, units=8, layers=1), bf.likelihoods.Gaussian("learned"))
        method.effective_data.fill_(24 / 0.25)
        return method

    x, y = data()
    compare(make, "adam", batches=[(x, y.float().unsqueeze(1))])


@pytest.mark.parametrize(
    ("settings", "optimizer", "draws"),
    [
        ({"prior": "scale-mixture:0.75,1,0.01"}, "adam", 1),
        ({"prior": "normal:1", "estimator": "local"}, "sgd:momentum=0.9", 1),
    ],
)
def test_compiled_it_still_does(settings, optimizer, draws):
    compare(lambda: variational(**settings), optimizer, draws, compiled=True, rtol=1e-3, atol=1e-4)


def test_one_compilation_serves_every_step_rate_and_kl_weight(monkeypatch):
    compilations = []

    def counted(function, example):
        compilations.append(example)
        return function

    monkeypatch.setattr(fused, "compile_function", counted)
    method = variational()
    history = method.fit(
        data(70), epochs=4, batch_size=32, schedule="cosine", kl="reweighted", compiled=True, progress=False
    )
    assert len(history) == 4
    assert method.plan.compiled
    # Two full batches and a tail of six in each epoch: the tail runs uncompiled.
    assert len(compilations) == 1
    for settings in ({"prior": "laplace:1"}, {"rho": -3.0}):
        variational(**settings).fit(data(64), epochs=2, batch_size=32, draws=2, compiled=True, progress=False)
    assert len(compilations) == 3


def _laid_out(pairs, layouts):
    xs, ys = zip(*pairs, strict=True)
    return next(layouts)(torch.stack(xs)), torch.stack(ys)


def test_batches_laid_out_in_memory_in_different_ways_are_one_shape(monkeypatch):
    def strict(function, example):
        def as_compiled(*tensors):
            assert [one.stride() for one in tensors] == [one.stride() for one in example]
            return function(*tensors)

        return as_compiled

    monkeypatch.setattr(fused, "compile_function", strict)
    x, y = data(96)
    fitted = []
    for layouts in (
        [torch.clone] * 3,
        [lambda t: t.t().contiguous().t(), torch.clone, lambda t: t.t().contiguous().t()],
    ):
        method = variational()
        places = cycle(layouts)
        loader = DataLoader(TensorDataset(x, y), 32, collate_fn=lambda pairs: _laid_out(pairs, places))
        method.fit(loader, epochs=2, compiled=True, progress=False)
        assert method.plan.compiled
        fitted.append(method)
    assert torch.equal(fitted[0].mu, fitted[1].mu)


def test_the_whole_training_is_that_of_the_plain_path(monkeypatch):
    monkeypatch.setattr(fused, "compile_function", lambda function, example: function)
    fitted = []
    for compiled in (False, True):
        method = variational()
        method.fit(data(70), epochs=5, batch_size=32, learning_rate=1e-2, compiled=compiled, progress=False)
        assert method.plan.compiled is compiled
        fitted.append(method)
    assert_same(*fitted, rtol=1e-3, atol=1e-4)
    assert fitted[0].history["nll"] == pytest.approx(fitted[1].history["nll"], rel=1e-3)


def test_the_path_is_kept_by_a_run_that_is_resumed(monkeypatch, tmp_path):
    monkeypatch.setattr(fused, "compile_function", lambda function, example: function)
    # A constant rate: a falling one would be stretched over the epochs that are added.
    settings = {"batch_size": 32, "learning_rate": 1e-2, "compiled": True, "progress": False}
    whole = variational()
    whole.fit(data(70), epochs=4, **settings)
    half = variational()
    half.fit(data(70), epochs=2, run=tmp_path / "run", **settings)
    resumed = bf.load(tmp_path / "run")
    resumed.resume(data(70), tmp_path / "run", extend=2, progress=False)
    assert resumed.plan.compiled
    assert_same(whole, resumed, rtol=0, atol=0)


def held():
    method = variational()
    method.rho.requires_grad_(False)
    return method


def mixed():
    method = variational()
    method.rho = nn.Parameter(method.rho.detach().double())
    return method


class Looks(nn.Linear):
    """A layer whose path depends on the numbers that pass: no trace of it serves other numbers."""

    def forward(self, x):
        return super().forward(x if float(x.sum()) > 0 else -x)


def looking():
    torch.manual_seed(1)
    return bf.Variational(nn.Sequential(Looks(3, 4), nn.ReLU(), nn.Linear(4, 2)), "categorical")


class Homemade(torch.optim.SGD):
    """An optimiser of the user's: whatever it does, it is not known here."""


def homemade(parameters, lr):
    return Homemade(parameters, lr=lr)


def with_a_hook(parameters, lr):
    optimizer = torch.optim.Adam(parameters, lr=lr)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


def refusing(function, example):
    raise RuntimeError("no C++ compiler found\nand more")


@pytest.mark.parametrize(
    ("make", "fit", "reason"),
    [
        (variational, {"optimizer": "rmsprop"}, "the optimiser RMSprop is not part of the fused step"),
        (variational, {"optimizer": "adam:amsgrad=true"}, "amsgrad"),
        (lambda: bf.SWAG(bf.networks.mlp(3, 2, units=4), "categorical"), {}, "the step of swag is not one function"),
        (variational, {}, "no C++ compiler found"),
        (held, {}, "a parameter of the method is frozen"),
        (variational, {"optimizer": with_a_hook}, "the optimiser has hooks"),
        (variational, {"optimizer": homemade}, "the optimiser Homemade is not part of the fused step"),
        (mixed, {}, "the parameters have different dtypes"),
    ],
)
def test_where_it_does_not_apply_the_plain_path_is_taken_for_one_logged_reason(make, fit, reason, caplog, monkeypatch):
    monkeypatch.setattr(fused, "compile_function", refusing)
    method = make()
    with caplog.at_level(logging.WARNING, "bayesify"):
        method.fit(data(), epochs=2, compiled=True, progress=False, **fit)
    assert [record for record in caplog.records if reason in record.getMessage()]
    assert sum("not fused" in record.getMessage() for record in caplog.records) == 1
    assert method.plan.compiled is False


def test_a_layer_that_cannot_be_captured_is_a_reason_too(caplog):
    method = looking()
    with caplog.at_level(logging.WARNING, "bayesify"):
        method.fit(data(), epochs=1, compiled=True, progress=False)
    assert sum("not fused" in record.getMessage() for record in caplog.records) == 1
    assert method.plan.compiled is False


def test_the_path_taken_is_written_in_the_run_and_a_resumed_run_does_not_ask_again(caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(fused, "compile_function", refusing)
    method = variational()
    method.fit(data(), epochs=2, compiled=True, progress=False, run=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["plan"]["compiled"] is False
    resumed = bf.load(tmp_path / "run")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "bayesify"):
        resumed.resume(data(), tmp_path / "run", extend=1, progress=False)
    # The compiler is not tried again: a run does not change its arithmetic half-way.
    assert "not fused" not in caplog.text
    assert resumed.plan.compiled is False


def test_what_training_holds_between_steps_is_at_most_2_2_times_plain_training(monkeypatch):
    monkeypatch.setattr(fused, "compile_function", lambda function, example: function)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 784, generator=generator), torch.randint(0, 10, (8,), generator=generator)

    def ours():
        method = bf.Variational(bf.networks.mlp(784, 10, units=100), "categorical", prior="scale-mixture:0.75,1,0.01")
        return steps.training_step(method, x, y)[0]

    held = memory.tensors_of_training(ours)["held"]
    plain = memory.tensors_of_training(lambda: steps.plain_step(bf.networks.mlp(784, 10, units=100), x, y))["held"]
    # Mean, width, two moments of each and the weights that were given, seven numbers for plain training's four.
    assert held / plain == pytest.approx(7 / 4, rel=0.02)


def test_a_compiler_that_gets_it_wrong_is_found_out(caplog, monkeypatch):
    def wrong(function, example):
        def changed(*tensors):
            nll = function(*tensors)
            tensors[0].mul_(1.5)
            return nll

        return changed

    monkeypatch.setattr(fused, "compile_function", wrong)
    method = variational()
    with caplog.at_level(logging.WARNING, "bayesify"):
        assert fused_step(method, method.make_optimizer("adam", 1e-3), 1, [data()]) is None
    assert "differs from the plain one" in caplog.text


def test_the_compiled_softplus_and_its_slope_have_all_digits():
    x = torch.cat((torch.linspace(-90, 90, 4001), torch.tensor([-60.0, -20.0, 0.0, 1e-8, 20.0])))

    def both(x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(nn.functional.softplus(leaf).sum(), leaf)
        return nn.functional.softplus(x) * 1.0, slope * 1.0

    found = compile_function(both, (x,))(x)
    for value, exact in zip(found, (nn.functional.softplus(x.double()), torch.sigmoid(x.double())), strict=True):
        # Below -60 both stay at e^-60, so that nothing is denormal.
        assert ((value.double() - exact).abs() <= 4e-7 * exact + 1e-26).all()
        assert (value >= 8e-27).all()
