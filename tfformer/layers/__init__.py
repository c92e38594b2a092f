"""The layers: masks, attention, embedding, positional encoding, feed-forward, encoder, decoder.

They use `keras.ops` alone, know no model, and work inside anybody's Keras model.
"""
