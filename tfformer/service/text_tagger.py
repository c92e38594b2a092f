"""Serves a tagger: a label for each word of a text."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.models.tagger import Tagger
from tfformer.service.signature import Signature, graph, text_examples, text_warmup, texts
from tfformer.service.text_classifier import check_labels
from tfformer.service.text_service import TextService
from tfformer.text.words import encode_words, words_of


class TextTagger(TextService):
    """A tagger and its tokenizer as functions of text.

    Args:
        model: a `Tagger`.
        tokenizer: its `Tokenizer`, with a `LabelTable` as its target.
        max_source_length: maximum tokens of a text, with eos; words beyond it get no label. Default
            256.
        max_batch_size: maximum rows of a request. Default 256.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`}, all served signatures: `serving_default` and `tag`, which
            are the same.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> from tfformer.text.vocabularies import LabelTable
        >>> source = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300).source
        >>> model = Tagger(TaggerConfig.preset("test", source.size, num_labels=2))
        >>> tagger = TextTagger(model, Tokenizer(source, LabelTable(["ART", "NOUN"])))
        >>> len(tagger.answer(["ein Haus"])[0].split())
        2
    """

    MODEL, output = Tagger, "tags"
    ABOUT = "Text in, a label of each word out: a tagger, the encoder of a Transformer"

    def _check_tokenizer(self, model, tokenizer):
        check_labels(model, tokenizer)

    def signatures_by(self, forward: Callable[[], Any]) -> list[Signature]:
        return [tag(self, forward, name) for name in ("serving_default", "tag")]


def tag(service, forward, name):
    """The signature `text` [B] -> its `words` string [B, W], split at blanks; their `labels` string
    [B, W] and `probabilities` float32 [B, W]; `tags` string [B], the labels joined by blanks;
    `length` int32 [B], the number of words; and `truncated`, whether a text was cut. The last words
    of a cut text have the label "" and the probability 0."""
    names, source = service.tokenizer.target.labels, service.tokenizer.source
    longest = service.max_source_length

    @graph(texts("text"))
    def tag(text):
        words = words_of(service.checked_rows(text))
        # Each word has at least one piece, so words beyond this many are never read.
        ids, places = encode_words(source, words[:, :longest], longest)
        ids = ids[:, :-1][:, : longest - 1]
        eos = tf.fill([tf.shape(text)[0], 1], EOS)
        ids = tf.concat([ids, eos], axis=1).to_tensor(PAD)
        probabilities = tf.nn.softmax(forward()(ids))  # [B, S, C]
        read = tf.ragged.boolean_mask(places, places < longest - 1)
        of_words = tf.gather(probabilities, read.to_tensor(), batch_dims=1)  # [B, W, C]
        best = tf.argmax(of_words, axis=2)
        real = tf.sequence_mask(read.row_lengths())
        labels = tf.where(real, tf.gather(tf.constant(names), best), "")  # [B, R]
        chances = tf.where(real, tf.reduce_max(of_words, axis=2), 0.0)
        words_in_rows = words.to_tensor("")  # [B, W]
        missing = [[0, 0], [0, tf.shape(words_in_rows)[1] - tf.shape(labels)[1]]]
        return {
            "words": words_in_rows,
            "labels": tf.pad(labels, missing, constant_values=""),
            "probabilities": tf.pad(chances, missing),
            "tags": tf.strings.reduce_join(
                tf.ragged.boolean_mask(labels, real), axis=1, separator=" "
            ),
            "length": tf.cast(words.row_lengths(), tf.int32),
            "truncated": read.row_lengths() < words.row_lengths(),
        }

    return Signature(name, tag, text_examples, text_warmup if name == "serving_default" else None)
