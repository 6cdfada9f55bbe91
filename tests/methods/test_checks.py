"""What does not fit is one line that names it: inputs by name, outputs, likelihoods, batches of one, bad values."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.training.warnings import without_warnings

A, B = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 80).view(40, 2)
Y = (A[:, 0] > 0).long()


class ByName(nn.Module):
    def __init__(self, widths=(2, 2)):
        super().__init__()
        self.a, self.b = nn.Linear(widths[0], 4), nn.Linear(widths[1], 4)
        self.out = nn.Linear(4, 2)

    def forward(self, a, b, weight=None):
        hidden = torch.tanh(self.a(a) - self.b(b))
        return self.out(hidden if weight is None else weight * hidden)


class Whole(nn.Module):
    """Takes a mapping as it is, and depends on the order of its values."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, batch):
        return self.out(torch.cat(list(batch.values()), -1)) + batch["a"]


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.look_up, self.out = nn.Embedding(10, 4), nn.Linear(4, 2)

    def forward(self, tokens):
        return self.out(self.look_up(tokens).mean(1))


def fitted(network, x, method=bf.Ensemble, **settings):
    own = method(network, "categorical", **settings)
    own.fit((x, Y), epochs=2, progress=False)
    return own


@pytest.mark.parametrize("make", [ByName, Whole])
def test_the_order_of_named_inputs_does_not_matter(make, tmp_path):
    torch.manual_seed(0)
    method = fitted(make(), {"b": B, "a": A}, members=2)
    expected = method.predict({"b": B, "a": A}).probs
    assert torch.equal(method.predict({"a": A, "b": B}).probs, expected)
    method.save(tmp_path / "run")
    loaded = bf.load(tmp_path / "run", network=make())
    assert torch.equal(loaded.predict({"a": A, "b": B}).probs, expected)


def test_inputs_of_other_widths_may_come_in_any_order_too():
    method = fitted(ByName((2, 1)), {"a": A, "b": B[:, :1]}, members=2)
    scores = bf.evaluate(method, ({"b": B[:, :1], "a": A}, Y))
    assert scores.nll == bf.evaluate(method, ({"a": A, "b": B[:, :1]}, Y)).nll
    with pytest.raises(
        ValueError, match=r"have shape a \[n, 2\] and b \[n, 2\], .* trained on a \[n, 2\] and b \[n, 1\]"
    ):
        method.predict({"b": B, "a": A})


WRONG = [
    ({"a": A}, "named 'a', .* 'a' and 'b': 'b' is missing"),
    ({"a": A, "c": B}, "named 'a' and 'c', .* 'a' and 'b': 'b' is missing, 'c' is unknown"),
    ({"a": A, "b": B, "c": B}, "named 'a', 'b' and 'c', .* 'a' and 'b': 'c' is unknown"),
    ({"c": A, "d": B}, "'a' and 'b' are missing, 'c' and 'd' are unknown"),
]


@pytest.mark.parametrize("x, words", WRONG)
def test_a_name_that_is_missing_or_unknown_is_named(x, words, tmp_path):
    method = fitted(ByName(), {"a": A, "b": B}, members=2)
    method.save(tmp_path / "run")
    for one in (method, bf.load(tmp_path / "run", network=ByName())):
        with pytest.raises(ValueError, match=words.replace(".*", "the network was trained on")) as caught:
            one.predict(x)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=words.replace(".*", "the network was trained on")):
        method.fit(({"a": A, "b": B}, Y), epochs=1, progress=False, validation=(x, Y))


@pytest.mark.parametrize("x, words", WRONG)
def test_before_training_the_networks_own_parameters_say_it(x, words):
    method = bf.PointEstimate(ByName(), "categorical")
    # `weight` may be left out, so that it is known but never missing.
    words = words.replace(".* 'a' and 'b'", "the network takes 'a', 'b' and 'weight'")
    for call in (lambda: method.fit((x, Y), progress=False), lambda: method.predict(x)):
        with pytest.raises(ValueError, match=words):
            call()
    # What was wrong with the names says nothing about the network: it is traced as ever.
    method.fit(({"a": A, "b": B}, Y), epochs=1, progress=False)
    assert method.network.traced({"a": A, "b": B}).problem is None


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 2)

    def forward(self, a, shift=0.0):
        return self.out(a) + shift


