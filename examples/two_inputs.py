"""A model with two inputs: a question finds its answer in a text by attention.

text      Ann, Dan, Ben, Cleo
question  Where is Dan?
answer    the second

python -m examples.two_inputs
"""

import random

import keras
import tensorflow as tf

from tfformer import (
    Encoder,
    MultiHeadAttention,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    Tokenizer,
)

NAMES = ["Ann", "Ben", "Cleo", "Dan", "Eve", "Finn"]
D_MODEL = 64


def make_questions(count, seed):
    """`count` rows of names, a question about each, and the answers: positions from 0."""
    draw = random.Random(seed)
    texts, questions, answers = [], [], []
    for _ in range(count):
        names = draw.sample(NAMES, draw.randint(2, len(NAMES)))
        answers.append(draw.randrange(len(names)))
        texts.append(", ".join(names))
        questions.append(f"Where is {names[answers[-1]]}?")
    return texts, questions, answers


def make_dataset(tokenizer, texts, questions, answers):
    """Batches of ({"text": ids [B, S], "question": ids [B, Q]}, answers [B])."""

    def to_ids(texts, questions, answers):
        text, question = map(tokenizer.encode_source, (texts, questions))
        return {"text": text.to_tensor(), "question": question.to_tensor()}, answers

    return (
        tf.data.Dataset.from_tensor_slices((texts, questions, answers))
        .batch(64)
        .map(to_ids)
        .cache()
    )


def make_model(vocabulary_size):
    text = keras.Input([None], dtype="int32", name="text")
    question = keras.Input([None], dtype="int32", name="question")
    embedding = TokenEmbedding(vocabulary_size, D_MODEL)  # one for both
    positions = SinusoidalPositionalEncoding(D_MODEL)
    options = {"d_model": D_MODEL, "num_heads": 4, "d_ff": 128, "dropout": 0.0}
    memory = Encoder(num_layers=1, **options)(positions(embedding(text)))
    asked = Encoder(num_layers=1, **options)(positions(embedding(question)))
    # Keras passes on the masks of both, which mark the padding.
    found = MultiHeadAttention(D_MODEL, num_heads=4)(asked, memory)
    answer = keras.layers.GlobalAveragePooling1D()(keras.layers.Add()([asked, found]))
    return keras.Model({"text": text, "question": question}, keras.layers.Dense(len(NAMES))(answer))


def main():
    """Trains the model. Returns its accuracy on unseen questions."""
    keras.utils.set_random_seed(1)  # before the tokenizer is made
    train = make_questions(8000, seed=1)
    tokenizer = Tokenizer.train([*train[0], *train[1]], vocabulary_size=300)
    model = make_model(tokenizer.source_vocabulary_size)
    model.compile(
        keras.optimizers.Adam(0.002),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    dataset = make_dataset(tokenizer, *train).shuffle(999)
    model.fit(dataset, epochs=3, shuffle=False, verbose=2)
    _, accuracy = model.evaluate(make_dataset(tokenizer, *make_questions(500, seed=2)), verbose=0)
    print(f"unseen questions: {accuracy:.1%} answered")
    return accuracy


if __name__ == "__main__":
    main()
