"""Training ends when the ELBO no longer rises: at its noise, at the exact optimum, and not before."""

import math
import statistics

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.exact import LinearRegression
from bayesify.training.elbo_slope import slope_of


def test_the_slope_and_its_standard_error_are_those_of_least_squares():
    # Lines with noise of standard deviation 2 through 50 places: the slope's own standard deviation is 2 / sqrt(S).
    generator = np.random.default_rng(0)
    found = [slope_of(0.3 * np.arange(50) + 2 * generator.normal(size=50)) for _ in range(2000)]
    exact = 2 / math.sqrt(50 * (50**2 - 1) / 12)
    slopes, errors = zip(*found, strict=True)
    assert abs(statistics.fmean(slopes) - 0.3) < 4 * exact / math.sqrt(2000)
    assert abs(statistics.stdev(slopes) / exact - 1) < 4 / math.sqrt(4000)
    assert abs(statistics.fmean(error**2 for error in errors) / exact**2 - 1) < 4 * math.sqrt(2 / 48 / 2000)


def test_training_ends_near_the_evidence_of_a_linear_model():
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = x @ torch.tensor([[1.0], [-0.5], [0.2]]) + 0.5 * torch.randn(60, 1)
    exact = LinearRegression(1.0, noise=0.5, intercept=False).fit((x.double(), y[:, 0].double()))
    bnn = bf.Variational(nn.Linear(3, 1, bias=False), bf.likelihoods.Gaussian(0.5), prior="normal:1", estimator="local")
    ends = [bf.callbacks.StopAtELBO(window=60)]
    plan = {"epochs": 3000, "batch_size": 60, "learning_rate": 0.03, "draws": 4, "compiled": False, "progress": False}
    history = bnn.fit((x, y), callbacks=ends, **plan)
    assert history.stopped == "the ELBO has not risen by more than its noise for 60 epochs"
    assert 60 <= len(history) < 1500
    # Mean field is near exact here: inputs are nearly uncorrelated. It started hundreds of nats below.
    evidence = float(exact.log_evidence)
    assert history["elbo"][0] < evidence - 20
    assert evidence - 1.5 < bnn.elbo((x, y)).value < evidence + 0.5


def test_methods_without_an_elbo_and_short_windows_are_refused():
    x, y = torch.randn(20, 2), torch.randint(0, 2, (20,))
    method = bf.PointEstimate(nn.Linear(2, 2), "categorical")
    with pytest.raises(ValueError, match="needs a method with an ELBO, variational or ivon, the method is point"):
        method.fit((x, y), epochs=2, callbacks=[bf.callbacks.StopAtELBO()], progress=False)
    with pytest.raises(ValueError, match="at least 10"):
        bf.callbacks.StopAtELBO(window=5)
