"""Compares ways to score a long text with a language model: `python -m benchmarks.windows`.

    python -m benchmarks.windows runs/model --text long.txt

Texts of at least `--windows` rows of the run, cut to this length, are scored in three ways: in
independent blocks; in overlapping windows, so that a token has part of a window before it; and with
a carried context, where a block sees the keys and values of all earlier blocks, at positions that
no training row has. It prints the perplexity per token and the seconds of each.

Exit codes: 0 measured; 1 an error of the run or the file; 2 wrong usage; 130 interrupted.
"""

import math
import sys
import time
from pathlib import Path

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of

BATCH = 16
OVERLAPS = {"blocks": 1, "windows, half": 2, "windows, three quarters": 4, "windows, 7 of 8": 8}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.windows", __doc__)
    parser.add_argument("run", type=Path, help="the run of a language model")
    parser.add_argument("--text", type=Path, required=True, help="long texts, one a line")
    parser.add_argument("--windows", type=int, default=4, help="rows of a text; default 4")
    parser.add_argument("--texts", type=int, default=200, help="maximum number; default 200")
    return parser


def _run(command, options):
    from tfformer.run import RunError, load_service
    from tfformer.service.text_generator import TextGenerator

    work.require_at_least(command, options, windows=2, texts=1)
    try:
        service = load_service(options.run)
        if not isinstance(service, TextGenerator):
            raise ValueError(f"run must be of a language model, got {options.run}")
        lines = options.text.read_text(encoding="utf-8").splitlines()
        rows = measure(service, lines, options)
    except (RunError, ValueError, OSError) as error:
        return command.fail(error)
    print(f"{machine.today()}.\n")
    print("| | perplexity | seconds |\n|---|--:|--:|")
    for name, (perplexity, seconds) in rows.items():
        print(f"| {name} | {perplexity:.2f} | {seconds:.1f} |")
    return 0


def measure(service, lines, options):
    """{name: (perplexity, seconds)}, all of the same tokens.

    Raises:
        ValueError: every text is too short.
    """
    import numpy as np
    import tensorflow as tf

    from tfformer.service.language_model_signatures import scored

    writing = service.writing
    window = writing.max_source_length + writing.max_target_length - 1
    size = options.windows * window
    ids = service.tokenizer.encode_source(lines).to_list()
    kept = [(line, row) for line, row in zip(lines, ids, strict=True) if len(row) > size]
    kept = kept[: options.texts]
    if not kept:
        raise ValueError(f"texts must have more than {size} tokens, got none that has")
    print(f"{len(kept)} texts, {size} tokens of each; a window has {window}", file=sys.stderr)
    batches = [kept[n : n + BATCH] for n in range(0, len(kept), BATCH)]

    def in_windows(batch, stride):
        return scored(writing, tf.constant([line for line, _ in batch]), stride)[0]

    def carried(batch):
        labels = tf.constant([row[:size] for _, row in batch])
        before = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=2)
        logits = tf.cast(service.model(before), tf.float32)
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    ways = {
        name: lambda batch, parts=parts: in_windows(batch, window // parts)
        for name, parts in OVERLAPS.items()
    }
    rows = {}
    for name, log_probs in {**ways, "carried context": carried}.items():
        start = time.perf_counter()
        found = np.concatenate([log_probs(batch)[:, :size].numpy() for batch in batches])
        rows[name] = math.exp(-found.mean()), time.perf_counter() - start
    return rows


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
