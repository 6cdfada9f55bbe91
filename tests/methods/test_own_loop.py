"""A training loop of one's own: `loss`, `loop_optimizer` and `finish` give what `fit` gives."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.training.batches import TensorExamples

EPOCHS, BATCH = 4, 32


def network(normalised: bool = False):
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if normalised else []
    return nn.Sequential(nn.Linear(2, 8), *middle, nn.Tanh(), nn.Linear(8, 3))


MAKERS = {
    "point": lambda net: bf.PointEstimate(net, "categorical", prior="normal:1"),
    "mc-dropout": lambda net: bf.MCDropout(net, "categorical", p=0.2),
    "weight": lambda net: bf.Variational(net, "categorical"),
    "flipout": lambda net: bf.Variational(net, "categorical", estimator="flipout"),
    "ivon": lambda net: bf.IVON(net, "categorical", hessian_init=0.1),
    "swag": lambda net: bf.SWAG(net, "categorical", rank=3, every=1),
    "laplace": lambda net: bf.LaplaceApproximation(net, "categorical", structure="diagonal"),
    "sgld": lambda net: bf.SGLD(net, "categorical", samples=4, chains=1),
    "sghmc": lambda net: bf.SGHMC(net, "categorical", samples=4, chains=1),
}
NEED_FINISH = ("swag", "laplace", "sgld", "sghmc")


def rate(name):
    return 1e-4 if name in {"sgld", "sghmc"} else 0.02


def batches(data, seed=0):
    """The batches of `fit`, in its order."""
    for epoch in range(EPOCHS):
        for ((x, y),) in TensorExamples(*data).batches(BATCH, seed, epoch, 1):
            yield x, y


def own_loop(method, data, name, parts=1):
    optimizer = method.loop_optimizer(n_data=len(data[1]), batch_size=BATCH, epochs=EPOCHS, learning_rate=rate(name))
    for step, (x, y) in enumerate(batches(data)):
        optimizer.zero_grad()
        for inputs, targets in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
            (method.loss(inputs, targets, n_data=len(data[1]), step=step) * (len(targets) / len(y))).backward()
        optimizer.step()
    return method.finish(data)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_a_loop_of_ones_own_gives_what_fit_gives(blobs, name, normalised):
    net = network(normalised)
    fitted, looped = MAKERS[name](net), MAKERS[name](net)
    fitted.fit(blobs, epochs=EPOCHS, batch_size=BATCH, learning_rate=rate(name), progress=False)
    own_loop(looped, blobs, name)
    torch.testing.assert_close(looped.draw(blobs[0], draws=4), fitted.draw(blobs[0], draws=4), rtol=1e-4, atol=1e-5)
    assert not looped.training


@pytest.mark.parametrize("name", ["point", "weight", "ivon", "swag", "sgld"])
def test_accumulation_in_ones_own_loop_counts_the_kl_once(blobs, name):
    whole, parts = MAKERS[name](network()), MAKERS[name](network())
    own_loop(whole, blobs, name)
    own_loop(parts, blobs, name, parts=4)
    torch.testing.assert_close(parts.draw(blobs[0], draws=4), whole.draw(blobs[0], draws=4), rtol=1e-3, atol=1e-4)


def test_an_ensemble_in_ones_own_loop_is_fit_on_the_whole_data(blobs):
    fitted, looped = (bf.Ensemble(network(), "categorical", members=3) for _ in range(2))
    fitted.fit(blobs, epochs=5, batch_size=96, learning_rate=0.02, progress=False)
    optimizer = torch.optim.Adam(looped.parameters(), lr=0.02)
    looped.train()
    for step in range(5):
        optimizer.zero_grad()
        looped.loss(*blobs, n_data=96, step=step).backward()
        optimizer.step()
    torch.testing.assert_close(looped.theta, fitted.theta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NEED_FINISH)
def test_no_answer_before_finish(blobs, name, tmp_path):
    method = MAKERS[name](network())
    method.train()
    method.loss(*blobs, n_data=96, step=0).backward()
    for ask in (lambda: method.predict(blobs[0]), lambda: method.draw(blobs[0]), lambda: method.save(tmp_path / "run")):
        with pytest.raises(ValueError, match=r"call finish\(data\) first"):
            ask()
    if name in {"sgld", "sghmc", "swag"}:
        with pytest.raises(ValueError, match="loop_optimizer"):
            method.finish(blobs)
    else:
        method.finish(blobs)
        assert float(method.predict(blobs[0]).epistemic.max()) > 0


def test_fit_after_a_loop_of_ones_own_answers(blobs):
    method = MAKERS["laplace"](network())
    method.train()
    method.loss(*blobs, n_data=96, step=0).backward()
    method.fit(blobs, epochs=1, progress=False)
    assert method.predict(blobs[0]).probs.shape == (96, 3)


def test_snapshots_by_hand_are_those_of_swag(blobs):
    method = bf.SWAG(network(True), "categorical", rank=4, held_draws=5)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    path = []
    method.train()
    for step in range(12):
        optimizer.zero_grad()
        method.loss(*blobs, n_data=96, step=step).backward()
        optimizer.step()
        if step >= 4:
            method.collect()
            path.append(method.theta.detach().clone())
    method.finish(blobs)
    snapshots = torch.stack(path)
    size = method.network.random_size
    torch.testing.assert_close(method.mean_weights, snapshots.mean(0))
    torch.testing.assert_close(method.variance, snapshots[:, :size].var(0, correction=0), rtol=1e-3, atol=1e-9)
    assert float(method.predict(blobs[0]).epistemic.max()) > 0
    # Each draw has running statistics of its own.
    means = method.draw_buffers(range(5))["1.running_mean"]
    assert float(means.std(0).max()) > 0


def test_a_batch_larger_than_the_data_is_a_mistake(blobs):
    with pytest.raises(ValueError, match="the batch alone has 96, got 10"):
        MAKERS["weight"](network()).loss(*blobs, n_data=10, step=0)


@pytest.mark.parametrize("make", ["linear", "large"])
def test_ivon_starts_from_the_first_batch_where_fit_starts_from_a_few_examples(blobs, make):
    torch.manual_seed(0)
    net = nn.Linear(2, 3) if make == "linear" else nn.Sequential(nn.Linear(2, 400), nn.Tanh(), nn.Linear(400, 300))
    net = net if make == "linear" else nn.Sequential(net, nn.Tanh(), nn.Linear(300, 3))
    looped, fitted = bf.IVON(net, "categorical"), bf.IVON(net, "categorical")
    fitted.fit(blobs, epochs=40, batch_size=96, learning_rate=0.1, progress=False)
    optimizer = looped.loop_optimizer(n_data=96, batch_size=96, epochs=40, learning_rate=0.1)
    for step in range(40):
        optimizer.zero_grad()
        looped.loss(*blobs, n_data=96, step=step).backward()
        optimizer.step()
    looped.finish(blobs)
    assert looped.hessian_init == pytest.approx(fitted.hessian_init, rel=0.5)  # other examples
    assert (looped.predict(blobs[0]).labels == blobs[1]).double().mean() > 0.9
    # Most of the data decide the curvature of both.
    torch.testing.assert_close(looped.std.mean(), fitted.std.mean(), rtol=0.2, atol=0.0)


@pytest.mark.parametrize("name", ["ivon", "sgld", "swag", "weight", "point"])
def test_a_temperature_of_the_loop_is_that_of_fit(blobs, name):
    fitted, looped = MAKERS[name](network()), MAKERS[name](network())
    kl = "uniform,temperature=0.1"
    fitted.fit(blobs, epochs=20, batch_size=96, learning_rate=rate(name), kl=kl, progress=False)
    optimizer = looped.loop_optimizer(n_data=96, batch_size=96, epochs=20, learning_rate=rate(name), kl=kl)
    for step in range(20):
        optimizer.zero_grad()
        looped.loss(*blobs, n_data=96, step=step).backward()
        optimizer.step()
    looped.finish(blobs)
    torch.testing.assert_close(looped.draw(blobs[0], draws=4), fitted.draw(blobs[0], draws=4), rtol=1e-3, atol=1e-4)
    # After finish the loss is the plain one again.
    torch.testing.assert_close(
        looped.train().loss(*blobs, n_data=96, step=0), fitted.train().loss(*blobs, n_data=96, step=0)
    )


@pytest.mark.parametrize("name", ["mc-dropout", "flipout", "local"])
def test_parts_of_a_step_have_the_noise_of_the_whole(blobs, name):
    made = bf.Variational(network(), "categorical", estimator="local") if name == "local" else MAKERS[name](network())
    made.train()
    x, y = blobs[0][:32], blobs[1][:32]
    whole = made.loss(x, y, n_data=96, step=3)
    parts = [made.loss(x[k : k + 8], y[k : k + 8], n_data=96, step=3, part=(k, 32)) for k in range(0, 32, 8)]
    torch.testing.assert_close(sum(parts) / 4, whole)
    alike = [made.loss(x[k : k + 8], y[k : k + 8], n_data=96, step=3) for k in range(0, 32, 8)]
    assert abs(float((sum(alike) / 4 - whole).detach())) > 1e-4
    for wrong in ((30, 32), (-1, 32), (0, 4), 7, (1, 2, 3)):
        with pytest.raises(ValueError, match="part must be"):
            made.loss(x[:8], y[:8], n_data=96, step=3, part=wrong)


def test_a_loop_has_one_number_of_examples(blobs):
    method = MAKERS["sgld"](network())
    method.loop_optimizer(n_data=96, batch_size=32, epochs=4, learning_rate=1e-4)
    with pytest.raises(ValueError, match="that of loop_optimizer, 96, got 1000"):
        method.loss(*blobs, n_data=1000, step=0)
    laplace = MAKERS["laplace"](network()).train()
    laplace.loss(*blobs, n_data=96, step=0).backward()
    with pytest.raises(ValueError, match=r"whole training set, 96 examples as in loss\(n_data=\), got 10"):
        laplace.finish((blobs[0][:10], blobs[1][:10]))
    laplace.finish(blobs)


@pytest.mark.parametrize("name", ["ivon", "sgld", "sghmc"])
def test_methods_with_an_update_rule_need_a_rate(name):
    with pytest.raises(ValueError, match="loop_optimizer needs learning_rate="):
        MAKERS[name](network()).loop_optimizer(n_data=96)


def test_a_weight_of_the_kl_that_changes_is_refused():
    for kl in ("reweighted", "uniform,warm-up=2"):
        with pytest.raises(ValueError, match="weight of the KL is constant"):
            MAKERS["weight"](network()).loop_optimizer(n_data=96, kl=kl)


def test_weight_decay_beside_a_prior_is_a_warning(blobs):
    method = MAKERS["weight"](network())
    with pytest.warns(bf.BayesifyWarning, match=r"weight_decay of 0\.01 beside the prior.*widths"):
        method.loop_optimizer(n_data=96, optimizer="adamw")
    method.loop_optimizer(n_data=96, optimizer="adamw:weight_decay=0")  # warnings are errors
    bf.PointEstimate(network(), "categorical").loop_optimizer(n_data=96, optimizer="adamw")


def test_rules_that_only_fit_can_follow_are_refused():
    cyclical = bf.SGLD(network(), "categorical", cycles=2, samples=4)
    tuned = bf.LaplaceApproximation(network(), "categorical", prior_precision="marginal_likelihood", rounds=2)
    for method, message in ((cyclical, "cycles="), (tuned, "rounds=")):
        with pytest.raises(ValueError, match=message):
            method.loop_optimizer(n_data=96, learning_rate=1e-3)


def test_autocast_around_the_loss_trains(blobs):
    method = MAKERS["weight"](network())
    optimizer = torch.optim.Adam(method.parameters(), lr=0.02)
    losses = []
    for step in range(40):
        with torch.autocast("cpu", torch.bfloat16):
            loss = method.loss(*blobs, n_data=96, step=step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert method.mu.dtype == method.mu.grad.dtype == torch.float32


def test_a_step_that_is_not_counted_up_is_told_once(blobs):
    method = bf.Variational(network(), "categorical")
    optimizer = torch.optim.Adam(method.parameters())

    def step(number):
        method.loss(*blobs, n_data=len(blobs[1]), step=number).backward()

    step(0)
    step(0)  # a part of the same step, say
    optimizer.step()
    step(1)
    optimizer.step()
    with pytest.warns(bf.BayesifyWarning, match="step=1 before and after an update"):
        step(1)
    optimizer.step()
    step(1)  # warnings are errors: it is told once


@pytest.mark.parametrize("step", [-1, 1.5])
def test_a_step_is_a_whole_number(blobs, step):
    with pytest.raises(ValueError, match="step must be an integer of at least 0"):
        bf.Variational(network(), "categorical").loss(*blobs, n_data=len(blobs[1]), step=step)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.fc = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, tokens):
        return self.fc(self.embedding(tokens))


def test_labels_of_tokens_are_predicted_inside_the_loop():
    tokens = torch.arange(40).view(8, 5) % 7
    method = bf.SWAG(Tagger(), "categorical").train()
    method.loss(tokens, tokens.roll(1), n_data=8, step=0).backward()
    assert method.predict(tokens, by="mean").probs.shape == (8, 5, 7)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (slice(None), lambda y: y + 3, "needs 6 outputs for these targets, the network gives 3"),
        (slice(None), lambda y: y[:, None].expand(-1, 2), "needs a label for each of"),
        (slice(1), lambda y: y[:1], "cannot take inputs of shape"),
    ],
)
def test_a_batch_that_does_not_fit_is_one_line(blobs, x, y, message):
    method = MAKERS["weight"](network())
    method.loss(*blobs, n_data=96, step=0)
    inputs = blobs[0] if x == slice(None) else blobs[0][x].expand(1, 2).repeat(1, 2)
    with pytest.raises(ValueError, match=message) as caught:
        method.loss(inputs, y(blobs[1]), n_data=96, step=1)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
@pytest.mark.parametrize("name", ["SGLD", "SGHMC"])
def test_several_chains_in_ones_own_loop_answer_as_those_of_fit(blobs, name):
    method, fitted = (getattr(bf, name)(network(), "categorical", samples=20, chains=2) for _ in range(2))
    size = len(blobs[1])
    fitted.fit(blobs, epochs=40, batch_size=size, learning_rate=1e-3, progress=False)
    optimizer = method.loop_optimizer(n_data=size, batch_size=size, epochs=40, learning_rate=1e-3)
    for step in range(40):
        optimizer.zero_grad()
        method.loss(*blobs, n_data=len(blobs[1]), step=step).backward()
        optimizer.step()
    method.finish(blobs)
    assert method.warnings.keys() == fitted.warnings.keys()
    torch.testing.assert_close(method.draw(blobs[0]), fitted.draw(blobs[0]), rtol=1e-4, atol=1e-4)


def test_a_warning_after_a_loop_of_ones_own_names_a_cure_of_that_loop(blobs):
    method = bf.Variational(network(), "categorical").train()
    for step in range(5):  # without an optimiser: nothing is learned
        method.loss(*blobs, n_data=len(blobs[1]), step=step)
    with pytest.warns(bf.BayesifyWarning, match="change the learning rate"):
        method.finish(blobs)
    assert not any("warm_up" in text for text in method.warnings.values())


def test_hmc_says_that_it_has_no_steps(blobs):
    method = bf.HMC(network(), "categorical")
    for call in (lambda: method.loop_optimizer(n_data=96), lambda: method.loss(*blobs, n_data=96, step=0)):
        with pytest.raises(ValueError, match=r"no training steps.*call fit\(data\)"):
            call()
