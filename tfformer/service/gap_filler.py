"""Serves a masked language model: fills the gaps of a text, and computes the vector of a text."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.inference.masks import MASKED
from tfformer.models.masked_language_model import MaskedLanguageModel
from tfformer.service.encoder_decoder_signatures import encode_texts
from tfformer.service.signature import Signature, graph, text_warmup, texts
from tfformer.service.text_service import EmbeddingService, embed
from tfformer.text.gaps import gaps_of
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.vocabularies import FILLING


class GapFiller(EmbeddingService):
    """A masked language model and its tokenizer as functions of text.

    Args:
        model: a `MaskedLanguageModel`.
        tokenizer: its `Tokenizer`, with one side for source and target.
        mask: the text that marks a gap. Default `"[MASK]"`.
        max_source_length: maximum tokens of a text, with eos; a longer text is cut. Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`}, all served signatures: `serving_default` and `fill`, which
            are the same, and `embed`.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> size = tokenizer.source_vocabulary_size
        >>> model = MaskedLanguageModel(MaskedLanguageModelConfig.preset("test", size))
        >>> GapFiller(model, tokenizer).answer(["a [MASK] here"])[0].endswith(" here")
        True
    """

    MODEL, output = MaskedLanguageModel, "filled"
    ABOUT = "Text with gaps in, filled out: a masked language model, the encoder of a Transformer"

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        *,
        mask: str = "[MASK]",
        max_source_length: int = 256,
        max_batch_size: int = 256,
        dtype: str | None = None,
    ) -> None:
        if not isinstance(mask, str) or not mask.strip():
            raise ValueError(f"mask must be a string that shows something, got {mask!r}")
        self.mask = mask
        limits = {"max_source_length": max_source_length, "max_batch_size": max_batch_size}
        super().__init__(model, tokenizer, **limits, dtype=dtype)

    def _check_tokenizer(self, model, tokenizer):
        if not tokenizer.is_shared:
            raise ValueError("tokenizer must be one for both sides, got two")
        self.gaps = gaps_of(tokenizer.source, self.mask)

    def signatures_by(self, forward: Callable[[], Any]) -> list[Signature]:
        names = ("serving_default", "fill")
        return [*(fill(self, forward, name) for name in names), embed(self, forward)]


def fill(service, forward, name):
    """The signature `text` [B] -> `filled` string [B], the text with the most probable piece in
    each gap; `log_prob` float32 [B], the sum of their log-probabilities; `gaps` int32 [B], how many
    were filled; and `truncated`, whether a text was cut. The last gaps of a cut text may remain."""
    source, gaps = service.tokenizer.source, service.gaps
    # Special ids and single bytes are not words.
    special = {PAD, UNK, BOS, EOS, source.mask_id}
    if source.mask_id == BOS:  # else single bytes may be letters
        special |= set(source.byte_ids)
    special |= {n for n, piece in enumerate(source.pieces) if piece.startswith(FILLING)}
    words = [n not in special for n in range(source.size)]

    @graph(texts("text"))
    def fill(text):
        text = gaps.marked(service.checked_rows(text))
        ids, truncated = encode_texts(text, gaps.encode, service.max_source_length)
        log_probs = tf.nn.log_softmax(forward()(ids))  # [B, S, V]
        log_probs = tf.where(tf.constant(words), log_probs, MASKED)
        is_gap = ids == source.mask_id
        found = tf.ragged.boolean_mask(tf.argmax(log_probs, axis=2, output_type=tf.int32), is_gap)
        return {
            "filled": gaps.filled(text, found),
            "log_prob": tf.reduce_sum(
                tf.where(is_gap, tf.reduce_max(log_probs, axis=2), 0.0), axis=1
            ),
            "gaps": tf.cast(found.row_lengths(), tf.int32),
            "truncated": truncated,
        }

    def examples(samples):
        with_gaps = [f"{service.mask} {text} {service.mask}" for text in samples.texts]
        inside = [text.replace(" ", f" {service.mask} ", 1) for text in samples.texts]
        return [{"text": with_gaps}, {"text": inside}, {"text": samples.texts[:1]}]

    return Signature(name, fill, examples, text_warmup if name == "serving_default" else None)
