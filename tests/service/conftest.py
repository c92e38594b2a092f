"""One translator and its answers for all tests of signatures, so that each is traced once.

Nothing in this folder may seed Keras, because this would end the tokenizer.
"""

import functools

import pytest
import search_oracle
import tensorflow as tf
from served_table import LIMITS, SIGNATURES, arguments
from words import logits_of, make_model, make_tokenizer

from tfformer import Translator


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(tokenizer)


@pytest.fixture(scope="module")
def translator(model, tokenizer):
    return Translator(model, tokenizer, **LIMITS)


@pytest.fixture(scope="module")
def serve(translator):
    """`serve(name, texts, ..., option=...)` returns a signature's outputs as arrays."""

    def run(name, *texts, **options):
        inputs = [x if tf.is_tensor(x) else tf.constant(x, tf.string) for x in texts]
        outputs = translator.functions[name](*inputs, **options)
        return {key: value.numpy() for key, value in outputs.items()}

    return run


@pytest.fixture(scope="module")
def served(serve, tokenizer):
    """The outputs of all signatures for TEXTS, with default options."""
    return {name: serve(name, *arguments(name, tokenizer)) for name in SIGNATURES}


@pytest.fixture(scope="module")
def log_probs_of(model, tokenizer):
    """`log_probs_of(text)(prefix)`: by the whole model in NumPy, without a cache."""

    def of_text(text):
        (source_ids,) = tokenizer.encode_source(tf.constant([text])).numpy().tolist()
        logits = logits_of(model, source_ids)
        return functools.cache(lambda prefix: search_oracle.log_softmax(logits(prefix)))

    return of_text
