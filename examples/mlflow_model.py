"""A posterior as an MLflow model (`pip install 'bayesify[loggers,tables]'`). `python examples/mlflow_model.py`."""

import os
import tempfile
from pathlib import Path

import mlflow
import numpy as np
import torch
from own_loop import data

import bayesify as bf


def main():
    x, y = data()
    torch.manual_seed(0)
    # A network of bayesify's is built again from its description; for your own, give `network=` when loading.
    bnn = bf.Variational(bf.networks.mlp(2, 2, units=20, layers=1), "categorical", rho=-3.0)
    bnn.fit((x, y), epochs=20, learning_rate=0.05, progress=False)
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder instead of a server
    before = mlflow.get_tracking_uri()
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri((Path(folder) / "mlruns").as_uri())
        with mlflow.start_run():
            logged = bf.mlflow.log_model(bnn, "moons", at_least=0.9)
        frame = mlflow.pyfunc.load_model(logged.model_uri).predict(x.numpy())
        mlflow.set_tracking_uri(before)
    print(frame[["label", "confidence", "aleatoric", "epistemic", "accepted"]].head(3))
    expected = bnn.predict(x).epistemic.numpy()
    return float(np.abs(frame["epistemic"].to_numpy() - expected).max())


if __name__ == "__main__":
    main()
