"""Token embedding, and the output projection that may share its matrix."""

import keras
from keras import ops

from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.masks import padding_mask


@keras.saving.register_keras_serializable("tfformer")
class TokenEmbedding(Layer):
    """E[ids] * sqrt(d_model)  (Vaswani et al. 2017, section 3.4).

    A row of E is what the one-hot vector of its id picks out of it: onehot(id) E = E[id].
    E starts as N(0, 1 / d_model), so that the scaled embedding has the variance of a positional
    encoding, about 1, and the tied logits x E^T have the variance of x.

    Args:
        vocabulary_size: V, the number of ids.
        d_model: D.

    Call arguments:
        ids: integers [B, T]; 0 is padding, and the output carries the Keras mask `ids != 0`.

    Returns:
        [B, T, D].

    Raises:
        ValueError: a size is no integer of at least 1; or the ids come in float16 or bfloat16.
        TypeError: an argument that there is not.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=17, d_model=7)
        >>> ids = np.array([[5, 4, 0]])
        >>> x = embedding(ids)
        >>> tuple(x.shape), tuple(embedding.project(x).shape)
        ((1, 3, 7), (1, 3, 17))
        >>> print(np.array(embedding.compute_mask(ids)))
        [[ True True False]]
    """

    def __init__(self, vocabulary_size, d_model, **kwargs):
        super().__init__(**kwargs)
        check_whole(vocabulary_size=vocabulary_size, d_model=d_model)
        self.vocabulary_size, self.d_model = vocabulary_size, d_model
        self.supports_masking = True
        # Ids are integers: a float compute dtype must not be cast onto them. NumPy's may come too.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True

    def build(self, ids_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocabulary_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, ids):
        # A Sequential model without an Input hands ids over in the compute dtype.
        ids = ops.convert_to_tensor(ids)
        if keras.backend.standardize_dtype(ids.dtype) in ("float16", "bfloat16"):
            raise ValueError(
                f"ids must be integers, got dtype {ids.dtype}, which cannot tell large ids apart: "
                "begin the model with keras.Input(shape, dtype='int32')"
            )
        x = ops.take(self.embeddings, ops.cast(ids, "int32"), axis=0)
        return ops.cast(x, self.compute_dtype) * ops.cast(self.d_model**0.5, self.compute_dtype)

    def project(self, x):
        """The tied output projection: logits x E^T, [..., D] -> [..., V]  (Press and Wolf 2017)."""
        matrix = ops.cast(self.embeddings, self.compute_dtype)
        matrix = ops.transpose(matrix)  # [D, V]
        return ops.matmul(ops.cast(x, self.compute_dtype), matrix)

    def compute_mask(self, ids, mask=None):
        return padding_mask(ids)

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "d_model": self.d_model,
        }
