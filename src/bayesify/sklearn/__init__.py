"""Bayesian networks as scikit-learn estimators: a perceptron for tables, trained by any method of this package."""

from bayesify.sklearn.classifier import BayesianClassifier
from bayesify.sklearn.regressor import BayesianRegressor

__all__ = ["EXPECTED_FAILED_CHECKS", "BayesianClassifier", "BayesianRegressor"]

# For `check_estimator(estimator, expected_failed_checks=bf.sklearn.EXPECTED_FAILED_CHECKS)`.
_STOCHASTIC = "a weight of two is two equal rows in the objective, but batches of a shuffled epoch then differ"
EXPECTED_FAILED_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": _STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": _STOCHASTIC,
}
