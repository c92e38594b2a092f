"""Serves an embedder: the vector of a text."""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tfformer.models.embedder import Embedder
from tfformer.service.signature import Signature, graph, text_examples, text_warmup, texts
from tfformer.service.text_service import EmbeddingService


class TextEmbedder(EmbeddingService):
    """An embedder and its tokenizer as functions of text.

    Args:
        model: an `Embedder`.
        tokenizer: its `Tokenizer`.
        max_source_length: maximum tokens of a text, with eos; a longer text is cut. Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`}, all served signatures: `serving_default` and `embed`, which
            are the same.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = EmbedderConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> TextEmbedder(Embedder(config), tokenizer).embed(["a house"]).shape
        (1, 14)
    """

    MODEL, output = Embedder, "vector"
    ABOUT = "Text in, its vector out: the encoder of a Transformer"

    def signatures_by(self, forward: Callable[[], Any]) -> list[Signature]:
        return [vectors(self, forward, name) for name in ("serving_default", "embed")]

    def answer(
        self, texts: Iterable[str], batch_size: int | None = None, greedy: bool = False
    ) -> list[str]:
        """The vectors of any number of texts, each as numbers with blanks between them.

        Raises:
            ValueError: as `TextService.answer`.
        """
        if greedy:
            raise ValueError("greedy must be False, because this model does not search")
        default = self.functions["serving_default"]

        def numbers(some):
            found = tf.strings.as_string(default(some)[self.output], precision=6)
            return tf.strings.reduce_join(found, axis=1, separator=" ")

        return self.in_batches(texts, batch_size, numbers)


def vectors(service, forward, name):
    """The signature `text` [B] -> `vector` float32 [B, D], and whether a text was cut."""

    @graph(texts("text"))
    def embed(text):
        ids, truncated = service.source_ids(text)
        return {"vector": forward()(ids), "truncated": truncated}

    return Signature(name, embed, text_examples, text_warmup if name == "serving_default" else None)
