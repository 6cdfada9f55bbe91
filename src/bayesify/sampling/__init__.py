"""Markov chains for whole posteriors: Hamiltonian dynamics, its adaptation, and how to tell that it converged."""
