"""Predictions as frames and as HTML, and predictions for data sets and loaders."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.likelihoods import Categorical, Gaussian


@pytest.fixture(scope="module")
def method():
    torch.manual_seed(0)
    x = torch.randn(50, 2)
    method = bf.PointEstimate(
        torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)), "categorical"
    )
    method.fit((x, (x[:, 0] > 0).long()), epochs=3, progress=False)
    return method, x


def test_a_frame_has_a_row_for_each_input():
    pandas = pytest.importorskip("pandas")
    outputs = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0))
    predictive = bf.Predictive(outputs, Categorical(), class_names=("a", "b", "<c>"))
    frame = predictive.to_pandas(index=list("uvwxyz"))
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns.tolist()[:2] == ["label", "confidence"]
    assert frame.columns.tolist()[-3:] == ["p_a", "p_b", "p_<c>"]
    assert frame.index.tolist() == list("uvwxyz")
    assert frame["label"].tolist() == predictive.names
    assert frame[["p_a", "p_b", "p_<c>"]].to_numpy() == pytest.approx(predictive.probs.numpy())
    html = predictive._repr_html_()
    assert html.count("<tr>") == 7
    assert "p_&lt;c&gt;" in html
    numbers = bf.Predictive(torch.randn(4, 6, 2), Gaussian()).to_pandas()
    assert numbers.columns.tolist()[:4] == ["mean_0", "mean_1", "std_0", "std_1"]
    with pytest.raises(ValueError, match="a grid of labels"):
        bf.Predictive(torch.randn(2, 3, 4, 5), Categorical(class_dim=1)).to_pandas()


def test_a_data_set_or_a_loader_is_predicted_like_its_tensor(method):
    method, x = method
    expected = method.predict(x).probs
    labels = torch.zeros(50)
    for source in (
        TensorDataset(x),
        TensorDataset(x, labels),
        DataLoader(TensorDataset(x, labels), batch_size=7),
        DataLoader(x, batch_size=7),
    ):
        torch.testing.assert_close(method.predict(source).probs, expected)
    parts = list(method.predict_in_parts(TensorDataset(x, labels), max_memory=80))
    torch.testing.assert_close(torch.cat([part.probs for part in parts]), expected)
    with pytest.raises(ValueError, match="shuffle=False"):
        method.predict(DataLoader(TensorDataset(x), shuffle=True))


def test_methods_and_histories_show_what_they_are(method):
    method, _ = method
    assert "Linear(in_features=2, out_features=4" in repr(method)
    assert repr(method).startswith("PointEstimate(\n  network: Sequential(")
    assert "Linear(in_features=2" in method._repr_html_()
    assert "3 epochs" in method._repr_html_()
    assert method.history._repr_html_().count("<tr>") == 4
