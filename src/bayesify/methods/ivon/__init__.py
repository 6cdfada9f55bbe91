"""IVON: the method (`ivon.py`) and its natural-gradient update (`update.py`)."""
