"""Training as people do it: parts of a batch, clipping, bfloat16, averages, schedulers, augmentation."""

import math

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import bayesify as bf


def network(dropout: float = 0.0):
    torch.manual_seed(0)
    middle = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), *middle, nn.Linear(8, 3))


SETTINGS = {"epochs": 3, "batch_size": 40, "learning_rate": 0.02, "progress": False}
MAKERS = {
    "point": lambda: bf.PointEstimate(network(), "categorical", prior="normal:1"),
    "mc-dropout": lambda: bf.MCDropout(network(0.3), "categorical"),
    "weight": lambda: bf.Variational(network(), "categorical"),
    "local": lambda: bf.Variational(network(), "categorical", estimator="local"),
    "flipout": lambda: bf.Variational(network(), "categorical", estimator="flipout"),
    "moments": lambda: bf.Variational(network(), "categorical", estimator="moments"),
    "low-rank": lambda: bf.Variational(network(), "categorical", family="low_rank", rank=3),
    "ivon": lambda: bf.IVON(network(), "categorical", hessian_init=0.1),
    "ensemble": lambda: bf.Ensemble(network(), "categorical", members=2),
    "swag": lambda: bf.SWAG(network(), "categorical", rank=2),
    "laplace": lambda: bf.LaplaceApproximation(network(), "categorical", structure="diagonal"),
    "sgld": lambda: bf.SGLD(network(), "categorical", samples=3),
    "sghmc": lambda: bf.SGHMC(network(), "categorical", samples=3),
}


def outputs(method, x):
    return method.draw(x, draws=3)


@pytest.mark.parametrize("name", MAKERS)
def test_a_gradient_in_parts_is_the_gradient_of_the_batch(blobs, name):
    whole, parts = MAKERS[name](), MAKERS[name]()
    rate = 1e-4 if name in {"sgld", "sghmc"} else 0.02
    settings = SETTINGS | {"learning_rate": rate, "draws": 2 if whole.draws_per_step else 1}
    a = whole.fit(blobs, **settings)
    b = parts.fit(blobs, **settings, accumulate=3)  # 40 = 14 + 13 + 13, and a last batch of 16
    torch.testing.assert_close(outputs(parts, blobs[0]), outputs(whole, blobs[0]), rtol=2e-3, atol=2e-4)
    assert b["nll"] == pytest.approx(a["nll"], rel=1e-4)
    assert b["kl"] == pytest.approx(a["kl"], rel=1e-4)


def test_noisy_logits_have_the_same_noise_in_parts(blobs):
    torch.manual_seed(0)
    net = bf.networks.mlp(2, 6, units=8)
    whole, parts = (bf.PointEstimate(net, bf.likelihoods.GaussianLogits(samples=50)) for _ in range(2))
    whole.fit(blobs, **SETTINGS)
    parts.fit(blobs, **SETTINGS, accumulate=4)
    torch.testing.assert_close(parts.theta, whole.theta, rtol=1e-3, atol=1e-4)


def test_a_bound_that_is_no_sum_refuses_parts(blobs):
    method = bf.Variational(network(), "categorical", bound="importance_weighted")
    with pytest.raises(ValueError, match="leave out accumulate="):
        method.fit(blobs, **SETTINGS, draws=2, accumulate=2)


def test_running_statistics_go_on_from_part_to_part(blobs):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    method = bf.PointEstimate(net, "categorical")
    method.fit(blobs, epochs=1, batch_size=96, accumulate=3, learning_rate=1e-12, optimizer="sgd", progress=False)
    by_hand = net.train()
    order = next(iter(bf.training.batches.TensorExamples(*blobs).batches(96, 0, 0, 1)))[0][0]
    with torch.no_grad():
        for part in order.tensor_split(3):
            by_hand(part)
    torch.testing.assert_close(method.network.kept()["1.running_mean"], by_hand[1].running_mean)
    assert int(method.network.kept()["1.num_batches_tracked"]) == 3


def test_a_part_of_one_example_is_refused_for_batch_normalisation(blobs):
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(ValueError, match="choose fewer parts"):
        bf.PointEstimate(net, "categorical").fit(blobs, epochs=1, batch_size=96, accumulate=60, progress=False)


