"""What one batch reveals: layers that may use lower-variance estimators, the batch axis, and side effects of a pass."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesify import noise
from bayesify.functional.dropout import Site
from bayesify.functional.network import Network
from bayesify.methods.variational.estimators import stochastic_layers, why_not


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Model(nn.Module):
    """Two linear layers, and whatever `rule` does with them."""

    def __init__(self, rule, first=None):
        super().__init__()
        self.first = nn.Linear(4, 4) if first is None else first
        self.second = nn.Linear(4, 3)
        self.rule = rule

    def forward(self, x):
        return self.rule(self, x)


def plain(m, x):
    return m.second(torch.relu(m.first(x)))


def qualified(module, x):
    network = Network(module)
    return [layer.name for layer in stochastic_layers(network, network.traced(x))]


def reason(module, x, name):
    network = Network(module)
    return why_not(network, name, network.traced(x))


class Subclass(nn.Linear):
    pass


def with_hook(read):
    module = Model(plain)
    if read == "after":
        module.first.register_forward_hook(lambda m, inputs, output: output + m.weight.sum())
    else:
        module.first.register_forward_pre_hook(lambda m, inputs: (inputs[0] * m.weight.mean(),))
    return module


def tied(rule):
    module = Model(rule)
    module.second = nn.Linear(4, 4)
    module.second.weight = module.first.weight
    return module


NOT_ALONE = {
    "a functional read": (
        lambda m, x: m.second(m.first(x)) + F.linear(x, m.first.weight)[:, :3],
        "something else reads",
    ),
    "a sum over the weight": (lambda m, x: m.second(m.first(x)) + m.first.weight.sum(), "something else reads"),
    "a read bias": (lambda m, x: m.second(m.first(x)) + m.first.bias.square().sum(), "something else reads"),
    "a transposed weight": (lambda m, x: m.second(m.first(x) @ m.first.weight.T), "something else reads"),
    "an index": (lambda m, x: m.second(m.first(x)) + m.first.weight[0, 0], "something else reads"),
    "raw data": (lambda m, x: m.second(m.first(x)) + m.first.weight.data.mean(), "something else reads"),
    "all parameters": (
        lambda m, x: m.second(m.first(x)) + sum(p.square().sum() for p in m.parameters()),
        "something else reads",
    ),
    "a shared layer": (lambda m, x: m.second(m.first(m.first(x))), "ran 2 times"),
    "an unused layer": (lambda m, x: m.second(x), "ran 0 times"),
    "a direct forward": (lambda m, x: m.second(m.first.forward(x)), "ran 0 times"),
    "a keyword": (lambda m, x: m.second(m.first(input=x)), "takes more than its input"),
    "batch and time merged": (
        lambda m, x: m.second(m.first(x.repeat_interleave(5, 0)).view(len(x), 5, 4).sum(1)),
        "no axis of its input is the batch",
    ),
    "no batch": (lambda m, x: m.second(x) + m.first(x.new_ones(7, 4)).sum(), "no axis of its input is the batch"),
    "batch times batch": (
        lambda m, x: m.second(x) + m.first((x @ x.T)[..., None] * x.new_ones(4)).sum(),
        "no axis of its input is the batch",
    ),
}


@pytest.mark.parametrize("kind", NOT_ALONE)
def test_a_layer_whose_weight_is_used_otherwise_does_not_qualify(kind):
    rule, why = NOT_ALONE[kind]
    module, x = Model(rule), normal(6, 4)
    assert "first" not in qualified(module, x)
    assert why in reason(module, x, "first")


@pytest.mark.parametrize(
    "module, why",
    [
        (Model(plain, Subclass(4, 4)), "Subclass has no lower-variance estimator"),
        (tied(plain), "something else reads"),
        (tied(lambda m, x: m.first(x)), "something else reads"),
        (with_hook("after"), "something else reads"),
        (with_hook("before"), "something else reads"),
        (Model(plain, nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))), "has no lower-variance estimator"),
    ],
)
def test_subclasses_tied_weights_hooks_and_parametrisations_do_not_qualify(module, why):
    x = normal(6, 4)
    assert "first" not in qualified(module, x)
    assert why in reason(module, x, "first")


def test_plain_use_qualifies_also_where_shapes_and_types_are_asked_for():
    assert qualified(Model(plain), normal(6, 4)) == ["first", "second"]
    asking = Model(lambda m, x: m.second(m.first(x.to(m.first.weight.dtype).view(-1, m.first.weight.shape[1]))))
    assert qualified(asking, normal(6, 4)) == ["first", "second"]


def test_a_frozen_weight_does_not_qualify_and_a_pattern_selects():
    module = Model(plain)
    module.first.weight.requires_grad_(requires_grad=False)
    assert reason(module, normal(6, 4), "first") == "its weight is not random"
    network = Network(Model(plain), bayesian=["second.*"])
    assert [layer.name for layer in stochastic_layers(network, network.traced(normal(6, 4)))] == ["second"]


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


def test_attentions_projection_does_not_qualify():
    module, x = Attentive(), normal(6, 5, 4)
    assert qualified(module, x) == ["head"]
    use = Network(module).traced(x).layers["attention.out_proj"]
    assert use.calls == 0
    assert use.read_elsewhere
    assert "has no lower-variance estimator" in reason(module, x, "attention.out_proj")
    assert "MultiheadAttention has no lower-variance estimator" in reason(module, x, "attention")


@pytest.mark.parametrize("axis", [0, 1])
def test_the_batch_axis_is_found(axis):
    rule = lambda m, x: m.second(m.first(x if axis == 0 else x.transpose(0, 1))).sum(1 - axis)  # noqa: E731
    network = Network(Model(rule))
    layers = stochastic_layers(network, network.traced(normal(6, 5, 4)))
    assert [layer.batch_axis for layer in layers] == [axis, axis]
    assert not any(layer.exact_local for layer in layers)


def test_the_order_of_the_pass_is_known():
    trace = Network(Model(lambda m, x: m.first(torch.cat((m.second(x), x[:, :1]), 1)))).traced(normal(6, 4))
    assert trace.layers["second"].position < trace.layers["first"].position


def test_dropout_sites_tell_rate_axis_and_order():
    def rule(m, x):
        x = F.dropout(m.first(x), 0.1, m.training)
        x = F.dropout(x.transpose(0, 1), 0.2, m.training)
        x = F.dropout(x.reshape(-1, 4), 0.3, m.training).view(5, -1, 4)
        x = F.dropout(x.transpose(0, 1).reshape(-1, 4), 0.4, m.training).view(-1, 5, 4).sum(1)
        return m.second(x) + F.dropout(x.new_ones(3), 0.5, m.training)

    trace = Network(Model(rule)).traced(normal(6, 5, 4))
    assert trace.dropout_sites == [
        Site(0.1, 0),
        Site(0.2, 1),
        Site(0.3, 0, batch_first=False),
        Site(0.4, 0, batch_first=True),
        Site(0.5, None),
    ]
    assert not trace.drops_in_evaluation
    assert Network(Model(lambda m, x: m.second(F.dropout(x, 0.5)))).traced(normal(6, 4)).drops_in_evaluation


class Counting(nn.Module):
    """Buffers changed in place or replaced, in training or in both modes."""

    def __init__(self, how, always):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.how, self.always = how, always

    def forward(self, x):
        if self.training or self.always:
            if self.how == "in place":
                self.seen += len(x)
            else:
                self.seen = self.seen + len(x)
        return self.fc(x)


@pytest.mark.parametrize("how", ["in place", "replaced"])
@pytest.mark.parametrize("always", [False, True])
def test_changes_to_buffers_are_seen_and_undone(how, always):
    module = Counting(how, always)
    network, x = Network(module), normal(6, 4)
    trace = network.traced(x)
    assert trace.updates_buffers
    assert trace.buffers_in_evaluation == always
    assert network.kept()["seen"] == 0
    network.outputs(network.initial.unsqueeze(0), x)
    assert network.kept()["seen"] == 0
    left = network.outputs(network.initial.expand(2, -1), x, train=True)[1]
    assert torch.equal(left["seen"], torch.full((2,), 6.0))
    assert module.seen == 0


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.last = self.fc(x)
        return self.last


def test_a_pass_leaves_nothing_behind_in_the_template():
    network, x = Network(Remembering()), normal(6, 4)
    theta = network.initial.expand(3, -1).clone().requires_grad_()
    network.outputs(theta, x, train=True)[0].sum().backward()
    assert network.traced(x).keeps_state
    assert network.template.calls == 0
    assert not hasattr(network.template, "last")
    assert torch.equal(copy.deepcopy(network).initial, network.initial)


class Writing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        x += 1
        return self.fc(x)


class Noisy(nn.Module):
    """Random numbers from torch's own generator."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x + torch.randn_like(x))


