"""Reads and checks the options of a Marian model of Hugging Face."""

from .options import (
    SIZES,
    activation_of,
    read_json_object,
    require_fixed,
    require_flags,
    require_whole,
)

# Options that must have one value: {name: (the value, the default)}.
FIXED = {
    "model_type": ("marian", None),
    "normalize_before": (False, False),
    "normalize_embedding": (False, False),
    "add_final_layer_norm": (False, False),
    "add_bias_logits": (False, False),
    "static_position_embeddings": (True, True),
}
FLAGS = {
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}


def read_options(path):
    """Reads the options of a `config.json`, and adds the defaults of those that we use."""
    found = read_json_object(path)
    require_fixed(found, path, FIXED)
    require_whole(found, path, SIZES)
    require_flags(found, path, FLAGS)
    target = found.get("decoder_vocab_size") or found["vocab_size"]
    if type(target) is not int or target < 1:
        raise ValueError(f"{path}: decoder_vocab_size must be a number of ids, got {target!r}")
    shared = found["share_encoder_decoder_embeddings"]
    found["decoder_vocab_size"] = found["vocab_size"] if shared else target
    _require_possible(found, path)
    return found


def _require_possible(found, path):
    """Raises a ValueError if our layers do not support an option."""
    for name, other in (
        ("decoder_start_token_id", "pad_token_id"),
        ("decoder_attention_heads", "encoder_attention_heads"),
    ):
        if found[name] != found[other]:
            raise ValueError(f"{path}: {name} must be {other} = {found[other]}, got {found[name]}")
    special = {found["pad_token_id"], found["eos_token_id"]}
    if len(special) < 2 or max(special) >= min(found["vocab_size"], found["decoder_vocab_size"]):
        raise ValueError(
            f"{path}: pad_token_id and eos_token_id must be two ids below vocab_size and "
            f"decoder_vocab_size, got {found['pad_token_id']} and {found['eos_token_id']}"
        )
    if found["d_model"] % 2:
        raise ValueError(f"{path}: d_model must be even, got {found['d_model']}")
    activation_of(found.setdefault("activation_function", "gelu"), path)
