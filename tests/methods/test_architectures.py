"""Every kind of network through every method: real numbers out, the right ones, with buffers kept as PyTorch keeps them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesify as bf
from bayesify.training.users_data import as_examples

BATCH, CLASSES = 12, 3


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class AllSteps(nn.Module):
    def __init__(self, layer, width, *, seq_first=False):
        super().__init__()
        self.layer, self.head, self.seq_first = layer, nn.Linear(width, CLASSES), seq_first

    def forward(self, x):
        y = self.layer(x.transpose(0, 1) if self.seq_first else x)
        y = y[0] if isinstance(y, tuple) else y
        return self.head((y.transpose(0, 1) if self.seq_first else y).sum(1))


class Attentive(nn.Module):
    def __init__(self, *, batch_first):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=batch_first)
        self.norm, self.head, self.batch_first = nn.LayerNorm(4), nn.Linear(4, CLASSES), batch_first

    def forward(self, x):
        y = x if self.batch_first else x.transpose(0, 1)
        y = self.norm(y + self.attention(y, y, y)[0])
        return self.head(y.mean(1 if self.batch_first else 0))


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.fc, self.drop = nn.Embedding(9, 4), nn.Linear(6, CLASSES), nn.Dropout(0.2)

    def forward(self, *, tokens, numbers):
        return {"logits": self.fc(self.drop(torch.cat((self.table(tokens).mean(1), numbers), -1))), "aux": numbers}


class OneDict(ByKeyword):
    def forward(self, batch):
        return tuple(super().forward(tokens=batch["tokens"], numbers=batch["numbers"]).values())


class Volume(nn.Module):
    """Down and up again in one, two or three dimensions."""

    def __init__(self, dims):
        super().__init__()
        kinds = [(nn.Conv1d, nn.ConvTranspose1d), (nn.Conv2d, nn.ConvTranspose2d), (nn.Conv3d, nn.ConvTranspose3d)]
        down, up = kinds[dims - 1]
        self.down, self.up = down(2, 4, 3, stride=2, padding=1), up(4, CLASSES, 3, stride=2, padding=1)

    def forward(self, x):
        return self.up(torch.tanh(self.down(x))).flatten(2).mean(2)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(5, 4), nn.Linear(5, 4)
        self.decode.weight = self.encode.weight
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.decode(torch.tanh(self.encode(x)) @ self.encode.weight)))


class Root(nn.Module):
    """Parameters straight on the module, a constant buffer, a module used twice, and a single number."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(5, 5))
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.arange(5.0))
        self.register_buffer("unsaved", torch.ones(5), persistent=False)
        self.again, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x):
        x = torch.tanh((x - self.shift * 0.1) @ self.weight)
        x = F.dropout(self.again(torch.tanh(self.again(x * self.unsaved))), 0.2, self.training)
        return self.head(x) / self.temperature


def frozen_body():
    module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, CLASSES))
    module[0].requires_grad_(requires_grad=False)
    return module


class MixedPrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 16).to(torch.bfloat16), nn.Linear(16, CLASSES)
        self.scale = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, x):
        return self.head(torch.tanh(self.body(x.to(torch.bfloat16))).float()) * self.scale.float()


