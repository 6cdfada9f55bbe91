"""A search over settings: networks trained in fleets, chosen on validation data, and its report."""
