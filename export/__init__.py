"""Turns trained weights into a service: the SavedModel and its verification."""
