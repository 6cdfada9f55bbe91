"""Texts of different lengths: each batch is padded to its own longest text, as people write it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import bayesify as bf

CLASSES = 20


class Tagger(nn.Module):
    """Logits `[batch, tokens, classes]` of any number of tokens, each from its own token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.fc = nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES)

    def forward(self, tokens):
        return self.fc(torch.tanh(self.embedding(tokens)))


def texts(rows=40):
    generator = torch.Generator().manual_seed(0)
    lengths = sorted(torch.randint(3, 9, (rows,), generator=generator).tolist())
    return [torch.randint(0, CLASSES, (length,), generator=generator) for length in lengths]


def padded(rows):
    longest = max(map(len, rows))
    x, y = torch.zeros(len(rows), longest, dtype=torch.long), torch.full((len(rows), longest), -100)
    for number, row in enumerate(rows):
        x[number, : len(row)] = row
        y[number, : len(row) - 1] = row[1:]
    return x, y


def loader():
    return DataLoader(texts(), batch_size=8, collate_fn=padded)


MAKERS = {
    "variational": lambda: bf.Variational(Tagger(), "categorical"),
    "balanced": lambda: bf.Variational(Tagger(), "categorical:balanced"),
    "ivon": lambda: bf.IVON(Tagger(), "categorical", hessian_init=0.1),
    "swag": lambda: bf.SWAG(Tagger(), "categorical", rank=2),
    "laplace": lambda: bf.LaplaceApproximation(Tagger(), "categorical", bayesian="last_layer"),
    "ensemble": lambda: bf.Ensemble(Tagger(), "categorical", members=2),
}


@pytest.mark.parametrize("name", MAKERS)
def test_batches_may_differ_in_length(name):
    method = MAKERS[name]()
    history = method.fit(loader(), epochs=2, learning_rate=0.01, validation=loader(), progress=False)
    assert len({x.shape[1] for x, _ in loader()}) > 2
    assert history["validation_nll"][-1] < history["validation_nll"][0]


def test_the_loss_is_that_of_the_labels_that_are_there():
    method = bf.PointEstimate(Tagger(), "categorical").train()
    for x, y in loader():
        loss = method.loss(x, y, n_data=40, step=0)
        expected = F.cross_entropy(Tagger()(x).flatten(0, 1), y.flatten(), reduction="sum") / len(x)
        torch.testing.assert_close(loss, expected)


def test_scores_are_those_of_texts_that_are_all_padded_to_the_longest(tmp_path):
    method = bf.Variational(Tagger(), "categorical")
    method.fit(loader(), epochs=2, progress=False)
    scores, whole = (bf.evaluate(method, data, draws=5) for data in (loader(), padded(texts())))
    for name in ("examples", "accuracy", "nll", "brier", "ece", "aurc", "entropy", "epistemic"):
        assert getattr(scores, name) == pytest.approx(getattr(whole, name), rel=1e-5, abs=1e-6), name
    method.save(tmp_path / "run")
    tokens = padded(texts())[0]
    for one in (method, bf.load(tmp_path / "run", network=Tagger())):
        assert one.predict(tokens[:3, :2], draws=4).probs.shape == (3, 2, CLASSES)


def test_what_cannot_be_scored_in_parts_of_different_shapes_is_told():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.scale * x

    method = bf.PointEstimate(Sums(), "gaussian:1")
    batches = DataLoader([torch.ones(2), torch.ones(3)], batch_size=1, collate_fn=lambda rows: (rows[0][None],) * 2)
    with pytest.raises(ValueError, match="integer labels only: pad them to one length"):
        bf.evaluate(method, batches)


def test_labels_of_a_later_batch_are_checked_at_its_own_length():
    wrong = DataLoader([*texts(), torch.full((12,), CLASSES - 1)], batch_size=1, collate_fn=_one_label_too_few)
    with pytest.raises(ValueError, match=r"needs a label for each of \[batch, 12\], the targets are \[batch, 11\]"):
        bf.Variational(Tagger(), "categorical").fit(wrong, epochs=1, progress=False)


def _one_label_too_few(rows):
    x, y = padded(rows)
    return (x, y[:, :-1]) if x.shape[1] == 12 else (x, y)


class Counted:
    """An iterable of batches that knows their number and not that of the examples."""

    def __iter__(self):
        return iter(loader())

    def __len__(self):
        return 5


def test_a_loader_of_unknown_size_is_scored():
    method = bf.PointEstimate(Tagger(), "categorical")
    history = method.fit(Counted(), n_data=40, epochs=1, validation=Counted(), progress=False)
    assert history["validation_nll"][0] > 0
    assert bf.evaluate(method, Counted()).examples == 40
