"""The network as a function of its weights: never edited, the same by every tier, with every tensor in its place."""

import copy
import itertools
import pickle
import threading
import warnings
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import bayesify as bf
from bayesify import noise
from bayesify.functional.network import LOOP_FROM_WEIGHTS, Network


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def everything_about(module):
    """All that a user could notice: values, modes, hooks, attributes and what it computes."""
    parts = {}
    for name, part in module.named_modules():
        parts[name] = {
            "training": part.training,
            "hooks": [dict(part._forward_hooks), dict(part._forward_pre_hooks), dict(part._backward_hooks)],
            "attributes": sorted(vars(part)),
            "forward": part.forward.__func__,
        }
    tensors = {name: (id(t), t._version, t.clone()) for name, t in module.state_dict(keep_vars=True).items()}
    flags = {name: (p.requires_grad, p.grad is None) for name, p in module.named_parameters()}
    return parts, tensors, flags


def assert_same(before, after):
    assert before[0] == after[0]
    assert before[2] == after[2]
    for name, (identity, version, value) in before[1].items():
        assert after[1][name][:2] == (identity, version)
        assert torch.equal(after[1][name][2], value)


def a_bit_of_everything():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(8, 8), nn.Linear(8, 2)
    )
    module[4].weight.requires_grad_(requires_grad=False)
    module[1].eval()
    module[5].register_forward_hook(lambda m, inputs, output: output * 2)
    return module


METHODS = {
    "point": lambda net: bf.PointEstimate(net, "categorical"),
    "ensemble": lambda net: bf.Ensemble(net, "categorical", members=2),
    "dropout": lambda net: bf.MCDropout(net, "categorical"),
    "replaced dropout": lambda net: bf.MCDropout(net, "categorical", p=0.6),
    "variational": lambda net: bf.Variational(net, "categorical"),
    "local": lambda net: bf.Variational(net, "categorical", estimator="local"),
    "flipout": lambda net: bf.Variational(net, "categorical", estimator="flipout"),
}


@pytest.mark.parametrize("kind", METHODS)
def test_the_users_module_and_torchs_generator_are_never_touched(kind):
    module, x, y = a_bit_of_everything(), normal(24, 3), torch.arange(24) % 2
    before, state = everything_about(module), torch.get_rng_state()
    method = METHODS[kind](module)
    assert_same(before, everything_about(module))
    method.fit((x, y), epochs=2, batch_size=10, progress=False)
    method.predict(x, draws=3)
    method(x)
    method.loss(x, y, 24, 0).backward()
    method.summary(x)
    assert_same(before, everything_about(module))
    assert torch.equal(state, torch.get_rng_state())


class Failing(nn.Module):
    """Fails in the middle of its seventh pass."""

    passes = 0

    def __init__(self):
        super().__init__()
        self.body = a_bit_of_everything()

    def forward(self, x):
        x = self.body[:4](x)
        type(self).passes += 1
        if type(self).passes > 7:
            raise RuntimeError("in the middle")
        return self.body[4:](x)


@pytest.mark.parametrize("kind", METHODS)
def test_an_exception_in_the_middle_leaves_everything_as_it_was(kind):
    module, x, y = Failing(), normal(24, 3), torch.arange(24) % 2
    Failing.passes = 0
    before, state = everything_about(module), torch.get_rng_state()
    method = METHODS[kind](module)
    with pytest.raises(RuntimeError, match="in the middle"):
        method.fit((x, y), epochs=20, batch_size=4, progress=False)
    assert_same(before, everything_about(module))
    assert torch.equal(state, torch.get_rng_state())
    assert not any(part._forward_hooks for name, part in method.network.template.named_modules() if name == "body.0")
    for part in method.network.template.modules():
        assert "forward" not in vars(part)
    Failing.passes = -1000
    assert torch.isfinite(method.predict(x, draws=2).probs).all()


# Tiers.


