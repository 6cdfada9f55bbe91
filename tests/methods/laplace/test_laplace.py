"""The Laplace approximation against exact posteriors, explicit Jacobians and its own definition."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS, prediction
from bayesify.methods.laplace import curvature
from bayesify.methods.laplace.curvature import kronecker as kronecker_module
from bayesify.methods.laplace.curvature import linearised as linearised_module
from bayesify.methods.laplace.curvature import rows as rows_module
from bayesify.methods.laplace.laplace import LaplaceApproximation

NOISE = 0.6
STRUCTURES = ("diagonal", "kronecker", "full")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, LaplaceApproximation.name, LaplaceApproximation)


def table(n=30, k=3, outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, k, generator=generator, dtype=torch.float64)
    w = torch.randn(k, outputs, generator=generator, dtype=torch.float64)
    return x, x @ w + NOISE * torch.randn(n, outputs, generator=generator, dtype=torch.float64) + 0.4


def labelled(n=40, k=3, classes=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (n,), generator=generator)


def network(*layers, seed=2):
    torch.manual_seed(seed)
    return nn.Sequential(*(layer() for layer in layers)).double()


def mlp(inputs=3, outputs=3, units=4):
    return network(lambda: nn.Linear(inputs, units), nn.Tanh, lambda: nn.Linear(units, outputs))


def explicit_matrix(method, data):
    """J' L J by whole Jacobians and Hessians of one example after the other."""
    net, likelihood, size = method.network, method.likelihood, method.network.random_size
    total = torch.zeros(size, size, dtype=torch.float64)
    for x, y in zip(*data, strict=True):

        def outputs(free, x=x):
            theta = torch.cat((free, method.theta.detach()[size:]))
            return net.call(net.unflatten(theta), x[None])[0]

        at = method.theta.detach()[:size]
        jacobian = torch.autograd.functional.jacobian(outputs, at).flatten(0, -2)
        given = outputs(at)
        hessian = torch.autograd.functional.hessian(
            lambda f, y=y: -likelihood.log_prob(f[None], y[None]).sum(), given
        ).reshape(given.numel(), given.numel())
        total += jacobian.mT @ hessian @ jacobian
    return total


def dense(method):
    """The structure's own matrix, written out."""
    own, size = method.curvature, method.network.random_size
    if own.name == "full":
        return own.matrix
    if own.name == "diagonal":
        return own.values.diag()
    total = torch.zeros(size, size, dtype=torch.float64)
    for index, block in enumerate(own.blocks):
        factors = []
        for factor in ("output", "input"):
            vectors, values = (getattr(own, f"{factor}_{what}_{index}") for what in ("vectors", "values"))
            factors.append(vectors @ values.diag() @ vectors.mT)
        position = block.gather(torch.arange(size)).flatten()
        total[position[:, None], position] = torch.kron(*factors)
    return total


