"""Hamiltonian Monte Carlo: the method (`hmc.py`), its dynamics, adaptation and diagnostics."""
