"""Dropout of every kind takes its masks from keyed noise, with the right mean and variance, one per draw in prediction."""

import math
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import dropout as imported_dropout
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bayesify as bf
from bayesify import noise
from bayesify.functional.dropout import KeyedDropout, NoDropout, Site
from bayesify.functional.network import Network

RATE = 0.3


class Applied(nn.Module):
    """`function(w * x, module)` with one trained weight w = 1."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.layer = function if isinstance(function, nn.Module) else None
        self.function = None if isinstance(function, nn.Module) else function

    def forward(self, x):
        x = x * self.weight
        return self.layer(x) if self.layer is not None else self.function(x, self)


def always_on(module, rate=None):
    network = Network(module)
    network.dropout_always = True
    network.dropout_rate = rate
    return network


def draws_of(network, x, draws=3, *, train=False, fixed=True, seed=0):
    keys = noise.keys(seed, noise.Stream.DROPOUT, draws=range(draws))
    theta = network.initial.expand(draws, -1)
    with torch.no_grad():
        return network.outputs(theta, x, train=train, dropout=keys, fixed_mask=fixed)[0]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


PLAIN = {
    "module": nn.Dropout(RATE),
    "in place": nn.Dropout(RATE, inplace=True),
    "attribute": lambda x, m: F.dropout(x, RATE, m.training),
    "imported": lambda x, m: imported_dropout(x, RATE, m.training),
    "imported, by keyword": lambda x, m: imported_dropout(x, p=RATE, training=m.training, inplace=True),
    "torch's own": lambda x, m: torch.dropout(x, RATE, m.training),
    "torch's own in place": lambda x, m: torch.dropout_(x, RATE, m.training),
    "always on": lambda x, m: F.dropout(x, RATE),
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("train", [True, False])
def test_plain_dropout_has_the_right_mean_and_variance(kind, train):
    network = always_on(Applied(PLAIN[kind]))
    y = draws_of(network, torch.ones(50, 40), draws=20, train=train, fixed=not train)
    values = y.unique()
    assert torch.allclose(values, torch.tensor([0.0, 1 / (1 - RATE)]))
    # In prediction a draw's mask is one row of 40 numbers shared by all inputs; in training each input has its own.
    independent = 20 * 40 * (50 if train else 1)
    z = (y.mean() - 1) / math.sqrt(RATE / (1 - RATE) / independent)
    assert abs(z) < 4
    assert torch.equal(y, y[:, :1].expand_as(y)) == (not train)
    assert not torch.equal(y[0], y[1])


@pytest.mark.parametrize(
    "layer, shape", [(nn.Dropout1d, (6, 40, 7)), (nn.Dropout2d, (6, 40, 3, 5)), (nn.Dropout3d, (6, 40, 2, 3, 2))]
)
def test_feature_dropout_drops_whole_channels(layer, shape):
    network = always_on(Applied(layer(RATE)))
    each = draws_of(network, torch.ones(shape), draws=20, train=True, fixed=False).flatten(3)
    assert torch.equal(each, each[..., :1].expand_as(each))
    channels = each[..., 0]
    z = (channels.mean() - 1) / math.sqrt(RATE / (1 - RATE) / channels.numel())
    assert abs(z) < 4
    assert not torch.equal(channels[:, 0], channels[:, 1])
    shared = draws_of(network, torch.ones(shape), draws=20).flatten(3)[..., 0]
    assert torch.equal(shared, shared[:, :1].expand_as(shared))


@pytest.mark.parametrize(
    "function, shape, whole",
    [(F.dropout1d, (40, 7), 1), (F.dropout3d, (40, 2, 3, 2), 1), (F.dropout2d, (40, 3, 5, 5), 2)],
)
def test_feature_dropout_reads_unbatched_inputs_as_torch_does(function, shape, whole):
    key = noise.keys(0, noise.Stream.DROPOUT)[0]
    with KeyedDropout(key):
        y = function(torch.ones(shape), RATE)
    channels = y.flatten(whole)
    assert torch.equal(channels, channels[..., :1].expand_as(channels))
    assert 0 < (channels[..., 0] == 0).float().mean() < 1


@pytest.mark.parametrize("layer, features", [(nn.AlphaDropout(0.2), False), (nn.FeatureAlphaDropout(0.2), True)])
def test_alpha_dropout_keeps_mean_and_variance(layer, features):
    x = normal(100, 200, 3)
    y = draws_of(always_on(Applied(layer)), x, draws=4, train=True, fixed=False)
    alpha, rate = -1.7580993408473766, 0.2
    scale = ((1 - rate) * (1 + rate * alpha**2)) ** -0.5
    dropped, kept = scale * (alpha - rate * alpha), scale * (x - rate * alpha)
    is_dropped = torch.isclose(y, torch.tensor(dropped), atol=1e-6)
    assert torch.all(is_dropped | torch.isclose(y, kept.expand_as(y), atol=1e-6))
    independent = y.numel() // (3 if features else 1)
    z = (is_dropped.float().mean() - rate) / math.sqrt(rate * (1 - rate) / independent)
    assert abs(z) < 4
    # Mean zero and variance one go in and come out; 60,000 inputs stand behind each number.
    assert abs(y.mean()) < 5 / math.sqrt(independent)
    assert abs(y.var() - 1) < 8 / math.sqrt(independent)
    assert torch.equal(is_dropped.all(-1), is_dropped.any(-1)) == features


def test_masks_are_the_pure_noise_of_their_site():
    module = Applied(lambda x, m: F.dropout(F.dropout(x, 0.5, m.training) + 1, 0.25, m.training))
    y = draws_of(always_on(module), torch.ones(2, 8), draws=2)
    for draw in range(2):
        key = noise.keys(0, noise.Stream.DROPOUT, draws=[draw])[0]
        first = noise.uniform(noise.fold(key, 0), 8) >= 0.5
        second = noise.uniform(noise.fold(key, 1), 8) >= 0.25
        torch.testing.assert_close(y[draw, 1], (first * 2.0 + 1) * second / 0.75)


def test_a_rate_that_is_given_replaces_those_found_but_not_zero():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.0))
    y = draws_of(always_on(module, rate=0.2), torch.ones(3, 4), draws=400)
    bare = module[0](torch.ones(3, 4)).detach()
    ratio = (y / bare)[:, 0]
    assert torch.all((ratio == 0) | torch.isclose(ratio, torch.tensor(1.25)))
    z = ((ratio == 0).float().mean() - 0.2) / math.sqrt(0.2 * 0.8 / 1600)
    assert abs(z) < 4


def test_dropout_at_rate_one_gives_zeros_and_an_impossible_rate_is_refused():
    key = noise.keys(0, noise.Stream.DROPOUT)[0]
    with KeyedDropout(key):
        assert torch.equal(F.dropout(torch.ones(3), 1.0), torch.zeros(3))
        assert torch.equal(F.alpha_dropout(torch.ones(3), 1.0, training=True), torch.zeros(3))
        with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
            F.dropout(torch.ones(3), 1.5)


class Recurrent(nn.Module):
    """A recurrent layer on `[batch, time, 3]`, by way of its own layout, with the last step as the output."""

    def __init__(self, kind, *, seq_first=False, packed=False, **settings):
        super().__init__()
        self.layer = kind(3, 4, num_layers=3, dropout=0.4, batch_first=not seq_first, **settings)
        self.seq_first, self.packed = seq_first, packed

    def forward(self, x, lengths=None):
        if self.seq_first:
            x = x.transpose(0, 1)
        if self.packed:
            x = pack_padded_sequence(x, lengths, batch_first=not self.seq_first, enforce_sorted=False)
        y, state = self.layer(x)
        if self.packed:
            y = pad_packed_sequence(y, batch_first=not self.seq_first)[0]
        state = state[0] if isinstance(state, tuple) else state
        if self.seq_first:
            y = y.transpose(0, 1)
        return torch.cat((y[:, 0], y.sum(1), state.transpose(0, 1).flatten(1)), -1)


RECURRENT = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn tanh": (nn.RNN, {}),
    "rnn relu": (nn.RNN, {"nonlinearity": "relu"}),
    "bidirectional lstm": (nn.LSTM, {"bidirectional": True}),
    "bidirectional gru": (nn.GRU, {"bidirectional": True}),
    "projected lstm": (nn.LSTM, {"proj_size": 2}),
    "projected bidirectional lstm": (nn.LSTM, {"proj_size": 2, "bidirectional": True}),
    "without biases": (nn.LSTM, {"bias": False}),
}


@pytest.mark.parametrize("seq_first", [False, True])
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_dropout_is_between_layers_and_one_mask_per_draw(kind, seq_first):
    torch.manual_seed(0)
    layer, settings = RECURRENT[kind]
    module = Recurrent(layer, seq_first=seq_first, **settings)
    x = normal(5, 6, 3)
    y = draws_of(always_on(module), x)
    assert y[0].sub(y[1]).abs().max() > 1e-3
    alone = torch.cat([draws_of(always_on(module), x[i : i + 1]) for i in range(5)], 1)
    torch.testing.assert_close(alone, y)
    # With every entry kept and no scaling the layers taken one by one are the stack.
    with torch.no_grad():
        module.eval()
        whole = module(x)
        key = noise.keys(0, noise.Stream.DROPOUT)[0]
        with KeyedDropout(key, rate=1e-12, always=True):
            torch.testing.assert_close(module(x), whole)


def test_lstm_dropout_equals_single_layers_with_the_mask_by_hand():
    torch.manual_seed(1)
    stack = nn.LSTM(3, 4, num_layers=2, dropout=0.4, batch_first=True)
    lower, upper = nn.LSTM(3, 4, batch_first=True), nn.LSTM(4, 4, batch_first=True)
    lower.load_state_dict({k: v for k, v in stack.state_dict().items() if "l0" in k})
    upper.load_state_dict({k.replace("l1", "l0"): v for k, v in stack.state_dict().items() if "l1" in k})
    x = normal(2, 5, 3)
    key = noise.keys(7, noise.Stream.DROPOUT)[0]
    with torch.no_grad():
        with KeyedDropout(key):
            ours = stack(x)[0]
        mask = (noise.uniform(noise.fold(key, 0), 2 * 5 * 4).view(2, 5, 4) >= 0.4) / 0.6
        torch.testing.assert_close(ours, upper(lower(x)[0] * mask)[0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("seq_first", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_packed_sequences_share_the_mask_step_by_step(kind, seq_first, both):
    torch.manual_seed(0)
    module = Recurrent(kind, seq_first=seq_first, packed=True, bidirectional=both)
    x, lengths = normal(4, 6, 3), torch.tensor([6, 2, 5, 3])
    network = always_on(module)
    y = draws_of(network, (x, lengths))
    assert y[0].sub(y[1]).abs().max() > 1e-3
    for i in range(4):
        n = int(lengths[i])
        alone = draws_of(network, (x[i : i + 1, :n], lengths[i : i + 1]))
        torch.testing.assert_close(alone[:, 0], y[:, i])


class Attention(nn.Module):
    def __init__(self, *, batch_first, weights):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=batch_first)
        self.batch_first, self.weights = batch_first, weights

    def forward(self, x):
        x = x if self.batch_first else x.transpose(0, 1)
        y = self.attention(x, x, x, need_weights=self.weights)[0]
        return y if self.batch_first else y.transpose(0, 1)


class Encoder(nn.Module):
    def __init__(self, *, batch_first, norm_first=False, layers=1):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.4, batch_first=batch_first, norm_first=norm_first)
        self.encoder = layer if layers == 1 else nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.batch_first = batch_first

    def forward(self, x):
        y = self.encoder(x if self.batch_first else x.transpose(0, 1))
        return y if self.batch_first else y.transpose(0, 1)


class OwnAttention(nn.Module):
    """Attention as people write it: the rate is zero unless the module is in training."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4 if self.training else 0.0)
        if self.training:
            y = F.dropout(y, 0.4)
        return y