def test_inputs_that_a_pass_writes_into_are_copied_first():
    module, x = Writing(), normal(6, 4)
    network, before = Network(module), x.clone()
    assert network.traced(x).changes_inputs
    assert not Network(Model(plain)).traced(x).changes_inputs
    for draws in (1, 3):
        y = network.outputs(network.initial.expand(draws, -1), x)[0]
        assert torch.equal(x, before)
        torch.testing.assert_close(y, module.fc(x + 1).expand(draws, -1, -1))


def test_random_numbers_of_the_networks_own_follow_the_key_and_leave_the_generator():
    network, x = Network(Noisy()), normal(6, 4)
    state = torch.get_rng_state()
    trace = network.traced(x)
    assert trace.uses_generator
    assert trace.dropout_sites is None
    theta, keys = network.initial.expand(3, -1), noise.keys(0, noise.Stream.DROPOUT, draws=range(3))
    assert network.tier(3, x, train=True) == ("loop", "it draws from torch's generator")
    one = network.outputs(theta, x, train=True, dropout=keys)[0]
    two = network.outputs(theta, x, train=True, dropout=keys)[0]
    assert torch.equal(one, two)
    assert one[0].sub(one[1]).abs().max() > 0.01
    assert torch.equal(network.outputs(theta[:1], x)[0], network.outputs(theta[:1], x)[0])
    assert torch.equal(state, torch.get_rng_state())


class FixedBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.fc(x.view(6, 4)))


def test_a_network_that_cannot_be_traced_assumes_the_worst_and_still_runs():
    network, x = Network(FixedBatch()), normal(6, 4)
    trace = network.traced(x)
    assert "invalid for input" in trace.problem
    assert trace.updates_buffers
    assert trace.uses_generator
    assert trace.dropout_sites is None
    tier, why = network.tier(2, x, train=False)
    assert tier == "loop"
    assert "could not be traced" in why
    assert stochastic_layers(network, trace) == []
    torch.testing.assert_close(network.outputs(network.initial.expand(2, -1), x)[0][1], network.module().eval()(x))


def test_a_trace_spoilt_by_bad_inputs_is_made_again():
    network = Network(Model(plain))
    with pytest.raises(RuntimeError):
        network.outputs(network.initial.unsqueeze(0), normal(6, 5))
    network.outputs(network.initial.unsqueeze(0), normal(6, 4))
    assert network.traced(normal(6, 4)).problem is None


def test_tracing_happens_once_and_leaves_no_hooks():
    passes = []
    module = Model(plain)
    module.register_forward_hook(lambda m, inputs, output: passes.append(1))
    network, x = Network(module), normal(6, 4)
    network.traced(x)
    first = len(passes)
    network.traced(normal(2, 4))
    assert len(passes) == first
    assert not network.template.first._forward_hooks
    assert not network.template.first._forward_pre_hooks
