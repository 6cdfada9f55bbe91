"""The commands that this package adds to `bayesify`: `reproduce` and `bench`."""
