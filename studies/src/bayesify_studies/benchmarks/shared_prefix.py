"""What draws of the last blocks cost: K draws of the last k of L equal blocks, in passes of the plain network.

    expected    (L - k + K k) / L passes: all blocks once, and the last k again for each further draw
    work        multiplications in matrix products and convolutions, counted by torch
    time        of the prediction, in plain passes over the same inputs
    drawing     the part of it that draws the weights, which does not depend on the number of inputs

The blocks are equal, so that a share of them is a share of the work: a residual network of one stage and BERT from its
configuration. Predictions are compared with whole passes, draw by draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bayesify.errors import at_least, choose
from bayesify.methods.variational.variational import Variational
from bayesify.training.warnings import without_warnings
from bayesify_studies.benchmarks import timing
from bayesify_studies.benchmarks.known_networks import resnet

NETWORKS = ("resnet", "transformer")
_WORDS, _LENGTH = 1000, 64


def measure(
    *,
    network: str = "resnet",
    blocks: int = 8,
    draws: int = 30,
    inputs: int = 8,
    rounds: int = 3,
    device: str = "cpu",
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Expected passes, work and time of predictions with draws of the last block, and of whole passes."""
    choose("network", network, NETWORKS)
    for name, value in (("blocks", blocks), ("draws", draws), ("inputs", inputs)):
        at_least(name, value, 1)
    made, x, output = _resnet(blocks, inputs) if network == "resnet" else _transformer(blocks, inputs)
    made, x = made.to(device).eval(), x.to(device)
    bnn = Variational(made, "categorical", bayesian="last_block", output=output).to(device)
    with (
        without_warnings()
    ):  # a method that was fitted knows the shape of its inputs; how well it predicts is no matter
        bnn.fit((x[:8], torch.arange(min(inputs, 8), device=device) % 2), epochs=1, progress=False, compiled=False)

    def plain() -> None:
        with torch.inference_mode():
            made(x)

    def drawing() -> None:
        for number in range(draws):
            bnn.weights([number], 0)

    def whole() -> Tensor:
        return torch.cat([bnn.outputs_at(bnn.weights([number], 0), x, None, None) for number in range(draws)])

    def shared() -> Tensor:
        return bnn.predict(x, draws=draws).outputs

    with torch.no_grad():
        difference = float((shared() - whole()).abs().max())
        timings = timing.take_turns(
            {"plain": plain, "drawing": drawing, "shared": shared, "whole": whole},
            rounds=rounds,
            steps=1,
            device=device,
            progress=progress,
        )
    found = {name: timing.ratio(timings[name], timings["plain"]) for name in ("drawing", "shared", "whole")}
    expected = (blocks - 1 + draws) / blocks
    return {
        "ratio": found["shared"]["ratio"] / expected,
        "ratio_quartiles": [edge / expected for edge in found["shared"]["quartiles"]],
        "passes_expected": expected,
        "passes_of_work": _work(shared) / _work(plain),
        "passes_of_time": found["shared"]["ratio"],
        "passes_of_time_quartiles": found["shared"]["quartiles"],
        "passes_of_time_to_draw": found["drawing"]["ratio"],
        "passes_of_time_without_sharing": found["whole"]["ratio"],
        "largest_difference": difference,
        **{f"{name}_ms": timing.spread(values)["median"] for name, values in timings.items()},
        "network": network,
        "weights": bnn.network.size,
        "random_weights": bnn.network.random_size,
        "blocks": blocks,
        "random_blocks": 1,
        "draws": draws,
        "inputs": inputs,
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    said = (
        f"{result['draws']} draws of the last of {result['blocks']} blocks ({result['network']}): "
        f"{result['passes_of_time']:.2f} plain passes of time, {result['passes_of_work']:.2f} of work, "
        f"{result['passes_expected']:.2f} expected; {result['passes_of_time_without_sharing']:.2f} without sharing"
    )
    return [said]


def _work(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def _resnet(blocks: int, inputs: int) -> tuple[nn.Module, Tensor, str | None]:
    torch.manual_seed(0)
    stages = resnet((blocks,), 32, 10, bottleneck=False, small_images=True)
    # The blocks as one list, of which "last_block" takes the last one.
    layers = list(stages)
    body = nn.Sequential(*layers[3 : 3 + blocks])
    return nn.Sequential(*layers[:3], body, *layers[3 + blocks :]), torch.randn(inputs, 3, 32, 32), None


def _transformer(blocks: int, inputs: int) -> tuple[nn.Module, Tensor, str | None]:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    made: Any = BertForSequenceClassification
    sizes: dict[str, Any] = {
        "hidden_size": 128,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "num_hidden_layers": blocks,
    }
    return made(BertConfig(vocab_size=_WORDS, **sizes)), torch.randint(0, _WORDS, (inputs, _LENGTH)), "logits"
