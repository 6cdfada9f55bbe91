"""Wrong calls get one line that names the right form."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import bayesify as bf
from bayesify.methods import METHODS
from bayesify.methods.usual_plan import usual_epochs


def make(name):
    return METHODS[name](nn.Linear(2, 3), "categorical", **({"p": 0.2} if name == "mc-dropout" else {}))


@pytest.mark.parametrize("name", METHODS)
def test_data_is_one_argument(name, blobs):
    with pytest.raises(TypeError, match=r"fit\(\(x, y\), epochs=\.\.\.\), not fit\(x, y\)"):
        make(name).fit(*blobs)
    with pytest.raises(TypeError, match="fit needs the data"):
        make(name).fit(**({} if name == "hmc" else {"epochs": 3}))


@pytest.mark.parametrize("name", METHODS)
def test_data_of_a_wrong_form_is_named_by_its_argument(name, blobs):
    with pytest.raises(TypeError, match=r"^validation must be a pair \(x, y\), a Dataset or a DataLoader, got float"):
        make(name).fit(blobs, validation=0.2)
    frame = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0], "target": [0, 1]})
    with pytest.raises(TypeError, match=r"^data must be a pair \(x, y\), a Dataset or a DataLoader, got DataFrame"):
        make(name).fit(frame)


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


class Stream(IterableDataset):
    """Examples of which nobody knows how many there are."""

    def __iter__(self):
        return iter([(torch.zeros(2), torch.tensor(0))] * 5)


X, Y = torch.zeros(700, 2), torch.zeros(700, dtype=torch.long)


@pytest.mark.parametrize(
    "data, batch_size, expected",
    [
        ((X, Y), 128, 334),  # six batches an epoch
        ((X.numpy(), {"kind": Y.numpy()}), 128, 334),
        (({"a": X, "b": X}, Y), 700, 2000),
        (TensorDataset(X, Y), 128, 334),
        (DataLoader(TensorDataset(X, Y), batch_size=7), 128, 20),
        ((torch.zeros(60_000, 2), torch.zeros(60_000)), 128, 10),
        (DataLoader(Stream(), batch_size=7), 128, 10),
        (Stream(), 128, 10),
        ("a file", 128, 10),
        ((X, Y), 0, 10),
    ],
)
def test_epochs_that_are_not_given_are_enough_for_2000_steps(data, batch_size, expected):
    point = bf.PointEstimate(nn.Linear(2, 3), "categorical")
    assert usual_epochs(point, data, batch_size) == expected


def test_many_rows_of_numbers_have_6000_steps_as_on_the_command_line():
    point = bf.PointEstimate(nn.Linear(2, 1), "gaussian:learned")
    assert usual_epochs(point, (np.zeros((5000, 2)), np.zeros(5000)), 128) == 150
    assert usual_epochs(point, (np.zeros((4999, 2)), np.zeros(4999)), 128) == 50


@pytest.mark.parametrize("name", ["point", "laplace"])
def test_fit_with_nothing_but_data_learns_two_moons(name):
    x, y = make_moons(400, noise=0.15, random_state=0)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    torch.manual_seed(0)
    method = METHODS[name](nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2)), "categorical")
    method.fit((x[:300], y[:300]), compiled=False, progress=False)
    assert not method.warnings
    assert (method.predict(x[300:]).labels == y[300:]).double().mean() > 0.94


NUMPY = {
    "ensemble": {"members": np.int64(2)},
    "swag": {"rank": np.int32(3), "held_draws": np.int64(8), "every": np.int64(1)},
    "sgld": {"chains": np.int64(2), "samples": np.int64(4), "temperature": np.float32(0.5)},
    "mc-dropout": {"p": np.float32(0.25)},
}


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
@pytest.mark.parametrize("name", ["variational", "ensemble", "swag", "sgld", "ivon", "laplace", "mc-dropout", "hmc"])
def test_numbers_of_numpy_are_the_python_numbers_that_they_are(name, blobs, tmp_path):
    made, plain = (
        {key: change(value) for key, value in NUMPY.get(name, {}).items()}
        for change in (lambda v: v, lambda v: v.item())
    )
    fitted = {"epochs": 8, "batch_size": 30, "learning_rate": 0.015625, "seed": 10}
    fitted |= {} if name in {"sgld", "ivon"} else {"clip_norm": 2.0}
    if name == "hmc":
        fitted = {"warm_up": 20, "samples": 5, "target_accept": 0.75, "max_leapfrogs": 5, "seed": 10}
    of_numpy = {key: np.float32(one) if isinstance(one, float) else np.int64(one) for key, one in fitted.items()}
    results = []
    for settings, plan in ((made, of_numpy), (plain, fitted)):
        method = METHODS[name](
            bf.networks.mlp(2, 3, units=4), "categorical", seed=np.int64(3), start="fresh", **settings
        )
        method.fit(blobs, progress=False, **plan)
        results.append(method)
    first, second = results
    first.save(tmp_path / "run")
    assert first.plan == second.plan
    assert first.settings() == second.settings()
    seed = 10  # the keys of NumPy's numbers overflowed, with a warning
    expected = second.predict(blobs[0], draws=7, seed=seed).probs
    assert torch.equal(first.predict(blobs[0], draws=np.int64(7), seed=np.int64(seed)).probs, expected)
    assert torch.equal(bf.load(tmp_path / "run").predict(blobs[0], draws=7, seed=seed).probs, expected)


def test_true_is_no_number(blobs):
    for wrong in (True, np.True_, 2.5, np.float64(2.5)):
        with pytest.raises(ValueError, match="epochs must be an integer of at least 1"):
            make("point").fit(blobs, epochs=wrong)
    for wrong in (True, np.True_):
        with pytest.raises(ValueError, match="time must be a finite number above 0"):
            bf.Auto(likelihood="gaussian", time=wrong)
    assert type(bf.Auto(likelihood="gaussian", time=np.int64(6)).time) is float


def test_keys_of_numpys_numbers_are_those_of_pythons():
    of_numpy = bf.noise.keys(np.int64(-3), 2, np.int32(1), np.int64(5), np.arange(4))
    assert torch.equal(of_numpy, bf.noise.keys(-3, 2, 1, 5, range(4)))
