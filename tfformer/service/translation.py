"""`serving_default`: translates a text by the export's own beam search; also greedy search."""

import tensorflow as tf

from tfformer import search
from tfformer.service.encoder_decoder_signatures import in_vocabulary
from tfformer.service.signature import Signature, text_examples, text_warmup, texts


def serving_default(generation):
    """`text` [B] -> `translation`, `score`, and `truncated`, whether a text was cut."""

    def answer(generation, text):
        source_ids, truncated = generation.source_ids(text)
        return {**generation.translated(source_ids), "truncated": truncated}

    function = generation.graph("serving_default", texts("text"), answer)
    return Signature("serving_default", function, text_examples, text_warmup)


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
