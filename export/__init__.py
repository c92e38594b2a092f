"""Turns trained weights into a service: the SavedModel, its verification, the serving kit."""