def test_a_mapping_that_could_be_one_argument_is_explained_by_its_names():
    with pytest.raises(ValueError, match="named 'shift', the network takes 'a' and 'shift': 'a' is missing"):
        bf.PointEstimate(Optional(), "categorical").fit(({"shift": A}, Y), progress=False)
    with pytest.raises(ValueError, match="needs an input 'a', the inputs are 'b' and 'c'") as caught:
        bf.PointEstimate(Whole(), "categorical").fit(({"b": A, "c": B}, Y), progress=False)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("method", [bf.PointEstimate, bf.Variational, bf.Ensemble])
def test_prediction_explains_what_the_network_cannot_take(method):
    tokens = torch.arange(200).view(40, 5) % 10
    own = fitted(Tokens(), tokens, method)
    for bad, kind, cause, words in [
        (tokens + 7, "int64", IndexError, "the largest index is 16, but an embedding has 10 rows, for indices from 0"),
        (tokens.float(), "float32", RuntimeError, "indices"),
    ]:
        for call in (own.predict, own.draw):
            expected = rf"the network cannot take inputs of shape \[\(40, 5\)\] and type \['{kind}'\]: .*{words}"
            with pytest.raises(ValueError, match=expected) as caught:
                call(bad)
            assert isinstance(caught.value.__cause__, cause)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", [0, 30])
