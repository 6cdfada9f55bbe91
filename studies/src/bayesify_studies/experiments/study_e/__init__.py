"""What study E's experiments are made of: hyperprior_* for `hyperpriors`, cnn_* for `mnist-cnn`, transfer_*."""
