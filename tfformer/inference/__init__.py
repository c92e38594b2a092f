"""The twins of the layers: the same equations for a search, in few TensorFlow operations.

A layer of Keras is written to be trained, on any backend and in any shape. A search runs the
decoder once a token, over four rows for a sentence, where each operation costs more than what it
computes. So each layer that is served has a twin here, in the file of the same name: over rows
[B * T, D], with the products that share an input made one, and a cache that is written in place.
A twin reads no configuration and holds no weights: `fuse` makes the twins of a model, and the
weights as they want them. `tests/inference` holds each twin to its layer, to 1e-5.

Reading order: `fuse`, `dense`, `masks`, `norm`, `residual`, `feed_forward`, `attention`,
`embedding`, `positions`, `output`, `encoder`, `decoder`, `transformer`; then `low_latency`,
`shortlist` and `xla`.
"""
