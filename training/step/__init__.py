"""The training step: the model, its optimizer, and the split of a batch over devices."""
