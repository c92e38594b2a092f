"""Small Transformers, one for each kind: every value of every option in few models."""

from tfformer import Transformer, TransformerConfig

VOCABULARY = 17

# Each value of each option at least once, in few models.
VARIANTS = {
    "paper": {},
    "pre": {"norm": "pre", "tie_embeddings": "target"},
    "learned": {"positions": "learned", "max_positions": 13, "tie_embeddings": "all"},
    "swiglu": {"activation": "swiglu", "norm": "pre", "positions": "learned"},
    "gelu": {"activation": "gelu", "tie_embeddings": "all", "last_norm": True, "epsilon": 1e-3},
    "silu": {"activation": "silu", "norm": "pre", "tie_embeddings": "all", "copy": True},
    "eos unseen": {"source_eos": False, "tie_embeddings": "target", "norm": "pre"},
    "biased": {"output_bias": True, "tie_embeddings": "all"},
    "copying, biased": {"output_bias": True, "copy": True},
    "vocabularies": {"target_vocabulary_size": 19, "tie_embeddings": "target"},
}


def make(variant="paper", dtype=None, **changes):
    """1 encoder layer, 2 decoder layers, sizes prime where they can be."""
    depth = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    config = TransformerConfig.preset(
        "test", VOCABULARY, **{**depth, **VARIANTS[variant], **changes}
    )
    return Transformer(config, dtype=dtype)