sequence, tokens = normal(BATCH, 6, 4), torch.randint(0, 9, (BATCH, 5), generator=torch.Generator().manual_seed(1))
table, both = normal(BATCH, 5), {"tokens": tokens, "numbers": normal(BATCH, 2)}
encoder = {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.2}
ARCHITECTURES = {
    "lstm": (lambda: AllSteps(nn.LSTM(4, 5, 2, dropout=0.2, batch_first=True), 5), sequence, None),
    "lstm, sequence first": (lambda: AllSteps(nn.LSTM(4, 5), 5, seq_first=True), sequence, None),
    "gru": (lambda: AllSteps(nn.GRU(4, 5, bidirectional=True, batch_first=True), 10), sequence, None),
    "attention": (lambda: Attentive(batch_first=True), sequence, None),
    "attention, sequence first": (lambda: Attentive(batch_first=False), sequence, None),
    "encoder layer": (lambda: AllSteps(nn.TransformerEncoderLayer(**encoder, batch_first=True), 4), sequence, None),
    "encoder layer, sequence first": (
        lambda: AllSteps(nn.TransformerEncoderLayer(**encoder), 4, seq_first=True),
        sequence,
        None,
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, CLASSES)),
        table,
        None,
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, CLASSES)),
        table,
        None,
    ),
    "keywords": (ByKeyword, both, "logits"),
    "one dict": (OneDict, both, 0),
    "pair": (lambda: nn.Bilinear(5, 2, CLASSES), (table, both["numbers"]), None),
    "embedding": (lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, CLASSES)), tokens, None),
    "sparse embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(20, CLASSES)),
        tokens,
        None,
    ),
    "embedding with a largest norm": (
        lambda: nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.Flatten(), nn.Linear(20, CLASSES)),
        tokens,
        None,
    ),
    "embedding bag": (lambda: nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, CLASSES)), tokens, None),
    "volume 1": (lambda: Volume(1), normal(BATCH, 2, 7), None),
    "volume 2": (lambda: Volume(2), normal(BATCH, 2, 7, 6), None),
    "volume 3": (lambda: Volume(3), normal(BATCH, 2, 5, 4, 3), None),
    "tied": (Tied, table, None),
    "root": (Root, table, None),
    "frozen": (frozen_body, table, None),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 8)), nn.Tanh(), nn.Linear(8, CLASSES)),
        table,
        None,
    ),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 8)), nn.Linear(8, CLASSES)),
        table,
        None,
    ),
    "half": (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)).half(), table, None),
    "bfloat16": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES)).bfloat16(),
        table,
        None,
    ),
    "double": (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double(), table, None),
    "mixed": (MixedPrecision, table, None),
}
METHODS = {
    "point": lambda net, output: bf.PointEstimate(net, "categorical", output=output),
    "ensemble": lambda net, output: bf.Ensemble(net, "categorical", members=2, output=output),
    "dropout": lambda net, output: bf.MCDropout(net, "categorical", p=0.3, output=output),
    "variational": lambda net, output: bf.Variational(net, "categorical", output=output, rho=-2.0),
    "local": lambda net, output: bf.Variational(net, "categorical", output=output, rho=-2.0, estimator="local"),
    "flipout": lambda net, output: bf.Variational(net, "categorical", output=output, rho=-2.0, estimator="flipout"),
}


def rows(x, index):
    if isinstance(x, dict):
        return {name: part[index] for name, part in x.items()}
    return tuple(part[index] for part in x) if isinstance(x, tuple) else x[index]


def call(module, x):
    if isinstance(x, dict):
        return module(x)[0] if isinstance(module, OneDict) else module(**x)["logits"]
    x = x if isinstance(x, tuple) else (x,)
    dtype = next(module.parameters()).dtype if not isinstance(module, MixedPrecision) else torch.float32
    return module(*(part.to(dtype) if part.is_floating_point() else part for part in x))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", METHODS)
def test_every_network_trains_and_answers_by_every_method(architecture, kind):
    torch.manual_seed(0)
    make, x, output = ARCHITECTURES[architecture]
    module, y = make(), torch.arange(BATCH) % CLASSES
    if kind == "dropout" and architecture == "pair":
        pytest.skip("one layer: there is nothing to put dropout before")
    before = copy.deepcopy(module.state_dict())
    method = METHODS[kind](module, output)
    start = method.weights([0], 0)[0].clone()
    draws_per_step = 2 if method.draws_per_step else 1
    history = method.fit((x, y), epochs=2, batch_size=8, draws=draws_per_step, learning_rate=0.05, progress=False)
    assert all(torch.isfinite(torch.tensor(history["loss"])))
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    moved = (method.weights([0], 0)[0] - start).abs()
    for place in method.network.places:
        # Every trained tensor has a gradient; a few of its entries (rows of an embedding) may not.
        assert moved[place.start : place.stop].max() > 1e-4, place.name
    # Every draw is the user's own module, in evaluation, at the drawn weights and with the statistics that were kept.
    draws = method.draw(x, draws=4, seed=1)
    tolerance = 0.02 if architecture in {"half", "bfloat16", "mixed"} else 1e-5
    if kind != "dropout":
        network, weights = method.network, method.weights(range(draws.shape[0]), 1)
        for draw, theta in enumerate(weights):
            single = network.module(theta)
            if kind == "ensemble":
                kept = method.draw_buffers([draw]) or {}
                for name, buffer in single.named_buffers():
                    buffer.copy_(kept[name][0])
            with torch.no_grad():
                expected = call(single.eval(), x)
            torch.testing.assert_close(draws[draw], expected.to(draws.dtype), atol=tolerance, rtol=tolerance)
    if kind != "point":
        assert draws[0].sub(draws[1]).abs().max() > 1e-4
    # An input's answer is the same alone and in any batch.
    small = method.predict(x, draws=4, seed=1, batch_size=5).outputs
    torch.testing.assert_close(small, draws, atol=tolerance, rtol=tolerance)
    alone = method.draw(rows(x, slice(3, 4)), draws=4, seed=1)
    torch.testing.assert_close(alone[:, 0], draws[:, 3], atol=tolerance, rtol=tolerance)
    assert method.summary(x).facts["tier for draws"]