class Skip(nn.Module):
    """Not a chain, but nothing that vmap could not do."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(x + torch.tanh(self.first(x)))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.head = kind(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.layer(x.unsqueeze(1).expand(-1, 3, -1))[0][:, -1])


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        y = self.fc(x)
        return y if y.sum() > 0 else 2 * y


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        y = x.new_zeros(len(x), 2)
        y += self.fc(x)
        return y


TIERS = {
    "chain": (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), "batched", "plain chain"),
    "skip": (Skip(), "vmap", "vmap over functional_call"),
    "layer norm": (nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2)), "vmap", "vmap"),
    "batch norm": (nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)), "vmap", "vmap"),
    "lstm": (Recurrent(nn.LSTM), "loop", "vmap failed: "),
    "gru": (Recurrent(nn.GRU), "loop", "vmap failed: "),
    "branching": (Branching(), "loop", "vmap failed: "),
    "in place": (InPlace(), "loop", "vmap failed: "),
}


@pytest.mark.parametrize("kind", TIERS)
def test_every_tier_gives_the_numbers_and_gradients_of_the_module_itself(kind):
    torch.manual_seed(0)
    module, tier, why = TIERS[kind]
    network = Network(copy.deepcopy(module).double())
    x = normal(6, 4, dtype=torch.float64)
    found = network.tier(3, x, train=False)
    assert found[0] == tier
    assert why in found[1]
    alone = network.tier(1, x, train=False)
    assert alone == (found if tier == "batched" else ("loop", "one draw is one call"))
    theta = (network.initial + 0.3 * normal(3, network.size, seed=1, dtype=torch.float64)).requires_grad_()
    together = network.outputs(theta, x)[0]
    weighting = normal(*together.shape, seed=2, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((together * weighting).sum(), theta)
    for draw in range(3):
        single = network.module(theta.detach()[draw]).eval()
        output = single(x)
        torch.testing.assert_close(together[draw], output)
        torch.testing.assert_close(network.outputs(theta[draw : draw + 1], x)[0][0], output)
        (output * weighting[draw]).sum().backward()
        expected = network.flatten({name: p.grad for name, p in single.named_parameters()})
        torch.testing.assert_close(gradient[draw], expected)


def test_the_summary_names_the_tier_and_its_reason():
    method = bf.Variational(Recurrent(nn.LSTM), "categorical")
    assert "loop (vmap failed" in str(method.summary(normal(4, 4)))
    assert "batched (a plain chain" in str(bf.Variational(TIERS["chain"][0], "categorical").summary(normal(4, 4)))


def test_large_networks_and_changing_statistics_take_the_loop():
    assert Network(nn.Linear(LOOP_FROM_WEIGHTS, 1)).tier(2, normal(2, 4), train=False)[0] == "loop"
    network = Network(TIERS["batch norm"][0])
    assert network.tier(2, normal(6, 4), train=True) == ("loop", "running statistics change in training")


def test_each_draw_may_have_inputs_and_buffers_of_its_own():
    torch.manual_seed(0)
    module = TIERS["batch norm"][0]
    network = Network(module)
    x, means = normal(3, 6, 4), normal(3, 5, seed=4)
    kept = {name: tensor.expand(3, *tensor.shape).clone() for name, tensor in network.kept().items()}
    kept["1.running_mean"] = means
    assert network.tier(3, x, train=False, each=True)[0] == "vmap"
    theta = network.initial + 0.3 * normal(3, network.size, seed=1)
    together = network.outputs(theta, x, each=True, kept=kept)[0]
    for draw in range(3):
        single = network.module(theta[draw]).eval()
        single[1].running_mean.copy_(means[draw])
        torch.testing.assert_close(together[draw], single(x[draw]))


class Late(nn.Module):
    """Its first batch hides what vmap cannot do."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.second(x + torch.tanh(self.first(x)))
        if x.max() > 100 and y.sum() > -torch.inf:
            return 2 * y
        return y


