"""IVON in the place of Adam: one line of a plain loop changes, one is added. `python examples/ivon_optimizer.py`."""

import torch
from own_loop import BATCH, data
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

EPOCHS = 60


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 2))


def main():
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH)
    net = network()
    optimizer = bf.optim.IVON(net.parameters(), n_data=len(x), lr=0.1, hessian_init=0.1, batch_size=BATCH)
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                F.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
    draws = []
    for _ in range(100):
        with optimizer.sampled_params(), torch.no_grad():
            draws.append(net(x).softmax(-1))
    probs = torch.stack(draws).mean(0)

    same = bf.IVON(network(), "categorical", hessian_init=0.1)
    same.fit(loader, epochs=EPOCHS, learning_rate=0.1, progress=False)
    difference = float((probs - same.predict(x, draws=100).probs).abs().max())
    print(f"largest difference from fit: {difference:.1e}")
    print(f"accuracy {float((probs.argmax(-1) == y).float().mean()):.3f}")
    return difference


if __name__ == "__main__":
    main()
