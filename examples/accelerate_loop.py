"""The same loop with Hugging Face Accelerate (`pip install accelerate`). `python examples/accelerate_loop.py`."""

import torch
from accelerate import Accelerator
from own_loop import BATCH, EPOCHS, data, method
from torch.utils.data import DataLoader, TensorDataset


def main():
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH)
    bnn = method().train()
    optimizer = torch.optim.Adam(bnn.parameters(), lr=0.05)
    accelerator = Accelerator(cpu=True)
    bnn, optimizer, batches = accelerator.prepare(bnn, optimizer, loader)
    step = 0
    for _ in range(EPOCHS):
        for inputs, targets in batches:
            optimizer.zero_grad()
            accelerator.backward(bnn.loss(inputs, targets, n_data=len(x), step=step))
            accelerator.clip_grad_norm_(bnn.parameters(), 1.0)
            optimizer.step()
            step += 1
    bnn = accelerator.unwrap_model(bnn).finish((x, y))

    same = method()
    same.fit(loader, epochs=EPOCHS, learning_rate=0.05, clip_norm=1.0, progress=False)
    difference = float((bnn.predict(x).probs - same.predict(x).probs).abs().max())
    print(f"largest difference from fit: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
