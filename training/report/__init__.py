"""Reports of a training: scores, curves, cost, and the model card."""
