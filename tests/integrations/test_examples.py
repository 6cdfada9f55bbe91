"""The examples run, and a loop of one's own gives the result of `fit` to rounding."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = {
    "own_loop": (),
    "ivon_optimizer": (),
    "accelerate_loop": ("accelerate",),
    "lightning_module": ("lightning",),
    "huggingface_trainer": ("transformers", "accelerate"),
}


@pytest.mark.parametrize("name", NEEDED)
def test_an_example_gives_what_fit_gives(name, monkeypatch):
    for library in NEEDED[name]:
        pytest.importorskip(library, reason=f"{library} is not installed: pip install 'bayesify[integrations]'")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        assert importlib.import_module(name).main() < 1e-5
    finally:
        for module in NEEDED:
            sys.modules.pop(module, None)
