"""Reads files and makes batches of ids: the same seed gives the same batches in the same order."""
