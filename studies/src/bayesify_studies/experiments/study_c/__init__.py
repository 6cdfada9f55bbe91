"""What study C's `unseen-class` is made of; its `coin`, `line` and `hmc-distance` are whole in their own files."""
