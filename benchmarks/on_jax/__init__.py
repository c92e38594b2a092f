"""Trainings on the JAX backend, several models at once: where there is a GPU and no TensorFlow."""
