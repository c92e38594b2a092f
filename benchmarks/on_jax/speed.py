"""Measures training on an H100 or H200, one system per call: `python -m benchmarks.on_jax.speed`.

    python -m benchmarks.on_jax.speed keras --tokens 4096 16384 --out keras.json
    python -m benchmarks.on_jax.speed torch --tokens 4096 16384 --out torch.json

The paper's base model (6 + 6 layers of width 512), 32,000 ids, dropout 0.1, label smoothing 0.1,
Adam, in bfloat16 with float32 weights. `keras` is tfformer's `Transformer` in `model.fit`. `torch`
is PyTorch's `nn.Transformer` with `torch.compile`, autocast and fused Adam; its batch is already on
the GPU, while `fit` gets one from the host at each step. A row has 64 source and 64 target tokens,
without padding. `torch-unmasked` has no padding mask, because PyTorch's fastest attention accepts
none; the others have the mask that a real batch needs.

Tokens per second include source and target; the result is the median of the rounds. The share of
peak counts only the arithmetic that the model needs, three times its forward pass.

Compilation is not measured. With --go, the program compiles and waits for that file. So two systems
can compile in parallel and be measured one after the other (with
XLA_PYTHON_CLIENT_PREALLOCATE=false, because JAX takes most of the memory otherwise).

Exit codes: 0 measured; 1 a package is missing, or --out cannot be written; 2 wrong usage; 130 or
143 interrupted.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from tfformer.terminal.command import Parser, count, main_of

LAYERS, WIDTH, INNER, HEADS, VOCABULARY, LENGTH = 6, 512, 2048, 8, 32_000, 64
DROPOUT, SMOOTHING = 0.1, 0.1
PEAK = 989e12  # bfloat16, dense, of an H100 or H200 by its datasheet


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.speed", __doc__)
    parser.add_argument("system", choices=("keras", "torch", "torch-unmasked"))
    parser.add_argument(
        "--tokens", nargs="+", type=count(), default=[4096], help="of a side, a batch"
    )
    parser.add_argument("--steps", type=count(), default=20, help="of a round")
    parser.add_argument("--rounds", type=count(), default=5, help="that count")
    parser.add_argument("--layers", type=count(), default=LAYERS, help="fewer, to try it")
    parser.add_argument("--device", default="cuda", help="PyTorch's; default cuda")
    parser.add_argument("--go", type=Path, help="compile, and wait until this file is there")
    parser.add_argument("--out", type=Path, help="a JSON file")
    return parser


def flops(tokens, layers):
    """The floating-point operations of a step with these source and target tokens: three forward
    passes."""
    attention = 4 * WIDTH * WIDTH + 2 * LENGTH * WIDTH  # projections; scores and their mean
    feed_forward = 2 * WIDTH * INNER
    encoder, decoder = attention + feed_forward, 2 * attention + feed_forward
    return 3 * 2 * tokens * (layers * (encoder + decoder) + WIDTH * VOCABULARY)


def pairs(tokens):
    """Source ids, target ids and labels of a batch, int32 [rows, LENGTH]."""
    rng = np.random.default_rng(7)
    shape = tokens // LENGTH, LENGTH
    return [rng.integers(4, VOCABULARY, shape).astype("int32") for _ in range(3)]


def with_keras(options):
    """{tokens: a function that makes a number of steps}, and a description."""
    import keras

    from tfformer import SmoothedCrossEntropy, Transformer, TransformerConfig, WarmupSchedule

    class Same(keras.utils.PyDataset):
        """One batch, repeated without end."""

        def __init__(self, batch, steps):
            super().__init__()
            source, target, labels = batch
            self.batch, self.steps = ({"source_ids": source, "target_ids": target}, labels), steps

        def __len__(self):
            return self.steps

        def __getitem__(self, number):
            return self.batch

    config = TransformerConfig.preset(
        "base", VOCABULARY, num_encoder_layers=options.layers, num_decoder_layers=options.layers
    )
    model = Transformer(config, dtype="mixed_bfloat16")
    model.compile(
        keras.optimizers.Adam(WarmupSchedule(WIDTH), beta_2=0.98, epsilon=1e-9),
        SmoothedCrossEntropy(SMOOTHING),
    )

    def steps_of(tokens):
        batch = pairs(tokens)
        return lambda steps: model.fit(Same(batch, steps), verbose=0, shuffle=False)

    backend = keras.backend.backend()
    version = sys.modules[backend].__version__
    version = f"Keras {keras.__version__}, {backend} {version}"
    return {n: steps_of(n) for n in options.tokens}, version


def with_torch(options):
    """As `with_keras`."""
    import torch
    from torch import nn

    from benchmarks.peers.train_torch import Model

    size = {"d_model": WIDTH, "num_layers": options.layers, "num_heads": HEADS, "d_ff": INNER}
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Model(VOCABULARY, size, DROPOUT, masked=options.system == "torch").to(options.device)
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    @torch.compile(dynamic=False)
    def loss(source, target, labels):
        with torch.autocast(options.device, torch.bfloat16):
            logits = model(source, target)
        return loss_of(logits.flatten(0, 1).float(), labels.flatten())

    def steps_of(tokens):
        source, target, labels = (
            torch.tensor(ids, dtype=torch.int64, device=options.device) for ids in pairs(tokens)
        )

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad(set_to_none=True)
                found = loss(source, target, labels)
                found.backward()
                optimizer.step()
            return float(found.detach())

        return steps

    return {n: steps_of(n) for n in options.tokens}, f"PyTorch {torch.__version__}, compiled"


def _run(command, options):
    if wrong := [tokens for tokens in options.tokens if tokens % LENGTH]:
        return command.fail(f"--tokens must be multiples of {LENGTH}, got {wrong[0]}", 2)
    os.environ.setdefault("KERAS_BACKEND", "jax")
    try:
        rows = measure(options)
        if options.out:
            from tfformer.files import write_json

            write_json(options.out, rows)
    except (ImportError, OSError) as error:
        return command.fail(error)
    return 0


def measure(options):
    """A row for each size of batch."""
    systems = {"keras": with_keras, "torch": with_torch, "torch-unmasked": with_torch}
    began = time.monotonic()
    works, version = systems[options.system](options)
    for steps in works.values():
        steps(3)
    print(f"{options.system}: compiled after {time.monotonic() - began:.0f} s", file=sys.stderr)
    while options.go and not options.go.exists():
        time.sleep(0.1)
    rows = []
    for tokens, steps in works.items():
        steps(options.steps)
        seconds = []
        for _ in range(options.rounds):
            start = time.perf_counter()
            steps(options.steps)
            seconds.append((time.perf_counter() - start) / options.steps)
        median = statistics.median(seconds)
        row = {
            "system": options.system, "version": version, "tokens_a_side": tokens,
            "milliseconds": 1e3 * median, "tokens_a_second": 2 * tokens / median,
            "share_of_peak": flops(tokens, options.layers) / median / PEAK, "seconds": seconds,
        }  # fmt: skip
        rows.append(row)
        print(
            f"{options.system} {tokens}: {row['milliseconds']:.1f} ms, "
            f"{row['tokens_a_second']:,.0f} tokens/s, {100 * row['share_of_peak']:.0f} % of peak",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return rows


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
