"""The classifier: from the ids of a text to one logit for each label."""

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import ClassifierConfig
from tfformer.layers import positions
from tfformer.layers.dropout import Dropout
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense
from tfformer.layers.overlapping_windows import Pieces, Recurrence
from tfformer.layers.packing import Padded
from tfformer.layers.pooling import Pooling
from tfformer.models.text_encoder import TextEncoder


@keras.saving.register_keras_serializable("tfformer")
class Classifier(TextEncoder):
    """P(label | text), computed by an encoder alone.

        vector = Pooling(Encoder(Dropout(E[ids] sqrt(D) + PE)))
        logits = Dropout(vector) W + b

    With `pooler`, a dense layer with an activation comes between the two.

    With `piece_length`, a longer text is split into overlapping pieces. The vector of the text is
    then computed from the vectors of its pieces: their mean, the last state of an LSTM, or the mean
    of the outputs of a Transformer layer over the pieces.

    Args:
        config: a `ClassifierConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3), then padded with 0. Or {"ids": the
            same}.

    Returns:
        logits [B, C]; with `multi_label` [B, C, 2], for no and yes; the logit of no is 0.

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    A plain `compile` and `fit` trains it on elements (ids, labels [B, 1]), with the loss
    `LabelCrossEntropy`. The labels are 1 to C; 0 means no label. With `multi_label` they are
    [B, C]: 1 means no, 2 means yes.

    Example:
        >>> config = ClassifierConfig.preset("test", vocabulary_size=17, num_labels=5)
        >>> model = Classifier(config)
        >>> ids = np.array([[9, 8, 6, 3], [4, 3, 0, 0]])
        >>> tuple(model(ids).shape), tuple(model.embed(ids).shape)
        ((2, 5), (2, 14))
    """

    configuration = ClassifierConfig
    config: ClassifierConfig

    def make_head(self, config: ClassifierConfig, dtype: keras.DTypePolicy) -> None:
        self.pooling = Pooling(config.pooling, dtype=dtype, name="pooling")
        self.pieces = self.combined = None
        if config.piece_length:
            self.pieces = Pieces(
                config.piece_length, config.piece_overlap, dtype=dtype, name="pieces"
            )
            self._make_combined(config, dtype)
        self.pooler = None
        if config.pooler != "none":
            self.pooler = keras.layers.Dense(
                config.d_model, config.pooler, dtype=dtype, name="pooler"
            )
        self.head_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_projection = Dense(
            config.num_labels, use_bias=True, dtype=dtype, name="output_projection"
        )

    def _make_combined(self, config, dtype):
        """Make the layers over the pieces. The mean needs no layer with weights."""
        self.mean_of_pieces = Pooling("mean", dtype=dtype, name="mean_of_pieces")
        if config.pieces == "lstm":
            self.combined = Recurrence(config.d_model, dtype=dtype, name="combined")
        elif config.pieces == "transformer":
            self.combined = Encoder(1, **config.stack(), dtype=dtype, name="combined")
            self.piece_positions = positions.of_options(config, dtype=dtype, name="piece_positions")

    def head(self) -> dict[str, list[keras.layers.Layer]]:
        pieces: list[keras.layers.Layer] = [] if self.combined is None else [self.combined]
        if isinstance(self.combined, Encoder):
            pieces.append(self.piece_positions)
        output = super().head()["output"]
        if self.pooler is not None:
            output.insert(0, self.pooler)
        return {**({"pieces": pieces} if pieces else {}), "output": output}

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        vector = self.embed(inputs, training)
        if self.pooler is not None:
            vector = self.pooler(vector)
        logits = self.output_projection(self.head_dropout(vector, training=training))
        if not self.config.multi_label:
            return logits
        return ops.stack([ops.zeros_like(logits), logits], axis=-1)  # [B, C, 2]

    def embed(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
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
        ids = self.read(ids)
        return self.pooling(self.states(ids, training), mask=padding_mask(ids))