def test_a_clipped_gradient_moves_the_weights_by_the_norm(blobs):
    method = bf.PointEstimate(network(), "categorical")
    before = method.theta.detach().clone()
    method.fit(blobs, epochs=1, batch_size=96, optimizer="sgd", learning_rate=1.0, clip_norm=0.01, progress=False)
    assert float((method.theta.detach() - before).norm()) == pytest.approx(0.01, rel=1e-3)


def test_members_are_clipped_on_their_own(blobs):
    method = bf.Ensemble(network(), "categorical", members=3)
    before = method.theta.detach().clone()
    method.fit(blobs, epochs=1, batch_size=96, optimizer="sgd", learning_rate=1.0, clip_norm=0.01, progress=False)
    torch.testing.assert_close((method.theta - before).norm(dim=1), torch.full((3,), 0.01), rtol=1e-3, atol=0)


def test_clipping_that_never_bites_changes_nothing(blobs):
    for name in ("weight", "ivon", "ensemble"):
        plain, clipped = MAKERS[name](), MAKERS[name]()
        plain.fit(blobs, **SETTINGS)
        clipped.fit(blobs, **SETTINGS, clip_norm=1e6)
        assert torch.equal(outputs(plain, blobs[0]), outputs(clipped, blobs[0]))


def test_a_sampler_refuses_clipping(blobs):
    with pytest.raises(ValueError, match="samples another distribution"):
        MAKERS["sgld"]().fit(blobs, **SETTINGS, clip_norm=1.0)


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "moments"])
def test_bfloat16_rounds_the_passes_and_keeps_the_weights(blobs, name):
    full, half = MAKERS[name](), MAKERS[name]()
    rate = 1e-4 if name in {"sgld", "sghmc"} else 0.02
    settings = SETTINGS | {"learning_rate": rate}
    a = full.fit(blobs, **settings)
    seen = []
    original = half.network.pick
    half.network.pick = lambda result: (seen.append(result.dtype), original(result))[1]
    b = half.fit(blobs, **settings, precision="bfloat16")
    assert torch.bfloat16 in seen  # the passes were in bfloat16
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    assert b["nll"] == pytest.approx(a["nll"], rel=0.05)
    assert a["nll"] != b["nll"]
    assert half.plan.precision == "bfloat16"
    assert half.predict(blobs[0]).outputs.dtype == torch.float32


def test_bfloat16_is_refused_where_it_would_do_nothing(blobs):
    with pytest.raises(ValueError, match="float64"):
        bf.PointEstimate(network().double(), "categorical").fit(blobs, **SETTINGS, precision="bfloat16")
    with pytest.raises(ValueError, match="needs all digits"):
        MAKERS["moments"]().fit(blobs, **SETTINGS, precision="bfloat16")
    with pytest.raises(ValueError, match="did you mean 'bfloat16'"):
        MAKERS["point"]().fit(blobs, **SETTINGS, precision="bfloat")


