"""Translation models in which all weights matter, for comparisons with other programs."""

import keras
import tensorflow as tf

from tfformer import Tokenizer, Transformer, TransformerConfig
from tfformer.config import EOS

SOURCES = [f"word {n} and {n * 7} more" for n in range(97)]
TARGETS = [f"{n * 7} Dinge und Wort {n}" for n in range(97)]
# Each kind of layer, norm, positions and tied embeddings; one vocabulary or two.
# fmt: off
CASES = {
    "paper": {"tie_embeddings": "all"},
    "biased": {"tie_embeddings": "target", "output_bias": True},
    "pre-norm, no biases": {
        "norm": "pre", "activation": "swiglu", "tie_embeddings": "target", "use_bias": False,
    },
    "learned": {
        "activation": "silu", "positions": "learned", "max_positions": 23, "embedding_norm": True,
    },
    "gated": {
        "norm": "pre",
        "activation": "swiglu",
        "positions": "learned",
        "max_positions": 31,
        "tie_embeddings": "target",
        "num_encoder_layers": 3,
        "num_decoder_layers": 1,
    },
}
# fmt: on


def random_model(tokenizer, **changes):
    """A model in which each weight matters; the longer vector of eos lets some translations end."""
    sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
    model = Transformer(
        TransformerConfig.preset("test", sizes[0], target_vocabulary_size=sizes[1], **changes)
    )
    for n, weight in enumerate(model.weights):
        value = 0.6 * tf.random.stateless_normal(weight.shape, [n, 45]).numpy()
        if len(weight.shape) == 1:  # the scale of a norm stays about 1; a matrix is random
            value += weight.value.numpy()
        if weight.path.endswith("target_embedding/embeddings"):
            value[EOS] *= 3
        if weight.path.endswith("output_projection/kernel"):
            value[:, EOS] *= 3
        weight.assign(value)
    return model


def make_tokenizers():
    """A tokenizer for both sides, and one with two vocabularies."""
    keras.utils.set_random_seed(3)
    return [
        Tokenizer.train(SOURCES, TARGETS, vocabulary_size=307),
        Tokenizer.train(SOURCES, TARGETS, vocabulary_size=293, shared=False),
    ]
