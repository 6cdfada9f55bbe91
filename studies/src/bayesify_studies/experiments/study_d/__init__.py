"""What study D's experiments are made of: training and words for all of them, pruning_* for `pruning`."""