@pytest.mark.parametrize("name", ["weight", "ivon", "swag", "sghmc", "ensemble"])
def test_an_interrupted_run_goes_on_to_the_same_bits(blobs, name, tmp_path):
    def augment(x):
        return x + 0.01 * torch.randn_like(x)

    def schedule(optimizer):
        return lr_scheduler.LinearLR(optimizer, total_iters=5)

    # A sampler collects until the end of its plan and does not average.
    settings = SETTINGS | {"epochs": 4, "accumulate": 2, "precision": "bfloat16", "augment": augment}
    settings |= {"schedule": schedule, "learning_rate": 1e-4 if name == "sghmc" else 0.02}
    settings |= {} if name in {"swag", "sghmc"} else {"ema": 0.9, "clip_norm": 0.5}
    whole, victim = MAKERS[name](), MAKERS[name]()
    whole.fit(blobs, **settings)
    original = victim.absorb
    steps = []

    def dies(objective):
        steps.append(1)
        if len(steps) == 8:  # in the third of four epochs, of three steps each
            raise MemoryError
        original(objective)

    victim.absorb = dies
    with pytest.raises(MemoryError):
        victim.fit(blobs, **settings, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run", network())
    resumed.resume(blobs, tmp_path / "run", augment=augment, schedule=schedule, progress=False)
    assert torch.equal(outputs(resumed, blobs[0]), outputs(whole, blobs[0]))
    with pytest.raises(ValueError, match="give augment= again"):
        bf.load(tmp_path / "run", network()).resume(
            blobs, tmp_path / "run", extend=1, schedule=schedule, progress=False
        )


def test_the_average_of_the_weights_is_what_the_formula_says(blobs):
    path = []

    class Watch:
        def on_step_end(self, method, step):
            path.append(method.theta.detach().clone())

    method = MAKERS["point"]()
    average = method.theta.detach().clone()
    method.fit(blobs, **SETTINGS, ema=0.6, callbacks=[Watch()])
    for step, weights in enumerate(path, start=1):
        kept = min(0.6, (1 + step) / (10 + step))
        average = kept * average + (1 - kept) * weights
    torch.testing.assert_close(method.theta.detach(), average)
    assert not torch.allclose(path[-1], average, atol=1e-4)


def test_validation_scores_the_average(blobs):
    method = MAKERS["point"]()
    history = method.fit(blobs, **SETTINGS, ema=0.5, validation=blobs)
    assert bf.evaluate(method, blobs).nll == pytest.approx(history["validation_nll"][-1], rel=1e-5)
    assert bf.evaluate(method, blobs).nll != pytest.approx(history["nll"][-1], rel=1e-5)


def test_an_average_of_samples_is_refused(blobs):
    for name in ("swag", "sgld"):
        with pytest.raises(ValueError, match="leave out ema="):
            MAKERS[name]().fit(blobs, **SETTINGS, ema=0.9)


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.5),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9, cycle_momentum=False),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(optimizer, 6)],
            [3],
        ),
    ],
)
def test_a_torch_scheduler_gives_the_rates_it_gives_in_torch(blobs, make):
    rates = []

    class Watch:
        def on_step_end(self, method, step):
            rates.append(trainer_rate())

    method = bf.PointEstimate(network(), "categorical")
    made = []

    def optimizer(parameters, lr):
        made.append(torch.optim.SGD(parameters, lr=lr))
        return made[0]

    def trainer_rate():
        return made[0].param_groups[0]["lr"]

    method.fit(blobs, **SETTINGS, optimizer=optimizer, schedule=make, callbacks=[Watch()])
    theirs = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=SETTINGS["learning_rate"])
    scheduler, expected = make(theirs), []
    for _ in rates:
        expected.append(theirs.param_groups[0]["lr"])
        theirs.step()
        scheduler.step()
    assert rates == pytest.approx(expected)
    assert len(rates) == 9


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lr_scheduler.ReduceLROnPlateau, "cannot follow a score"),
        (lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9), "cycle_momentum=False"),
        (
            lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=3, cycle_momentum=False),
            "^schedule= must have a learning rate for each of the plan's 9 steps, its OneCycleLR fails after step 4",
        ),
        (lambda optimizer: optimizer.nothing, "a function of the share of training"),
        (lambda _: "fast", "returned str"),
        ("cosine,warm-up=2", "between 0 and 1"),
    ],
)
def test_schedules_that_cannot_be_followed_are_refused_in_one_line(blobs, schedule, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bf.PointEstimate(network(), "categorical").fit(blobs, **SETTINGS, schedule=schedule)


def test_warm_up_rises_to_the_schedule(blobs):
    history = bf.PointEstimate(network(), "categorical").fit(
        blobs, epochs=10, batch_size=96, learning_rate=1.0, schedule="linear,warm-up=0.5", progress=False
    )
    expected = [(1 - done) * min(1.0, 0.01 + 0.99 * done / 0.5) for done in (step / 10 for step in range(10))]
    assert history["learning_rate"] == pytest.approx(expected)


def test_augmentation_changes_inputs_and_not_the_number_of_examples(blobs):
    seen = []

    def flip(x):
        seen.append(torch.rand(1).item())
        return -x

    method, mirrored = bf.Variational(network(), "categorical"), bf.Variational(network(), "categorical")
    state = torch.get_rng_state()
    a = method.fit(blobs, **SETTINGS, augment=flip)
    assert torch.equal(torch.get_rng_state(), state)  # the user's generator is as before
    b = mirrored.fit((-blobs[0], blobs[1]), **SETTINGS)
    assert a["loss"] == b["loss"]
    assert len(set(seen)) == len(seen) == 9  # every step has other random numbers
    with pytest.raises(ValueError, match="must return inputs for the 40 examples"):
        method.fit(blobs, **SETTINGS, augment=lambda x: x[:3])
    with pytest.raises(ValueError, match="augment= failed"):
        method.fit(blobs, **SETTINGS, augment=lambda x: x.nothing)
    with pytest.raises(ValueError, match=r"^augment= must return inputs of the form .* a tensor, got a tuple of 2$"):
        method.fit(blobs, **SETTINGS, augment=lambda x: (x, x))


def test_settings_out_of_range_are_named(blobs):
    for settings, message in (
        ({"accumulate": 0}, "accumulate must be an integer of at least 1"),
        ({"accumulate": 41}, "accumulate must be at most batch_size, 40"),
        ({"clip_norm": 0.0}, "clip_norm must be a finite number above 0"),
        ({"ema": 1.0}, "ema must be a decay between 0 and 1"),
        ({"ema": "0.9"}, "ema must be a decay between 0 and 1"),
        ({"compiled": "no"}, "compiled must be True, False or None, got 'no'"),
    ):
        with pytest.raises(ValueError, match=message):
            MAKERS["point"]().fit(blobs, **SETTINGS, **settings)


def test_parameter_groups_keep_their_own_rates(blobs):
    def optimizer(parameters, lr):
        means, widths = parameters
        return torch.optim.SGD([{"params": [means]}, {"params": [widths], "lr": 1e-30}], lr=lr)

    method = bf.Variational(network(), "categorical")
    before = method.mu.detach().clone()
    method.fit(blobs, **SETTINGS, optimizer=optimizer, schedule="cosine")
    assert float(method.std.min()) == pytest.approx(math.log1p(math.exp(-5.0)), rel=1e-5)
    assert not torch.equal(method.mu, before)


@pytest.mark.parametrize("name", ["point", "weight", "ivon", "ensemble", "swag", "laplace"])
def test_a_rate_of_zero_keeps_a_layer_and_a_half_is_half_a_step(blobs, name):
    one_step = {"epochs": 1, "batch_size": 96, "learning_rate": 0.02, "progress": False}
    plain, scaled = MAKERS[name](), MAKERS[name]()
    ((weights, _), *_) = scaled.weight_parameters()
    before = weights.detach().clone()
    plain.fit(blobs, **one_step)
    scaled.fit(blobs, **one_step, rates={"*": 0.5, "2": 0.0})
    ((target, _), *_) = plain.weight_parameters()
    first = next(place.stop for place in scaled.network.places if place.name == "0.bias")
    torch.testing.assert_close(
        weights.detach()[..., :first] - before[..., :first],
        0.5 * (target.detach()[..., :first] - before[..., :first]),
        rtol=1e-3,
        atol=1e-7,
    )
    assert torch.equal(weights.detach()[..., first:], before[..., first:])


def test_rates_that_mean_nothing_are_refused(blobs):
    for name, rates, message in (
        ("point", {"nothing.*": 0.5}, "rates pattern"),
        ("point", {"0": -1.0}, "factors of at least 0"),
        ("sgld", {"0": 0.5}, "leave out rates="),
    ):
        with pytest.raises(ValueError, match=message):
            MAKERS[name]().fit(blobs, **SETTINGS, rates=rates)
    with pytest.raises(TypeError, match="rates must be factors by layer"):
        MAKERS["point"]().fit(blobs, **SETTINGS, rates=0.1)


def test_a_stream_with_workers_is_read_once_per_epoch(blobs):
    class Stream(torch.utils.data.IterableDataset):
        def __len__(self):
            return 96

        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            for row in range(worker.id, 96, worker.num_workers):
                yield blobs[0][row], blobs[1][row]

    loader = torch.utils.data.DataLoader(Stream(), batch_size=16, num_workers=2, multiprocessing_context="fork")
    method = MAKERS["weight"]()
    with pytest.raises(ValueError, match="give n_data="):
        method.fit(loader, epochs=1, progress=False)
    history = method.fit(loader, n_data=96, epochs=2, progress=False)
    assert history["step"] == [6, 12]
