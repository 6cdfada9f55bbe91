"""What several processes train in `test_training_together.py`: each function returns tensors to compare."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bayesify as bf

BATCH = 24


def data(n=118, classes=3, seed=0):
    """Inputs and labels; the last batch of 24 is ragged, with 22 examples, and 118 is odd for 4 processes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    y = (x[:, :classes] + 0.3 * torch.randn(n, classes, generator=generator)).argmax(1)
    return x, y


def perceptron(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), *layers, nn.Tanh(), nn.Linear(16, 3))


def trained(method, **settings):
    """50 steps: 10 epochs of 5 batches."""
    plan = {"epochs": 10, "batch_size": BATCH, "learning_rate": 0.02, "progress": False} | settings
    given = plan.pop("data", None)
    history = method.fit(data() if given is None else given, **plan)
    return weights(method) | {"history": torch.tensor(history["nll"], dtype=torch.float64)}


def weights(method):
    return {name: value for name, value in method.state_dict().items() if torch.is_tensor(value) and value.numel()}


def variational(net=None, **settings):
    return bf.Variational(net or perceptron(), "categorical", prior="normal:1", **settings)


def point():
    return trained(bf.PointEstimate(perceptron(), "categorical", prior="normal:1"))


def mc_dropout():
    return trained(bf.MCDropout(perceptron(), "categorical", p=0.3))


def weight_estimator():
    return trained(variational(), draws=2)


def local():
    return trained(variational(estimator="local"))


def flipout():
    return trained(variational(estimator="flipout"))


def low_rank():
    return trained(variational(family="low_rank", rank=3))


def full_rank():
    net = nn.Sequential(nn.Linear(6, 3))
    with torch.no_grad():
        net[0].weight.fill_(0.1)
        net[0].bias.zero_()
    return trained(variational(net, family="full_rank"), learning_rate=None)


def mixture_prior():
    return trained(bf.Variational(perceptron(), "categorical", prior="scale-mixture:0.75,1,0.1"), draws=2)


def ivon():
    return trained(bf.IVON(perceptron(), "categorical"), learning_rate=0.05)


def swag():
    return trained(bf.SWAG(perceptron(), "categorical", rank=5), optimizer="sgd:momentum=0.9", learning_rate=0.05)


def sgld():
    return trained(bf.SGLD(perceptron(), "categorical", chains=2, samples=4), learning_rate=1e-3)


def sghmc():
    return trained(bf.SGHMC(perceptron(), "categorical", chains=2, samples=4), learning_rate=1e-3)


def sghmc_found_step():
    method = bf.SGHMC(perceptron(), "categorical", chains=2, samples=4)
    return trained(method, learning_rate=None)


def sgld_whole_data():
    method = bf.SGLD(perceptron(), "categorical", chains=2, samples=4)
    return trained(method, learning_rate=None, batch_size=118, epochs=50)


def laplace():
    method = bf.LaplaceApproximation(perceptron(), "categorical", subset="last_layer", structure="full")
    return trained(method)


def laplace_kronecker():
    return trained(bf.LaplaceApproximation(perceptron(), "categorical", structure="kronecker"))


def ensemble():
    return trained(bf.Ensemble(perceptron(), "categorical", members=2))


def batch_norm():
    return trained(variational(perceptron(nn.BatchNorm1d(16))))


def batch_norm_few_examples():
    """A last batch of 2 examples: two of four processes have none."""
    x, y = data()
    return trained(variational(perceptron(nn.BatchNorm1d(16)).double()), data=(x[:98], y[:98]))


def convolutions():
    """Images, with batch normalisation and dropout of whole channels."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(64, 3)
    ).double()
    x, y = data()
    images = torch.randn(118, 1, 6, 6, generator=torch.Generator().manual_seed(1)) + x[:, :1, None, None]
    return trained(bf.Variational(net, "categorical", prior="normal:1", estimator="flipout"), data=(images, y))


class Recurrent(nn.Module):
    """Time first: the batch is the second axis of what the layers see."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 5)
        self.cells = nn.LSTM(5, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        steps = self.first(x.view(-1, 3, 2).transpose(0, 1))
        return self.last(nn.functional.dropout(self.cells(steps)[0], 0.2, self.training)[-1])


def batch_not_in_front():
    torch.manual_seed(0)
    return trained(bf.Variational(Recurrent(), "categorical", prior="normal:1", estimator="local"))


def gaussian_logits():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
    return trained(bf.Variational(net, bf.likelihoods.GaussianLogits(samples=20), prior="normal:1"))


def clipped():
    return trained(variational(perceptron(nn.BatchNorm1d(16))), clip_norm=0.05)


def accumulated():
    return trained(variational(perceptron(nn.BatchNorm1d(16), nn.Dropout(0.2)), estimator="local"), accumulate=3)


def bfloat16():
    return trained(variational(), precision="bfloat16")


def averaged():
    return trained(variational(), ema=0.9, schedule="cosine")


def validated():
    """Early stopping and the best state, by validation."""
    return trained(variational(), validation=data(61, seed=1), keep="best", patience=3, learning_rate=0.1)


class Items(Dataset):
    def __init__(self):
        self.x, self.y = data()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def dataset():
    return trained(variational(), data=Items())


def loader():
    """A loader that shuffles by torch's own generator, which differs between the processes until they train."""
    if "RANK" in os.environ:
        torch.manual_seed(int(os.environ["RANK"]))
    else:
        torch.manual_seed(0)
    return trained(variational(), data=DataLoader(TensorDataset(*data()), batch_size=BATCH, shuffle=True))


def augmented():
    return trained(variational(), augment=lambda x: x + 0.1 * torch.randn_like(x))


def other_starts():
    """Networks that start elsewhere in every process: all of them go on from the first one."""
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return trained(bf.Variational(net, "categorical", prior="normal:1"))


def swag_batch_norm():
    """Each process computes the running statistics of some of the draws."""
    method = bf.SWAG(perceptron(nn.BatchNorm1d(16)).double(), "categorical", rank=5, held_draws=5)
    return trained(method, optimizer="sgd:momentum=0.9", learning_rate=0.05)


def laplace_without_training():
    return trained(bf.LaplaceApproximation(perceptron(), "categorical", structure="diagonal"), epochs=0)
