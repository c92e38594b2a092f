"""Texts of a few words in two languages, and a model with random weights whose answers are
words."""

import functools
import random

import numpy as np
import oracle
from search_oracle import BOS, EOS, PAD

from tfformer import Shortlist, Tokenizer, Transformer, TransformerConfig

WORDS = (
    "ein kleines Haus steht am See und der Garten blüht schön Äpfel Straße über größer "
    "a little house by the lake with trees year 1987 2031 isn't"
).split()

# For `make_model`; more layers would not test more.
FEW_LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 2}


def sentences(seed, count, maximum=4):
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, maximum))) for _ in range(count)]


def make_model(tokenizer, seed=13, bonus=5, **changes):
    """A model whose logits are neither flat nor all of one token, and whose translations end."""
    config = TransformerConfig.preset(
        "test",
        tokenizer.source_vocabulary_size,
        target_vocabulary_size=tokenizer.target_vocabulary_size,
        **changes,
    )
    model, rng = Transformer(config), np.random.default_rng(seed)
    for variable in model.trainable_variables:
        # Cross-attention is strong, so different texts have different translations.
        scale = 2.3 if "cross_attention" in variable.path else 0.4
        mean = 1.0 if variable.path.endswith("gamma") else 0.0
        variable.assign(rng.normal(mean, scale, size=variable.shape))
    kernel = rng.normal(scale=0.6, size=model.output_projection.kernel.shape)
    # The decoder's last gain and shift are known, so this adds a constant to the logit of eos.
    beta = model.decoder.layers[-1].feed_forward_residual.layer_norm.beta.numpy()
    kernel[:, EOS] = bonus * beta / (beta @ beta)
    model.output_projection.kernel.assign(kernel)
    return model


def make_tokenizer():
    """Two different models, so that an exchange of the sides is noticed."""
    source = Tokenizer.train(sentences(1, 300), vocabulary_size=409, kind="bpe")
    target = Tokenizer.train(WORDS[5:] * 20, vocabulary_size=367, kind="bpe")
    return Tokenizer(source.source_model, target.source_model)


def logits_of(model, source_ids):
    """`logits_of(model, ids)(prefix)`: logits of the next token, by the whole model in NumPy, no
    cache."""

    @functools.cache
    def of(prefix):
        target_ids = np.array([[BOS, *prefix]])
        return oracle.transformer(model, np.array([source_ids]), target_ids)[0, -1]

    return of


def make_shortlist(tokenizer):
    """At most 7 candidates for each source piece, and 17 for all sentences."""
    rng, size = np.random.default_rng(5), tokenizer.target_vocabulary_size
    candidates = rng.integers(4, size, (tokenizer.source_vocabulary_size, 7))
    candidates[rng.random(candidates.shape) < 0.3] = 0
    candidates[[PAD, EOS]] = 0
    always = np.sort([0, 1, 2, 3, *rng.choice(np.arange(4, size), 13, replace=False)])
    return Shortlist(candidates, always, tokenizer.sha256)