ATTENTION = {
    "attention": lambda: Attention(batch_first=True, weights=False),
    "attention with weights": lambda: Attention(batch_first=True, weights=True),
    "attention, sequence first": lambda: Attention(batch_first=False, weights=False),
    "attention with weights, sequence first": lambda: Attention(batch_first=False, weights=True),
    "encoder layer": lambda: Encoder(batch_first=True),
    "encoder layer, norm first": lambda: Encoder(batch_first=True, norm_first=True),
    "encoder layer, sequence first": lambda: Encoder(batch_first=False),
    "encoder": lambda: Encoder(batch_first=True, layers=2),
    "own attention": OwnAttention,
}


@pytest.mark.parametrize("kind", ATTENTION)
def test_attention_keeps_its_dropout_in_prediction_with_one_mask_per_draw(kind):
    torch.manual_seed(0)
    module = ATTENTION[kind]()
    network, x = always_on(module), normal(3, 5, 8)
    y = draws_of(network, x, draws=4)
    assert min(y[i].sub(y[j]).abs().max() for i in range(4) for j in range(i)) > 1e-3
    # An input alone gets the same output, also by the other tier.
    for i in range(3):
        torch.testing.assert_close(draws_of(network, x[i : i + 1], draws=4)[:, 0], y[:, i])
        torch.testing.assert_close(draws_of(network, x[i : i + 1], draws=1)[0, 0], y[0, i])
    # Without a key there is no dropout and the output is that of the module.
    with torch.no_grad():
        plain = network.outputs(network.initial.expand(2, -1), x)[0]
        torch.testing.assert_close(plain[0], module.eval()(x))
        torch.testing.assert_close(plain[0], plain[1])


