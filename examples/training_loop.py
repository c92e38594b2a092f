"""A custom training loop for a Transformer, from texts to a directory that `export` can serve.

seven thousand two hundred and six  ->  7206

python -m examples.training_loop [DIRECTORY]
"""

import functools
import random
import sys

import keras
import tensorflow as tf

import tfformer
from tfformer import SmoothedCrossEntropy, Tokenizer, Transformer, TransformerConfig, WarmupSchedule
from tfformer.config import BOS

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number):
    """A number below 10,000 in English."""
    for unit, name in ((1000, "thousand"), (100, "hundred")):
        if number >= unit:
            many, rest = divmod(number, unit)
            joined = " and " if rest < 100 else " "
            return f"{in_words(many)} {name}" + (joined + in_words(rest) if rest else "")
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")


def make_dataset(tokenizer, numbers):
    """Batches of ({"source_ids": [B, S], "target_ids": [B, T]}, labels [B, T]), padded with 0.

    A source ends with eos. The decoder reads bos and the target (teacher forcing), and learns to
    predict the target and eos.
    """

    def to_ids(sources, targets):
        source_ids, labels = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
        begins = tf.fill([tf.shape(targets)[0], 1], BOS)
        target_ids = tf.concat([begins, labels[:, :-1]], axis=1)
        inputs = {"source_ids": source_ids.to_tensor(), "target_ids": target_ids.to_tensor()}
        return inputs, labels.to_tensor()

    texts = [in_words(number) for number in numbers], [str(number) for number in numbers]
    return tf.data.Dataset.from_tensor_slices(texts).batch(64).map(to_ids).cache()


def make_step(model, optimizer, loss, batches):
    """One training step as a graph: a function of a batch that returns its loss."""
    optimizer.build(model.trainable_variables)  # else a graph makes them, which is traced twice

    @tf.function(input_signature=batches.element_spec)  # one graph for all lengths
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True))
        variables = model.trainable_variables
        gradients, _ = tf.clip_by_global_norm(tape.gradient(value, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    return step


def main(directory=None):
    """Trains the model. Returns its exact match on unseen numbers."""
    keras.utils.set_random_seed(1)  # before the tokenizer is made
    numbers = random.Random(1).sample(range(10_000), 10_000)
    train, unseen = numbers[:8000], numbers[-500:]
    tokenizer = Tokenizer.train(
        map(in_words, train), map(str, train), vocabulary_size=330, split_digits=True
    )
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 64, "num_heads": 4}
    model = Transformer(
        TransformerConfig(tokenizer.source_vocabulary_size, d_ff=128, dropout=0.0, **sizes)
    )
    # The rate rises for 200 steps and falls to zero at the end: 4 epochs of 125 steps.
    rate = WarmupSchedule(64, 200, scale=0.6, total_steps=500, cooldown_steps=300)
    optimizer = keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)
    batches = make_dataset(tokenizer, train)
    step = make_step(model, optimizer, SmoothedCrossEntropy(0.1), batches)
    for epoch in range(1, 5):
        losses = [step(inputs, labels) for inputs, labels in batches.shuffle(999)]
        print(f"epoch {epoch}: loss {tf.reduce_mean(losses):.3f}")

    sources = tokenizer.encode_source(tf.constant([in_words(n) for n in unseen])).to_tensor()
    search = tf.function(functools.partial(tfformer.generate, model, max_length=8, beam_width=2))
    texts = tokenizer.decode(search(sources).token_ids[:, 0]).numpy()
    right = sum(text.decode() == str(n) for text, n in zip(texts, unseen, strict=True))
    print(f"unseen numbers: {right / len(unseen):.1%} right")
    if directory is not None:
        # For `tfformer translate DIRECTORY` and `tfformer export DIRECTORY ...`.
        tfformer.save(directory, model, tokenizer)
    return right / len(unseen)


if __name__ == "__main__":
    main(*sys.argv[1:])
