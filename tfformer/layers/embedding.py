"""Token embedding, whose matrix the output projection may share; and embedding of token types."""

from typing import Any

import keras
from keras import ops

from tfformer.annotations import Shape, Tensor
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.masks import padding_mask


@keras.saving.register_keras_serializable("tfformer")
class TokenEmbedding(Layer):
    """E[ids] * sqrt(d_model)  (Vaswani et al. 2017, section 3.4).

    Multiplying by E picks one row: onehot(id) E = E[id].
    E starts as N(0, 1 / d_model). So the scaled embedding has a variance of about 1, as the
    positional encoding has, and the tied logits x E^T have the variance of x.

    Args:
        vocabulary_size: V, the number of ids.
        d_model: D.

    Call arguments:
        ids: integers [B, T]; 0 is padding, and the output carries the Keras mask `ids != 0`.

    Returns:
        [B, T, D].

    Raises:
        ValueError: a size is not an integer of at least 1; or the dtype of the ids is float16 or
            bfloat16.
        TypeError: an argument is unknown.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=17, d_model=7)
        >>> ids = np.array([[5, 4, 0]])
        >>> x = embedding(ids)
        >>> tuple(x.shape), tuple(embedding.project(x).shape)
        ((1, 3, 7), (1, 3, 17))
        >>> print(np.array(embedding.compute_mask(ids)))
        [[ True True False]]
    """

    def __init__(self, vocabulary_size: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_whole(vocabulary_size=vocabulary_size, d_model=d_model)
        self.vocabulary_size, self.d_model = vocabulary_size, d_model
        self.supports_masking = True
        # Ids are integers, so Keras must not cast them to a float compute dtype. NumPy is allowed.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True

    def build(self, ids_shape: Shape | None = None) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocabulary_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, ids: Tensor) -> Tensor:
        # A Sequential model without an Input passes the ids in the compute dtype.
        ids = ops.convert_to_tensor(ids)
        if keras.backend.standardize_dtype(ids.dtype) in ("float16", "bfloat16"):
            raise ValueError(
                f"ids must be integers, got dtype {ids.dtype}, which cannot tell large ids apart: "
                "begin the model with keras.Input(shape, dtype='int32')"
            )
        x = ops.take(self.embeddings, ops.cast(ids, "int32"), axis=0)
        return ops.cast(x, self.compute_dtype) * ops.cast(self.d_model**0.5, self.compute_dtype)

    def project(self, x: Tensor) -> Tensor:
        """The tied output projection: logits x E^T, [..., D] -> [..., V]  (Press and Wolf 2017)."""
        matrix = ops.cast(self.embeddings, self.compute_dtype)
        matrix = ops.transpose(matrix)  # [D, V]
        return ops.matmul(ops.cast(x, self.compute_dtype), matrix)

    def compute_mask(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return padding_mask(ids)

    def compute_output_shape(self, ids_shape: Shape) -> tuple[int | None, ...]:
        return (*ids_shape, self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "d_model": self.d_model,
        }


@keras.saving.register_keras_serializable("tfformer")
class TokenTypes(Layer):
    """x + E[type], a learned vector for each kind of token, such as question and text (Devlin et
    al. 2019, "segment embeddings").

    Args:
        num_types: the number of types.
        d_model: D.

    Call arguments:
        x: [..., D].
        types: integers [...], in [0, `num_types`).

    Returns:
        [..., D].

    Raises:
        ValueError: a size is not an integer of at least 1.
    """

    def __init__(self, num_types, d_model, **kwargs):
        super().__init__(**kwargs)
        check_whole(num_types=num_types, d_model=d_model)
        self.num_types, self.d_model = num_types, d_model
        self.supports_masking = True

    def build(self, x_shape=None, types_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_types, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x, types):
        return x + ops.cast(ops.take(self.embeddings, types, axis=0), x.dtype)

    def compute_output_shape(self, x_shape, types_shape=None):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "num_types": self.num_types, "d_model": self.d_model}
