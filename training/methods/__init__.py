"""Training methods beyond teacher forcing and cross-entropy. Each is an option in its own file."""
