"""A run in the layout of the Hugging Face Hub, with its model card. `python examples/hub.py`."""

import tempfile
from pathlib import Path

import torch
from own_loop import data

import bayesify as bf


def main():
    x, y = data()
    torch.manual_seed(0)
    # A network of bayesify's is built again from its description; for your own, give `network=` when loading.
    bnn = bf.Variational(bf.networks.mlp(2, 2, units=20, layers=1), "categorical", rho=-3.0)
    bnn.fit((x, y), epochs=20, learning_rate=0.05, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        shared = bf.hub.save(bnn, Path(folder) / "moons", licence="apache-2.0")
        print(sorted(file.name for file in shared.iterdir()))
        # With an account: bf.hub.push(bnn, "you/moons"), and elsewhere bf.hub.load("you/moons").
        again = bf.hub.load(shared)
    return float((again.predict(x).probs - bnn.predict(x).probs).abs().max())


if __name__ == "__main__":
    main()
