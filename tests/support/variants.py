"""A few small Transformers that together have each value of each option."""

from tfformer import Transformer, TransformerConfig

VOCABULARY = 17

# Each value of each option occurs at least once.
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
    "rotary, rms, one head of keys": {
        "positions": "none", "attention_positions": "rotary", "normalization": "rms",
        "num_heads": 7, "num_key_value_heads": 1, "norm": "pre", "query_key_norm": True,
    },
    "alibi, simple, no residual": {
        "positions": "none", "attention_positions": "alibi", "normalization": "simple",
        "residual": False,
    },
    "relative, ada, one layer twice": {
        "attention_positions": "relative", "normalization": "ada", "unique_layers": 1,
        "tie_embeddings": "all", "share_halves": True,
    },
    "a norm after the embeddings": {"embedding_norm": True, "epsilon": 1e-3},
    "batch": {"normalization": "batch", "norm": "pre"},
    "no biases": {"use_bias": False, "activation": "swiglu"},
    "location-aware, one half for both": {
        "location_width": 3, "copy": True, "share_halves": True,
    },
}  # fmt: skip


def make(variant="paper", dtype=None, **changes):
    """1 encoder layer, 2 decoder layers, sizes that are prime where possible."""
    depth = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    config = TransformerConfig.preset(
        "test", VOCABULARY, **{**depth, **VARIANTS[variant], **changes}
    )
    return Transformer(config, dtype=dtype)
