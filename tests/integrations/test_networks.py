"""Every network of the zoo with every method: train, evaluate, prune and serve. `make integrations` runs it."""

import pytest
import zoo

pytestmark = pytest.mark.filterwarnings("ignore")

# Only these set single weights to zero.
PRUNED = {"Variational", "Variational, flipout"}
# A server takes one array.
SEVERAL_INPUTS = {"BERT", "Graph network"}


@pytest.mark.parametrize("method", zoo.METHODS)
@pytest.mark.parametrize("title", zoo.ENTRIES)
def test_the_whole_way(title, method, tmp_path):
    entry = zoo.ENTRIES[title]
    if entry.source != "look-alike":
        pytest.importorskip(
            "transformers", reason="transformers is not installed: pip install 'bayesify[integrations]'"
        )
    if entry.source == "peft":
        pytest.importorskip("peft", reason="peft is not installed: pip install 'bayesify[integrations]'")
    result = zoo.try_one(entry, method, tmp_path / "run")
    assert result["train"] == result["evaluate"] == "yes"
    assert (result["prune"] == "yes") == (method in PRUNED), result["prune"]
    assert (result["serve"] == "yes") == (title not in SEVERAL_INPUTS), result["serve"]