def test_attention_by_hand_equals_torch_where_nothing_is_dropped():
    q, k, v = normal(2, 4, 5, 8), normal(2, 4, 6, 8, seed=1), normal(2, 4, 6, 3, seed=2)
    blind = normal(2, 1, 5, 6, seed=3) > 0
    blind[0, 0, 2] = False
    cases = [
        {},
        {"is_causal": True},
        {"attn_mask": blind},
        {"attn_mask": normal(5, 6, seed=4), "scale": 0.3},
    ]
    key = noise.keys(0, noise.Stream.DROPOUT)[0]
    for case in cases:
        with KeyedDropout(key, rate=1e-12):
            ours = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, **case)
        torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, **case), atol=1e-5, rtol=1e-5)
    with KeyedDropout(key, rate=1e-12):
        grouped = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], dropout_p=0.5, enable_gqa=True)
    torch.testing.assert_close(grouped, F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True))


def test_attention_dropout_acts_on_the_weights():
    # With values that are one everywhere the output is the sum of the kept weights: mean one, variance known.
    q, k, v = normal(500, 1, 8), normal(500, 20, 8, seed=1), torch.ones(500, 20, 1)
    weights = torch.softmax(q @ k.mT / math.sqrt(8), -1)
    key = noise.keys(0, noise.Stream.DROPOUT)[0]
    with KeyedDropout(key):
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=RATE).flatten()
    variance = RATE / (1 - RATE) * weights.square().sum()
    assert abs((y.sum() - 500) / variance.sqrt()) < 4
    assert 0.8 < (y - 1).square().sum() / variance < 1.25


