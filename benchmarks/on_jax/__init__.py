"""Trains several models at once on the JAX backend, for a GPU without TensorFlow."""
