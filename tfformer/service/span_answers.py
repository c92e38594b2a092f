"""Serves a span reader: finds the answer to a question in a text."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfformer.config import whole
from tfformer.models.span_reader import IMPOSSIBLE, SpanReader
from tfformer.service.checks import require_equal_batches
from tfformer.service.signature import Signature, graph, text_warmup, texts
from tfformer.service.text_service import TextService
from tfformer.text.question import encode_question, split_at_tab, whole_characters
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.vocabularies import valid_utf8

SPACES = r"[\s\p{Z}]+"


class SpanAnswers(TextService):
    """A span reader and its tokenizer as functions of text.

    Args:
        model: a `SpanReader`.
        tokenizer: its `Tokenizer`, one side for source and target that gives byte offsets, such as
            a SentencePiece model.
        max_answer_length: maximum tokens of an answer. Default 30.
        max_source_length: maximum tokens of a question and a text together, with two eos; at least
            4. If there are more, the question is cut at half of them, and the text at the rest.
            Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`}, all served signatures: `answer`, for a question and a text,
            and `serving_default`, for both in one text with a tab between them.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = SpanConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> reader = SpanAnswers(SpanReader(config), tokenizer)
        >>> reader.answer(["Where?\\ta house"])[0] in "a house"
        True
    """

    MODEL, output = SpanReader, "answer"
    ABOUT = "A question and a text in, the answer as it stands there out: the encoder of a " \
        "Transformer"  # fmt: skip

    def __init__(
        self,
        model: SpanReader,
        tokenizer: Tokenizer,
        *,
        max_answer_length: int = 30,
        max_source_length: int = 256,
        max_batch_size: int = 256,
        dtype: str | None = None,
    ) -> None:
        self.max_answer_length = whole("max_answer_length", max_answer_length)
        whole("max_source_length", max_source_length, minimum=4)
        limits = {"max_source_length": max_source_length, "max_batch_size": max_batch_size}
        super().__init__(model, tokenizer, **limits, dtype=dtype)

    def _check_tokenizer(self, model, tokenizer):
        if not tokenizer.is_shared or not hasattr(tokenizer.source, "encode_with_offsets"):
            raise ValueError(
                "tokenizer must have one side with byte offsets, such as a SentencePiece model, "
                "got another"
            )

    def signatures_by(self, forward: Callable[[], Any]) -> list[Signature]:
        return [serving_default(self, forward), answer(self, forward)]


def found(service, forward, question, text):
    """Compute the outputs for questions and texts, string [B] each."""
    question, text = service.checked_rows(question), valid_utf8(text)
    side = service.tokenizer.source
    sides = whole_characters(side, question), whole_characters(side, text)
    read = encode_question(side, *sides, service.max_source_length)
    begin, end = tf.unstack(tf.nn.log_softmax(forward()(read.ids)), axis=1)  # [B, S] each
    inside = tf.sequence_mask(read.starts.row_lengths() + tf.cast(read.first, tf.int64))
    size = tf.shape(read.ids)[1]
    inside = tf.pad(inside, [[0, 0], [0, size - tf.shape(inside)[1]]])
    inside &= tf.range(size) >= read.first[:, None]  # [B, S]
    begin, end = (tf.where(inside, one, IMPOSSIBLE) for one in (begin, end))
    width = tf.minimum(service.max_answer_length, tf.maximum(size, 1))
    places = tf.range(size)[:, None] + tf.range(width)  # [S, A]
    padded = tf.pad(end, [[0, 0], [0, width]], constant_values=IMPOSSIBLE)
    scores = begin[:, :, None] + tf.gather(padded, places, axis=1)  # [B, S, A]
    scores = tf.reshape(scores, [tf.shape(scores)[0], size * width])  # [B, S * A]
    # A batch without rows has no positions, and argmax fails on an empty axis.
    scores = tf.pad(scores, [[0, 0], [0, 1]], constant_values=2 * IMPOSSIBLE)
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    first, more = best // width - read.first, best % width
    has = tf.greater(read.starts.row_lengths(), 0)
    starts, ends = (
        _at(offsets, tf.where(has, place, 0))
        for offsets, place in ((read.starts, first), (read.ends, first + more))
    )
    return {
        **_answer(text, sides[1], starts, tf.maximum(starts, ends)),
        "score": tf.where(has, tf.exp(tf.reduce_max(scores, axis=1)), 0.0),
        "truncated": read.truncated,
    }


def _at(offsets, place):
    """One number of each row, int32 [B]; 0 for an empty row."""
    dense = tf.pad(offsets.to_tensor(), [[0, 0], [0, 1]])
    return tf.gather(dense, place, batch_dims=1)


def _answer(text, read, start, end):
    """The part of each text that an answer is, without white space around it.

    Args:
        text: string [B].
        read: the same texts after `whole_characters`, in which bytes are counted.
        start, end: bytes of `read`, integers [B].

    Returns:
        {"answer": string [B], "start", "end": its characters, integers [B]}.
    """
    found = tf.strings.substr(read, start, end - start)
    inner = tf.strings.regex_replace(found, f"^{SPACES}", "")
    start += tf.strings.length(found) - tf.strings.length(inner)
    inner = tf.strings.regex_replace(inner, f"{SPACES}$", "")
    before = tf.strings.substr(read, tf.zeros_like(start), start)
    first = tf.strings.length(before, unit="UTF8_CHAR")
    size = tf.strings.length(inner, unit="UTF8_CHAR")
    answer = tf.strings.substr(text, first, size, unit="UTF8_CHAR")
    return {"answer": answer, "start": first, "end": first + size}


def serving_default(service, forward):
    """`text` [B], a question and a text with a tab between them -> the outputs of `answer`."""

    @graph(texts("text"))
    def serving_default(text):
        return found(service, forward, *split_at_tab(text))

    def examples(samples):
        asked = [f"{a}\t{b}" for a, b in zip(samples.texts, samples.texts[::-1], strict=True)]
        return [{"text": [*asked, "no tab"]}, {"text": asked[:1]}]

    def warm(samples):
        return [
            {"text": [f"{text}\t{text}" for text in one["text"]]} for one in text_warmup(samples)
        ]

    return Signature("serving_default", serving_default, examples, warm)


def answer(service, forward):
    """`question` and `text` [B] -> `answer` string [B], as it stands in the text; its characters,
    from `start` up to but without `end`, int32 [B]; its probability, `score` float32 [B]; and
    `truncated`, whether question or text was cut. An empty text has no answer: "" and 0."""

    @graph(texts("question", "text"))
    def answer(question, text):
        question, text = require_equal_batches(question=question, text=text)
        return found(service, forward, question, text)

    def examples(samples):
        return [{"question": samples.texts, "text": samples.texts[::-1]}]

    return Signature("answer", answer, examples)
