"""Every network of the zoo with every method: train, evaluate, prune and serve. `make integrations` runs it."""

import pytest
import torch
import zoo
from torch.utils.flop_counter import FlopCounterMode

import bayesify as bf
from bayesify.functional import shared_prefix

pytestmark = pytest.mark.filterwarnings("ignore")

# Only these set single weights to zero.
PRUNED = {"Variational", "Variational, flipout"}
# A server takes one array.
SEVERAL_INPUTS = {"BERT", "Graph network"}


def _entry(title):
    entry = zoo.ENTRIES[title]
    if entry.source != "look-alike":
        pytest.importorskip(
            "transformers", reason="transformers is not installed: pip install 'bayesify[integrations]'"
        )
    if entry.source == "peft":
        pytest.importorskip("peft", reason="peft is not installed: pip install 'bayesify[integrations]'")
    return entry


@pytest.mark.parametrize("method", zoo.METHODS)
@pytest.mark.parametrize("title", zoo.ENTRIES)
def test_the_whole_way(title, method, tmp_path):
    result = zoo.try_one(_entry(title), method, tmp_path / "run")
    assert result["train"] == result["evaluate"] == "yes"
    assert (result["prune"] == "yes") == (method in PRUNED), result["prune"]
    assert (result["serve"] == "yes") == (title not in SEVERAL_INPUTS), result["serve"]


@pytest.mark.parametrize("title", zoo.ENTRIES)
def test_draws_of_the_last_layer_share_the_passes_before_it(title, monkeypatch):
    monkeypatch.setattr(shared_prefix, "_FEWEST", 0)  # the zoo is small
    monkeypatch.setattr(shared_prefix, "_SMALLEST_SHARE", 0.0)
    torch.manual_seed(0)
    entry = _entry(title)
    net, (x, _) = entry.make(), entry.data()
    bnn = bf.Variational(net, entry.likelihood(), bayesian=entry.last_layer, output=entry.output, rho=-1.0)
    together = bnn.predict(x, draws=5).outputs
    with FlopCounterMode(display=False) as shared:
        bnn.draw(x, draws=5)
    with torch.no_grad(), FlopCounterMode(display=False) as whole:
        one_by_one = torch.cat([bnn.outputs_at(bnn.weights([n], 0), x, None, None) for n in range(5)])
    assert torch.equal(together, one_by_one)
    assert float(together.std(0).max()) > 0
    if title != "LSTM tagger":  # torch does not count the work of recurrent layers
        assert shared.get_total_flops() < whole.get_total_flops()
