"""What study B's tables are made of: `mnist-table` and `fashion-table` train, choose and print alike."""
