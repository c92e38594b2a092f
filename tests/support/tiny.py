"""A tiny model with random weights whose answers are words, for tests of other parts."""

import functools
import random

import keras
import numpy as np
import tensorflow as tf

import tfformer
from tfformer import Tokenizer, Transformer, TransformerConfig, Translator
from tfformer.config import EOS

# The limits of the model that `served_model` in conftest.py serves.
SERVED = {"max_source_length": 17, "max_target_length": 13, "max_batch_size": 37}
FIRST_BYTE = 4  # of the 256 bytes, which come after the special ids
WORDS = "a little house by the lake with trees and nobody in it".split()


def sentences(count, maximum=7, seed=7):
    """`count` texts of up to `maximum` words, the same for the same seed."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, maximum))) for _ in range(count)]


def make_translator(**options):
    """The same `Translator` each time; `options` are its own.

    Nothing is seeded, because that would end all existing tokenizers.
    """
    tokenizer = Tokenizer.train(sentences(97), vocabulary_size=347)
    config = TransformerConfig.preset(
        "test", tokenizer.source_vocabulary_size, num_encoder_layers=1, num_decoder_layers=1
    )
    model = Transformer(config)
    rng = np.random.default_rng(3)
    for weight in model.trainable_variables:
        # Cross-attention is strong, so different texts have different translations.
        scale = 2.3 if "cross_attention" in weight.path else 0.4
        mean = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(rng.normal(mean, scale, size=weight.shape))
    # The decoder's last gain and shift are known, so this adds a constant to the logits of tokens:
    # single bytes become unlikely, and eos likely enough.
    kernel = rng.normal(scale=0.6, size=model.output_projection.kernel.shape)
    beta = model.decoder.layers[-1].feed_forward_residual.layer_norm.beta.numpy()
    constant = beta / (beta @ beta)
    kernel[:, FIRST_BYTE : FIRST_BYTE + 256] = -9 * constant[:, None]
    kernel[:, EOS] = 0.7 * constant
    model.output_projection.kernel.assign(kernel)
    return Translator(model, tokenizer, **options)


@functools.cache
def _served():
    return make_translator(**SERVED)


def translator_served():
    """The `Translator` of SERVED, with the graphs traced so far.

    If something was seeded since, it is a new one.
    """
    translator = _served()
    try:
        translator.tokenizer.encode_source(tf.constant(["a"]))
    except tf.errors.NotFoundError:
        _served.cache_clear()
        translator = _served()
    return translator


def save_version(translator, base, version, signatures=None):
    """Writes a version with its warm-up requests, without verifying it, which takes a minute."""
    from export.artifacts.examples import warmup_requests
    from export.verification.warmup import write_warmup

    translator.save(str(base / str(version)), signatures)
    names = signatures or translator.functions
    requests = {n: asked for n, asked in warmup_requests(translator).items() if n in names}
    write_warmup(base / str(version), requests, translator.functions)


def save_run(directory, make_tokenizer, search, **changes):
    """Writes a run directory with 1 + 1 layers and distributions that are not flat; returns it.

    Args:
        make_tokenizer: called after seeding, which ends all existing tokenizers.
        search: of the run.
        changes: of the preset `"test"`.
    """
    keras.utils.set_random_seed(3)
    tokenizer = make_tokenizer()
    changes = {"num_encoder_layers": 1, "num_decoder_layers": 1} | changes
    size = tokenizer.source_vocabulary_size
    model = Transformer(TransformerConfig.preset("test", size, **changes))
    for n, weight in enumerate(model.weights):
        weight.assign_add(0.4 * tf.random.stateless_normal(weight.shape, [n, 5]))
    tfformer.save(directory, model, tokenizer, search)
    return directory


def save_small_run(directory):
    """`save_run` with a vocabulary of 97 pieces, and sources and targets of at most 17 and 11
    tokens."""
    search = {"max_source_length": 17, "max_target_length": 11}
    texts = sentences(97)
    return save_run(directory, lambda: Tokenizer.train(texts, vocabulary_size=347), search)
