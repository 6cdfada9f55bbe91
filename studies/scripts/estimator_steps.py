"""How many steps the scikit-learn estimators need: the NLL of rows that were not in training, by steps, rate and batch.

`python studies/scripts/estimator_steps.py` prints a line for each setting and table; it takes some minutes.
"""

import math
import time
import warnings

import torch
from sklearn import datasets
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import bayesify as bf

TABLES = {
    "breast cancer": (datasets.load_breast_cancer(return_X_y=True), 100),
    "wine": (datasets.load_wine(return_X_y=True), 100),
    "moons": (datasets.make_moons(2000, noise=0.3, random_state=0), 1000),
    "digits": (datasets.load_digits(return_X_y=True), 1000),
    "diabetes": (datasets.load_diabetes(return_X_y=True), 300),
    "Friedman 1": (datasets.make_friedman1(2000, noise=1, random_state=0), 1000),
}
NUMBERS = ("diabetes", "Friedman 1")
SETTINGS = (
    (400, 0.03, 128),
    (400, 0.01, 128),
    (250, 0.01, 128),
    (250, 0.05, 128),
    (2000, 0.01, 32),
    (2000, 0.01, 128),
)


def main() -> None:
    """Fit every setting on every table."""
    warnings.simplefilter("ignore", bf.BayesifyWarning)
    for steps, rate, batch in SETTINGS:
        for name, ((x, y), rows) in TABLES.items():
            x_train, x_test, y_train, y_test = train_test_split(x, y, train_size=rows, random_state=1)
            size = min(batch, rows)
            plan = {"epochs": math.ceil(steps / math.ceil(rows / size)), "batch_size": size, "learning_rate": rate}
            began = time.process_time()
            if name in NUMBERS:
                model = bf.sklearn.BayesianRegressor(**plan, random_state=0).fit(x_train, y_train)
                seconds = time.process_time() - began
                nll = -float(model.predictive(x_test).log_prob(torch.tensor(y_test)).mean())
            else:
                model = bf.sklearn.BayesianClassifier(**plan, random_state=0).fit(x_train, y_train)
                seconds = time.process_time() - began
                nll = log_loss(y_test, model.predict_proba(x_test))
            print(f"{steps} steps, rate {rate}, batch {batch}, {name}: NLL {nll:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
