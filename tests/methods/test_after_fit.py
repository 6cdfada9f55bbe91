"""Warnings after a fit: false alarms on good fits and misses on bad ones, counted over six small problems."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_circles, make_moons

import bayesify as bf
from bayesify.training.warnings import without_warnings


def standardised(x):
    return ((x - x.mean(0)) / (x.std(0) + 1e-9)).astype(np.float32)


def problem(name):
    rng = np.random.default_rng(0)
    if name == "moons":
        x, y = make_moons(300, noise=0.15, random_state=0)
    elif name == "circles":
        x, y = make_circles(300, noise=0.08, factor=0.5, random_state=0)
    elif name == "iris":
        x, y = load_iris(return_X_y=True)
    elif name == "digits":
        x, y = (part[:500] for part in load_digits(return_X_y=True))
    elif name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        y = standardised(y)
    else:
        x = rng.uniform(-3, 3, (200, 1))
        y = (np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200)).astype(np.float32)
    order = rng.permutation(len(x))
    return standardised(x)[order], np.asarray(y)[order]


PROBLEMS = ("moons", "circles", "iris", "digits", "diabetes", "sine")
METHODS = {
    "variational": (lambda *a: bf.Variational(*a, prior="normal:1"), {"epochs": 300, "learning_rate": 0.03}),
    "ivon": (lambda *a: bf.IVON(*a, prior="normal:1"), {"epochs": 300, "learning_rate": 0.1}),
    "point": (lambda *a: bf.PointEstimate(*a, prior="normal:1"), {"epochs": 100, "learning_rate": 0.01}),
    "ensemble": (lambda *a: bf.Ensemble(*a, members=3), {"epochs": 60, "learning_rate": 0.01}),
    "mc_dropout": (lambda *a: bf.MCDropout(*a, p=0.1), {"epochs": 100, "learning_rate": 0.01}),
    "laplace": (lambda *a: bf.LaplaceApproximation(*a, prior="normal:1"), {"epochs": 100, "learning_rate": 0.01}),
}


def fitted(name, method, **changes):
    x, y = problem(name)
    classes = name not in ("diabetes", "sine")
    units = 16
    network = bf.networks.mlp(x.shape[1], int(y.max()) + 1 if classes else 1, units=units, layers=1, seed=0) if False else None
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], units), torch.nn.Tanh(), torch.nn.Linear(units, int(y.max()) + 1 if classes else 1)
    )
    make, settings = METHODS[method]
    bnn = make(network, "categorical" if classes else "gaussian:learned")
    with without_warnings():
        bnn.fit((x, y), batch_size=64, **{"schedule": "cosine", **settings, **changes}, progress=False, compiled=False)
    return bnn
