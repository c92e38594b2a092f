"""From files to batches of ids: the same batches in the same order for the same seed."""
