"""The layers: masks, attention, embedding, positional encoding, feed-forward, encoder, decoder.

They use `keras.ops` alone (dropout draws its bytes by TensorFlow, where that is the backend), know
no model, and work inside anybody's Keras model.
"""
