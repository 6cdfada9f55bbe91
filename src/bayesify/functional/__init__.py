"""A PyTorch module as a function of one flat vector of weights."""
