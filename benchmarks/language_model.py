"""Trains language models of one size, also KerasHub's: `python -m benchmarks.language_model`.

    python -m benchmarks.language_model --text data/multi30k/train.en \\
        --val-text data/multi30k/val.en

Three models learn from the same batches, in the same order, with the same loss, optimizer and rate,
in float32, by a plain `fit`: tfformer's with its defaults, tfformer's with the choices of GPT-2
(Radford et al. 2019: normalised before each sub-layer, GELU, learned positions), and KerasHub's
`GPT2CausalLM`. Each line is a text in its own row. The models take turns, an epoch each.

It prints parameters, the validation perplexity per token after each epoch, and the median of the
tokens per second without padding.

Exit codes: 0 measured; 1 an error of a file, or KerasHub is missing; 2 wrong usage; 130
interrupted.
"""

import random
import statistics
import sys
import time
from pathlib import Path

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of

ROWS = 64
OPTIONS = {  # tfformer's rows
    "tfformer": {},
    "tfformer, GPT-2's choices": {"norm": "pre", "activation": "gelu", "positions": "learned"},
}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.language_model", __doc__)
    parser.add_argument("--text", type=Path, required=True, help="lines for training")
    parser.add_argument("--val-text", type=Path, required=True, help="lines for the perplexity")
    parser.add_argument("--size", choices=work.SIZES, default="S", help="default S")
    parser.add_argument("--epochs", type=int, default=8, help="default 8")
    parser.add_argument("--dropout", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--warmup-steps", type=int, default=1000, help="default 1000")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    return parser


def _run(command, options):
    work.require_at_least(command, options, epochs=1, warmup_steps=1)
    try:
        lines, validation = (
            path.read_text(encoding="utf-8").splitlines()
            for path in (options.text, options.val_text)
        )
        rows = measure(lines, validation, options)
    except (ValueError, OSError, ImportError) as error:
        return command.fail(error)
    print(f"{machine.today()}. Text: {options.text.name}.\n")
    for line in table(rows):
        print(line)
    return 0


def measure(lines, validation, options):
    """A dict for each model: `parameters`, `perplexities` and `tokens_per_second` by epoch."""
    import keras

    size = dict(work.SIZES[options.size])
    text = work.Text("", lines, lines, [])
    tokenizer = work.learn_vocabulary(text, size.pop("vocabulary"))
    ids = tokenizer.encode_source(lines).to_list()
    held_out = batches(tokenizer.encode_source(validation).to_list())
    rows = {}
    for name, model in models(tokenizer.source_vocabulary_size, size, options):
        parameters = sum(weight.shape.num_elements() for weight in model.trainable_weights)
        rows[name] = {"model": model, "parameters": parameters}
        rows[name] |= {"perplexities": [], "tokens_per_second": []}
    tokens = sum(map(len, ids))
    for epoch in range(options.epochs):
        given = batches(ids, random.Random(options.seed * 1000 + epoch))
        for name, row in rows.items():
            start = time.perf_counter()
            row["model"].fit(data(given, name), epochs=1, shuffle=False, verbose=0)
            row["tokens_per_second"].append(tokens / (time.perf_counter() - start))
            result = row["model"].evaluate(data(held_out, name), verbose=0, return_dict=True)
            row["perplexities"].append(result["perplexity"])
            figure = f"{row['perplexities'][-1]:.2f}, {row['tokens_per_second'][-1]:,.0f} tokens/s"
            print(f"epoch {epoch + 1}: {name}: perplexity {figure}", file=sys.stderr)
    keras.backend.clear_session()
    return rows


def models(vocabulary_size, size, options):
    """(name, model) of each model, compiled in the same way."""
    import keras

    from benchmarks.peers.with_gpt2 import make
    from tfformer import (
        LanguageModel,
        LanguageModelConfig,
        Perplexity,
        SmoothedCrossEntropy,
        WarmupSchedule,
    )

    def compiled(model):
        rate = WarmupSchedule(size["d_model"], options.warmup_steps)
        optimizer = keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)
        metrics = {"metrics": [Perplexity()], "weighted_metrics": []}
        model.compile(optimizer, SmoothedCrossEntropy(0.0), jit_compile=False, **metrics)
        return model

    for name, own in OPTIONS.items():
        keras.utils.set_random_seed(options.seed)
        config = LanguageModelConfig(
            vocabulary_size,
            num_layers=size["num_layers"],
            d_model=size["d_model"],
            d_ff=size["d_ff"],
            num_heads=size["num_heads"],
            dropout=options.dropout,
            max_positions=work.EDGES[-1],
            **own,
        )
        yield name, compiled(LanguageModel(config))
    keras.utils.set_random_seed(options.seed)
    model = make(vocabulary_size, size, options.dropout, work.EDGES[-1])
    yield "KerasHub GPT2CausalLM", compiled(model)


def batches(ids, order=None):
    """Batches of `ROWS` rows of similar length, padded to one of `work.EDGES`.

    A batch is a pair: the inputs, which begin with bos, and the labels, which end with eos. Texts
    longer than the last edge are cut.

    Args:
        ids: the ids of each text, eos at the end.
        order: a `random.Random` that shuffles rows and batches. Default: the given order.
    """
    import numpy as np

    buckets = {edge: [] for edge in work.EDGES}
    for row in order.sample(ids, len(ids)) if order else ids:
        row = row[: work.EDGES[-1]]
        buckets[next(edge for edge in work.EDGES if len(row) <= edge)].append(row)
    made = []
    for edge, rows in buckets.items():
        for start in range(0, len(rows), ROWS):
            labels = np.zeros((len(rows[start : start + ROWS]), edge), "int32")
            for place, row in enumerate(rows[start : start + ROWS]):
                labels[place, : len(row)] = row
            before = np.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=2)
            made.append((np.where(labels > 0, before, 0), labels))
    return order.sample(made, len(made)) if order else made


def data(given, name):
    """The batches in the form of this model's inputs, a `tf.data.Dataset`."""
    import tensorflow as tf

    spec = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(lambda: iter(given), output_signature=(spec, spec))
    if name not in OPTIONS:
        dataset = dataset.map(lambda x, y: ({"token_ids": x, "padding_mask": x != 0}, y))
    return dataset.apply(tf.data.experimental.assert_cardinality(len(given))).prefetch(2)


def table(rows):
    """A table in Markdown, a row for each model."""
    yield "| | parameters | perplexity after each epoch | best | tokens a second |"
    yield "|---|--:|---|--:|--:|"
    for name, row in rows.items():
        by_epoch = " ".join(f"{perplexity:.2f}" for perplexity in row["perplexities"])
        best, speed = min(row["perplexities"]), statistics.median(row["tokens_per_second"])
        yield f"| {name} | {row['parameters']:,} | {by_epoch} | {best:.2f} | {speed:,.0f} |"


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
