"""Tensors, plain modules and adapters: what is written can be read without bayesify, and is the posterior."""

import json

import pytest
import torch
from exportable import Convolutions, fitted
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.func import functional_call

import bayesify as bf

pytestmark = pytest.mark.filterwarnings("ignore")


def test_safetensors_hold_the_draws_and_say_what_they_are(tmp_path):
    bnn, x = fitted("variational", "cnn")
    file = tmp_path / "draws.safetensors"
    bf.export(bnn, file, "safetensors", draws=3)
    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        about = json.loads(opened.metadata()["bayesify"])
    assert (about["method"], about["draws"], about["seed"]) == ("variational", 3, 0)
    stacked = set(about["with_draws_axis"])
    net, expected = Convolutions().eval(), bnn.predict(x, draws=3).outputs
    for draw in range(3):
        state = {name: tensor[draw] if name in stacked else tensor for name, tensor in tensors.items()}
        assert torch.allclose(functional_call(net, state, x), expected[draw], atol=1e-5)


def test_a_state_dict_goes_into_the_users_own_class(tmp_path):
    bnn, x = fitted("ensemble", "cnn")
    with pytest.raises(ValueError, match="draw=0"):
        bf.export(bnn, tmp_path / "net.safetensors", "module")
    bf.export(bnn, tmp_path / "net.safetensors", "module", draw=2)
    net = Convolutions()
    net.load_state_dict(load_file(tmp_path / "net.safetensors"))
    assert torch.allclose(net.eval()(x), bf.to_module(bnn, draw=2)(x))
    rows = bnn.predict(x).outputs
    assert min(float((net(x) - row).abs().max()) for row in rows) < 1e-5
    with pytest.raises(ValueError, match="the method has 3 draws"):
        bf.to_module(bnn, draw=3)


def test_a_module_runs_without_its_class(tmp_path):
    bnn, x = fitted("variational", "mlp")
    bf.export(bnn, tmp_path / "net.pt2", "module")
    program = torch.export.load(tmp_path / "net.pt2").module()
    assert torch.allclose(program(x[:5]), bnn.predict(x[:5], by="mean").outputs[0], atol=1e-6)


class Frozen(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.base = nn.Linear(2, 50).requires_grad_(requires_grad=False)
        self.head = nn.Linear(50, 3)

    def forward(self, x):
        return self.head(torch.relu(self.base(x)))


def test_an_adapter_has_no_base_and_refuses_another(tmp_path, blobs):
    bnn = bf.Variational(Frozen(0), "categorical", prior="normal:1")
    bnn.fit(blobs, epochs=3, learning_rate=0.05, progress=False)
    made = bf.export(bnn, tmp_path / "adapter", "adapter")
    names = set(load_file(tmp_path / "adapter" / "model.safetensors"))
    assert made.format == "adapter"
    assert not any("base" in name for name in names)
    again = bf.load(tmp_path / "adapter", network=Frozen(0))
    assert torch.equal(again.predict(blobs[0]).probs, bnn.predict(blobs[0]).probs)
    with pytest.raises(bf.RunError, match="another base"):
        bf.load(tmp_path / "adapter", network=Frozen(1))
    with pytest.raises(bf.RunError, match="without its base"):
        bf.load(tmp_path / "adapter")
    with pytest.raises(FileExistsError):
        bf.export(bnn, tmp_path / "adapter", "adapter")
    assert bnn.run is None


def test_a_network_without_frozen_weights_has_no_adapter(tmp_path):
    bnn, _ = fitted("variational", "mlp")
    with pytest.raises(ValueError, match="no frozen weights"):
        bnn.save(tmp_path / "adapter", base=False)
    assert not (tmp_path / "adapter").exists()
