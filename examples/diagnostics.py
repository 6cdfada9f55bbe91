"""Which of two models predicts better, and did their chains converge? With ArviZ and torchmetrics.

`python examples/diagnostics.py` samples a linear model and a small network for the progression of diabetes in 300
patients. Leave-one-out cross-validation compares them without training again. The other 142 patients say what it is
worth.
"""

import torch
import torchmetrics
from sklearn.datasets import load_diabetes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

PATIENTS = 300


def data():
    x, y = load_diabetes(return_X_y=True, scaled=False)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = (torch.tensor(values, dtype=torch.float32)[order] for values in (x, y))
    x = (x - x[:PATIENTS].mean(0)) / x[:PATIENTS].std(0)
    y = ((y - y[:PATIENTS].mean()) / y[:PATIENTS].std())[:, None]
    return TensorDataset(x[:PATIENTS], y[:PATIENTS]), TensorDataset(x[PATIENTS:], y[PATIENTS:])


def models():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 1))
    return {
        "linear": bf.HMC(nn.Linear(10, 1), "gaussian:half-cauchy(1)", prior="normal:1"),
        "network": bf.HMC(network, "gaussian:half-cauchy(1)", prior="normal:1"),
    }


def main(samples=250):
    import arviz_stats

    training, test = data()
    found = {}
    for name, hmc in models().items():
        hmc.fit(training, warm_up=250, samples=samples, progress=False)
        loo = bf.loo(hmc, training)
        # Any function of ArviZ reads this tree: summaries, plots, comparisons.
        tree = hmc.to_arviz(data=training)
        r_hat = float(arviz_stats.rhat(tree, var_names=["noise"])["noise"])
        scores = torchmetrics.MetricCollection(
            {"nll": bf.torchmetrics.NLL(), "crps": bf.torchmetrics.CRPS(), "in 95%": bf.torchmetrics.IntervalCoverage()}
        )
        for x, y in DataLoader(test, batch_size=50):
            scores.update(hmc.predict(x, draws=200), y)
        found[name] = loo, {score: float(value) for score, value in scores.compute().items()}
        print(f"{name}: leave-one-out NLL {loo.nll:.3f}, R-hat of the noise {r_hat:.3f}")
        print(
            "  on the other patients: " + ", ".join(f"{score} {value:.3f}" for score, value in found[name][1].items())
        )
        print(f"  {loo}".replace("\n", "\n  "))
    difference, error = found["linear"][0].difference(found["network"][0])
    print(f"elpd of the linear model minus that of the network: {difference:.1f} nats, standard error {error:.1f}")
    return found, difference, error


if __name__ == "__main__":
    main()
