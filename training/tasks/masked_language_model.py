"""Masked language modelling: which word stood in a gap, of plain text; the lower perplexity there
is the better model."""

import tensorflow as tf

from tfformer.config import PAD, MaskedLanguageModelConfig
from tfformer.models import MASKED_LANGUAGE_MODEL
from training.data.joined import JoinedBatches
from training.data.masking import Masking, asked_alone
from training.tasks.plain_text import PlainTextTask

# Of the first texts one word each becomes a gap, for what a validation shows.
ASKED, ASKED_WORDS = 32, 24


class MaskedLanguageModelling(PlainTextTask):
    """The task of a `MaskedLanguageModel` and of its `GapFiller`."""

    family = MASKED_LANGUAGE_MODEL
    figure_name = "perplexity of masked places"
    pipeline_tag = "fill-mask"
    description = "A masked language model, the encoder of a Transformer (Devlin et al. 2019)"
    columns = {
        "val_accuracy": ("accuracy of masked places", "{:.3f}"),
        "val_perplexity": ("perplexity of masked places", "{:.3f}"),
    }
    # And what is generated; and words that are hidden, of which masking hides its own, in each copy
    # of a row others, which R-Drop could not compare.
    unused = (*PlainTextTask.unused, "word_dropout", "beam_width", "length_penalty", "r_drop")
    parts, configuration_class = ("encoder", "embeddings"), MaskedLanguageModelConfig
    without_padding = staticmethod(asked_alone)

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, **options):
        """Rows are full, and a text has no other side: `packed` and `both_ways` say nothing, nor
        does noise, for masking is all there is. Where nothing is shuffled, every pass hides the
        same words, so that validations compare."""
        known = {name: options[name] for name in ("seed", "shuffle", "parts") if name in options}
        hiding = Masking(tokenizer, packed=options.get("packed", False))
        return JoinedBatches(hiding, corpus, batch_tokens, row_length=max_tokens, **known)

    def example(self, source, target, padded, seed=(0, 0)):
        """Texts that are no rows of a corpus, each in a row of its own, with nothing hidden."""
        ids = padded(source)
        return {"ids": ids, "texts": tf.where(ids == PAD, PAD, 1)}, ids

    def search(self, recipe):
        return {"max_source_length": recipe.max_tokens}

    def served(self, model, tokenizer, search):
        from tfformer.service.gap_filler import GapFiller

        return GapFiller(model, tokenizer, **search)

    def asked(self, corpus, tokenizer):
        """The beginnings of the first texts with a gap in the middle, and as they were."""
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
