"""Serves a classifier: the label of a text, label probabilities, and the vector of a text."""

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfformer.config.search_options import first_names
from tfformer.models.classifier import Classifier
from tfformer.service.signature import Signature, graph, text_examples, text_warmup, texts
from tfformer.service.text_service import EmbeddingService, TextService, embed
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.vocabularies import LabelTable


class TextClassifier(EmbeddingService):
    """A classifier and its tokenizer as functions of text.

    Args:
        model: a `Classifier`.
        tokenizer: its `Tokenizer`, with a `LabelTable` as its target.
        max_source_length: maximum tokens of a text, with eos; a longer text is cut. Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        threshold: for a multi-label model, the minimum probability of a label that the text gets.
            Default 0.5.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`}, all served signatures: `serving_default` and `classify`,
            which are the same, and `embed`.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> from tfformer.text.vocabularies import LabelTable
        >>> source = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300).source
        >>> tokenizer = Tokenizer(source, LabelTable(["de", "en"]))
        >>> config = ClassifierConfig.preset("test", source.size, num_labels=2)
        >>> classifier = TextClassifier(Classifier(config), tokenizer)
        >>> classifier.answer(["ein Haus"])[0] in ("de", "en")
        True
    """

    MODEL, ABOUT = Classifier, "Text in, its label out: a classifier, the encoder of a Transformer"
    output = "label"

    def __init__(
        self, model: Classifier, tokenizer: Tokenizer, *, threshold: float = 0.5, **options: Any
    ) -> None:
        if not isinstance(threshold, numbers.Real) or not 0 < threshold < 1:
            raise ValueError(f"threshold must be in (0, 1), got {threshold!r}")
        self.threshold = float(threshold)
        super().__init__(model, tokenizer, **options)

    @classmethod
    def unknown(cls, options: Mapping[str, Any]) -> list[str]:
        known = {*inspect.signature(cls).parameters, *inspect.signature(TextService).parameters}
        return sorted(set(first_names(options)) - known)

    def _check_tokenizer(self, model, tokenizer):
        check_labels(model, tokenizer)

    def signatures_by(self, forward: Callable[[], Any]) -> list[Signature]:
        return [classify(self, forward, name) for name in ("serving_default", "classify")] + [
            embed(self, forward)
        ]


def check_labels(model, tokenizer):
    """Raises a ValueError unless the tokenizer's target is the table of the model's labels."""
    table, count = tokenizer.target, model.config.num_labels
    if not isinstance(table, LabelTable) or len(table.labels) != count:
        found = f"{len(table.labels)} labels" if isinstance(table, LabelTable) else "none"
        raise ValueError(
            f"tokenizer must have a table of {count} labels for its target, as the model, got "
            f"{found}"
        )


def classify(service, forward, name):
    """The signature `text` [B] -> `label` string [B], the most probable label, or all labels of the
    text, joined by ", "; all labels of the model in order, `labels` string [B, C]; their
    `probabilities` float32 [B, C]; and `truncated`, whether a text was cut."""
    names = service.tokenizer.target.labels

    @graph(texts("text"))
    def classify(text):
        ids, truncated = service.source_ids(text)
        probabilities, table = tf.nn.softmax(forward()(ids)), tf.constant(names)
        if service.model.config.multi_label:
            probabilities = probabilities[..., 1]  # [B, C]
            has = probabilities >= service.threshold
            rows = tf.tile(table[None], [tf.shape(ids)[0], 1])
            label = tf.strings.reduce_join(
                tf.ragged.boolean_mask(rows, has), axis=1, separator=", "
            )
        else:
            label = tf.gather(table, tf.argmax(probabilities, axis=1))
        return {
            "label": label,
            "labels": tf.tile(table[None], [tf.shape(ids)[0], 1]),
            "probabilities": probabilities,
            "truncated": truncated,
        }

    return Signature(
        name, classify, text_examples, text_warmup if name == "serving_default" else None
    )
