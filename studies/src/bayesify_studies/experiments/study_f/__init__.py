"""What the paper's other experiments are made of: mushroom_* for `mushroom`."""
