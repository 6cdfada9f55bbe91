"""The examples run: a loop of one's own gives the result of `fit` to rounding, a written model that of `predict`."""

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
    "export_onnx": ("onnx", "onnxruntime", "onnxscript"),
    "mlflow_model": ("mlflow", "pandas"),
    "hub": (),
}


@pytest.mark.parametrize("name", NEEDED)
def test_an_example_gives_what_bayesify_gives(name, monkeypatch):
    for library in NEEDED[name]:
        pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        assert importlib.import_module(name).main() < 1e-5
    finally:
        for module in NEEDED:
            sys.modules.pop(module, None)