def test_a_batch_that_vmap_cannot_do_falls_to_the_loop_on_the_way():
    torch.manual_seed(0)
    network, x = Network(Late()), normal(6, 4)
    theta = network.initial.expand(3, -1)
    assert network.tier(3, x, train=False)[0] == "vmap"
    far = x + 1000
    torch.testing.assert_close(network.outputs(theta, far)[0][1], network.module()(far))
    assert network.tier(3, x, train=False)[0] == "loop"


def test_an_error_of_the_users_own_reaches_the_user():
    network = Network(Skip())
    network.outputs(network.initial.expand(3, -1), normal(6, 4))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        network.outputs(network.initial.expand(3, -1), normal(6, 7))


# Places.


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, tokens):
        return self.head(self.embedding(tokens).sum(1)) * self.scale


@pytest.mark.parametrize("draws", [1, 3])
def test_tied_weights_have_one_place_and_both_uses_change(draws):
    torch.manual_seed(0)
    network = Network(Tied())
    assert [place.name for place in network.places] == ["scale", "embedding.weight"]
    assert network.size == 22
    theta = network.initial.expand(draws, -1) + 0.5 * normal(draws, 22)
    tokens = torch.tensor([[0, 1], [2, 2]])
    y = network.outputs(theta, tokens)[0]
    for draw in range(draws):
        scale, table = theta[draw, 0], theta[draw, 1:].view(7, 3)
        torch.testing.assert_close(y[draw], table[tokens].sum(1) @ table.T * scale)
    module = network.module(theta[0])
    assert module.head.weight is module.embedding.weight


def test_frozen_weights_stay_fixed_and_are_not_random():
    module, x, y = a_bit_of_everything(), normal(24, 3), torch.arange(24) % 2
    for method in (bf.Variational(module, "categorical", rho=0.0), bf.Ensemble(module, "categorical", members=2)):
        network = method.network
        assert "4.weight" not in [place.name for place in network.places]
        method.fit((x, y), epochs=1, progress=False, learning_rate=0.1)
        assert torch.equal(network.kept()["4.weight"], module[4].weight)
        assert torch.equal(network.module(method.weights([0], 0)[0])[4].weight, module[4].weight)
        assert not torch.equal(network.module(method.weights([0], 0)[0])[0].weight, module[0].weight)