# The curvature of likelihoods.


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets"),
    [
        ("categorical", (5, 3), torch.tensor([0, 1, 2, 2, 0])),
        (bf.likelihoods.Categorical(class_weights=[0.5, 2.0, 1.0]), (5, 3), torch.tensor([0, 1, 2, 2, 0])),
        (bf.likelihoods.Categorical(class_dim=-1), (2, 4, 3), torch.randint(3, (2, 4))),
        (bf.likelihoods.Categorical(class_dim=1), (2, 3, 2, 2), torch.randint(3, (2, 2, 2))),
        ("bernoulli", (5, 2), torch.randint(2, (5, 2))),
        ("poisson", (5, 2), torch.randint(6, (5, 2)).double()),
        (bf.likelihoods.Gaussian(0.3, scale=[2.0, 5.0]), (5, 2), torch.randn(5, 2).double()),
        (bf.likelihoods.Gaussian("learned", initial=0.7, scale=3.0), (5, 1), torch.randn(5).double()),
    ],
)
def test_the_root_of_a_likelihood_squares_to_its_hessian(likelihood, outputs, targets):
    likelihood = bf.likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood
    f = torch.randn(*outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 2
    root = curvature.root(likelihood, f, targets)
    for n in range(len(f)):
        hessian = torch.autograd.functional.hessian(
            lambda g, n=n: -likelihood.log_prob(g[None, None], targets[n : n + 1]).sum(), f[n]
        )
        size = f[n].numel()
        torch.testing.assert_close(root[n].mT @ root[n], hessian.reshape(size, size), rtol=1e-6, atol=1e-6)


def test_the_matrix_of_a_linear_softmax_is_the_hessian_of_its_loss():
    data = labelled()
    net = network(lambda: nn.Linear(3, 3))
    method = LaplaceApproximation(net, "categorical", structure="full").approximate(data)

    def loss(theta):
        return -method.likelihood.log_prob(
            method.network.call(method.network.unflatten(theta), data[0])[0][None], data[1]
        ).sum()

    hessian = torch.func.hessian(loss)(method.theta.detach())
    torch.testing.assert_close(method.curvature.matrix, hessian, rtol=1e-9, atol=1e-9)
    assert method.log_likelihood.item() == pytest.approx(-loss(method.theta).item())


class Sequence(nn.Module):
    """An embedding, a recurrent layer and a normalised head: what only the general path knows."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.recurrent = nn.GRU(3, 3, batch_first=True)
        self.norm = nn.LayerNorm(3)
        self.head = nn.Linear(3, 2)

    def forward(self, tokens):
        return self.head(self.norm(self.recurrent(self.embedding(tokens))[0][:, -1]))


class Recurrent(nn.Module):
    """A layer whose fast kernel torch can batch over examples only by going through them, with a warning."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(3, 2, batch_first=True)
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


@pytest.mark.parametrize("structure", ["diagonal", "full"])
def test_a_recurrent_network_is_no_reason_for_warnings(structure, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(7, 4, 3, generator=generator), torch.arange(7) % 2
    torch.manual_seed(0)
    network = Recurrent()

    def made():
        return LaplaceApproximation(network, "categorical", prior="normal:1", structure=structure).approximate((x, y))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        method = made()
        answer = method.predict(x, draws=20)
    assert not [one for one in told if "performance drop" in str(one.message)]

    def refuse(*_, **__):
        raise RuntimeError("one at a time")

    # What stands in for the batch is what goes without it: no torch function over many at once.
    monkeypatch.setattr(rows_module, "vmap", refuse)
    monkeypatch.setattr(linearised_module, "vmap", refuse)
    torch.testing.assert_close(answer.outputs, made().predict(x, draws=20).outputs)


def pictures(seed=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 2, 6, 5, generator=generator, dtype=torch.float64), torch.arange(6) % 3


CASES = {
    "mlp": (mlp, labelled()),
    "picture": (
        lambda: network(
            lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1),
            lambda: nn.ReLU(inplace=True),
            lambda: nn.Conv2d(3, 2, 2, bias=False, padding="same", padding_mode="circular", dilation=2),
            nn.Tanh,
            nn.Flatten,
            lambda: nn.Linear(18, 3),
        ),
        pictures(),
    ),
    "sequence of rows": (
        lambda: network(lambda: nn.Linear(3, 4), nn.Tanh, nn.Flatten, lambda: nn.Linear(20, 3)),
        (torch.randn(7, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)), torch.arange(7) % 3),
    ),
    "tokens": (
        lambda: [torch.manual_seed(6), Sequence().double()][1],
        (torch.randint(5, (6, 4), generator=torch.Generator().manual_seed(6)), torch.arange(6) % 2),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_full_and_diagonal_are_the_explicit_matrix_of_any_network(case):
    make, data = CASES[case]
    full = LaplaceApproximation(make(), "categorical", structure="full").approximate(data)
    expected = explicit_matrix(full, data)
    torch.testing.assert_close(full.curvature.matrix, expected, rtol=1e-7, atol=1e-9)
    diagonal = LaplaceApproximation(make(), "categorical", structure="diagonal").approximate(data)
    torch.testing.assert_close(diagonal.curvature.values, expected.diagonal(), rtol=1e-7, atol=1e-9)


def test_the_matrix_of_one_layer_is_a_part_of_the_whole_one():
    make, data = CASES["mlp"]
    whole = LaplaceApproximation(make(), "categorical", structure="full").approximate(data).curvature.matrix
    for layer, places in (("0", torch.arange(16)), ("2", torch.arange(16, 31))):
        part = LaplaceApproximation(make(), "categorical", structure="full", bayesian=[layer]).approximate(data)
        torch.testing.assert_close(part.curvature.matrix, whole[places][:, places])
    bias = LaplaceApproximation(make(), "categorical", structure="full", bayesian=["0.bias"]).approximate(data)
    torch.testing.assert_close(bias.curvature.matrix, whole[12:16, 12:16])
    for structure in ("diagonal", "kronecker"):
        alone = LaplaceApproximation(make(), "categorical", structure=structure, bayesian=["0.bias"]).approximate(data)
        matrix = dense(alone)
        expected = whole[12:16, 12:16] if structure == "kronecker" else whole.diagonal()[12:16].diag()
        torch.testing.assert_close(matrix, expected)


def test_what_vmap_cannot_do_is_done_one_example_at_a_time(monkeypatch):
    make, data = CASES["mlp"]
    expected = LaplaceApproximation(make(), "categorical", structure="full").approximate(data).curvature.matrix

    def refuse(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(rows_module, "vmap", refuse)
    alone = LaplaceApproximation(make(), "categorical", structure="full").approximate(data)
    torch.testing.assert_close(alone.curvature.matrix, expected)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_curvature_does_not_depend_on_how_the_data_come(structure):
    x, y = pictures()
    make, _ = CASES["picture"]
    whole = LaplaceApproximation(make(), "categorical", structure=structure).approximate((x, y))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=2)
    parts = LaplaceApproximation(make(), "categorical", structure=structure)
    parts.curvature.chunk = lambda *_: 1
    parts.approximate(loader)
    torch.testing.assert_close(dense(parts), dense(whole))
    # Twice as many examples as the loader shows are twice the curvature.
    double = LaplaceApproximation(make(), "categorical", structure=structure).approximate(loader, n_data=12)
    torch.testing.assert_close(dense(double), 2 * dense(whole))
    assert double.log_likelihood.item() == pytest.approx(2 * whole.log_likelihood.item())


def test_kronecker_is_exact_for_one_example_layer_by_layer():
    for case, likelihood in (("mlp", "categorical"), ("mlp", "poisson")):
        make, (x, y) = CASES[case]
        y = y if likelihood == "categorical" else torch.tensor([[1.0, 0.0, 4.0]]).double().expand(len(x), 3)
        one = (x[:1], y[:1])
        found = LaplaceApproximation(make(), likelihood, structure="kronecker").approximate(one)
        expected = explicit_matrix(found, one)
        for block in found.curvature.blocks:
            own = block.gather(torch.arange(found.network.random_size)).flatten()
            torch.testing.assert_close(dense(found)[own][:, own], expected[own][:, own], rtol=1e-7, atol=1e-9)


def test_kronecker_is_exact_where_the_noise_does_not_depend_on_the_input():
    # With Gaussian noise what comes back to the last layer is the same for all examples, so it is independent of inputs.
    x, y = table(outputs=2)
    found = LaplaceApproximation(mlp(3, 2), bf.likelihoods.Gaussian(NOISE), structure="kronecker").approximate((x, y))
    expected = explicit_matrix(found, (x, y))
    block = found.curvature.blocks[-1]
    own = block.gather(torch.arange(found.network.random_size)).flatten()
    torch.testing.assert_close(dense(found)[own][:, own], expected[own][:, own], rtol=1e-7, atol=1e-9)
    # On a convolution whose kernel covers the picture there is one position, and the same holds.
    pixels = torch.randn(8, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    net = network(lambda: nn.Conv2d(2, 2, 3), nn.Flatten)
    conv = LaplaceApproximation(net, bf.likelihoods.Gaussian(NOISE), structure="kronecker").approximate((pixels, y[:8]))
    torch.testing.assert_close(dense(conv), explicit_matrix(conv, (pixels, y[:8])), rtol=1e-7, atol=1e-9)


def test_a_convolution_has_the_factors_of_its_patches():
    # The definition over all positions (Grosse and Martens 2016), with patches cut by hand.
    x, y = pictures()
    net = network(lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Flatten, lambda: nn.Linear(27, 3))
    found = LaplaceApproximation(net, "categorical", structure="kronecker").approximate((x, y))
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    patches = [padded[n, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] for n in range(6) for i in range(3) for j in range(3)]
    a = torch.stack([torch.cat((patch.flatten(), torch.ones(1).double())) for patch in patches])
    hidden = nn.functional.conv2d(x, net[0].weight, net[0].bias, stride=2, padding=1).detach().requires_grad_()
    logits = net[2](hidden.flatten(1))
    probabilities = logits.softmax(-1).detach()
    total = torch.zeros(3, 3).double()
    for n in range(6):
        fisher = probabilities[n].diag() - probabilities[n].outer(probabilities[n])
        values, vectors = torch.linalg.eigh(fisher)
        for k in range(3):
            (g,) = torch.autograd.grad(logits[n] @ vectors[:, k], hidden, retain_graph=True)
            columns = g[n].flatten(1)
            total += values[k].clamp(min=0) * columns @ columns.mT
    own = found.curvature.blocks[0].gather(torch.arange(found.network.random_size)).flatten()
    expected = torch.kron(total, a.mT @ a / len(a))
    torch.testing.assert_close(dense(found)[own][:, own], expected.detach(), rtol=1e-7, atol=1e-9)


# The posterior.


def test_trained_on_a_linear_model_it_is_the_exact_posterior():
    x, y = table()
    method = LaplaceApproximation(
        network(lambda: nn.Linear(3, 1)), bf.likelihoods.Gaussian(NOISE), prior="normal:2", structure="full"
    )
    method.fit((x, y), epochs=500, batch_size=30, learning_rate=0.3, schedule="cosine", progress=False)
    exact = bf.exact.LinearRegression(2.0, noise=NOISE).fit((x, y))
    torch.testing.assert_close(method.mean_weights, exact.mean, rtol=0, atol=1e-6)
    covariance = method.curvature.covariance(method.prior_precision)
    torch.testing.assert_close(covariance, exact.covariance, rtol=1e-8, atol=1e-10)
    assert method.log_marginal_likelihood().item() == pytest.approx(exact.log_evidence, abs=1e-6)
    # The network is linear, so both predictives are the exact one: mean and variance within four standard errors.
    new = table(5, seed=9)[0]
    truth = exact.predict(new)
    for predictive in ("linearised", "weights"):
        method.predictive = predictive
        outputs = method.draw(new, draws=4000)[..., 0]
        z = (outputs.mean(0) - truth.mean) / (truth.epistemic / 4000).sqrt()
        assert z.abs().max() < 4
        z = (outputs.var(0) / truth.epistemic - 1) / math.sqrt(2 / 4000)
        assert z.abs().max() < 4
    # With a constant Hessian the Kronecker form is exact as well; the diagonal one has the same mean and less spread.
    kron = LaplaceApproximation(
        method.network.module(method.theta), bf.likelihoods.Gaussian(NOISE), prior="normal:2", structure="kronecker"
    ).approximate((x, y))
    assert kron.log_marginal_likelihood().item() == pytest.approx(exact.log_evidence, abs=1e-6)
    torch.testing.assert_close(kron.std, exact.std, rtol=1e-7, atol=1e-9)


def test_a_prior_with_a_mean_and_scales_by_tensor_is_exact_too():
    x, y = table()
    net = network(lambda: nn.Linear(3, 1))
    prior = {"*weight": "normal:0.5,1", "*bias": bf.priors.Normal(3.0)}
    exact = bf.exact.LinearRegression([0.5, 0.5, 0.5, 3.0], mean=[1.0, 1.0, 1.0, 0.0], noise=NOISE).fit((x, y))
    method = LaplaceApproximation(net, bf.likelihoods.Gaussian(NOISE), prior=prior, structure="full")
    method.theta.data.copy_(exact.mean)
    method.approximate((x, y))
    torch.testing.assert_close(method.curvature.covariance(method.prior_precision), exact.covariance)
    assert method.log_marginal_likelihood().item() == pytest.approx(exact.log_evidence)


def test_the_last_layer_alone_is_exact_regression_on_the_features():
    x, y = table()
    net = mlp(3, 1)
    with torch.no_grad():
        features = net[1](net[0](x))
        exact = bf.exact.LinearRegression(2.0, noise=NOISE).fit((features, y))
        net[2].weight.copy_(exact.mean[None, :-1])
        net[2].bias.copy_(exact.mean[-1:])
    for structure in ("full", "kronecker"):
        method = LaplaceApproximation(
            net, bf.likelihoods.Gaussian(NOISE), prior="normal:2", subset="last_layer", structure=structure
        ).approximate((x, y))
        assert method.network.random_size == 5
        torch.testing.assert_close(method.std, exact.std)
        assert method.log_marginal_likelihood().item() == pytest.approx(exact.log_evidence)
    draws = method.weights(range(3), seed=0)
    assert torch.equal(draws[:, 5:], method.theta.detach()[5:].expand(3, -1)), "other weights stay where they are"


@pytest.mark.parametrize("structure", STRUCTURES)
def test_draws_have_the_covariance_of_their_structure(structure):
    data = labelled()
    method = LaplaceApproximation(mlp(), "categorical", prior="normal:0.5", structure=structure).approximate(data)
    covariance = torch.linalg.inv(dense(method) + 4 * torch.eye(method.network.random_size))
    n = 20_000
    draws = method.weights(range(n), seed=5) - method.mean_weights
    z = draws.mean(0) / (covariance.diagonal() / n).sqrt()
    assert z.abs().max() < 4.5  # of 31
    spread = covariance.diagonal()
    errors = ((spread[:, None] * spread + covariance.square()) / n).sqrt()
    z = (draws.mT @ draws / n - covariance) / errors
    assert z.abs().max() < 5  # of 496 different ones
    torch.testing.assert_close(method.std, spread.sqrt())
    assert torch.linalg.slogdet(dense(method) + 4 * torch.eye(31))[1].item() == pytest.approx(
        method.curvature.log_det(method.prior_precision).item()
    )
    torch.testing.assert_close(method.weights([3], seed=5)[0], draws[3] + method.mean_weights)


def test_kronecker_draws_do_not_depend_on_the_signs_that_eigenvectors_happen_to_have():
    method = LaplaceApproximation(mlp(), "categorical").approximate(labelled())
    before = method.weights(range(4), seed=1)
    method.curvature.input_vectors_0[:, 1] *= -1
    method.curvature.output_vectors_1[:, 0] *= -1
    torch.testing.assert_close(method.weights(range(4), seed=1), before)


def test_linearised_draws_are_whole_linear_functions_with_the_covariance_of_the_delta_method():
    x, y = labelled()
    method = LaplaceApproximation(mlp(), "categorical", prior="normal:0.5", structure="full").approximate((x, y))
    new = labelled(4, seed=8)[0]
    net, centre = method.network, method.mean_weights
    jacobian = torch.func.jacrev(lambda t: net.call(net.unflatten(t), new)[0].flatten())(centre)
    at_centre = net.call(net.unflatten(centre), new)[0]
    n = 10_000
    outputs, weights = method.draw(new, draws=n, seed=2), method.weights(range(n), seed=2)
    expected = at_centre.flatten() + (weights - centre) @ jacobian.mT
    torch.testing.assert_close(outputs.flatten(1), expected)
    covariance = jacobian @ method.curvature.covariance(method.prior_precision) @ jacobian.mT
    away = outputs.flatten(1) - at_centre.flatten()
    spread = covariance.diagonal()
    z = (away.mT @ away / n - covariance) / ((spread[:, None] * spread + covariance.square()) / n).sqrt()
    assert z.abs().max() < 4.5  # of 78 different ones
    torch.testing.assert_close(method.predict(new, by="mean").outputs[0], at_centre)
    method.predictive = "weights"
    assert (method.draw(new, draws=5, seed=2) - outputs[:5]).abs().max() > 0.1, "the network itself is not linear"


def test_layers_without_a_forward_derivative_are_linearised_all_the_same(monkeypatch):
    make, data = CASES["tokens"]
    method = LaplaceApproximation(make(), "categorical", structure="diagonal").approximate(data)
    expected = method.draw(data[0], draws=3)

    def refuse(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(linearised_module, "jvp", refuse)
    torch.testing.assert_close(method.draw(data[0], draws=3), expected)
    # And both are the derivative: a step of 1e-5 along a draw.
    centre, step = method.mean_weights, 1e-5
    away = method.weights(range(3), 0) - centre
    ahead, behind = (method.network.outputs(centre + sign * step * away, data[0])[0] for sign in (1, -1))
    at_centre = method.predict(data[0], by="mean").outputs
    torch.testing.assert_close(expected, at_centre + (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(linearised_module, "vjp", refuse)
    with pytest.raises(ValueError, match='use predictive="weights"'):
        method.draw(data[0])


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("predictive", ["linearised", "weights"])
def test_an_answer_does_not_depend_on_batch_mates_or_on_chunks_of_draws(monkeypatch, structure, predictive):
    x, y = pictures()
    make, _ = CASES["picture"]
    method = LaplaceApproximation(make(), "categorical", structure=structure, predictive=predictive)
    method.approximate((x, y))
    whole = method.predict(x, draws=9, seed=3).outputs
    torch.testing.assert_close(method.predict(x, 9, 3, batch_size=2).outputs, whole)
    torch.testing.assert_close(method.predict(x[[4, 1]], 5, 3).outputs, whole[:5, [4, 1]])
    monkeypatch.setattr(prediction, "DRAW_ELEMENTS", 2 * method.network.size)
    torch.testing.assert_close(method.predict(x, 9, 3).outputs, whole)
    assert not torch.allclose(method.predict(x, 9, 4).outputs, whole)


# The prior by marginal likelihood.


def test_the_tuned_precision_maximises_the_exact_evidence():
    x, y = table()
    method = LaplaceApproximation(
        network(lambda: nn.Linear(3, 1)),
        bf.likelihoods.Gaussian(NOISE),
        prior="normal:3",
        structure="full",
        prior_precision="marginal_likelihood",
        rounds=20,
    )
    method.fit((x, y), epochs=600, batch_size=30, learning_rate=0.1, schedule="cosine", progress=False)

    def loss(log_scale):
        return -bf.exact.LinearRegression(math.exp(log_scale), noise=NOISE).fit((x, y)).log_evidence

    best = optimize.minimize_scalar(loss, bracket=(-2, 2))
    assert method.prior_precision[0].item() == pytest.approx(math.exp(-2 * best.x), rel=1e-3)
    assert method.log_marginal_likelihood().item() == pytest.approx(-best.fun, abs=1e-4)
    started = bf.exact.LinearRegression(3.0, noise=NOISE).fit((x, y)).log_evidence
    assert -best.fun > started + 0.3, "there was something to gain"


class TwoParts(nn.Module):
    """A linear model in two layers side by side, each with its own use for a prior."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 1, bias=False), nn.Linear(3, 1, bias=False)

    def forward(self, x):
        return self.first(x[:, :2]) + self.second(x[:, 2:])


@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_one_precision_for_each_layer_maximises_the_evidence_of_both(structure):
    generator = torch.Generator().manual_seed(10)
    # Orthogonal columns: then the posterior is independent between the layers and Kronecker is exact too.
    x = torch.linalg.qr(torch.randn(40, 5, generator=generator, dtype=torch.float64))[0] * math.sqrt(40)
    w = torch.tensor([3.0, -2.0, 0.05, 0.2, -0.1]).double()
    y = x @ w + NOISE * torch.randn(40, generator=generator).double()
    method = LaplaceApproximation(
        TwoParts().double(),
        bf.likelihoods.Gaussian(NOISE),
        structure=structure,
        prior_precision="marginal_likelihood",
        per_layer=True,
        rounds=15,
    )
    method.fit((x, y), epochs=500, batch_size=40, learning_rate=0.2, schedule="cosine", progress=False)

    def loss(logs):
        scales = np.exp(np.repeat(logs, (2, 3)))
        return -bf.exact.LinearRegression(scales, noise=NOISE, intercept=False).fit((x, y)).log_evidence

    best = optimize.minimize(loss, [0.0, 0.0])
    found = -0.5 * method.log_factors.numpy()
    assert found == pytest.approx(best.x, abs=2e-3)
    assert method.log_marginal_likelihood().item() == pytest.approx(-best.fun, abs=1e-4)
    assert np.ptp(found) > 2, "the layers needed different priors"


@pytest.mark.parametrize("structure", STRUCTURES)
def test_after_training_the_factor_is_where_the_evidence_is_stationary(structure):
    data = labelled()
    method = LaplaceApproximation(
        mlp(), "categorical", structure=structure, prior_precision="marginal_likelihood", per_layer=True
    ).approximate(data)
    best = method.log_marginal_likelihood().item()
    factors = method.log_factors.clone()
    assert factors.abs().max() > 0.1
    for group in range(2):
        slopes = []
        for step in (-0.01, 0.01):
            method.log_factors.copy_(factors)
            method.log_factors[group] += step
            slopes.append(method.log_marginal_likelihood().item())
        assert max(slopes) < best
        assert abs(slopes[1] - slopes[0]) / 0.02 < 1e-3


def test_weights_the_data_ignore_stay_within_bounds():
    x, y = table()
    net = network(lambda: nn.Linear(3, 1))
    method = LaplaceApproximation(
        net, bf.likelihoods.Gaussian(NOISE), structure="full", prior_precision="marginal_likelihood"
    )
    method.theta.data.zero_()
    method.approximate((x, y))
    assert method.log_factors.item() == 18.0, "weights at the prior's mean ask for an infinite precision"
    assert torch.isfinite(method.predict(x).outputs).all()


def test_a_temperature_sharpens_the_likelihood_by_its_inverse():
    x, y = table()
    made = []
    for kl in ("uniform", "uniform,temperature=0.25"):
        method = LaplaceApproximation(network(lambda: nn.Linear(3, 1)), "gaussian", structure="full")
        method.fit((x, y), epochs=1, kl=kl, progress=False)
        made.append(method)
    torch.testing.assert_close(made[1].curvature.matrix, 4 * made[0].curvature.matrix)
    assert any("temperature" in note for note in made[1].summary().notes)


# The protocol, where Laplace has a state of its own.


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_saved_gaussian_is_loaded_to_the_bit(structure, blobs, tmp_path):
    torch.manual_seed(0)
    settings = {"structure": structure, "prior_precision": "marginal_likelihood", "subset": "last_layer"}
    method = LaplaceApproximation(bf.networks.mlp(2, 3, units=5), "categorical", **settings)
    method.fit(blobs, epochs=3, progress=False, run=tmp_path / "run")
    loaded = bf.load(tmp_path / "run")
    assert torch.equal(loaded.predict(blobs[0], draws=5).outputs, method.predict(blobs[0], draws=5).outputs)
    assert loaded.log_marginal_likelihood() == method.log_marginal_likelihood()
    assert str(loaded.summary(blobs[0])) == str(method.summary(blobs[0]))
    assert [row.name for row in loaded.summary().rows if row.random] == ["5.weight", "5.bias"]


def test_tuning_during_training_survives_a_kill_to_the_bit(blobs, tmp_path):
    def made():
        torch.manual_seed(0)
        return LaplaceApproximation(
            bf.networks.mlp(2, 3, units=5), "categorical", prior_precision="marginal_likelihood", rounds=3
        )

    settings = {"epochs": 6, "batch_size": 32, "progress": False}
    whole = made()
    whole.fit(blobs, **settings, run=tmp_path / "whole")
    victim = made()
    original = victim.objective

    def objective(*args, step, **more):
        if step == 13:
            raise KeyError
        return original(*args, step=step, **more)

    victim.objective = objective
    with pytest.raises(KeyError):
        victim.fit(blobs, **settings, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run")
    assert resumed.log_factors.item() != 0, "the second third was killed after a first tuning"
    resumed.resume(blobs, tmp_path / "run", progress=False)
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key


def test_fitting_again_starts_from_the_prior_as_it_was_given(blobs):
    torch.manual_seed(0)
    net = bf.networks.mlp(2, 3, units=5)
    method = LaplaceApproximation(net, "categorical", prior_precision="marginal_likelihood")
    method.fit(blobs, epochs=1, progress=False)
    assert method.log_factors.item() != 0
    original, seen = method.objective, []

    def objective(*args, **more):
        seen.append((method.log_factors.item(), method.predict(blobs[0]).draws))
        return original(*args, **more)

    method.objective = objective
    method.fit(blobs, epochs=1, progress=False)
    assert seen == [(0.0, 1)]


def test_until_training_is_over_it_is_scored_as_the_point_estimate(blobs):
    torch.manual_seed(0)
    net = bf.networks.mlp(2, 3, units=5)
    method, point = LaplaceApproximation(net, "categorical"), bf.PointEstimate(net, "categorical", prior="normal:1")
    assert method.predict(blobs[0], by="mean").draws == 1
    histories = [m.fit(blobs, epochs=3, validation=blobs, progress=False) for m in (method, point)]
    assert histories[0]["validation_nll"] == histories[1]["validation_nll"]
    assert torch.equal(method.mean_weights, point.mean_weights)
    assert method.predict(blobs[0], draws=7).draws == 7
    with pytest.raises(ValueError, match="laplace has not been fitted"):
        LaplaceApproximation(net, "categorical").log_marginal_likelihood()


# Trained networks, and outputs of more than two dimensions.


def test_no_epochs_keep_the_trained_weights(blobs, tmp_path):
    torch.manual_seed(0)
    point = bf.PointEstimate(bf.networks.mlp(2, 3, units=5), "categorical")
    point.fit(blobs, epochs=60, learning_rate=0.05, progress=False)
    network = point.network.module(point.mean_weights)
    laplace = LaplaceApproximation(network, "categorical")
    history = laplace.fit(blobs, epochs=0, run=tmp_path / "run", validation=blobs)
    assert len(history) == 0
    assert torch.equal(laplace.mean_weights, point.mean_weights)
    assert torch.equal(laplace.std, LaplaceApproximation(network, "categorical").approximate(blobs).std)
    assert "no_better_than_constant" not in laplace.warnings
    assert laplace.checked.where == "validation data"
    loaded = bf.load(tmp_path / "run")
    assert torch.equal(loaded.predict(blobs[0]).outputs, laplace.predict(blobs[0]).outputs)
    assert loaded.checked == laplace.checked
    with pytest.raises(ValueError, match="start='fresh' discards them"):
        LaplaceApproximation(network, "categorical", start="fresh").fit(blobs, epochs=0)
    with pytest.raises(TypeError, match="no argument 'lr'"):
        laplace.fit(blobs, epochs=0, lr=0.1)


@pytest.mark.parametrize("class_dim", [-1, 1])
def test_token_outputs_have_the_curvature_of_their_jacobian(class_dim):
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 2)

        def forward(self, x):
            logits = self.two(self.one(x).tanh())
            return logits if class_dim == -1 else logits.transpose(1, 2)

    x, y, network = torch.randn(12, 5, 4), torch.randint(2, (12, 5)), Tagger()
    likelihood = bf.likelihoods.Categorical(class_dim=class_dim)
    fitted = {
        structure: LaplaceApproximation(network, likelihood, structure=structure).approximate((x, y))
        for structure in ("diagonal", "kronecker", "full")
    }
    exact = fitted["full"].curvature.matrix
    torch.testing.assert_close(fitted["diagonal"].curvature.values.double(), exact.diagonal(), rtol=1e-4, atol=1e-6)
    # A token's logits depend on its position alone, so for the last bias the Kronecker factor is exact too.
    (bias,) = (place for place in fitted["full"].network.places if place.name == "two.bias")
    found = fitted["kronecker"].curvature
    vectors = found.output_vectors_1
    g = vectors @ found.output_values_1.diag() @ vectors.mT
    torch.testing.assert_close(g.double(), exact[bias.start : bias.stop, bias.start : bias.stop], rtol=1e-4, atol=1e-6)
    for method in fitted.values():
        assert float(method.predict(x, draws=50).epistemic.min()) > 0


# What is refused.


class Shared(nn.Module):
    """One layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(self.layer(x).tanh())


def fit_shared(structure):
    data = (torch.randn(8, 2), torch.arange(8) % 2)
    return LaplaceApproximation(Shared(), "categorical", structure=structure).fit(data, epochs=1, progress=False)


def test_a_layer_used_twice_is_refused_by_kronecker_before_training_and_known_to_the_others(monkeypatch):
    monkeypatch.setattr(LaplaceApproximation, "objective", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises(ValueError, match=r"does not support a layer that is used more than once.*'layer'.*diagonal"):
        fit_shared("kronecker")
    monkeypatch.undo()
    fit_shared("diagonal")
    fit_shared("full")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"structure": "kronecer"}, "unknown structure 'kronecer'; did you mean 'kronecker'"),
        ({"predictive": "linear"}, "did you mean 'linearised'"),
        ({"subset": "last"}, "did you mean 'last_layer'"),
        ({"prior_precision": "evidence"}, "unknown prior_precision 'evidence'"),
        ({"subset": "last_layer", "bayesian": ["0"]}, "name different weights"),
        ({"bayesian": "none"}, "no random weights.*use bayesian='all'"),
        ({"prior": "laplace:1"}, "laplace needs Gaussian priors, got laplace:1"),
        ({"per_layer": True, "prior_precision": "fixed"}, 'need prior_precision="marginal_likelihood"'),
        ({"rounds": 0}, "rounds must be an integer of at least 1"),
        ({"likelihood": "gaussian-logits"}, "got GaussianLogits"),
        ({"likelihood": "gaussian:heteroscedastic"}, "noise known or learned"),
        ({"prior": {"*.weight": "normal:1", "*": "normal:2"}}, "one prior scale per layer, '0' has 1 and 2"),
        ({"network": nn.Sequential(nn.Conv1d(1, 1, 1))}, r"not Conv1d \(layer '0'\): use structure=\"diagonal\""),
        ({"network": nn.Sequential(nn.Conv2d(2, 2, 1, groups=2))}, r"not Conv2d with groups \(layer '0'\)"),
        ({"network": nn.Linear(2_000_000, 1, device="cpu"), "structure": "full"}, "needs 96,000,096,000,024 bytes"),
        ({"network": nn.Linear(30_000, 1)}, r"Kronecker factors need 14,400,960,032 bytes .* layer ''"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line_before_any_work(given, message):
    settings = {"network": mlp(), "likelihood": "categorical", **given}
    with pytest.raises(ValueError, match=message) as refusal:
        LaplaceApproximation(settings.pop("network"), settings.pop("likelihood"), **settings)
    assert "\n" not in str(refusal.value)


def test_too_many_outputs_are_refused_before_training():
    net = nn.Sequential(nn.Linear(2, 2001))
    with pytest.raises(ValueError, match="at most 2,000 per example, got 2,001"):
        LaplaceApproximation(net, "gaussian").fit((torch.randn(4, 2), torch.randn(4, 2001)), progress=False)


def test_summary_names_the_structure_and_what_is_approximate(blobs):
    method = LaplaceApproximation(bf.networks.mlp(2, 3, units=5), "categorical", subset="last_layer")
    method.fit(blobs, epochs=1, progress=False)
    text = str(method.summary(blobs[0]))
    assert "laplace (kronecker)" in text
    assert "(18 random)" in text
    assert "no correlation between layers" in text
    assert kronecker_module.Kronecker.name in text
