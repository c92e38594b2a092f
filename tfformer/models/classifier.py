"""The classifier: the ids of a text in, a logit of each label out."""

import keras
from keras import ops

from tfformer.config import ClassifierConfig
from tfformer.layers import positions
from tfformer.layers.dropout import Dropout
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense
from tfformer.layers.pieces import Pieces, Recurrence
from tfformer.layers.pooling import Pooling
from tfformer.layers.rows import Padded
from tfformer.models.text_encoder import TextEncoder


@keras.saving.register_keras_serializable("tfformer")
class Classifier(TextEncoder):
    """P(label | text), by the encoder alone.

        vector = Pooling(Encoder(Dropout(E[ids] sqrt(D) + PE)))
        logits = Dropout(vector) W + b

    With `piece_length` a longer text is read in pieces that overlap, and its vector is made of
    theirs: their mean, the last state of an LSTM, or the mean of what a Transformer layer over the
    pieces gives.

    Args:
        config: a `ClassifierConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3); 0 is padding after them. Or {"ids":
            these}.

    Returns:
        logits [B, C]; with `multi_label` [B, C, 2], of no and of yes, of which the first is 0.

    Raises:
        ValueError: `config` is none; or other inputs are given, or, with learned positions, longer
            ones than `max_positions`.

    It trains with a plain `compile` and `fit` on elements (ids, labels [B, 1]), with the loss
    `LabelCrossEntropy`: the labels are 1 to C, and 0 is none. With `multi_label` they are [B, C]: 1
    is no, 2 is yes.

    Example:
        >>> config = ClassifierConfig.preset("test", vocabulary_size=17, num_labels=5)
        >>> model = Classifier(config)
        >>> ids = np.array([[9, 8, 6, 3], [4, 3, 0, 0]])
        >>> tuple(model(ids).shape), tuple(model.embed(ids).shape)
        ((2, 5), (2, 14))
    """

    configuration = ClassifierConfig

    def make_head(self, config, dtype):
        self.pooling = Pooling(config.pooling, dtype=dtype, name="pooling")
        self.pieces = self.combined = None
        if config.piece_length:
            self.pieces = Pieces(
                config.piece_length, config.piece_overlap, dtype=dtype, name="pieces"
            )
            self._make_combined(config, dtype)
        self.head_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_projection = Dense(
            config.num_labels, use_bias=True, dtype=dtype, name="output_projection"
        )

    def _make_combined(self, config, dtype):
        """Makes the layers that are over the pieces; of the mean there are none with weights."""
        self.mean_of_pieces = Pooling("mean", dtype=dtype, name="mean_of_pieces")
        if config.pieces == "lstm":
            self.combined = Recurrence(config.d_model, dtype=dtype, name="combined")
        elif config.pieces == "transformer":
            self.combined = Encoder(1, **config.stack(), dtype=dtype, name="combined")
            self.piece_positions = positions.of_options(config, dtype=dtype, name="piece_positions")

    def head(self):
        pieces = [] if self.combined is None else [self.combined]
        if isinstance(self.combined, Encoder):
            pieces.append(self.piece_positions)
        return {**({"pieces": pieces} if pieces else {}), **super().head()}

    def call(self, inputs, training=None):
        vector = self.embed(inputs, training)
        logits = self.output_projection(self.head_dropout(vector, training=training))
        if not self.config.multi_label:
            return logits
        return ops.stack([ops.zeros_like(logits), logits], axis=-1)  # [B, C, 2]

    def embed(self, inputs, training=None):
        """The vectors of texts: ids [B, S] -> [B, D].

        Raises:
            ValueError: as a call.
        """
        ids = self._ids_of(inputs)
        if self.pieces is None:
            return self._vectors(ids, training)
        ids, real = self.pieces(ids)
        shape = ops.shape(ids)
        ids = ops.reshape(ids, (-1, shape[2]))  # [B * P, L]
        size = (-1, shape[1], self.config.d_model)
        x = ops.reshape(self._vectors(ids, training), size)  # [B, P, D]
        if isinstance(self.combined, Recurrence):
            return self.combined(x, mask=real, training=training)
        if self.combined is not None:
            x = self.combined(self.piece_positions(x), training=training, rows=Padded(real))
        return self.mean_of_pieces(x, mask=real)

    def _vectors(self, ids, training):
        """The vector of each row of ids [B, S], [B, D]."""
        ids = self.pooling.read(ids)
        return self.pooling(self.states(ids, training), mask=padding_mask(ids))
