"""The twins of the layers: the same equations for a search, in few TensorFlow operations."""