def batch_norm_network():
    torch.manual_seed(3)
    # A bias before the normalisation would have rounding errors for a gradient, which Adam makes large.
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, bias=False),
        nn.BatchNorm2d(4, momentum=None),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def perceptron():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def recurrent():
    torch.manual_seed(3)
    return AllSteps(nn.LSTM(4, 5, batch_first=True), 5)


images, labels = normal(30, 1, 8, 8), torch.arange(30) % CLASSES


def plain_training(module, x, y, *, epochs=3, batch_size=8, seed=0, member=0, members=1):
    """A loop as anyone would write it, on the batches that the library takes."""
    examples = as_examples((x, y), bf.likelihoods.Categorical(), torch.float32)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    module.train()
    for epoch in range(epochs):
        for batches in examples.batches(batch_size, seed, epoch, members):
            inputs, targets = batches[member]
            optimizer.zero_grad()
            F.cross_entropy(module(inputs), targets).backward()
            optimizer.step()
    return module


@pytest.mark.parametrize(
    "make, x", [(perceptron, normal(30, 5)), (batch_norm_network, images), (recurrent, normal(30, 6, 4))]
)
def test_a_point_estimate_is_plain_training(make, x):
    module = make()
    point = bf.PointEstimate(module, "categorical")
    point.fit((x, labels), epochs=3, batch_size=8, learning_rate=0.01, progress=False)
    plain = plain_training(copy.deepcopy(module), x, labels)
    ours = point.network.module(point.theta).state_dict()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(ours[name], tensor, atol=2e-5, rtol=2e-4)
    with torch.no_grad():
        torch.testing.assert_close(point.draw(x)[0], plain.eval()(x), atol=1e-4, rtol=1e-3)
    moved = [ours[name].sub(tensor).abs().max() for name, tensor in module.named_parameters()]
    assert min(moved) > 0.01


def test_each_member_of_an_ensemble_is_plain_training_with_statistics_of_its_own():
    module = batch_norm_network()
    ensemble = bf.Ensemble(module, "categorical", members=3, start="given")
    ensemble.fit((images, labels), epochs=3, batch_size=8, learning_rate=0.01, progress=False)
    draws = ensemble.draw(images)
    for member in range(3):
        plain = plain_training(copy.deepcopy(module), images, labels, member=member, members=3)
        kept = ensemble.draw_buffers([member])
        for name, buffer in plain.named_buffers():
            torch.testing.assert_close(kept[name][0], buffer, atol=1e-4, rtol=1e-3)
        with torch.no_grad():
            torch.testing.assert_close(draws[member], plain.eval()(images), atol=1e-3, rtol=1e-2)
    means = [ensemble.draw_buffers([member])["1.running_mean"][0] for member in range(3)]
    assert not torch.allclose(means[0], means[1], atol=1e-4)


