"""From a description to a trained run and back: what the command line does, without the command line."""
