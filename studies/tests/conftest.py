"""What every test of the studies needs."""

import torch

torch.set_num_threads(1)
