"""MLflow models on this machine: what `predict` of a pyfunc returns is what bayesify predicts."""

import numpy as np
import pytest
import torch

import bayesify as bf

pytestmark = pytest.mark.filterwarnings("ignore")
mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'bayesify[loggers]'")
pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install 'bayesify[tables]'")
pytest.importorskip("mlflow.pyfunc")


@pytest.fixture
def bnn(blobs):
    torch.manual_seed(0)
    method = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", prior="normal:1")
    method.fit(blobs, epochs=3, learning_rate=0.05, progress=False)
    return method


def test_a_logged_model_predicts_with_its_uncertainties(bnn, blobs, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    try:
        with mlflow.start_run():
            logged = bf.mlflow.log_model(bnn, "clouds", draws=20, at_least=0.6)
        model = mlflow.pyfunc.load_model(logged.model_uri)
        expected = bnn.predict(blobs[0], draws=20)
        frame = model.predict(pd.DataFrame(blobs[0].numpy(), columns=["a", "b"], index=np.arange(96) + 7))
        assert list(frame.index[:2]) == [7, 8]
        probs = frame[["p_0", "p_1", "p_2"]].to_numpy()
        assert np.abs(probs - expected.probs.numpy()).max() < 1e-6
        for name in ("aleatoric", "epistemic"):
            assert np.abs(frame[name].to_numpy() - getattr(expected, name).numpy()).max() < 1e-6
        assert frame["accepted"].tolist() == expected.accept(at_least=0.6).tolist()
        assert 0 < frame["accepted"].mean() < 1
        again = bf.mlflow.load_model(logged.model_uri)
        assert torch.equal(again.predict(blobs[0]).probs, bnn.predict(blobs[0]).probs)
        assert bnn.run is None
    finally:
        mlflow.set_tracking_uri(None)


def test_a_table_goes_in_raw_and_unknown_rows_come_out_unaccepted(tmp_path):
    from bayesify.workflows.recipe import make_recipe
    from bayesify.workflows.train import train

    rows = "".join(f"{n % 7},{'red' if n % 2 else 'blue'},{n % 7 + 3 * (n % 2) + n / 100:.2f}\n" for n in range(80))
    (tmp_path / "t.csv").write_text("size,colour,price\n" + rows)
    settings = {"data": str(tmp_path / "t.csv"), "target": "price", "method": "ensemble", "epochs": 5}
    trained = train(make_recipe(settings, {}), tmp_path / "run", progress=False)
    bf.mlflow.save_model(trained.method, tmp_path / "model")
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    frame = model.predict(pd.DataFrame({"colour": ["red", "green"], "size": [3, 4]}))
    expected = trained.method.predict(bf.prepare(trained.run, pd.DataFrame({"colour": ["red"], "size": [3]})))
    assert frame["mean"][0] == pytest.approx(float(expected.mean[0]), rel=1e-5)
    assert frame["accepted"].tolist() == [True, False]
    assert "green" in frame["reason"][1]
    assert {"std", "aleatoric", "epistemic"} <= set(frame)


def test_wrong_uses_are_one_line(bnn, tmp_path):
    with pytest.raises(ValueError, match="at_most is a width"):
        bf.mlflow.save_model(bnn, tmp_path / "model", at_most=1.0)
    bf.mlflow.save_model(bnn, tmp_path / "model")
    with pytest.raises(bf.RunError, match="not empty"):
        bf.mlflow.save_model(bnn, tmp_path / "model")
    with pytest.raises(bf.RunError, match="no MLflow model of bayesify"):
        bf.mlflow.load_model(tmp_path)
    with pytest.raises(ValueError, match="unknown params temperature"):
        bf.mlflow.PredictsFrames(bnn, {"draws": 5, "seed": 0}).predict(np.zeros((2, 2)), {"temperature": 1})
