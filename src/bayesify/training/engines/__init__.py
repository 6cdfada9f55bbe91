"""How a training step is made: plain, fused, compiled, captured in a graph, or side by side on several cores."""