def test_running_statistics_move_once_a_step_to_the_mean_over_draws():
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    method = bf.Variational(module, "categorical", rho=-1.0)
    x, y = normal(20, 5), torch.arange(20) % CLASSES
    objective = method.objective([(x, y)], step=0, share=1.0, draws=3)
    theta = method._posterior(method.mu, method.rho, method._noise(method._keys(0, 3)))[0].detach()
    weights = method.network.unflatten(theta)
    hidden = x @ weights["0.weight"].mT + weights["0.bias"].unsqueeze(1)
    assert method.network.kept()["1.num_batches_tracked"] == 0
    method.absorb(objective)
    kept = method.network.kept()
    torch.testing.assert_close(kept["1.running_mean"], 0.1 * hidden.mean(1).mean(0))
    torch.testing.assert_close(kept["1.running_var"], 0.9 + 0.1 * hidden.var(1).mean(0))
    assert kept["1.num_batches_tracked"] == 1
    assert torch.equal(module[1].running_mean, torch.zeros(4))


@pytest.mark.parametrize("kind", METHODS)
def test_prediction_uses_the_statistics_and_never_changes_them(kind):
    torch.manual_seed(0)
    module = ARCHITECTURES["batch norm"][0]()
    method = METHODS[kind](module, None)
    method.fit((table, torch.arange(BATCH) % CLASSES), epochs=2, batch_size=6, progress=False)
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    far = method.predict(table + 100, draws=3).outputs
    method.predict(table, draws=3, by="draws")
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.state_dict().items())
    # Batch statistics would have taken the shift away again.
    assert far.sub(method.predict(table, draws=3).outputs).abs().max() > 1
    counted = next(
        tensor for name, tensor in before.items() if name.endswith("num_batches_tracked") and tensor.max() > 0
    )
    assert torch.all(counted == 4)


def test_old_style_weight_norm_by_hooks_works():
    torch.manual_seed(0)
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(5, 4))
    module = nn.Sequential(layer, nn.Tanh(), nn.Linear(4, CLASSES))
    method = bf.Variational(module, "categorical", rho=-2.0)
    method.fit((table, torch.arange(BATCH) % CLASSES), epochs=1, progress=False)
    tensors = method.network.unflatten(method.weights(range(2), 0))
    draws = method.draw(table, draws=2)
    for draw in range(2):
        g, v = tensors["0.weight_g"][draw], tensors["0.weight_v"][draw]
        hidden = torch.tanh(F.linear(table, g * v / v.norm(dim=1, keepdim=True), tensors["0.bias"][draw]))
        expected = F.linear(hidden, tensors["2.weight"][draw], tensors["2.bias"][draw])
        torch.testing.assert_close(draws[draw], expected)
    copy.deepcopy(method)


class Pooled(nn.Module):
    """Noise of the network's own, in training alone."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.fc(F.rrelu(x, training=self.training))


def test_a_network_with_random_numbers_of_its_own_repeats_and_leaves_the_generator():
    torch.manual_seed(0)
    module, y, state = Pooled(), torch.arange(BATCH) % CLASSES, None
    state = torch.get_rng_state()
    losses = []
    for _ in range(2):
        method = bf.Variational(module, "categorical")
        losses.append(method.fit((table, y), epochs=3, progress=False)["nll"])
        torch.rand(5, generator=torch.Generator().manual_seed(1))
    assert losses[0] == losses[1]
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(
        method.predict(table, by="mean").outputs[0], method.network.module(method.mean_weights).eval()(table).detach()
    )


def test_half_precision_weights_keep_their_posterior_in_single():
    torch.manual_seed(0)
    method = bf.Variational(ARCHITECTURES["half"][0](), "categorical", rho=-9.0)
    assert method.mu.dtype == torch.float32
    assert method.weights([0], 0).dtype == torch.float32
    assert method.network.unflatten(method.mu)["0.weight"].dtype == torch.float16
    assert method.draw(table, draws=2).dtype == torch.float32


def test_mixed_precision_takes_inputs_in_the_precision_of_most_weights():
    network = bf.Network(MixedPrecision())
    assert network.dtype == torch.float64
    assert network.input_dtype == torch.bfloat16
    positional, _ = network.arguments((table.double(), tokens))
    assert positional[0][0].dtype == torch.bfloat16
    assert positional[0][1].dtype == torch.int64