def test_random_tensors_come_first_and_flatten_undoes_unflatten():
    network = Network(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
    assert [place.random for place in network.places] == [True] * 4 + [False] * 4
    assert network.random_size == 4 * 3 + 3 + 3 * 2 + 2
    theta = normal(network.size)
    assert torch.equal(network.flatten(network.unflatten(theta)), theta)
    stops = [0, *(place.stop for place in network.places)]
    assert [place.start for place in network.places] == stops[:-1]
    assert stops[-1] == network.size


@given(widths=st.lists(st.integers(1, 5), min_size=2, max_size=5), bias=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_any_chain_is_its_module_at_its_own_weights(widths, bias, seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(a, b, bias=bias) for a, b in itertools.pairwise(widths)]
    module, x = nn.Sequential(*layers), normal(3, widths[0], seed=seed)
    network = Network(module)
    y = network.outputs(network.initial.expand(2, -1), x)[0]
    torch.testing.assert_close(y[0], module(x))
    torch.testing.assert_close(y[1], module(x))


def test_the_template_holds_no_values_and_wrapping_costs_one_copy():
    network = Network(a_bit_of_everything())
    assert all(tensor.is_meta for tensor in (*network.template.parameters(), *network.template.buffers()))
    filled = network.module()
    torch.testing.assert_close(filled.eval()(normal(5, 3)), a_bit_of_everything().eval()(normal(5, 3)))


def test_weights_that_are_also_in_a_list_are_filled_in_there_too():
    module = Network(Hidden()).module(torch.arange(10.0))
    assert module.weights[0] is module.fc.weight
    assert torch.equal(module.fc.weight, torch.arange(8.0).view(2, 4))


def test_copies_and_pickles_predict_alike():
    module, x = Skip(), normal(5, 4)
    method = bf.Variational(module, "categorical")
    expected = method.draw(x, draws=3)
    assert torch.equal(copy.deepcopy(method).draw(x, draws=3), expected)
    network = pickle.loads(pickle.dumps(method.network))
    assert torch.equal(network.outputs(method.weights(range(3), 0), x)[0].detach(), expected)


def test_threads_take_turns():
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.LayerNorm(16), nn.Linear(16, 2))
    method = bf.MCDropout(module, "categorical")
    x = normal(8, 4)
    expected = [method.draw(x, draws=3, seed=seed) for seed in range(4)]
    found = {}

    def work(seed):
        found[seed] = [method.draw(x, draws=3, seed=seed) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        assert all(torch.equal(outputs, expected[seed]) for outputs in found[seed])


def test_computed_tensors_in_attributes_can_be_copied():
    module = nn.Linear(3, 2)
    module.cached = module.weight.sum()
    assert torch.equal(Network(module).module()(normal(2, 3)), module(normal(2, 3)))


# Weights that escape.


class Hidden(nn.Module):
    """Reads a weight through a plain list, where nothing can be put in its place."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.weights = [self.fc.weight]

    def forward(self, x):
        return F.linear(x, self.weights[0])


class HiddenAndUntraceable(Hidden):
    def forward(self, x):
        return super().forward(x.view(5, 4))


def closed_over():
    module = nn.Linear(4, 2)
    module.forward = lambda x: F.linear(x, module.weight)
    return module


@pytest.mark.parametrize("module", [Hidden(), HiddenAndUntraceable(), closed_over()])
def test_a_weight_read_behind_our_back_is_an_error_not_a_stale_value(module):
    network = Network(module)
    with pytest.raises(ValueError, match="reads weights that are not among its named parameters"):
        network.outputs(network.initial.unsqueeze(0), normal(5, 4))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(checkpoint(lambda x: torch.tanh(self.fc(x)), x, use_reentrant=False))


def test_recomputed_activations_use_the_same_weights():
    network, x = Network(Checkpointed()), normal(3, 4)
    thetas = network.initial + torch.stack((0.5 * normal(network.size), torch.zeros(network.size)))
    thetas.requires_grad_()
    network.outputs(thetas, x, train=True)[0].square().sum().backward()
    expected = []
    for theta in thetas.detach():
        module = network.module(theta)
        module(x).square().sum().backward()
        expected.append(network.flatten({name: tensor.grad for name, tensor in module.named_parameters()}))
    torch.testing.assert_close(thetas.grad, torch.stack(expected))


# Inputs and outputs.


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, left, right=None, *, shift=0.0):
        return self.fc(left + (0 if right is None else 10 * right)) + shift


class OneDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, batch):
        return self.fc(batch["left"] + 10 * batch["right"])


class OnePair(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, pair):
        return self.fc(pair[0] + 10 * pair[1])


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize(
    "kind, x",
    [
        (Keywords, lambda a, b: {"left": a, "right": b}),
        (Keywords, lambda a, b: {"right": b, "left": a, "shift": torch.zeros(len(a), 1)}),
        (Keywords, lambda a, b: (a, b)),
        (Keywords, lambda a, b: a + 10 * b),
        (Keywords, lambda a, b: (a + 10 * b,)),
        (OneDict, lambda a, b: {"left": a, "right": b}),
        (OnePair, lambda a, b: (a, b)),
    ],
)
def test_inputs_reach_the_forward_as_it_takes_them(kind, x, draws):
    torch.manual_seed(0)
    module, a, b = kind(), normal(5, 4), normal(5, 4, seed=1)
    network = Network(module)
    y = network.outputs(network.initial.expand(draws, -1), x(a, b))[0]
    torch.testing.assert_close(y, module.fc(a + 10 * b).expand(draws, -1, -1))


class Pair(NamedTuple):
    values: torch.Tensor
    hidden: torch.Tensor


class Returning(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.fc(x))


@pytest.mark.parametrize(
    "wrap, output",
    [
        (lambda y: {"values": y, "hidden": y * 2}, "values"),
        (lambda y: {0: y}, 0),
        (lambda y: (y * 2, y), 1),
        (lambda y: [y * 2, y], -1),
        (lambda y: Pair(y, y * 2), "values"),
        (lambda y: Pair(y * 2, y), 1),
        (lambda y: {"deep": [y]}, lambda result: result["deep"][0]),
    ],
)
def test_the_output_is_picked_by_key_index_attribute_or_function(wrap, output):
    torch.manual_seed(0)
    module, x = Returning(wrap), normal(5, 4)
    for draws in (1, 3):
        network = Network(module, output=output)
        y = network.outputs(network.initial.expand(draws, -1), x)[0]
        torch.testing.assert_close(y, module.fc(x).expand(draws, -1, -1))


@pytest.mark.parametrize(
    "wrap, output, error, text",
    [
        (lambda y: {"logits": y}, None, TypeError, "pick one with output=, .* or a function, such as output='logits'$"),
        (
            lambda y: {"a": y, "b": y},
            None,
            TypeError,
            "returns dict, not a tensor: pick one with output=.*; it has a, b$",
        ),
        (lambda y: {"logits": y}, "logit", ValueError, "output='logit' is not in .* a dict; it has logits"),
        (lambda y: (y, y), 2, ValueError, "output=2 is not in .* a tuple"),
        (lambda y: Pair(y, y), "value", ValueError, "output='value' is not in .* a Pair"),
        (lambda y: y, 0, ValueError, "output=0 is not needed"),
        (lambda y: (y, y), lambda result: result, TypeError, "returns tuple"),
    ],
)
def test_an_output_that_is_not_there_is_one_clear_error(wrap, output, error, text):
    network = Network(Returning(wrap), output=output)
    with pytest.raises(error, match=text):
        network.outputs(network.initial.unsqueeze(0), normal(5, 4))


# Selection.


class Layered(nn.Module):
    def __init__(self):
        super().__init__()
        self.root = nn.Parameter(torch.ones(4))
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.GroupNorm(2, 4))
        self.norm = LlamaRMSNorm(4)
        self.head = nn.Linear(4, 2)


class LlamaRMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))


LINEAR = {"body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias", "head.weight", "head.bias"}


@pytest.mark.parametrize(
    "bayesian, expected",
    [
        ("all", {"root", *LINEAR}),
        ("last_layer", {"head.weight", "head.bias"}),
        (["head"], {"head.weight", "head.bias"}),
        ("head", {"head.weight", "head.bias"}),
        ("root", {"root"}),
        (["*.bias"], {"body.0.bias", "body.1.bias", "body.2.bias", "body.3.bias", "head.bias"}),
        (["body.1", "norm.weight"], {"body.1.weight", "body.1.bias", "norm.weight"}),
        ("body.[02].weight", {"body.0.weight", "body.2.weight"}),
        (("body.?.weight",), {f"body.{i}.weight" for i in range(4)}),
    ],
)
def test_selection_makes_random_what_it_says(bayesian, expected):
    assert {place.name for place in Network(Layered(), bayesian).places if place.random} == expected


def test_the_last_layer_of_a_parametrised_network_is_whole():
    module = nn.Sequential(nn.Linear(4, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    random = {place.name for place in Network(module, "last_layer").places if place.random}
    assert random == {"1.bias", "1.parametrizations.weight.original0", "1.parametrizations.weight.original1"}


@pytest.mark.parametrize(
    "bayesian, error, text",
    [
        ("last_layers", ValueError, "did you mean 'last_layer'"),
        ("al", ValueError, "did you mean 'all'"),
        ("haed", ValueError, "did you mean 'head'"),
        (["body.0.wieght"], ValueError, "'body.0.wieght' matches no trained tensor; did you mean 'body.0.weight'"),
        (["head", "tail.*"], ValueError, "'tail.*' matches no trained tensor"),
        (3, TypeError, "bayesian must be"),
        ([3], TypeError, "bayesian must be"),
    ],
)
def test_a_selection_that_matches_nothing_names_the_nearest(bayesian, error, text):
    with pytest.raises(error, match=text):
        Network(Layered(), bayesian)


def test_what_is_not_selected_is_trained_but_not_random():
    torch.manual_seed(0)
    module, x, y = Skip(), normal(24, 4), torch.arange(24) % 2
    method = bf.Variational(module, "categorical", bayesian="last_layer", rho=0.0)
    method.fit((x, y), epochs=2, learning_rate=0.1, progress=False)
    draws = method.network.unflatten(method.weights(range(20), 0))
    assert torch.equal(draws["first.weight"][0], draws["first.weight"][1])
    assert not torch.equal(draws["first.weight"][0], module.first.weight)
    assert draws["second.weight"].std(0).min() > 0.3


# What cannot be wrapped.


class Unmovable:
    def __deepcopy__(self, memo):
        raise RuntimeError("this handle cannot be copied")


def bad(change):
    module = nn.Linear(3, 2)
    change(module)
    return module


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(nn.Linear(3, 2), normal(2, 3))


@pytest.mark.parametrize(
    "module, error, text",
    [
        (scripted(), TypeError, "give the module it was scripted from"),
        (nn.ReLU(), ValueError, "no trained parameters"),
        ("resnet", TypeError, "must be a torch.nn.Module or a function that returns one, got str"),
        (lambda: 3, TypeError, "got int"),
        (nn.LazyLinear(3), ValueError, "has no shape yet: run the network once"),
        (nn.Linear(3, 2, device="meta"), ValueError, "on the meta device"),
        (nn.Linear(3, 2, dtype=torch.complex64), ValueError, "complex64"),
        (bad(lambda m: m.weight.data.fill_(float("nan"))), ValueError, "parameter weight of the network holds NaN"),
        (bad(lambda m: setattr(m, "handle", Unmovable())), TypeError, "cannot be copied: this handle"),
        (bad(lambda m: m.requires_grad_(requires_grad=False)), ValueError, "no trained parameters"),
    ],
)
def test_a_network_that_cannot_be_wrapped_is_one_clear_error(module, error, text):
    with pytest.raises(error, match=text):
        Network(module)


def test_a_compiled_module_is_the_module_it_was_compiled_from():
    module = Skip()
    assert [place.name for place in Network(torch.compile(module)).places] == [
        place.name for place in Network(module).places
    ]


def test_dropout_cannot_be_added_to_what_cannot_be_traced():
    class FixedBatch(Skip):
        def forward(self, x):
            return super().forward(x.view(5, 4))

    with pytest.raises(ValueError, match="dropout cannot be added: the network could not be traced"):
        Network(FixedBatch()).add_dropout(0.5, normal(5, 4))


def test_a_network_of_ours_keeps_its_spec_and_other_attributes_called_spec_do_not_count():
    assert Network(bf.networks.mlp(3, 2, units=4)).spec["type"] == "mlp"
    module = Skip()
    module.spec = {"type": "mlp"}
    assert Network(module).spec is None


def test_gradients_of_many_draws_cost_one_concatenation():
    network = Network(Skip())
    theta = network.initial.clone().requires_grad_()
    assert theta.grad_fn is None
    parts = network.unflatten(theta)
    assert len({tensor.grad_fn.next_functions[0][0] for tensor in parts.values()}) == 1


def test_without_a_key_there_is_no_dropout_in_either_mode():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    network, x, state = Network(module), normal(5, 4), torch.get_rng_state()
    for train in (False, True):
        y = network.outputs(network.initial.expand(2, -1), x, train=train)[0]
        torch.testing.assert_close(y[1], module[0](x))
    assert torch.equal(state, torch.get_rng_state())
    keys = noise.keys(0, noise.Stream.DROPOUT)
    assert (network.outputs(network.initial[None], x, train=True, dropout=keys)[0] == 0).any()
