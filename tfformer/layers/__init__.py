"""The layers: masks, attention, embedding, positional encoding, feed-forward, encoder, decoder.

They use only `keras.ops`, with one exception: on the TensorFlow backend, dropout draws its bytes by
TensorFlow. They depend on no model and work inside any Keras model.
"""
