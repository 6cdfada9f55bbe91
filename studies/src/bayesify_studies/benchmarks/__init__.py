"""What things cost, as ratios from one run on one machine."""
