"""Language modelling on plain text; the model with the lowest perplexity is the best."""

import math

import tensorflow as tf

from tfformer.config import PAD
from tfformer.models import LANGUAGE_MODEL

from ..data.packed_text import JoinedBatches
from .plain_text import PlainTextTask

# Number of texts that a validation continues, and tokens of each; the first half is the prompt.
ASKED, ASKED_TOKENS = 32, 40


class LanguageModelling(PlainTextTask):
    """The task of a `LanguageModel` and of its `TextGenerator`."""

    family = LANGUAGE_MODEL
    pipeline_tag = "text-generation"
    description = "A language model, the decoder of a Transformer (Radford et al. 2018)"
    columns = {
        "val_perplexity": ("perplexity", "{:.3f}"),
        "val_bits_per_byte": ("bits a byte", "{:.3f}"),
    }
    parts = ("decoder", "embeddings")
    searched = ("min_length", "repetition_penalty", "no_repeat_ngram", "length_penalty_form")

    def batches(
        self, corpus, tokenizer, batch_tokens, max_tokens, packed=False, both_ways=0, **options
    ):
        """Rows are full, and a text has no target: `packed` and `both_ways` are ignored."""
        return JoinedBatches(self, corpus, batch_tokens, row_length=max_tokens, **options)

    def joined(self, ids, labels, texts, seed):
        """A batch of full rows, int32 [B, T] each: inputs, labels, and the number of the text of
        each token."""
        return {"ids": ids, "texts": texts}, labels

    def example(self, source, target, padded, seed=(0, 0)):
        """Texts that are not rows of a corpus: each is in a separate row."""
        labels = padded(source)
        return self.joined(labels, labels, tf.where(labels == PAD, PAD, 1), None)

    def search(self, recipe):
        """A prompt and its continuation together have the positions of a row: others were never
        learned."""
        prompt = (recipe.max_tokens + 1) // 2
        return {
            **recipe.search,
            "beam_width": recipe.beam_width,
            "length_penalty": recipe.length_penalty,
            "max_source_length": prompt,
            "max_target_length": recipe.max_tokens + 1 - prompt,
        }

    def asked(self, corpus, tokenizer):
        """The beginnings of the first texts, and their continuations."""
        count = min(ASKED, len(corpus))
        texts = [corpus.text_ids(n)[:ASKED_TOKENS].tolist() for n in range(count)]
        sides = [ids[: len(ids) // 2] for ids in texts], [ids[len(ids) // 2 :] for ids in texts]
        ragged = (tf.ragged.constant(side, tf.int32, ragged_rank=1) for side in sides)
        return [[text.decode() for text in tokenizer.decode(side).numpy()] for side in ragged]

    def shown(self, served, sources):
        return served.generate(sources, top_k=1)

    def validation(self, results, score, corpus):
        found = super().validation(results, score, corpus)
        bits = math.log2(found["val_perplexity"]) / corpus.bytes_per_token
        return found | {"val_bits_per_byte": bits}
