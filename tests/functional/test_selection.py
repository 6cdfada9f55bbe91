"""`bayesian=`: the last block, LoRA, types, norms and biases; frozen weights stay out."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.functional.selection import select


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=4, blocks=3):
        super().__init__()
        self.stem = nn.Linear(2, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def chosen(module, bayesian):
    return select(module, [name for name, tensor in module.named_parameters() if tensor.requires_grad], bayesian)


HEAD = {"head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias"}
LAST = {"blocks.2.fc.weight", "blocks.2.fc.bias"} | HEAD


@pytest.mark.parametrize(
    ("bayesian", "expected"),
    [
        ("last_block", LAST),
        (["last_block", "norms"], LAST | {f"blocks.{n}.norm.{leaf}" for n in range(3) for leaf in ("weight", "bias")}),
        (["last_block", "!biases"], {name for name in LAST if not name.endswith("bias")}),
        (["head", "!head.0"], {"head.2.weight", "head.2.bias"}),
        (nn.LayerNorm, {f"blocks.{n}.norm.{leaf}" for n in range(3) for leaf in ("weight", "bias")}),
        ("type:LayerNorm", {f"blocks.{n}.norm.{leaf}" for n in range(3) for leaf in ("weight", "bias")}),
        ([nn.LayerNorm, "head.2"], {f"blocks.{n}.norm.{leaf}" for n in range(3) for leaf in ("weight", "bias")}
         | {"head.2.weight", "head.2.bias"}),
        (["!blocks", "!stem"], HEAD),
    ],
)  # fmt: skip
def test_the_words_mean_what_they_say(bayesian, expected):
    assert chosen(Net(), bayesian) == expected


def test_one_text_with_a_mark_takes_away_from_all():
    assert chosen(Net(), "!biases") == chosen(Net(), ["!biases"]) == chosen(Net(), ["all", "!biases"])


def test_the_last_block_of_stages_is_the_last_block_of_the_last_stage():
    stages = nn.Sequential(
        *(nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(2))) for _ in range(2))
    )
    module = nn.Sequential(nn.Linear(2, 3), stages, nn.Linear(3, 2))
    assert chosen(module, "last_block") == {"1.1.1.0.weight", "1.1.1.0.bias", "2.weight", "2.bias"}


@pytest.mark.parametrize(
    ("bayesian", "message"),
    [
        ("lora", r"named lora_\*"),
        ("last_blok", "did you mean 'last_block'"),
        ("type:Linaer", "did you mean 'Linear'"),
        (["all", "!nothing.here"], "matches no trained tensor"),
        ([3], "a list of name patterns"),
    ],
)
def test_what_matches_nothing_is_refused(bayesian, message):
    with pytest.raises((TypeError, ValueError), match=message):
        chosen(Net(), bayesian)


def test_a_list_of_layers_is_not_called_no_list():
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with pytest.raises(ValueError, match="modules with layers of their own, got a network whose lists do not hold two"):
        chosen(layers, "last_block")
    with pytest.raises(ValueError, match="got a network which has no such list"):
        chosen(nn.Linear(2, 2), "last_block")


class WithAdapter(nn.Module):
    """A frozen layer with an adapter, by PEFT's names."""

    def __init__(self):
        super().__init__()
        self.base_layer = nn.Linear(4, 4).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 4, bias=False)})

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


def test_lora_is_random_and_the_frozen_base_is_outside(tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(WithAdapter(), nn.Tanh(), nn.Linear(4, 3))
    method = bf.Variational(module, "categorical", bayesian="lora")
    assert method.network.random_size == 16
    assert method.network.size == 16 + 15  # the head is trained, the base of 20 is not
    assert set(method.network.frozen()) == {"0.base_layer.weight", "0.base_layer.bias"}
    base = module[0].base_layer.weight.detach().clone()
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    method.fit((x, y), epochs=2, progress=False)
    assert torch.equal(method.network.frozen()["0.base_layer.weight"], base)
    method.save(tmp_path / "run")
    again = bf.load(tmp_path / "run", module)
    assert torch.equal(again.predict(x).outputs, method.predict(x).outputs)


def test_a_class_travels_with_the_run_as_text(tmp_path):
    torch.manual_seed(0)
    method = bf.Variational(Net(), "categorical", bayesian=[nn.LayerNorm, "head.2"])
    method.fit((torch.randn(30, 2), torch.arange(30) % 3), epochs=1, progress=False)
    method.save(tmp_path / "run")
    assert bf.load(tmp_path / "run", Net()).network.bayesian == ["type:LayerNorm", "head.2"]


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 4)
        self.classes, self.box = nn.Linear(4, 3), nn.Linear(4, 4)

    def forward(self, x):
        hidden = torch.relu(self.encoder(x))
        return {"classes": self.classes(hidden), "box": self.box(hidden)}


@pytest.mark.parametrize("method", [bf.Variational, bf.LaplaceApproximation])
def test_a_last_layer_of_another_output_is_refused(method):
    torch.manual_seed(0)
    x, y = torch.randn(30, 2), torch.arange(30) % 3
    wrong = method(TwoHeads(), "categorical", bayesian="last_layer", output="classes")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"does not depend on the random weights, those of 'box': name a layer"):
            wrong.fit((x, y), epochs=1, progress=False)
    right = method(TwoHeads(), "categorical", bayesian="classes", output="classes")
    right.fit((x, y), epochs=1, progress=False)
    assert float(right.predict(x, draws=4).outputs.std(0).min()) > 0
