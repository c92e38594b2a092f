"""The output layer: from the decoder's states to the logits of the next token."""

import keras


# Keras names the weights in a `.keras` file by the classes of a model's layers, and the output
# layer of the files that people have is a Dense. So this one is called that.
@keras.saving.register_keras_serializable("tfformer")
class Dense(keras.layers.Layer):
    """logits = x W + b, with a matrix W [D, V] of its own or the transpose of an embedding
    (Press and Wolf 2017; Vaswani et al. 2017, section 3.4). The paper has no bias.

    Args:
        vocabulary_size: V.
        tied: whether W is the transpose of the embedding that it is called with. Default False.
        use_bias: whether there is a b. Default False.

    Call arguments:
        x: [..., D].
        embedding: the `TokenEmbedding` of a tied one.

    Returns:
        [..., V], in the compute dtype.
    """

    def __init__(self, vocabulary_size, tied=False, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        if vocabulary_size < 1:
            raise ValueError(f"vocabulary_size must be at least 1, got {vocabulary_size}")
        self.vocabulary_size, self.tied, self.use_bias = vocabulary_size, tied, use_bias
        self.initializer = None if tied else keras.initializers.GlorotUniform()
        self.bias = None
        self.supports_masking = True

    def build(self, x_shape):
        if not self.tied:
            shape = (x_shape[-1], self.vocabulary_size)
            self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.initializer)
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocabulary_size,), initializer="zeros"
            )

    def call(self, x, embedding=None):
        if self.tied and embedding is None:
            raise ValueError("embedding must be given to a tied output layer, got None")
        logits = embedding.project(x) if self.tied else keras.ops.matmul(x, self.kernel)
        return logits if self.bias is None else logits + self.bias

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.vocabulary_size)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "tied": self.tied,
            "use_bias": self.use_bias,
        }
