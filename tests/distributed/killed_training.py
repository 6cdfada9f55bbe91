"""A script as people write it, without a word about processes; the second process is killed once, in epoch 3."""

import os
import signal
import sys

import torch
from torch import nn

import bayesify as bf


class Killed(bf.callbacks.Callback):
    """Ends the second process, the first time that it was started, without any warning."""

    def on_epoch_end(self, method, record):
        first_time = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if record["epoch"] == 3 and os.environ.get("RANK") == "1" and first_time:
            os.kill(os.getpid(), signal.SIGKILL)


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    return x, (x[:, :3] + 0.3 * torch.randn(60, 3, generator=generator)).argmax(1)


def method():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return bf.Variational(net, "categorical", prior="normal:1")


def train(run, **settings):
    bnn = method()
    settings |= {"epochs": 6, "batch_size": 16, "learning_rate": 0.02, "run": run, "progress": False}
    bnn.fit(data(), callbacks=[Killed()], **settings)
    return bnn


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(sys.argv[1], **({"distributed": sys.argv[2]} if sys.argv[2:] else {}))
