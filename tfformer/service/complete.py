"""`complete`: a translation that begins with the request's prefix."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.service.checks import require_equal_batches
from tfformer.service.signature import Signature, texts


def complete(generation):
    """`text` and `prefix` [B] -> `translation`, `score`; and `truncated`, whether one of the texts
    was cut."""

    def answer(generation, text, prefix):
        text, prefix = require_equal_batches(text=text, prefix=prefix)
        prefix_ids, prefix_cut = generation.target_ids(prefix)
        # Without its eos, because the translation continues after the prefix.
        prefix_ids = tf.where(prefix_ids == EOS, PAD, prefix_ids)
        source_ids, text_cut = generation.source_ids(text)
        found, blank = generation.beam_search(
            source_ids, generation.options, short=False, num_results=1, prefix=prefix_ids
        )
        return {
            **generation.as_text(*generation.best(found, blank)),
            "truncated": text_cut | prefix_cut,
        }

    def examples(samples):
        prefixes = [target.split(" ")[0] for target in samples.pairs["target"]]
        return [{"text": samples.texts, "prefix": prefixes}]

    function = generation.graph("complete", texts("text", "prefix"), answer)
    return Signature("complete", function, examples)
