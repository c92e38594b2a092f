"""The embedder: from the ids of a text to one vector."""

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import EmbedderConfig
from tfformer.layers.masks import padding_mask
from tfformer.layers.pooling import Pooling
from tfformer.models.text_encoder import TextEncoder

# The length by which a vector is divided is at least this.
MINIMUM = 1e-12


@keras.saving.register_keras_serializable("tfformer")
class Embedder(TextEncoder):
    """The vector of a text, by an encoder alone (Reimers and Gurevych 2019, "Sentence-BERT").

        vector = Pooling(Encoder(Dropout(E[ids] sqrt(D) + PE)))

    With `normalize`, the vector is divided by its length. Such models are imported; they are not
    trained here, but the encoder of another model can begin with theirs.

    Args:
        config: an `EmbedderConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3), then padded with 0. Or {"ids": the
            same}.

    Returns:
        vectors [B, D].

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    Example:
        >>> model = Embedder(EmbedderConfig.preset("test", vocabulary_size=17))
        >>> tuple(model(np.array([[9, 8, 6, 3], [4, 3, 0, 0]])).shape)
        (2, 14)
    """

    configuration = EmbedderConfig
    config: EmbedderConfig

    def make_head(self, config: EmbedderConfig, dtype: keras.DTypePolicy) -> None:
        self.pooling = Pooling(config.pooling, dtype=dtype, name="pooling")

    def head(self) -> dict[str, list[keras.layers.Layer]]:
        return {}

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        ids = self.read(self._ids_of(inputs))
        vector = self.pooling(self.states(ids, training), mask=padding_mask(ids))
        if not self.config.normalize:
            return vector
        vector = ops.cast(vector, "float32")
        length = ops.sqrt(ops.sum(ops.square(vector), axis=-1, keepdims=True))
        return vector / ops.maximum(length, MINIMUM)

    def embed(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        """As a call."""
        return self(inputs, training=training)
