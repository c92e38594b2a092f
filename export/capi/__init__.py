"""Loads a SavedModel as the server does: through TensorFlow's C API, with ctypes."""
