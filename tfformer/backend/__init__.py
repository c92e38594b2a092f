"""What the Keras backends do differently: gradients, random bytes, replicas."""
