"""Checks that a SavedModel can be served: its graph, its answers, and reference answers."""
