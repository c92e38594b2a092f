"""TensorFlow's C API, by ctypes: a SavedModel as the server loads it."""
