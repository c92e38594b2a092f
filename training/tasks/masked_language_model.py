"""Masked language modelling: the model predicts hidden words of plain text.

The model with the lowest perplexity on the hidden words is the best.
"""

import tensorflow as tf

from tfformer.config import PAD
from tfformer.models import MASKED_LANGUAGE_MODEL

from ..data.masking import Masking, asked_alone
from ..data.packed_text import JoinedBatches
from .plain_text import PlainTextTask

# A validation shows the first texts with one word as a gap: number of texts, and words of each.
ASKED, ASKED_WORDS = 32, 24


class MaskedLanguageModelling(PlainTextTask):
    """The task of a `MaskedLanguageModel` and of its `GapFiller`."""

    family = MASKED_LANGUAGE_MODEL
    figure_name = "perplexity of masked positions"
    pipeline_tag = "fill-mask"
    description = "A masked language model, the encoder of a Transformer (Devlin et al. 2019)"
    columns = {
        "val_accuracy": ("accuracy of masked positions", "{:.3f}"),
        "val_perplexity": ("perplexity of masked positions", "{:.3f}"),
    }
    # Also settings of generation, and of word dropout: masking hides words itself. It hides
    # different words in each copy of a row, so R-Drop could not compare the copies.
    unused = (*PlainTextTask.unused, "word_dropout", "beam_width", "length_penalty", "r_drop")
    parts = ("encoder", "embeddings")
    without_padding = staticmethod(asked_alone)

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, **options):
        """Rows are full, and a text has no target. `both_ways` is ignored, and so is noise, because
        masking is the only noise. Without shuffling, every pass hides the same words, so
        validations can be compared."""
        known = {name: options[name] for name in ("seed", "shuffle", "parts") if name in options}
        hiding = Masking(tokenizer, packed=options.get("packed", False))
        return JoinedBatches(hiding, corpus, batch_tokens, row_length=max_tokens, **known)

    def example(self, source, target, padded, seed=(0, 0)):
        """Texts that are not rows of a corpus, each in a separate row, with nothing hidden."""
        ids = padded(source)
        return {"ids": ids, "texts": tf.where(ids == PAD, PAD, 1)}, ids

    def asked(self, corpus, tokenizer):
        """The beginnings of the first texts, with a gap in the middle and without it."""
        asked, expected = [], []
        for n in range(min(ASKED, len(corpus))):
            ids = tf.constant([corpus.text_ids(n)])
            words = tokenizer.decode(ids).numpy()[0].decode().split()[:ASKED_WORDS]
            gap = len(words) // 2
            asked.append(" ".join([*words[:gap], "[MASK]", *words[gap + 1 :]]))
            expected.append(" ".join(words))
        return asked, expected

    def shown(self, served, sources):
        return served.answer(sources)
