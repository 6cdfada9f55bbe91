"""A Lightning module around a Bayesian network (`pip install lightning`). `python examples/lightning_module.py`."""

import lightning
import torch
from own_loop import BATCH, EPOCHS, data, method
from torch.utils.data import DataLoader, TensorDataset


class Bayesian(lightning.LightningModule):
    """Any method of bayesify: Lightning has the loop, the devices and the logging."""

    def __init__(self, bnn, n_data, learning_rate):
        super().__init__()
        self.bnn, self.n_data, self.learning_rate = bnn, n_data, learning_rate

    def training_step(self, batch, _):
        # Lightning's step counts the optimiser's, so the parts of an accumulated batch share one.
        return self.bnn.loss(*batch, n_data=self.n_data, step=self.global_step)

    def configure_optimizers(self):
        return torch.optim.Adam(self.bnn.parameters(), lr=self.learning_rate)


def main():
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH)
    module = Bayesian(method(), len(x), 0.05)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    bnn = module.bnn.finish((x, y))

    same = method()
    same.fit(loader, epochs=EPOCHS, learning_rate=0.05, clip_norm=1.0, progress=False)
    difference = float((bnn.predict(x).probs - same.predict(x).probs).abs().max())
    print(f"largest difference from fit: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
