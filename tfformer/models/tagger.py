"""The tagger: from the ids of a text to logits of a label for each position."""

import keras

from tfformer.annotations import Tensor
from tfformer.config import TaggerConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.output import Dense
from tfformer.models.text_encoder import TextEncoder


@keras.saving.register_keras_serializable("tfformer")
class Tagger(TextEncoder):
    """P(label of a position | text), computed by an encoder alone.

        logits = Dropout(Encoder(Dropout(E[ids] sqrt(D) + PE))) W + b

    Args:
        config: a `TaggerConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3), then padded with 0. Or {"ids": the
            same}.

    Returns:
        logits [B, S, C].

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    A plain `compile` and `fit` trains it on elements (ids, labels [B, S]), with the loss
    `LabelCrossEntropy`. The labels are 1 to C; 0 means no label.

    Example:
        >>> model = Tagger(TaggerConfig.preset("test", vocabulary_size=17, num_labels=5))
        >>> tuple(model(np.array([[9, 8, 6, 3], [4, 3, 0, 0]])).shape)
        (2, 4, 5)
    """

    configuration = TaggerConfig
    config: TaggerConfig

    def make_head(self, config: TaggerConfig, dtype: keras.DTypePolicy) -> None:
        self.head_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_projection = Dense(
            config.num_labels, use_bias=True, dtype=dtype, name="output_projection"
        )

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        states = self.token_states(self._ids_of(inputs), training)
        return self.output_projection(self.head_dropout(states, training=training))
