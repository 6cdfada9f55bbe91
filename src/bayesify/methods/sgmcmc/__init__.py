"""Stochastic-gradient Markov chains: SGLD and SGHMC, and what they share (`chains.py`)."""
