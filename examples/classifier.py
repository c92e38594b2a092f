"""A classifier of texts: an encoder, the mean over its positions, a Dense layer.

Dan Ann Ben Ann Cleo Ann  ->  Ann        who is named most often?

python -m examples.classifier
"""

import collections
import random

import keras
import tensorflow as tf

from tfformer import Encoder, SinusoidalPositionalEncoding, TokenEmbedding, Tokenizer

NAMES = ["Ann", "Ben", "Cleo", "Dan"]
D_MODEL = 32


def make_texts(count, seed):
    """`count` texts, and for each the index of its most frequent name."""
    draw = random.Random(seed)
    texts, labels = [], []
    while len(texts) < count:
        words = draw.choices(NAMES, k=draw.randint(3, 15))
        (first, maximum), *others = collections.Counter(words).most_common()
        if not others or others[0][1] < maximum:  # only one name is the most frequent
            texts.append(" ".join(words))
            labels.append(NAMES.index(first))
    return texts, labels


def make_dataset(tokenizer, texts, labels):
    """Batches of ids [B, T], padded with 0, and labels [B]."""

    def to_ids(texts, labels):
        return tokenizer.encode_source(texts).to_tensor(), labels

    return tf.data.Dataset.from_tensor_slices((texts, labels)).batch(64).map(to_ids).cache()


def make_model(vocabulary_size):
    return keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            TokenEmbedding(vocabulary_size, D_MODEL),  # the mask of padding begins here
            SinusoidalPositionalEncoding(D_MODEL),
            Encoder(num_layers=1, d_model=D_MODEL, num_heads=4, d_ff=64, dropout=0),
            keras.layers.GlobalAveragePooling1D(),  # leaves padding out, by the mask
            keras.layers.Dense(len(NAMES)),
        ]
    )


def main():
    """Trains the model. Returns its accuracy on unseen texts."""
    keras.utils.set_random_seed(1)  # before the tokenizer is made
    texts, labels = make_texts(8000, seed=1)
    tokenizer = Tokenizer.train(texts, vocabulary_size=300)
    model = make_model(tokenizer.source_vocabulary_size)
    model.compile(
        keras.optimizers.Adam(0.002),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    dataset = make_dataset(tokenizer, texts, labels).shuffle(999)
    model.fit(dataset, epochs=3, shuffle=False, verbose=2)
    _, accuracy = model.evaluate(make_dataset(tokenizer, *make_texts(500, seed=2)), verbose=0)
    print(f"unseen texts: {accuracy:.1%} right")
    return accuracy


if __name__ == "__main__":
    main()
