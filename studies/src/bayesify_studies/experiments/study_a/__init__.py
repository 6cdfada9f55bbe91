"""What study A's experiments are made of: `gaussian-logits` (logits_*) and `uncertainty-kinds` (uncertainty_*)."""
