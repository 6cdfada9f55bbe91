"""Wrong calls get one line that names the right form."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS


def make(name):
    return METHODS[name](nn.Linear(2, 3), "categorical", **({"p": 0.2} if name == "mc-dropout" else {}))


@pytest.mark.parametrize("name", METHODS)
def test_data_is_one_argument(name, blobs):
    with pytest.raises(TypeError, match=r"fit\(\(x, y\), epochs=\.\.\.\), not fit\(x, y\)"):
        make(name).fit(*blobs)
    with pytest.raises(TypeError, match="fit needs the data"):
        make(name).fit(**({} if name == "hmc" else {"epochs": 3}))


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"hmc"}))
def test_names_of_other_libraries_are_translated(name, blobs):
    with pytest.raises(TypeError, match="fit has no argument 'lr'; use learning_rate="):
        make(name).fit(blobs, lr=0.1)
    with pytest.raises(TypeError, match="did you mean 'epochs'"):
        make(name).fit(blobs, epoch=3)


def test_hmc_says_what_it_has_instead(blobs):
    with pytest.raises(TypeError, match="epochs is a setting of optimisation, hmc samples"):
        make("hmc").fit(blobs, epochs=3)


def test_classes_are_not_instances(blobs):
    with pytest.raises(TypeError, match=r"got the class Linear, which needs arguments .*: write Linear\(\.\.\.\)"):
        bf.Variational(nn.Linear, "categorical")
    with pytest.raises(TypeError, match=r"prior must be an instance, got the class Normal: write Normal\(1\.0\)"):
        bf.Variational(nn.Linear(2, 3), "categorical", prior=bf.priors.Normal)
    with pytest.raises(TypeError, match=r"write Categorical\(\)"):
        bf.Variational(nn.Linear(2, 3), bf.likelihoods.Categorical)
    with pytest.raises(TypeError, match="fit belongs to a method, not to its class"):
        bf.Variational.fit(blobs)


def test_a_class_that_needs_no_arguments_makes_a_network():
    class Small(nn.Linear):
        def __init__(self):
            super().__init__(2, 3)

    assert bf.PointEstimate(Small, "categorical").predict(torch.zeros(1, 2)).probs.shape == (1, 3)
