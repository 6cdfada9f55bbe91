"""Exact posteriors, to check approximate methods against."""

from bayesify.exact.coin import Coin
from bayesify.exact.grid import Grid, TruncationError
from bayesify.exact.linear_regression import LinearRegression, Prediction

__all__ = ["Coin", "Grid", "LinearRegression", "Prediction", "TruncationError"]
