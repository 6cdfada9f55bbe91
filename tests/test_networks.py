"""Networks of ours: their weights counted by hand, their functions written out again, their specs sent through JSON."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from bayesify import networks

ACTIVATIONS = ["relu", "tanh", "gelu", "silu", "elu", "softplus"]
PRESETS = ["lenet", "study-c", "study-e"]


@pytest.mark.parametrize(
    ("network", "weights"),
    [
        (networks.mlp(784, 10), 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10),
        (networks.mlp(784, 10, units=1200), 2_395_210),
        (networks.mlp(13, 2, units=[5, 7, 3]), 13 * 5 + 5 + 5 * 7 + 7 + 7 * 3 + 3 + 3 * 2 + 2),
        (networks.mlp(6, 3, layers=0), 6 * 3 + 3),
        (networks.cnn((3, 32, 32), 9, "study-c"), 117_805),
        (networks.cnn((1, 28, 28), 10, "lenet"), 61_706),
        (networks.cnn((1, 28, 28), 10, "study-e"), 832 + 25_632 + 512 * 64 + 64 + 64 * 10 + 10),
    ],
)
def test_the_number_of_weights_is_the_one_counted_by_hand(network, weights):
    assert networks.count_weights(network) == weights


def test_shared_weights_are_counted_once():
    layer = nn.Linear(4, 4)
    assert networks.count_weights(nn.Sequential(layer, nn.ReLU(), layer)) == 4 * 4 + 4


def test_an_mlp_is_the_function_written_by_hand():
    network, x = networks.mlp(2 * 3, 4, units=[5, 7], activation="tanh"), _images(2, 3)
    first, second, last = _weights(network)
    hidden = torch.tanh(torch.tanh(x.reshape(8, 6) @ first[0].T + first[1]) @ second[0].T + second[1])
    torch.testing.assert_close(network(x), hidden @ last[0].T + last[1])


def test_study_c_is_the_function_written_by_hand():
    network, x = networks.cnn((3, 32, 32), 9, "study-c"), _images(3, 32, 32)
    a, b, c, d, e, f, g = _weights(network)
    h = F.max_pool2d(F.relu(F.conv2d(F.relu(F.conv2d(x, *a, padding="same")), *b, padding="same")), 2)
    h = F.max_pool2d(F.relu(F.conv2d(F.relu(F.conv2d(h, *c, padding="same")), *d, padding="same")), 2)
    h = F.relu(F.linear(F.relu(F.linear(h.flatten(1), *e)), *f))
    torch.testing.assert_close(network(x), F.linear(h, *g))


def test_study_e_is_the_function_written_by_hand():
    network, x = networks.cnn((1, 28, 28), 10, "study-e"), _images(1, 28, 28)
    a, b, c, d = _weights(network)
    h = F.max_pool2d(torch.tanh(F.conv2d(F.max_pool2d(torch.tanh(F.conv2d(x, *a)), 2), *b)), 2)
    torch.testing.assert_close(network(x), F.linear(torch.tanh(F.linear(h.flatten(1), *c)), *d))


def test_lenet_is_the_function_written_by_hand():
    network, x = networks.cnn((1, 28, 28), 10), _images(1, 28, 28)
    a, b, c, d, e = _weights(network)
    h = F.max_pool2d(F.relu(F.conv2d(F.max_pool2d(F.relu(F.conv2d(x, *a, padding=2)), 2), *b)), 2)
    h = F.relu(F.linear(F.relu(F.linear(h.flatten(1), *c)), *d))
    torch.testing.assert_close(network(x), F.linear(h, *e))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_the_function_of_its_name(name):
    x = torch.linspace(-30, 30, 601, dtype=torch.float64)
    tails = torch.special.log_ndtr(x).exp()
    formula = {
        "relu": torch.where(x > 0, x, 0 * x),
        "tanh": 1 - 2 / (torch.exp(2 * x) + 1),
        "gelu": x * tails,
        "silu": x / (1 + torch.exp(-x)),
        "elu": torch.where(x > 0, x, torch.expm1(x)),
        "softplus": torch.logaddexp(x, torch.zeros_like(x)),
    }[name]
    activation = networks.mlp(1, 1, layers=1, activation=name)[2]
    torch.testing.assert_close(activation(x), formula, rtol=0, atol=3e-9)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_cnn_takes_any_activation_and_keeps_its_own_otherwise(preset):
    own = "tanh" if preset == "study-e" else "relu"
    assert networks.cnn((1, 28, 28), 10, preset).spec["activation"] == own
    network = networks.cnn((1, 28, 28), 10, preset, activation="elu")
    assert any(isinstance(module, nn.ELU) for module in network)
    assert not any(isinstance(module, nn.ReLU | nn.Tanh) for module in network)


@pytest.mark.parametrize(
    "make",
    [
        lambda dropout: networks.mlp(784, 10, units=[30, 20, 10], dropout=dropout),
        *(lambda dropout, p=preset: networks.cnn((1, 28, 28), 10, p, dropout=dropout) for preset in PRESETS),
    ],
)
def test_dropout_stands_before_every_weight_layer_but_the_first(make):
    plain, dropped = list(make(0.0)), list(make(0.3))
    expected = []
    for module in plain:
        if isinstance(module, nn.Linear | nn.Conv2d) and any(isinstance(m, nn.Linear | nn.Conv2d) for m in expected):
            expected.append(nn.Dropout(0.3))
        expected.append(module)
    assert [repr(module) for module in dropped] == [repr(module) for module in expected]
    assert not any(isinstance(module, nn.Dropout) for module in plain)


def specs():
    activations, dropouts = st.sampled_from(ACTIVATIONS), st.sampled_from([0.0, 0.25, 0.5])
    mlps = st.fixed_dictionaries(
        {"type": st.just("mlp"), "inputs": st.integers(1, 9), "outputs": st.integers(1, 5)},
        optional={
            "units": st.one_of(st.integers(1, 9), st.lists(st.integers(1, 9), max_size=4)),
            "layers": st.integers(0, 3),
            "activation": activations,
            "dropout": dropouts,
        },
    )
    cnns = st.fixed_dictionaries(
        {
            "type": st.just("cnn"),
            "input_shape": st.tuples(st.integers(1, 3), st.integers(16, 33), st.integers(16, 33)),
            "outputs": st.integers(1, 5),
        },
        optional={"preset": st.sampled_from(PRESETS), "activation": activations, "dropout": dropouts},
    )
    return st.one_of(mlps, cnns)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(spec=specs())
def test_a_spec_that_went_through_json_rebuilds_the_same_function(spec):
    first = networks.build(spec)
    stored = json.loads(json.dumps(networks.spec_of(first)))
    second = networks.build(stored)
    assert stored == networks.spec_of(first) == networks.spec_of(second)
    assert repr(first) == repr(second)
    second.load_state_dict(first.state_dict())
    shape = spec.get("input_shape", (spec.get("inputs"),))
    x = torch.linspace(-1, 1, int(2 * np.prod(shape))).reshape(2, *shape)
    outputs = first.eval()(x)
    assert outputs.shape == (2, spec["outputs"])
    assert torch.equal(outputs, second.eval()(x))


def test_a_network_is_exactly_a_sequential_and_a_copy_keeps_its_spec():
    network = networks.cnn((1, 28, 28), 10)
    assert type(network) is nn.Sequential
    assert networks.spec_of(copy.deepcopy(network)) == network.spec
    assert networks.spec_of(nn.Sequential(nn.Linear(2, 2))) is None


def test_the_spec_does_not_follow_the_lists_it_was_made_from():
    units = [5, 7]
    network = networks.mlp(3, 2, units=units)
    units[0] = 9
    networks.spec_of(network)["units"][0] = 9
    assert network.spec["units"] == [5, 7]


def test_numpy_sizes_are_whole_numbers_and_stay_json():
    network = networks.mlp(np.int64(3), np.int32(2), units=np.array([4, 5]).tolist(), dropout=np.float32(0.5))
    assert json.loads(json.dumps(network.spec)) == network.spec


@pytest.mark.parametrize(("preset", "smallest"), [("lenet", 12), ("study-c", 4), ("study-e", 16)])
def test_the_smallest_image_works_and_one_below_is_refused_by_name(preset, smallest):
    x = torch.zeros(2, 1, smallest, smallest)
    assert networks.cnn((1, smallest, smallest), 3, preset)(x).shape == (2, 3)
    expected = rf"'{preset}' needs images of at least {smallest}x{smallest}, got {smallest}x{smallest - 1}"
    with pytest.raises(ValueError, match=expected):
        networks.cnn((1, smallest, smallest - 1), 3, preset)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: networks.mlp(0, 1), ValueError, "inputs must be at least 1, got 0"),
        (lambda: networks.mlp(1, -2), ValueError, "outputs must be at least 1, got -2"),
        (lambda: networks.mlp(1, 1, units=0), ValueError, "units must be at least 1, got 0"),
        (lambda: networks.mlp(1, 1, units=[3, 0]), ValueError, "units must be at least 1, got 0"),
        (lambda: networks.mlp(1, 1, units=2.5), TypeError, "units must be a whole number, got 2.5"),
        (lambda: networks.mlp(1, 1, units="400"), TypeError, "units must be a whole number, got '400'"),
        (lambda: networks.mlp(1, 1, units=True), TypeError, "units must be a whole number, got True"),
        (lambda: networks.mlp(1, 1, layers=-1), ValueError, "layers must be at least 0, got -1"),
        (
            lambda: networks.mlp(1, 1, dropout=1.0),
            ValueError,
            "dropout must be at least 0 and below 1, got 1.0",
        ),
        (lambda: networks.mlp(1, 1, dropout=float("nan")), ValueError, "dropout must be at least 0 .* got nan"),
        (
            lambda: networks.mlp(1, 1, dropout="0.1"),
            TypeError,
            "dropout must be a number of at least 0 .* got '0.1'",
        ),
        (
            lambda: networks.mlp(1, 1, activation="rellu"),
            ValueError,
            "unknown activation 'rellu'; did you mean 'relu'",
        ),
        (
            lambda: networks.mlp(1, 1, activation=[]),
            ValueError,
            r"unknown activation \[\]; known: relu, tanh",
        ),
        (
            lambda: networks.cnn((28, 28), 10),
            ValueError,
            r"input_shape must be \(channels, height, width\), got \(28, 28\)",
        ),
        (lambda: networks.cnn((0, 28, 28), 10), ValueError, "input_shape must be at least 1, got 0"),
        (lambda: networks.cnn((1, 28, 28), 0), ValueError, "outputs must be at least 1, got 0"),
        (
            lambda: networks.cnn((1, 28, 28), 10, "lenet5"),
            ValueError,
            "unknown preset 'lenet5'; did you mean 'lenet'",
        ),
        (
            lambda: networks.cnn((1, 28, 28), 10, "vgg"),
            ValueError,
            "unknown preset 'vgg'; known: lenet, study-c, study-e",
        ),
        (lambda: networks.cnn((1, 28, 28), 10, activation="tan"), ValueError, "did you mean 'tanh'"),
        (lambda: networks.build([]), TypeError, "a network spec must be a mapping such as .* got list"),
        (lambda: networks.build({}), ValueError, "a network spec needs a type: mlp or cnn"),
        (
            lambda: networks.build({"type": "mpl", "inputs": 1}),
            ValueError,
            "unknown network type 'mpl'; did you mean 'mlp'",
        ),
        (
            lambda: networks.build({"type": "mlp", "inputs": 1}),
            ValueError,
            "a mlp spec needs outputs, got only inputs, type",
        ),
        (
            lambda: networks.build({"type": "mlp", "inputs": 1, "outputs": 1, "unit": 3}),
            ValueError,
            "unknown setting of a mlp spec 'unit'; did you mean 'units'",
        ),
    ],
)
def test_a_mistake_gets_one_line_that_names_it(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def _images(*shape: int):
    return torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))


def _weights(network: nn.Sequential):
    return [(layer.weight, layer.bias) for layer in network if isinstance(layer, nn.Linear | nn.Conv2d)]


def test_a_network_that_standardises_its_inputs_is_the_plain_one_on_standardised_inputs():
    torch.manual_seed(0)
    scaled = networks.mlp(2, 1, units=[4], location=[10.0, -3.0], scale=[2.0, 0.5])
    plain = networks.mlp(2, 1, units=[4])
    plain.load_state_dict(dict(zip(plain.state_dict(), scaled.state_dict().values(), strict=True)))
    x = torch.randn(5, 2)
    torch.testing.assert_close(scaled(x * torch.tensor([2.0, 0.5]) + torch.tensor([10.0, -3.0])), plain(x))
    assert networks.build(scaled.spec).spec == scaled.spec
    assert networks.count_weights(scaled) == networks.count_weights(plain)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"location": [0.0, 0.0]}, "scale must have one number for each of 2 inputs, got none"),
        ({"location": [0.0], "scale": [1.0, 1.0]}, "location must have one number for each of 2 inputs, got 1"),
        ({"location": [0.0, 0.0], "scale": [1.0, 0.0]}, "scale must be finite numbers above 0"),
        ({"location": [0.0, float("nan")], "scale": [1.0, 1.0]}, "location must be finite"),
    ],
)
def test_a_location_and_scale_that_do_not_fit_are_refused(given, words):
    with pytest.raises(ValueError, match=words):
        networks.mlp(2, 1, units=[4], **given)
