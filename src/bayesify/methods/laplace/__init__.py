"""The Laplace approximation (`laplace.py`) and the curvature that it needs."""
