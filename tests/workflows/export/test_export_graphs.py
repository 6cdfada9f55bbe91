"""Graphs under ONNX Runtime and torch.export: the answers of `predict` to 1e-5, for batches of any size."""

import json

import numpy as np
import pytest
import torch
from exportable import fitted
from torch import nn

import bayesify as bf
from bayesify.data import Preparation
from bayesify.data.columns import Column
from bayesify.predictive import recalibration as maps
from bayesify.workflows.export.acceptance import Threshold
from bayesify.workflows.export.answers import Answers
from bayesify.workflows.export.raw_inputs import inputs_of

pytestmark = pytest.mark.filterwarnings("ignore")


def onnx_answers(path, x):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'bayesify[export]'")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"input": x.numpy()}), strict=True)), session


# Running statistics of each draw, and dropout masks. `tests/integrations/test_export_grid.py` has all methods.
@pytest.mark.parametrize(("method", "network"), [("ensemble", "cnn"), ("mc-dropout", "mlp")])
def test_onnx_gives_what_predict_gives(method, network, tmp_path):
    bnn, x = fitted(method, network)
    made = bf.export(bnn, tmp_path / "graph.onnx", draws=3, seed=2, at_least=0.4)
    assert made.difference < 1e-5
    expected = bnn.predict(x, draws=3, seed=2)
    for rows in (1, len(x)):
        answers, session = onnx_answers(tmp_path / "graph.onnx", x[:rows])
        for name in ("probs", "aleatoric", "epistemic"):
            assert np.abs(answers[name] - getattr(expected, name)[:rows].numpy()).max() < 1e-5, name
        assert (answers["accepted"] == expected.accept(at_least=0.4)[:rows].numpy()).all()
    about = json.loads(session.get_modelmeta().custom_metadata_map["bayesify"])
    assert (about["draws"], about["seed"], about["threshold"]["value"]) == (3, 2, 0.4)


@pytest.mark.parametrize(("method", "network"), [("last layer", "transformer"), ("laplace", "mlp")])
def test_a_program_of_torch_gives_what_predict_gives(method, network, tmp_path):
    bnn, x = fitted(method, network)
    bf.export(bnn, tmp_path / "graph.pt2", "torch-export", draws=3, at_least=0.4)
    program = torch.export.load(tmp_path / "graph.pt2").module()
    expected = bnn.predict(x, draws=3)
    for rows in (1, len(x)):
        answers = program(x[:rows])
        for name in ("probs", "aleatoric", "epistemic"):
            assert torch.allclose(answers[name], getattr(expected, name)[:rows], atol=1e-5), name
        assert torch.equal(answers["accepted"], expected.accept(at_least=0.4)[:rows])


