"""Study A's dense layer after the sampled logits: what the layer does to the samples, and what a page says of it."""

import pytest
import torch

from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a import dense_after
from bayesify_studies.experiments.study_a.dense_after import SampledLogits

TINY = {"swaps": [0.0], "seeds": 2, "examples": 60, "test": 40, "epochs": 1, "batch_size": 32, "samples": 4}


def test_the_dense_layer_acts_on_each_sample_of_the_logits():
    torch.manual_seed(0)
    network, x = SampledLogits(dense=True), torch.rand(3, 784)
    outputs, spread = network(x, 5, torch.Generator().manual_seed(1))
    after, network.after = network.after, torch.nn.Identity()
    logits, same = network(x, 5, torch.Generator().manual_seed(1))
    assert torch.equal(spread, same)
    torch.testing.assert_close(outputs, logits @ after.weight.T + after.bias)
    # z has the moments of the head: 20,000 samples, at 5 standard errors (3e-5 for 60 numbers).
    many, _ = network(x, 20_000, torch.Generator().manual_seed(2))
    error = 5 * spread / 20_000**0.5
    mean = network.moments(torch.relu(network.hidden(x))).chunk(2, -1)[0]
    assert ((many.mean(0) - mean).abs() < error).all()
    assert ((many.std(0) - spread).abs() < error).all()


def test_a_seed_learns_digits_of_two_kinds_and_is_scored():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 2
    # Either kind has its own half of the pixels.
    half = torch.arange(784) < 392
    x = torch.rand(200, 784, generator=generator) * 0.1 + 0.5 * (half == (y == 1)[:, None])
    asked = TINY | {"epochs": 8}
    for kind in dense_after.KINDS:
        found = dense_after.one_seed((x, y), (x, y), kind, 0, asked)
        assert found["accuracy"] == 1.0
        assert found["spread"] > 0
        assert found["spread_after"] > 0


def test_the_words_follow_the_numbers(tmp_path):
    def part(accuracy, spread):
        scores = {key: [spread, spread + 1e-4] for key in dense_after.SCORES}
        return scores | {"accuracy": [accuracy, accuracy + 0.001]}

    work = Work(tmp_path, {"dense_after": TINY})
    found = {"dense-after-direct-0": part(0.95, 0.01), "dense-after-dense-0": part(0.99, 0.2)}
    added = dense_after.tell(work, found, {})
    assert added.lines[0].meaning.startswith("the spreads have not collapsed (above 0.05); the accuracy is better")
    assert added.numbers["0"]["dense"]["accuracy"]["mean"] == pytest.approx(0.9905)
    less = dense_after.tell(work, found | {"dense-after-dense-0": part(0.9501, 0.01)}, {})
    assert "have collapsed" in less.lines[0].meaning
