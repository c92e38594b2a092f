"""Times a training step of recurrent models and of a Transformer.

    taskset -c 0 python -m benchmarks.learning.steps

All have equally many parameters, and the same batch of random tokens, `--length` on each side. Two
of the recurrent models are those of `methods/recurrent.toml`, with one wide layer for each half;
the third is as deep as the Transformer. A step is Keras's `train_on_batch` in float32: forward,
label-smoothed loss, backward and Adam. The models take turns; a result is the median over the
rounds. The table goes to standard output.

Exit codes: 0 measured; 2 wrong usage; 130 interrupted.
"""

import statistics
import sys
import time

from benchmarks import machine
from tfformer.terminal.command import Number, Parser, main_of

VOCABULARY = 8000
# {row: (family, layers of each half, other options)}
ROWS = {
    "Transformer": ("encoder-decoder", 3, {"d_model": 224, "d_ff": 448, "num_heads": 7}),
    "recurrent with attention, as deep": ("recurrent", 3, {"d_model": 258}),
    "recurrent with attention": ("recurrent", 1, {"d_model": 336}),
    "recurrent, one vector": ("recurrent", 1, {"d_model": 346, "attention": False}),
}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.steps", __doc__)
    whole = Number(int, positive=True)
    parser.add_argument("--pairs", type=whole, default=128, help="pairs in a batch; default 128")
    parser.add_argument("--length", type=whole, default=16, help="tokens of each; default 16")
    parser.add_argument("--rounds", type=whole, default=9, help="measured rounds; default 9")
    return parser


def _run(command, options):
    import numpy as np

    rng = np.random.default_rng(1)
    shape = options.pairs, options.length
    names = "source_ids", "target_ids"
    inputs = {name: rng.integers(4, VOCABULARY, shape, "int32") for name in names}
    labels = rng.integers(4, VOCABULARY, shape, "int32")
    models = {row: compiled(*row_options) for row, row_options in ROWS.items()}
    seconds = {row: [] for row in ROWS}
    for model in models.values():
        model.train_on_batch(inputs, labels)  # the first call compiles
    for _ in range(options.rounds):
        for row, model in models.items():
            start = time.perf_counter()
            model.train_on_batch(inputs, labels)
            seconds[row].append(time.perf_counter() - start)
    print(f"{machine.today()}\n")
    print("| | layers | width | million parameters | seconds a step | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    median = {row: statistics.median(times) for row, times in seconds.items()}
    for row, (_, layers, sizes) in ROWS.items():
        parameters, ratio = models[row].count_params() / 1e6, median[row] / median["Transformer"]
        size = f"{layers} + {layers} | {sizes['d_model']} | {parameters:.2f}"
        print(f"| {row} | {size} | {median[row]:.2f} | {ratio:.2f} |")
    return 0


def compiled(family, layers, options):
    """A model with random weights, ready to train."""
    import keras

    from tfformer import SmoothedCrossEntropy
    from tfformer.models import FAMILIES

    found = FAMILIES[family]
    options = options | {"num_encoder_layers": layers, "num_decoder_layers": layers, "dropout": 0.1}
    model = found.model(found.configuration.preset("tiny", VOCABULARY, **options))
    model.compile(keras.optimizers.Adam(1e-4), SmoothedCrossEntropy(0.1))
    return model


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
