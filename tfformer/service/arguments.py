"""Checks of the arguments of a service. Each function raises a ValueError if a check fails."""

from tfformer.config import whole
from tfformer.text.tokenizer import Tokenizer


def check_forms(xla, low_latency, shortlist, attention_window, beam_width, dtype):
    """Check that the requested forms of an export fit the other arguments of a `Translator`."""
    has_shortlist = shortlist is not None
    if attention_window and (xla or has_shortlist):
        raise ValueError(
            "attention_window must be 0 with xla or a shortlist, got "
            f"attention_window={attention_window}"
        )
    if xla and has_shortlist:
        raise ValueError("xla must be False with a shortlist, whose size is a request's own")
    if dtype == "int8" and xla:
        raise ValueError("dtype must not be 'int8' with xla, got 'int8'")
    for name, given in (
        ("xla", xla),
        ("beam_width=1", beam_width == 1),
        ("dtype='bfloat16'", dtype == "bfloat16"),
    ):
        if low_latency and given:
            raise ValueError(f"low_latency must be False with {name}, got {low_latency}")


def check_lengths(max_source_length, max_target_length, maximum):
    """Check that both lengths are in [2, maximum]."""
    lengths = {"max_source_length": max_source_length, "max_target_length": max_target_length}
    for name, value in lengths.items():
        if not 2 <= whole(name, value, minimum=0) <= maximum:
            raise ValueError(f"{name} must be in [2, {maximum}], got {value}")


def check_min_length(min_length, max_target_length):
    """Check that a target can have its minimum length."""
    if min_length > max_target_length:
        raise ValueError(
            f"min_length must be at most max_target_length = {max_target_length}, got {min_length}"
        )


def check_one_language(**forms):
    """Check that these forms of an export are off, for a multilingual model."""
    for name, given in forms.items():
        if given:
            raise ValueError(f"{name} must be off for a multilingual model, got {given!r:.99}")


def check_sides(model, tokenizer, kind):
    """Check that the model is of this class, and that the tokenizer fits it."""
    if not isinstance(model, kind) or not isinstance(tokenizer, Tokenizer):
        kinds = f"{type(model).__name__} and {type(tokenizer).__name__}"
        raise ValueError(f"model must be a {kind.__name__}, tokenizer a Tokenizer, got {kinds}")
    config = model.config
    sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
    tokens = (tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size)
    if sizes != tokens:
        raise ValueError(
            f"tokenizer must have the model's numbers of ids, {sizes} for source and target, "
            f"got {tokens}"
        )
    if config.one_vocabulary and not tokenizer.is_one_vocabulary:
        raise ValueError(f"tokenizer must be one for both sides with {config.one_vocabulary}")


def check_vocabulary(name, other, tokenizer):
    """Check that a `Translator`, the argument `name`, has this vocabulary."""
    if other.tokenizer.sha256 != tokenizer.sha256:
        raise ValueError(f"{name} must have the vocabulary of the model, got another")
