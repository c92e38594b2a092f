"""`serving_default`: translates a text by the export's own beam search; also greedy search."""

import tensorflow as tf

from tfformer import search
from tfformer.service.encoder_decoder_signatures import in_vocabulary
from tfformer.service.signature import Signature, texts

WARMUP_LENGTHS = (4, 16, 64, 256)  # source tokens


def serving_default(generation):
    """`text` [B] -> `translation`, `score`, and `truncated`, whether a text was cut."""

    def answer(generation, text):
        source_ids, truncated = generation.source_ids(text)
        return {**generation.translated(source_ids), "truncated": truncated}

    def examples(samples):
        return [{"text": samples.texts}, {"text": samples.texts[:1]}]

    def warmup(samples):
        """A request for each of a few text lengths, and one with all of them."""
        longest = samples.source_length - 1
        sizes = sorted({min(size, longest) for size in WARMUP_LENGTHS})
        buckets = [samples.of_length(size) for size in sizes]
        return [*({"text": [text]} for text in buckets), {"text": buckets}]

    function = generation.graph("serving_default", texts("text"), answer)
    return Signature("serving_default", function, examples, warmup)


def greedy(generation):
    """A `tf.function`: `text` [B] -> `translation` and `score`, its log-probability. Not served."""

    def answer(generation, text):
        source_ids, _ = generation.source_ids(text)
        blank = generation.blank(source_ids)
        inference = generation.searched(source_ids)
        found = search.greedy_search(
            inference.step,
            inference.start(source_ids, width=1),
            tf.shape(source_ids)[0],
            generation.limit(source_ids, generation.options["max_length_factor"]),
            blank,
            min_length=generation.options["min_length"],
        )
        return generation.as_text(*generation.best(in_vocabulary(found, inference), blank))

    return generation.graph("greedy", texts("text"), answer)
