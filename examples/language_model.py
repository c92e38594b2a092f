"""A language model: an encoder with a causal mask predicts the next token and generates sentences.

Its language has sentences whose verb agrees with a distant noun:

    the cats near the tall dog sleep .        the cat near the tall dogs sleeps .

    python -m examples.language_model
"""

import functools
import random

import keras
import tensorflow as tf

import tfformer
from tfformer import (
    Encoder,
    SinusoidalPositionalEncoding,
    SmoothedCrossEntropy,
    TokenEmbedding,
    Tokenizer,
)
from tfformer.config import BOS

D_MODEL = 64
NOUNS, VERBS = ["cat", "dog", "bird", "horse"], ["sleep", "eat", "run"]
ADJECTIVES, PLACES = ["tall", "old", "red"], ["near", "behind", "under"]


def make_sentence(draw):
    """A sentence: a noun, places with other nouns, and the verb of the first noun."""

    def noun_of(plural):
        noun = draw.choice(NOUNS) + ("s" if plural else "")
        return f"the {draw.choice(ADJECTIVES)} {noun}" if draw.random() < 0.5 else f"the {noun}"

    plural = draw.random() < 0.5
    words = [noun_of(plural)]
    for _ in range(draw.randint(0, 3)):
        words.append(f"{draw.choice(PLACES)} {noun_of(draw.random() < 0.5)}")
    return " ".join([*words, draw.choice(VERBS) + ("" if plural else "s"), "."])


def agrees(sentence):
    """Whether the verb, the last word before the full stop, agrees with the first noun."""
    *words, verb, stop = ["", *sentence.split()]
    noun = next((word for word in words if word.removesuffix("s") in NOUNS), None)
    if noun is None or stop != ".":
        return False
    return verb in (VERBS if noun.endswith("s") else [verb + "s" for verb in VERBS])


def make_dataset(tokenizer, sentences):
    """Batches of (bos + sentence, sentence + eos), [B, T] each, padded with 0."""

    def to_ids(texts):
        labels = tokenizer.encode_target(texts)
        begins = tf.fill([tf.shape(texts)[0], 1], BOS)
        return tf.concat([begins, labels[:, :-1]], axis=1).to_tensor(), labels.to_tensor()

    return tf.data.Dataset.from_tensor_slices(sentences).batch(64).map(to_ids).cache()


def make_model(vocabulary_size):
    """A model from ids [B, T] to logits [B, T, V] of the next token at each position."""
    ids = keras.Input([None], dtype="int32")
    embedding = TokenEmbedding(vocabulary_size, D_MODEL)
    x = SinusoidalPositionalEncoding(D_MODEL)(embedding(ids))
    x = Encoder(num_layers=2, d_model=D_MODEL, num_heads=4, d_ff=128, norm="pre")(x, causal=True)
    return keras.Model(ids, keras.layers.Dense(vocabulary_size)(x))


def main():
    """Trains the model. Returns the share of generated sentences whose verb agrees."""
    keras.utils.set_random_seed(1)  # before the tokenizer is made
    draw = random.Random(1)
    sentences = [make_sentence(draw) for _ in range(6000)]
    tokenizer = Tokenizer.train(sentences, vocabulary_size=350)
    model = make_model(tokenizer.target_vocabulary_size)
    model.compile(keras.optimizers.Adam(0.002), SmoothedCrossEntropy(0.0))
    dataset = make_dataset(tokenizer, sentences).shuffle(999)
    model.fit(dataset, epochs=3, shuffle=False, verbose=2)

    # The model continues given beginnings of sentences.
    begun = ["the old cats near the dog", "the bird behind the red horses", "the", "the dogs"] * 25
    prompts = tokenizer.encode_target(tf.constant(begun))[:, :-1]  # without eos
    prompts = tf.concat([tf.fill([len(begun), 1], BOS), prompts], axis=1)
    sample = tf.function(functools.partial(tfformer.generate, model, search="sample", seed=3))
    found = sample(prompt=prompts, max_length=50, temperature=0.8)
    whole = tf.concat([prompts, found.token_ids[:, 0]], axis=1)
    texts = [text.decode() for text in tokenizer.decode(whole).numpy()]
    print(*texts[:4], sep="\n")
    share = sum(map(agrees, texts)) / len(texts)
    print(f"generated sentences whose verb agrees: {share:.0%}")
    return share


if __name__ == "__main__":
    main()
