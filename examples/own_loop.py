"""A loop of your own, with your optimiser, scheduler, clipping and accumulation. `python examples/own_loop.py`."""

import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

EPOCHS, BATCH, PARTS = 60, 64, 2


def data():
    x, y = make_moons(320, noise=0.2, random_state=0)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def method():
    torch.manual_seed(0)
    return bf.Variational(nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 2)), "categorical", rho=-3.0)


def main():
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH)
    bnn = method().train()
    optimizer = torch.optim.Adam(bnn.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    step = 0
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            # All parts of a batch have the same step. Dividing by their number counts the KL once.
            for part, labels in zip(inputs.chunk(PARTS), targets.chunk(PARTS), strict=True):
                (bnn.loss(part, labels, n_data=len(x), step=step) / PARTS).backward()
            nn.utils.clip_grad_norm_(bnn.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
    bnn.finish((x, y))

    same = method()
    same.fit(
        loader,
        epochs=EPOCHS,
        learning_rate=0.05,
        schedule="cosine",
        clip_norm=1.0,
        progress=False,
    )
    difference = float((bnn.predict(x).probs - same.predict(x).probs).abs().max())
    print(f"largest difference from fit: {difference:.1e}")
    print(f"accuracy {float((bnn.predict(x).labels == y).float().mean()):.3f}")
    return difference


if __name__ == "__main__":
    main()
