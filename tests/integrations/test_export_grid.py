"""Every method on every kind of network under ONNX Runtime: some minutes, so that only `make integrations` runs it."""

import json

import numpy as np
import pytest
from exportable import PAIRS, fitted

import bayesify as bf

pytestmark = pytest.mark.filterwarnings("ignore")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'bayesify[export]'")


@pytest.mark.parametrize(("method", "network"), PAIRS)
def test_onnx_gives_what_predict_gives(method, network, tmp_path):
    bnn, x = fitted(method, network)
    count = min(4, bnn.held or 4)
    bf.export(bnn, tmp_path / "graph.onnx", draws=count, at_least=0.4)
    session = ort.InferenceSession(tmp_path / "graph.onnx", providers=["CPUExecutionProvider"])
    expected = bnn.predict(x, draws=count)
    for rows in (1, len(x)):
        names = [output.name for output in session.get_outputs()]
        answers = dict(zip(names, session.run(None, {"input": x[:rows].numpy()}), strict=True))
        for name in ("probs", "aleatoric", "epistemic"):
            assert np.abs(answers[name] - getattr(expected, name)[:rows].numpy()).max() < 1e-5, name
        assert (answers["accepted"] == expected.accept(at_least=0.4)[:rows].numpy()).all()
    about = json.loads(session.get_modelmeta().custom_metadata_map["bayesify"])
    assert (about["draws"], about["method"]) == (count, bnn.name)
