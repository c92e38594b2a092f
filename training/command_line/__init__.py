"""Reads the options of `training.train`, typed or from a file, into a recipe."""
