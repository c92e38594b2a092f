"""What computes a training step: the model, its optimizer, and how a batch is spread."""
