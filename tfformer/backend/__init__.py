"""Code that differs between the Keras backends: gradients, random bytes, replicas."""
