"""A run in the layout of the Hugging Face Hub, with its model card. `python examples/hub.py`."""

import tempfile
from pathlib import Path

from own_loop import data, method

import bayesify as bf


def main():
    x, y = data()
    bnn = method()
    bnn.fit((x, y), epochs=20, learning_rate=0.05, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        shared = bf.hub.save(bnn, Path(folder) / "moons", licence="apache-2.0")
        print(sorted(file.name for file in shared.iterdir()))
        # With an account: bf.hub.push(bnn, "you/moons"), and elsewhere bf.hub.load("you/moons").
        again = bf.hub.load(shared)
    return float((again.predict(x).probs - bnn.predict(x).probs).abs().max())


if __name__ == "__main__":
    main()
