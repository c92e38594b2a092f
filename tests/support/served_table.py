"""The table of the signatures of a `Translator`, and the limits and texts for their tests."""

import pytest
import tensorflow as tf
from search_oracle import PAD
from words import sentences

MAX_SOURCE, MAX_TARGET, WIDTH, ALPHA = 13, 7, 3, 0.6
LIMITS = {
    "beam_width": WIDTH,
    "length_penalty": ALPHA,
    "max_source_length": MAX_SOURCE,
    "max_target_length": MAX_TARGET,
}
TEXTS = sentences(3, 5)
B = len(TEXTS)
OPTIONS = {
    "beam_width": "int32",
    "length_penalty": "float32",
    "max_length": "int32",
    "min_length": "int32",
    "max_length_factor": "float32",
    "coverage_penalty": "float32",
    "repetition_penalty": "float32",
    "no_repeat_ngram": "int32",
}
N_BEST = {
    "token_ids": ("int32", 3),
    "scores": ("float32", 2),
    "lengths": ("int32", 2),
    "token_log_probs": ("float32", 3),
    "alignment": ("int32", 3),
}
SIGNATURES = {
    "serving_default": (
        {"text": "string"},
        {"translation": ("string", 1), "score": ("float32", 1), "truncated": ("bool", 1)},
    ),
    "translate_document": (
        {"text": "string"},
        {"translation": ("string", 1), "sentences": ("int32", 1), "truncated": ("bool", 1)},
    ),
    "beam_search": (
        {"text": "string", **OPTIONS},
        {
            "translations": ("string", 2),
            **N_BEST,
            "truncated": ("bool", 1),
        },
    ),
    "beam_search_ids": ({"source_ids": "int32", **OPTIONS}, N_BEST),
    "score": (
        {"source": "string", "target": "string"},
        {"log_prob": ("float32", 1), "length": ("int32", 1), "truncated": ("bool", 1)},
    ),
    "sample": (
        {
            "text": "string",
            "seed": "int32",
            "temperature": "float32",
            "top_k": "int32",
            "top_p": "float32",
            "max_length": "int32",
        },
        {"translation": ("string", 1), "log_prob": ("float32", 1), "truncated": ("bool", 1)},
    ),
    "complete": (
        {"text": "string", "prefix": "string"},
        {"translation": ("string", 1), "score": ("float32", 1), "truncated": ("bool", 1)},
    ),
    "align": (
        {"source": "string", "target": "string"},
        {
            "attention": ("float32", 3),
            "source_tokens": ("string", 2),
            "target_tokens": ("string", 2),
            "truncated": ("bool", 1),
        },
    ),
}
signatures = pytest.mark.parametrize("name", SIGNATURES)


def arguments(name, tokenizer, texts=TEXTS):
    """Values for the inputs without a default."""
    if name == "beam_search_ids":
        return [tokenizer.encode_source(tf.constant(texts)).to_tensor(PAD)]
    return [texts] * sum(n in ("text", "source", "target", "prefix") for n in SIGNATURES[name][0])