def test_numbers_are_in_the_units_of_the_target(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    y = 5000 + 300 * x.sum(1) + 50 * torch.randn(64)
    likelihood = bf.likelihoods.Gaussian("heteroscedastic", location=5000.0, scale=500.0)
    bnn = bf.Variational(bf.networks.mlp(3, 2, units=8), likelihood, prior="normal:1")
    bnn.fit((x, y), epochs=5, learning_rate=0.01, progress=False)
    expected = bnn.predict(x, draws=6)
    middle = float(expected.std.median())
    bf.export(bnn, tmp_path / "graph.pt2", "torch-export", draws=6, at_most=middle)
    answers = torch.export.load(tmp_path / "graph.pt2").module()(x)
    assert list(answers) == ["mean", "aleatoric", "epistemic", "accepted"]
    for name in ("mean", "aleatoric", "epistemic"):
        assert torch.allclose(answers[name], getattr(expected, name), rtol=1e-4), name
    assert int((answers["accepted"] != (expected.std <= middle)).sum()) <= 1  # the one at the threshold may round
    assert 20 < int(answers["accepted"].sum()) < 44


def test_moments_need_no_draws(tmp_path, blobs):
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
    bnn.fit(blobs, epochs=5, learning_rate=0.05, progress=False)
    bf.export(bnn, tmp_path / "graph.pt2", "torch-export", by="moments")
    answers = torch.export.load(tmp_path / "graph.pt2").module()(blobs[0])
    expected = bnn.predict(blobs[0], by="moments")
    assert torch.allclose(answers["probs"], expected.probs, atol=1e-5)
    assert torch.allclose(answers["epistemic"], expected.epistemic, atol=1e-5)


KNOTS = (0.0, 0.2, 0.2, 0.7, 1.0)
MAPS = [
    maps.Temperature(1.7),
    maps.VectorScale((0.9, 1.1, 1.3), (0.1, 0.0, -0.1)),
    maps.IsotonicClasses((KNOTS,) * 3, ((0.05, 0.1, 0.3, 0.6, 0.95),) * 3),
]


@pytest.mark.parametrize("fitted_map", MAPS, ids=lambda fitted_map: fitted_map.name)
def test_recalibrated_answers_are_those_of_predict(fitted_map, blobs):
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
    bnn.fit(blobs, epochs=2, learning_rate=0.05, progress=False)
    bnn.recalibration = fitted_map
    expected = bnn.predict(blobs[0], draws=5)
    known = torch.ones(len(blobs[0]), dtype=torch.bool)
    answers = Answers(bnn.likelihood, fitted_map, Threshold("entropy", 0.5))(expected.outputs, known)
    for name, value in zip(("probs", "aleatoric", "epistemic"), answers, strict=False):
        assert torch.allclose(value, getattr(expected, name), atol=1e-6), name
    assert torch.equal(answers[3], expected.accept(at_most=0.5, by="entropy"))


@pytest.mark.parametrize("by", ["entropy", "expected_error", "std", "epistemic", "aleatoric"])
def test_every_score_decides_as_in_predict(by, blobs):
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
    bnn.fit(blobs, epochs=2, progress=False)
    expected = bnn.predict(blobs[0], draws=7)
    middle = float(expected.score(by).sort().values[40:42].mean()) + 1e-6
    known = torch.arange(len(blobs[0])) != 3
    accepted = Answers(bnn.likelihood, None, Threshold(by, middle))(expected.outputs, known)[3]
    assert torch.equal(accepted, expected.accept(at_most=middle, by=by) & known)


def test_rows_of_a_table_are_prepared_as_in_training():
    columns = (
        Column("age"),
        Column("income", gaps=True),
        Column("colour", ("blue", "red", "")),
        Column("since", date="iso", cycles=("year", "week", "day"), gaps=True),
        Column("street", buckets=8, gaps=True),
    )
    mean, scale = (40.0, 3e4, 0.0, 1.6e9, 0.0), (12.0, 1e4, 1.0, 1e8, 1.0)
    preparation = Preparation("standard", columns=columns, mean=mean, scale=scale, fill=(0.0, 2.9e4, 0.0, 1.5e9, 0.0))
    nan = float("nan")
    rows = [[35, 2.5e4, 0, 1.7e9, 123456789], [70, nan, 2, nan, nan], [18, 0, 1, 1.65e9 + 3.5, 2**30 - 1]]
    raw = torch.tensor(rows, dtype=torch.float64)
    inputs, known = inputs_of(preparation)(raw)
    assert torch.allclose(inputs, preparation.apply(raw), atol=1e-5)
    assert known.all()
    strange = torch.tensor([[nan, 1, 0, 1, 1], [1, 1, 3, 1, 1], [1, 1, 0.5, 1, 1], [1, 1, 0, 1, -1]]).double()
    assert not inputs_of(preparation)(strange)[1].any()


class WordsAndNumbers(nn.Module):
    """Two inputs, of two kinds."""

    def __init__(self):
        super().__init__()
        self.look_up, self.out = nn.Embedding(10, 4), nn.Linear(6, 3)

    def forward(self, words, numbers):
        return self.out(torch.cat((self.look_up(words).mean(1), numbers), 1))


def test_what_a_graph_cannot_do_is_refused(tmp_path, blobs):
    y = blobs[1]
    net = bf.networks.mlp(2, 3, units=4)
    bnn = bf.Ensemble(net, "categorical", members=2)
    bnn.fit(blobs, epochs=1, progress=False)
    with pytest.raises(ValueError, match="stores 2 draws, got draws=5: export at most 2"):
        bf.export(bnn, tmp_path / "a.onnx", draws=5)
    with pytest.raises(ValueError, match="did you mean 'onnx'"):
        bf.export(bnn, tmp_path / "a.onnx", "onx")
    with pytest.raises(ValueError, match="ends in"):
        bf.export(bnn, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="at_most is a standard deviation"):
        bf.export(bnn, tmp_path / "a.onnx", at_most=1.0)
    with pytest.raises(ValueError, match="no error was guaranteed"):
        bf.export(bnn, tmp_path / "a.onnx", max_error=0.1)
    (tmp_path / "a.onnx").write_text("mine")
    with pytest.raises(FileExistsError):
        bf.export(bnn, tmp_path / "a.onnx")
    logits = bf.PointEstimate(bf.networks.mlp(2, 6, units=4), bf.likelihoods.GaussianLogits())
    logits.fit(blobs, epochs=1, progress=False)
    with pytest.raises(ValueError, match="samples its logits"):
        bf.export(logits, tmp_path / "b.onnx")
    mixed = bf.PointEstimate(WordsAndNumbers(), "categorical")
    mixed.fit(({"words": torch.randint(10, (96, 2)), "numbers": blobs[0]}, y), epochs=1, progress=False)
    with pytest.raises(ValueError, match="example="):
        bf.export(mixed, tmp_path / "b.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_a_promise_sets_the_threshold_the_draws_and_the_seed(tmp_path, blobs):
    x, y = blobs
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
    bnn.fit(blobs, epochs=20, learning_rate=0.05, progress=False)
    held = (x.repeat(10, 1) + 0.8 * torch.randn(960, 2), y.repeat(10))
    refusal = bf.calibrate(bnn, held, max_error=0.05, draws=4, seed=3)
    with pytest.raises(ValueError, match="4 draws and seed 3"):
        bf.export(bnn, tmp_path / "a.pt2", "torch-export", draws=10)
    made = bf.export(bnn, tmp_path / "a.pt2", "torch-export")
    assert (made.draws, made.threshold.value, made.threshold.max_error) == (4, refusal.threshold, 0.05)
    accepted = torch.export.load(tmp_path / "a.pt2").module()(held[0])["accepted"]
    expected = refusal.accept(bnn.predict(held[0], draws=4, seed=3))
    assert float((accepted == expected).float().mean()) > 0.998
    assert 0.3 < float(accepted.float().mean()) < 1.0
