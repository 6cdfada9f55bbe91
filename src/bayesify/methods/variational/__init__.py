"""Variational inference: families of posteriors, gradient estimators, and the method itself (`variational.py`)."""