@pytest.mark.parametrize("bad", [12, -1])
def test_an_index_outside_the_vocabulary_is_named_wherever_it_is(row, bad):
    tokens = torch.arange(200).view(40, 5) % 10
    wrong = tokens.clone()
    wrong[row, 2] = bad
    which = "largest index is 12" if bad > 0 else "smallest index is -1"
    expected = (
        f"the network cannot take inputs of shape [(40, 5)] and type ['int64']: the {which}, but an embedding has 10 "
        "rows, for indices from 0 to 9"
    )

    def new():
        return bf.PointEstimate(Tokens(), "categorical")

    loader = DataLoader(TensorDataset(wrong, Y), batch_size=40)
    for call in (
        lambda: new().fit((wrong, Y), batch_size=10, epochs=1, progress=False),
        lambda: new().fit((tokens, Y), validation=(wrong, Y), epochs=1, progress=False),
        lambda: new().loss(wrong, Y, n_data=40, step=0),
        lambda: new().eval().predict(wrong),
        lambda: fitted(Tokens(), tokens).predict(wrong),
        lambda: bf.evaluate(fitted(Tokens(), tokens), (wrong, Y)),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == expected
    with pytest.raises(ValueError, match=f"the {which}"):  # the examples of a loader are seen batch by batch
        new().fit(loader, epochs=1, progress=False)


class WithPlaces(nn.Module):
    """Words with a second table, which is not read by the inputs themselves."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(10, 4), nn.Embedding(5, 4), nn.Linear(4, 2)

    def forward(self, tokens):
        return self.out((self.words(tokens) + self.places(torch.arange(tokens.shape[1]))).mean(1))


def test_a_table_that_other_numbers_read_says_nothing_about_the_inputs():
    tokens = torch.arange(5).repeat(40, 1)
    tokens[2:] += 5  # the first two examples are like the places
    own = bf.PointEstimate(WithPlaces(), "categorical")
    own.fit((tokens, Y), epochs=1, progress=False)
    assert own.predict(tokens).probs.shape == (40, 2)
    longer = torch.arange(7).repeat(40, 1)
    with pytest.raises(ValueError, match=r"\(40, 7\).* the largest index is 6, but an embedding has 5 rows"):
        own.predict(longer)


def test_the_shape_in_a_refusal_is_that_of_the_inputs_given():
    method = bf.PointEstimate(nn.Linear(4, 2), "categorical").eval()
    with pytest.raises(ValueError, match=r"inputs of shape \[\(4,\)\]"):
        method.predict(torch.randn(4))
    with pytest.raises(ValueError, match=r"inputs of shape \[\(40, 2\)\]"):
        method.fit((A, Y), epochs=1, progress=False)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)

    def forward(self, x):
        return {"logits": self.one(x), "features": x}


def test_what_is_wrong_with_outputs_is_not_blamed_on_inputs():
    with pytest.raises(TypeError, match=r"^the network returns dict, not a tensor: pick one with output="):
        bf.PointEstimate(TwoHeads(), "categorical").fit((A, Y), progress=False)
    with pytest.raises(ValueError, match=r"^output='logit' is not in what the network returns"):
        bf.PointEstimate(TwoHeads(), "categorical", output="logit").fit((A, Y), progress=False)


def test_a_likelihood_that_was_not_made_is_told_how():
    with pytest.raises(TypeError, match=r"got the class Categorical: write Categorical\(\)"):
        bf.Variational(nn.Linear(2, 2), bf.likelihoods.Categorical)
    with pytest.raises(TypeError, match=r"one of bayesify.likelihoods, got int"):
        bf.Variational(nn.Linear(2, 2), 3)


@pytest.mark.parametrize(
    "data, settings, words",
    [
        ((A, Y), {"batch_size": 1}, "with batch_size=1 every batch is a single example, .*: choose a larger one"),
        ((A, Y), {"batch_size": 39}, "the last batch of an epoch would be .*: choose another batch_size than 39"),
        (DataLoader(TensorDataset(A, Y)), {}, "each batch of this loader is a single example, .*: make them larger"),
    ],
)
def test_batches_of_one_are_refused_where_the_network_cannot_train_on_them(data, settings, words):
    normalised = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=words) as caught:
        bf.PointEstimate(normalised, "categorical").fit(data, progress=False, **settings)
    assert "Expected more than 1 value per channel" in str(caught.value.__cause__)
    bf.PointEstimate(nn.Linear(2, 2), "categorical").fit(data, epochs=1, progress=False, **settings)


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("auto", [False, True])
def test_columns_of_a_frame_go_by_their_names(library, auto, tmp_path):
    frames = pytest.importorskip(library)
    rows = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).double().numpy()
    frame = frames.DataFrame({name: rows[:, number] for number, name in enumerate("abc")})
    other, y = frame[["c", "a", "b"]], 2 * rows[:, 0] - rows[:, 2]
    if auto:
        method = bf.Auto(likelihood="gaussian").fit((frame, y), validation=(other, y), epochs=3, progress=False)
    else:
        network = bf.networks.mlp(3, 1, units=4)
        method, again = (bf.Variational(network, "gaussian") for _ in range(2))
        history = method.fit((frame, y), validation=(other, y), epochs=3, progress=False)
        assert (
            again.fit((rows, y), validation=(rows, y), epochs=3, progress=False)["validation_nll"]
            == history["validation_nll"]
        )
        assert again.column_names is None
        assert method.elbo((other, y)).value == method.elbo((rows, y)).value
    method.save(tmp_path / "run")
    expected = method.predict(rows).mean
    for each in (method, bf.load(tmp_path / "run")):
        assert torch.equal(each.predict(other).mean, expected)
        assert torch.equal(next(each.predict_in_parts(other)).mean, expected)
        assert torch.equal(each.draw(other, draws=2), each.draw(rows, draws=2))
        assert bf.evaluate(each, (other, y)).nll == bf.evaluate(each, (rows, y)).nll
        with pytest.raises(ValueError, match="column 'b' is missing from the inputs: give the columns of training"):
            each.predict(frame[["a", "c"]])
        with pytest.raises(ValueError, match="column 'd' is not among those trained on"):
            each.predict(frames.DataFrame(dict.fromkeys("abcd", rows[:, 0])))


def test_a_frame_without_names_goes_by_the_order_of_its_columns():
    pd = pytest.importorskip("pandas")
    rows = torch.randn(20, 2).numpy()
    method = bf.PointEstimate(nn.Linear(2, 1), "gaussian")
    with without_warnings():
        method.fit((pd.DataFrame(rows), rows[:, 0]), epochs=1, progress=False)
    assert method.column_names is None
    assert torch.equal(method.predict(pd.DataFrame(rows)).mean, method.predict(rows).mean)