class Merged(nn.Module):
    """Dropout on activations whose batch is merged with time, either way around."""

    def __init__(self, *, time_slowest):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.drop = nn.Dropout(0.5)
        self.time_slowest = time_slowest

    def forward(self, x):
        batch, time, _ = x.shape
        x = self.fc(x)
        if self.time_slowest:
            return self.drop(x.transpose(0, 1).reshape(-1, 4)).view(time, batch, 4).transpose(0, 1)
        return self.drop(x.reshape(-1, 4)).view(batch, time, 4)


@pytest.mark.parametrize("time_slowest", [False, True])
def test_a_mask_is_shared_where_the_batch_is_merged_with_time(time_slowest):
    torch.manual_seed(0)
    network, x = always_on(Merged(time_slowest=time_slowest)), normal(4, 5, 3)
    y = draws_of(network, x)
    for i in range(4):
        torch.testing.assert_close(draws_of(network, x[i : i + 1])[:, 0], y[:, i])
    dropped = y == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[:, :, 0], dropped[:, :, 1])
    # A longer sequence than the traced one still shares.
    longer = draws_of(network, normal(4, 9, 3)) == 0
    assert torch.equal(longer, longer[:, :1].expand_as(longer))


class CellByCell(nn.Module):
    """A loop over time with dropout at every step: as many sites as steps."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        for step in x.unbind(1):
            h = F.dropout(self.cell(step, h), 0.4, self.training)
        return h


def test_more_steps_than_were_traced_still_share_their_masks():
    torch.manual_seed(0)
    network = always_on(CellByCell())
    draws_of(network, normal(3, 2, 3))
    x = normal(4, 6, 3)
    y = draws_of(network, x)
    for i in range(4):
        torch.testing.assert_close(draws_of(network, x[i : i + 1])[:, 0], y[:, i])


def test_dropped_weights_are_shared_by_all_inputs():
    module = Applied(lambda x, m: F.linear(x, F.dropout(torch.eye(6), 0.5, m.training)))
    y = draws_of(always_on(module), torch.ones(5, 6))
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert y.unique().tolist() == [0.0, 2.0]


def test_vmap_and_loop_draw_the_same_masks():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 2))
    network, x = always_on(module), normal(5, 4)
    keys = noise.keys(0, noise.Stream.DROPOUT, draws=range(4))
    theta = network.initial.expand(4, -1)
    for train, fixed in ((True, False), (False, True)):
        assert network.tier(4, x, train=train, stochastic=True)[0] == "vmap"
        together = network.outputs(theta, x, train=train, dropout=keys, fixed_mask=fixed)[0]
        for draw in range(4):
            one = network.outputs(theta[:1], x, train=train, dropout=keys[draw : draw + 1], fixed_mask=fixed)[0]
            torch.testing.assert_close(one[0], together[draw])


def test_only_dropout_is_switched_on():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 1))
    module[1].running_mean.copy_(normal(6))
    module[1].running_var.copy_(normal(6, seed=1).exp())
    network, x = always_on(module), normal(7, 3)
    y = draws_of(network, x, draws=5)
    module.eval()
    with torch.no_grad():
        before = module[1](module[0](x))
        for draw in range(5):
            key = noise.keys(0, noise.Stream.DROPOUT, draws=[draw])[0]
            mask = (noise.uniform(noise.fold(key, 0), 6) >= 0.5) / 0.5
            torch.testing.assert_close(y[draw], module[3](before * mask))


def test_own_attention_in_prediction_keeps_batch_normalisation_in_evaluation():
    torch.manual_seed(0)
    module = OwnAttention()
    module.norm.running_mean.copy_(normal(5))
    network, x = always_on(module), normal(4, 5, 8)
    trace = network.traced(x)
    assert trace.switched == [""]
    whole, alone = draws_of(network, x), draws_of(network, x[:1])
    torch.testing.assert_close(alone[:, 0], whole[:, 0])
    assert torch.equal(network.kept()["norm.running_mean"], module.norm.running_mean)


def test_other_methods_predict_without_dropout():
    torch.manual_seed(0)
    x, y = normal(12, 3), torch.arange(12) % 2
    for module in (
        nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)),
        nn.Sequential(nn.Linear(3, 8), Applied(lambda x, m: F.dropout(x, 0.5)), nn.Linear(8, 2)),
    ):
        point = bf.PointEstimate(module, "categorical")
        point.fit((x, y), epochs=1, progress=False)
        by_hand = point.network.module(point.theta)
        with torch.no_grad(), NoDropout():
            expected = by_hand.eval()(x)
        torch.testing.assert_close(point.draw(x)[0], expected)


def test_training_dropout_changes_with_the_step_and_repeats_with_the_seed():
    torch.manual_seed(0)
    x, y = normal(8, 3), torch.arange(8) % 2
    module = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.Linear(50, 2))
    losses = []
    for _ in range(2):
        method = bf.PointEstimate(module, "categorical")
        losses.append([method.loss(x, y, 8, step).item() for step in range(3)])
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 3


def test_added_dropout_stands_before_every_weight_layer_but_the_first():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    method = bf.MCDropout(module, "categorical", p=0.25)
    x = normal(4, 3)
    y = method.draw(x, draws=3, seed=5)
    assert method.network.added_dropout == ["2", "4"]
    with torch.no_grad():
        for draw in range(3):
            key = noise.keys(5, noise.Stream.DROPOUT, draws=[draw])[0]
            masks = [(noise.uniform(noise.fold(key, site), 6) >= 0.25) / 0.75 for site in range(2)]
            hidden = module[2](torch.relu(module[0](x)) * masks[0])
            torch.testing.assert_close(y[draw], module[4](torch.relu(hidden) * masks[1]))
    assert not module[2]._forward_pre_hooks


def test_a_loop_of_ones_own_also_gets_its_dropout():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 30), nn.ReLU(), nn.Linear(30, 2))
    method = bf.MCDropout(module, "categorical", p=0.5)
    losses = [method.loss(normal(8, 3), torch.arange(8) % 2, 8, step).item() for step in range(3)]
    assert len(set(losses)) == 3
    assert method.network.added_dropout == ["2"]


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(in_features=4, out_features=2)
        self.embedding = nn.Embedding(10, 4)

    def forward(self, x):
        return self.head(input=self.embedding(x).mean(1))


def test_added_dropout_follows_the_order_of_the_pass_and_counts_embeddings():
    torch.manual_seed(0)
    method = bf.MCDropout(Tokens(), "categorical", p=0.5)
    y = method.draw(torch.arange(6).view(3, 2), draws=3)
    assert method.network.added_dropout == ["head"]
    assert y[0].sub(y[1]).abs().max() > 1e-3


class PackedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower, self.upper = nn.GRU(3, 4, batch_first=True), nn.GRU(4, 4, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.upper(self.lower(packed)[0])[0], batch_first=True)[0].sum(1)


def test_added_dropout_on_packed_sequences_is_shared_step_by_step():
    torch.manual_seed(0)
    method = bf.MCDropout(PackedTwice(), "gaussian:1", p=0.5)
    x, lengths = normal(3, 5, 3), torch.tensor([5, 2, 4])
    y = method.draw((x, lengths), draws=3)
    assert method.network.added_dropout == ["upper"]
    for i, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(method.draw((x[i : i + 1, :n], lengths[i : i + 1]), draws=3)[:, 0], y[:, i])
    assert y[0].sub(y[1]).abs().max() > 1e-3


def test_without_dropout_and_without_a_rate_there_is_one_clear_error():
    x, y = normal(6, 3), torch.arange(6) % 2
    with pytest.raises(ValueError, match="has no dropout: give p="):
        bf.MCDropout(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), "categorical").fit((x, y), progress=False)
    unused = nn.Sequential(nn.Linear(3, 2))
    unused.extra = nn.Dropout(0.5)
    unused.forward = unused[0].forward
    with pytest.raises(ValueError, match="no dropout that ran"):
        bf.MCDropout(unused, "categorical").fit((x, y), progress=False)
    with pytest.raises(ValueError, match="fewer than two weight layers"):
        bf.MCDropout(nn.Linear(3, 2), "categorical", p=0.5).fit((x, y), progress=False)


def test_added_dropout_survives_saving_and_loading(tmp_path):
    torch.manual_seed(0)
    x, y = normal(20, 3), torch.arange(20) % 2
    module = bf.networks.mlp(3, 2, units=8)
    method = bf.MCDropout(module, "categorical", p=0.5)
    method.fit((x, y), epochs=2, progress=False)
    assert method.settings() == {"p": 0.5, "added_dropout": ["3", "5"]}
    method.save(tmp_path / "run")
    loaded = bf.load(tmp_path / "run")
    assert loaded.network.added_dropout == method.network.added_dropout
    assert torch.equal(loaded.predict(x, draws=7, seed=3).outputs, method.predict(x, draws=7, seed=3).outputs)
    assert loaded.predict(x, draws=7).epistemic.max() > 1e-3


def test_torch_is_left_alone_after_an_exception_and_in_other_threads():
    functions = {name: getattr(F, name) for name in dir(F) if "dropout" in name or "attention" in name}
    fast_path = torch.backends.mha.get_fastpath_enabled()
    key = noise.keys(0, noise.Stream.DROPOUT)[0]
    elsewhere = []

    def half_way():
        with KeyedDropout(key, rate=0.999999):
            assert torch.equal(F.dropout(torch.ones(10)), torch.zeros(10))
            other = threading.Thread(target=lambda: elsewhere.append(F.dropout(torch.ones(10), 0.5, training=False)))
            other.start()
            other.join()
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half_way()
    assert torch.equal(elsewhere[0], torch.ones(10))
    assert functions == {name: getattr(F, name) for name in functions}
    assert torch.backends.mha.get_fastpath_enabled() == fast_path
    assert torch.equal(F.dropout(torch.ones(10), 0.5, training=False), torch.ones(10))


def test_dropout_is_keyed_also_inside_a_default_device():
    torch.manual_seed(0)
    network, x = always_on(Attention(batch_first=True, weights=True)), normal(2, 5, 8)
    expected, state = draws_of(network, x, draws=1), torch.get_rng_state()
    with torch.device("cpu"):
        torch.testing.assert_close(draws_of(network, x, draws=1), expected)
    assert torch.equal(state, torch.get_rng_state())


def test_a_site_beyond_the_traced_ones_resembles_the_last():
    key = noise.keys(0, noise.Stream.DROPOUT)[0]
    with KeyedDropout(key, [Site(0.5, batch_axis=1)], inputs=4):
        first, second = F.dropout(torch.ones(3, 4, 9)), F.dropout(torch.ones(3, 4, 9))
        flat = F.dropout(torch.ones(8))
    for y in (first, second):
        assert torch.equal(y, y[:, :1].expand_as(y))
    assert not torch.equal(first, second)
    assert torch.equal(flat, flat[:2].repeat(4))
