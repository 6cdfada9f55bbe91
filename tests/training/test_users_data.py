"""Training data in every form that users have."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

import bayesify as bf
from bayesify.likelihoods import Categorical, Gaussian
from bayesify.training.users_data import as_examples, as_inputs, for_scoring

X, Y = torch.arange(20.0).view(10, 2), torch.arange(10) % 3


def read(data, likelihood=None, **more):
    return as_examples(data, likelihood or Categorical(), torch.float32, **more)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(X[i], Y[i]) for i in range(10)])


def test_a_loader_needs_to_know_how_many_examples_there_are():
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    assert read(loader).n_data == 10
    assert read(loader).count_batches(99) == 3
    with pytest.raises(ValueError, match="give n_data="):
        read(DataLoader(Endless(), batch_size=4))
    with pytest.raises(ValueError, match="give n_data="):
        read(Endless())
    assert read(Endless(), n_data=10).n_data == 10
    assert len(list(read(DataLoader(Endless(), batch_size=4), n_data=10).batches(4, 0, 0, 1))) == 3


def test_numbers_take_the_networks_precision_and_integers_stay():
    assert as_inputs(np.zeros((3, 2)), torch.float32).dtype == torch.float32
    assert as_inputs(np.zeros((3, 2), dtype=np.float32), torch.float64).dtype == torch.float64
    assert as_inputs(np.zeros((3, 2), dtype=np.int64), torch.float32).dtype == torch.int64
    assert as_inputs([[1.0, 2.0], [3.0, 4.0]], torch.float32).shape == (2, 2)


@pytest.mark.parametrize(
    "data, words",
    [
        ((X, Y[:5]), "same number of examples, got 10 and 5"),
        ((X[:0], Y[:0]), "empty"),
        ((X.clone().fill_(torch.nan), Y), "20 NaN or infinite values"),
        ((torch.where(X > 18, torch.inf, X), Y), "1 NaN or infinite value:"),
        (({"a": X, "b": X[:3]}, Y), "same number of examples"),
        ((np.array([["a", "b"]]), Y[:1]), "must be numbers"),
        ((torch.tensor(1.0), Y[:1]), "batch axis"),
        ((X.to_sparse(), Y), r"must be dense, got a sparse tensor: use \.to_dense\(\)"),
        ((sparse.csr_array(X.numpy()), Y), r"must be dense, got a sparse csr_array: use \.toarray\(\)"),
        (X, "pair"),
        ("mnist", "pair"),
        ({"x": X}, "pair"),
    ],
)
def test_what_cannot_be_trained_on_is_one_clear_line(data, words):
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_text_is_told_from_numbers_by_an_example_of_it():
    pd = pytest.importorskip("pandas")
    names = np.array(["setosa", "virginica"])[(Y > 0).long()]
    with pytest.raises(
        TypeError, match=r"targets must be numbers, got text such as 'setosa': number the classes first"
    ):
        read((X, names))
    # What the message advises works.
    assert read((X, np.unique(names, return_inverse=True)[1])).y.tolist() == (Y > 0).long().tolist()
    for column in (names, pd.Categorical(names), names.astype(object)):
        table = pd.DataFrame({"length": X[:, 0].numpy(), "species": column})
        with pytest.raises(TypeError, match="column 'species' holds text such as 'setosa': encode it or leave it out"):
            read((table, Y))
    table = pd.DataFrame({"length": X[:, 0].numpy(), "when": pd.Timestamp("2020-01-01")})
    with pytest.raises(TypeError, match="column 'when' holds values of type datetime64"):
        read((table, Y))


def test_tables_of_numbers_are_read_without_a_word():
    pd = pytest.importorskip("pandas")
    # Warnings are errors here: what a DataFrame gives may only be read, of which torch warns.
    table = pd.DataFrame(X.numpy(), columns=["one", "two"])
    examples = read((table, pd.Series(Y.numpy())))
    assert torch.equal(examples.x, X)
    assert torch.equal(examples.y, Y)
    mixed = as_inputs(pd.DataFrame({"one": X[:, 0].numpy(), "two": X[:, 1].numpy() > 5}), torch.float32)
    assert torch.equal(mixed, torch.stack((X[:, 0], (X[:, 1] > 5).float()), 1))
    fixed = X.numpy().copy()
    fixed.flags.writeable = False
    assert torch.equal(as_inputs(fixed, torch.float32), X)


def test_batches_of_a_loader_have_their_parts_in_one_order():
    swapped = [({"a": X[:4], "b": X[:4] + 1}, Y[:4]), ({"b": X[4:] + 1, "a": X[4:]}, Y[4:])]
    for x, _ in (batch[0] for batch in read(swapped_loader(swapped), n_data=10).batches(4, 0, 0, 1)):
        assert list(x) == ["a", "b"]
        assert torch.equal(x["a"] + 1, x["b"])
    lacking = [swapped[0], ({"a": X[4:]}, Y[4:])]
    with pytest.raises(ValueError, match="'b' is missing"):
        list(read(swapped_loader(lacking), n_data=10).batches(4, 0, 0, 1))


def swapped_loader(batches):
    class Loader:
        def __iter__(self):
            return iter(batches)

    return Loader()


def test_an_empty_dataset_and_a_strange_dataset_are_refused():
    with pytest.raises(ValueError, match="empty"):
        read(DataLoader(TensorDataset(X[:0], Y[:0])))

    class Bad(torch.utils.data.Dataset):
        def __init__(self, size):
            self.size = size

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            return X[index]

    with pytest.raises(ValueError, match="empty"):
        read(Bad(0))
    with pytest.raises(ValueError, match="must be a pair"):
        read(Bad(3)).first()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_without_its_targets_is_no_data_set(library):
    frame = pytest.importorskip(library).DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    for data, name in ((frame, "DataFrame"), (frame["a"], "Series")):
        with pytest.raises(TypeError, match=rf"data must be a pair \(x, y\), a Dataset or a DataLoader, got {name}$"):
            read(data)
        with pytest.raises(TypeError, match=rf"data must be a pair \(x, y\), a Dataset or a DataLoader, got {name}$"):
            for_scoring(data, Categorical(), torch.float32)


def test_regression_targets_are_checked_too():
    with pytest.raises(ValueError, match="NaN"):
        read((X, torch.full((10,), torch.nan)), Gaussian())


def test_a_loader_of_a_subset_counts_the_subset():
    every = TensorDataset(X, Y)
    some = SubsetRandomSampler([0, 2, 4, 6, 6])
    assert read(DataLoader(every, batch_size=2, sampler=some)).n_data == 4
    assert read(DataLoader(every, batch_sampler=BatchSampler(some, 2, drop_last=False))).n_data == 4
    assert read(DataLoader(every, batch_sampler=BatchSampler(RandomSampler(every), 2, drop_last=False))).n_data == 10


def test_a_number_of_examples_that_is_not_the_datas_is_refused():
    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return X[index], Y[index]

    for data in ((X, Y), TensorDataset(X, Y), Items()):
        assert read(data, n_data=10).n_data == 10
        with pytest.raises(ValueError, match="number of examples, 10, got 1000"):
            read(data, n_data=1000)


class Stream(IterableDataset):
    """64 rows, and whatever number of batches it says."""

    def __init__(self, said):
        self.said = said

    def __len__(self):
        return self.said

    def __iter__(self):
        torch.manual_seed(0)
        return iter([(torch.randn(2), torch.tensor(row % 2)) for row in range(64)])


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
@pytest.mark.parametrize(("said", "message"), [(32, "is 4 batches: it has more"), (640, "is 80 batches: it gave 8")])
def test_a_stream_that_says_a_wrong_length_is_a_warning(said, message):
    method = bf.PointEstimate(torch.nn.Linear(2, 2), "categorical")
    with pytest.warns(bf.BayesifyWarning) as told:
        method.fit(DataLoader(Stream(said), batch_size=8), n_data=64, epochs=2, progress=False)
    assert [message in str(one.message) for one in told].count(True) == 1


def test_a_stream_that_says_its_length_is_read_whole():
    examples = as_examples(DataLoader(Stream(64), batch_size=8), Categorical(), torch.float32, n_data=64)
    for epoch in range(2):
        assert sum(len(y) for ((_, y),) in examples.batches(8, 0, epoch, 1)) == 64  # warnings are errors


def test_a_loader_without_batches_is_refused():
    data = TensorDataset(torch.randn(100, 2), torch.arange(100) % 2)
    method = bf.PointEstimate(torch.nn.Linear(2, 2), "categorical")
    with pytest.raises(ValueError, match="the loader has no batches"):
        method.fit(DataLoader(data, batch_size=200, drop_last=True), epochs=1, progress=False)
