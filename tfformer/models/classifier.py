"""The classifier: the ids of a text in, a logit of each label out."""

import keras

from tfformer.config import ClassifierConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense
from tfformer.layers.pooling import Pooling
from tfformer.models.text_encoder import TextEncoder


@keras.saving.register_keras_serializable("tfformer")
class Classifier(TextEncoder):
    """P(label | text), by the encoder alone.

        vector = Pooling(Encoder(Dropout(E[ids] sqrt(D) + PE)))
        logits = Dropout(vector) W + b

    Args:
        config: a `ClassifierConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3); 0 is padding after them. Or {"ids":
            these}.

    Returns:
        logits [B, C].

    Raises:
        ValueError: `config` is none; or other inputs are given, or, with learned positions, longer
            ones than `max_positions`.

    It trains with a plain `compile` and `fit` on elements (ids, labels [B, 1]), with the loss
    `LabelCrossEntropy`: the labels are 1 to C, and 0 is none.

    Example:
        >>> config = ClassifierConfig.preset("test", vocabulary_size=17, num_labels=5)
        >>> model = Classifier(config)
        >>> ids = np.array([[9, 8, 6, 3], [4, 3, 0, 0]])
        >>> tuple(model(ids).shape), tuple(model.embed(ids).shape)
        ((2, 5), (2, 14))
    """

    CONFIGURATION = ClassifierConfig

    def make_head(self, config, dtype):
        self.pooling = Pooling(config.pooling, dtype=dtype, name="pooling")
        self.head_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_projection = Dense(
            config.num_labels, use_bias=True, dtype=dtype, name="output_projection"
        )

    def call(self, inputs, training=None):
        vector = self.embed(inputs, training)
        return self.output_projection(self.head_dropout(vector, training=training))

    def embed(self, inputs, training=None):
        """The vectors of texts: ids [B, S] -> [B, D].

        Raises:
            ValueError: as a call.
        """
        return self._vectors(self._ids_of(inputs), training)

    def _vectors(self, ids, training):
        """The vector of each row of ids [B, S], [B, D]."""
        ids = self.pooling.read(ids)
        return self.pooling(self.states(ids, training), mask=padding_mask(ids))
