"""Makes the inference layers of a model, and its weights in their form."""

import tensorflow as tf

from tfformer.inference import (
    attention,
    decoder,
    embedding,
    encoder,
    feed_forward,
    language_model,
    length,
    location,
    non_autoregressive,
    norm,
    output,
    overlapping_windows,
    pooling,
    positions,
    relative_positions,
    residual,
    text_encoder,
    transformer,
    upsampling,
)
from tfformer.models.classifier import Classifier
from tfformer.models.embedder import Embedder
from tfformer.models.language_model import LanguageModel
from tfformer.models.masked_language_model import MaskedLanguageModel
from tfformer.models.non_autoregressive import NonAutoregressive
from tfformer.models.span_reader import SpanReader
from tfformer.models.tagger import Tagger
from tfformer.models.transformer import Transformer

# Each layer that can be served, and its inference layer: a class, or a function that makes it.
FILES = (
    attention,
    decoder,
    embedding,
    encoder,
    feed_forward,
    length,
    location,
    norm,
    output,
    overlapping_windows,
    relative_positions,
    pooling,
    positions,
    residual,
    upsampling,
)
INFERENCE_LAYERS = {
    layer: inference_layer
    for file in FILES
    for layer, inference_layer in file.INFERENCE_LAYERS.items()
}
# By model class. A model may be an instance of a subclass.
MODELS = {
    Transformer: transformer.Transformer,
    LanguageModel: language_model.LanguageModel,
    NonAutoregressive: non_autoregressive.NonAutoregressive,
    Classifier: text_encoder.Classifier,
    MaskedLanguageModel: text_encoder.MaskedLanguageModel,
    Tagger: text_encoder.Tagger,
    SpanReader: text_encoder.SpanReader,
    Embedder: text_encoder.Embedder,
}


class Fusing:
    """Collects inference layers and weights while a model is converted.

    Args:
        num_positions: rows of a table of positions.
        dtype: the dtype of products; norms are float32.
        few_rows: whether attention uses the operations of `tfformer.inference.low_latency`.

    Attributes:
        weights: {name: {part: tensor}}; a layer that is used several times is stored once.
    """

    def __init__(self, num_positions, dtype, few_rows=False):
        self.num_positions, self.dtype, self.few_rows = num_positions, dtype, few_rows
        self.weights, self._inference_layers = {}, {}

    def inference_layer(self, layer, name, **more):
        """The inference layer of a layer; the same layer always gives the same one.

        Raises:
            ValueError: it has no inference layer.
        """
        # Self-attention and cross-attention of one layer have different inference layers.
        key = id(layer), more.get("reads_memory", False)
        if key not in self._inference_layers:
            if type(layer) not in INFERENCE_LAYERS:
                known = sorted(one.__name__ for one in INFERENCE_LAYERS)
                raise ValueError(
                    f"{name} must be a layer that can be served, one of {known}, "
                    f"got {type(layer).__name__}"
                )
            self._inference_layers[key] = INFERENCE_LAYERS[type(layer)](layer, name, self, **more)
        return self._inference_layers[key]

    def output_and_embedding(self, output, embedding, name):
        """The inference layers of an output layer and of its embedding `name`, which may be tied:
        they are then one matrix."""
        made = self.inference_layer(output, "output", embedding=embedding)
        return made, self.inference_layer(embedding, name, output=made if output.tied else None)


def fuse(model, num_positions, dtype=None, few_rows=False):
    """Make the inference layers of a model and its weights.

    Queries, keys and values of an attention become one matrix [D, 3 D], with the queries already
    divided by sqrt(K). The memory's keys and values of all N decoder layers become one matrix
    [D, 2 N D]. An embedding that is also the output layer is transposed, [D, V]. A matrix whose
    number of columns is a multiple of 512 gets 16 extra columns of zeros, whose results are cut
    off.

    Args:
        model: the model, whose variables are read here, in the graph that is traced.
        num_positions: rows of the tables of positions.
        dtype: the dtype of products; norms are float32. Default: the model's compute dtype.
        few_rows: whether to optimise for the few rows of one text, see
            `tfformer.inference.low_latency`. Default False.

    Returns:
        (inference layer, weights). The layer holds no weights, and reads no configuration.

    Raises:
        ValueError: the model or one of its layers has no inference layer.
    """
    fusing = Fusing(num_positions, tf.as_dtype(dtype or model.compute_dtype), few_rows)
    for kind, inference_layer in MODELS.items():
        if isinstance(model, kind):
            return inference_layer(model, fusing), fusing.weights
    raise ValueError(
        f"model must be one of {[kind.__name__ for kind in MODELS]}, got {type(model).__name__}"
    )
