"""What a training says of itself: scores, curves, cost, the model card."""
