"""Several methods on one data set: at equal budgets, or against an HMC reference."""
