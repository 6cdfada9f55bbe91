"""A search over settings: networks trained in fleets, chosen on validation data, and a page about it."""
