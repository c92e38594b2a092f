"""The training itself: set-up, `fit`, validation, checkpoints, resume."""
