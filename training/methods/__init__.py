"""Training methods beyond teacher forcing and cross-entropy: each an option, in its own file."""
