"""The inference layers: the equations of the layers for a search, in few TensorFlow operations.

A Keras layer is written for training, on any backend and in any shape. A search runs the decoder
once for each token, over four rows for a sentence, where the overhead of an operation exceeds its
computation. So each served layer has an inference layer here, in the file of the same
name. It works on rows [B * T, D], merges the products that share an input, and writes its cache in
place.

An inference layer reads no configuration and holds no weights. `fuse` makes the inference layers of
a model, and the weights in their form. `tests/inference` compares each one with its layer, to 1e-5.

Reading order: `fuse`, `dense`, `masks`, `norm`, `residual`, `feed_forward`, `attention`,
`embedding`, `positions`, `output`, `encoder`, `decoder`, `transformer`; then `low_latency`,
`shortlist` and `xla`.
"""
