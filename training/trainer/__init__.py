"""Runs a training: set-up, `fit`, validation, checkpoints, resume."""
