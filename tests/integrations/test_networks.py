"""Every network of the zoo with every method: make, train, predict, save, load. `make integrations` runs it."""

import pytest
import zoo

pytestmark = pytest.mark.filterwarnings("ignore")

# What is refused, with the reason that the user reads.
REFUSED = {
    ("GPT-2", "Laplace, last layer"): "supports Linear and Conv2d, not Conv1D",
}


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
    reason = REFUSED.get((title, method))
    if reason is None:
        assert result == "yes"
    else:
        assert reason in result
