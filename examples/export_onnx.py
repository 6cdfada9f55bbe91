"""A posterior as an ONNX file that runs without torch. `python examples/export_onnx.py`.

It needs `pip install 'bayesify[export]'`.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from own_loop import data, method

import bayesify as bf


def main():
    x, y = data()
    bnn = method()
    bnn.fit((x, y), epochs=20, learning_rate=0.05, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "moons.onnx"
        made = bf.export(bnn, file, draws=20, at_least=0.9)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        probs, _, epistemic, accepted = session.run(made.outputs, {"input": x.numpy()})
    print(
        f"{made.size:,} bytes; accepted {accepted.mean():.0%}; mean epistemic uncertainty {epistemic.mean():.3f} nats"
    )
    difference = float(np.abs(probs - bnn.predict(x, draws=20).probs.numpy()).max())
    print(f"largest difference from predict: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
