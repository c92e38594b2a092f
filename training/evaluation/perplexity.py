"""Scores texts with a language model or a masked one: `training.evaluate RUN --text FILE`."""

import math
import time
from typing import NamedTuple


class Scored(NamedTuple):
    """The total log P of the tokens of texts, the number of tokens, and of texts that were cut."""

    log_prob: float
    tokens: int
    cut: int

    @property
    def perplexity(self):
        """exp(-log P / tokens), including eos."""
        return math.exp(-self.log_prob / self.tokens)


def scored(service, rows, batch_size, what):
    """A total `Scored` of rows, tuples of inputs of a service's signature `score`, with a bar."""
    import tensorflow as tf

    from tfformer.terminal.progress_bar import Bar

    log_prob, tokens, cut = 0.0, 0, 0
    rows = sorted(rows, key=lambda row: len(row[-1]))
    with Bar(what, len(rows)) as bar:
        for start in range(0, len(rows), batch_size):
            chunk = rows[start : start + batch_size]
            found = service.functions["score"](*map(tf.constant, zip(*chunk, strict=True)))
            log_prob += float(tf.reduce_sum(found["log_prob"]))
            tokens += int(tf.reduce_sum(found["length"]))
            cut += int(tf.math.count_nonzero(found["truncated"]))
            bar.advance(len(chunk))
    return Scored(log_prob, tokens, cut)


def evaluate_texts(service, texts, batch_size):
    """Scores texts with a language model; returns a dict for JSON.

    `perplexity` is exp(-log P / tokens), including eos. `bits_per_byte` is -log2 P / bytes of
    UTF-8; it can be compared between vocabularies of different sizes. It is missing if a text was
    cut, because the rest of that text was not scored.
    """
    batch_size = min(batch_size, service.max_batch_size)
    started = time.monotonic()
    found = scored(service, [(text,) for text in texts], batch_size, "scoring the texts")
    seconds = time.monotonic() - started
    size = sum(len(text.encode()) for text in texts)
    bits = {} if found.cut else {"bits_per_byte": -found.log_prob / math.log(2) / size}
    return {
        "perplexity": found.perplexity,
        **bits,
        "pairs": len(texts),
        "cut": found.cut,
        "search": "scored",
        "seconds": seconds,
        "tokens_per_second": found.tokens / seconds,
    }


def print_perplexity(scores, name):
    """Prints the scores as a table on standard output."""
    from rich import print as show

    from ..report.scores import measures_table

    table = measures_table(f"{name}: {scores['pairs']:,} texts")
    how = "a token, eos counted"
    if "hidden" in scores:
        how = f"of {scores['hidden']:,} hidden pieces, 15 % of the words"
        table.add_row("accuracy", f"{scores['accuracy']:.4f}", "of the hidden pieces")
    table.add_row("perplexity", f"{scores['perplexity']:.3f}", how)
    if "bits_per_byte" in scores:
        table.add_row("bits a byte", f"{scores['bits_per_byte']:.3f}", "of UTF-8")
    if scores["cut"]:
        table.add_row("texts cut", f"{scores['cut']:,}", "the beginnings alone are scored")
    table.add_row("speed", f"{scores['tokens_per_second']:,.0f} tokens/s", "")
    show(table)


def evaluate_masked(service, texts, batch_size):
    """Scores a masked language model on hidden pieces of texts; returns a dict for JSON.

    Which pieces are hidden depends on the texts and their order, not on `batch_size`.
    """
    import numpy as np
    import tensorflow as tf

    from tfformer.terminal.progress_bar import Bar

    from ..data.masking import Masking

    masking, size = Masking(service.tokenizer), min(batch_size, service.max_batch_size)
    logits = tf.function(lambda ids: service.model(ids, training=False), reduce_retracing=True)
    nll, hits, count, cut = 0.0, 0, 0, 0
    started = time.monotonic()
    with Bar("reading the texts", len(texts)) as bar:
        for start in range(0, len(texts), size):
            ids, truncated = service.source_ids(tf.constant(texts[start : start + size]))
            rows = [
                masking.masked(row[None], tf.cast(row[None] != 0, tf.int32), [start + n, 0])
                for n, row in enumerate(ids)
            ]
            hidden, labels = (tf.concat(side, axis=0) for side in zip(*rows, strict=True))
            log_probs = tf.nn.log_softmax(logits(hidden)).numpy()
            for row, place in zip(*np.nonzero(labels.numpy()), strict=True):
                label = int(labels[row, place])
                nll -= float(log_probs[row, place, label])
                hits += int(log_probs[row, place].argmax() == label)
                count += 1
            cut += int(tf.math.count_nonzero(truncated))
            bar.advance(len(ids))
    if not count:
        raise ValueError("texts must be longer: no piece of these was masked")
    seconds = time.monotonic() - started
    return {
        "perplexity": math.exp(nll / count),
        "accuracy": hits / count,
        "hidden": count,
        "pairs": len(texts),
        "cut": cut,
        "search": "15 % of the words hidden",
        "seconds": seconds,
        "tokens_per_second": count / seconds,
    }
