"""The base class of the encoder-only services. They read texts and generate none."""

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfformer.annotations import Fuse, Tensor
from tfformer.config import whole
from tfformer.inference.text_encoder import TextEncoderInference
from tfformer.models.text_encoder import TextEncoder
from tfformer.service.checks import counted
from tfformer.service.encoder_decoder_signatures import encode_texts
from tfformer.service.limits import CHARACTERS_PER_TOKEN
from tfformer.service.service import Page, Service, checked_dtype
from tfformer.service.signature import Signature, graph, text_examples, texts
from tfformer.text.tokenizer import Tokenizer


class AsModel:
    """A Keras model, used in place of its inference layers."""

    def __init__(self, model):
        self.model = model

    def __call__(self, ids):
        return tf.cast(self.model(ids, training=False), tf.float32)

    def embed(self, ids):
        return tf.cast(self.model.embed(ids, training=False), tf.float32)


class TextService(Service):
    """An encoder-only model and its tokenizer as functions of text.

    A subclass sets `MODEL`, `ABOUT` and `output`, and makes its signatures.

    Args:
        model: of the class `MODEL`.
        tokenizer: its `Tokenizer`.
        max_source_length: maximum tokens of a text, with eos; a longer text is cut. Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        dtype: see `Translator`.

    Attributes:
        signatures, functions: see `Service`.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.
    """

    model: TextEncoder
    MODEL: type[TextEncoder]
    ABOUT = ""

    def __init__(
        self,
        model: TextEncoder,
        tokenizer: Tokenizer,
        *,
        max_source_length: int = 256,
        max_batch_size: int = 256,
        dtype: str | None = None,
    ) -> None:
        if not isinstance(model, self.MODEL) or not isinstance(tokenizer, Tokenizer):
            kinds = f"{type(model).__name__} and {type(tokenizer).__name__}"
            raise ValueError(
                f"model must be a {self.MODEL.__name__}, tokenizer a Tokenizer, got {kinds}"
            )
        size = model.config.vocabulary_size
        if tokenizer.source_vocabulary_size != size:
            raise ValueError(
                f"tokenizer must have {size} ids of the source, as the model, got "
                f"{tokenizer.source_vocabulary_size}"
            )
        self._check_tokenizer(model, tokenizer)
        whole("max_batch_size", max_batch_size)
        if not 1 <= whole("max_source_length", max_source_length) <= model.config.longest:
            raise ValueError(
                f"max_source_length must be at most {model.config.longest}, the places that the "
                f"model can number, got {max_source_length}"
            )
        self.model, self.tokenizer, self.dtype = model, tokenizer, checked_dtype(dtype)
        self.max_source_length, self.max_batch_size = max_source_length, max_batch_size
        self.make_signatures()

    def _check_tokenizer(self, model, tokenizer):
        """Raises a ValueError unless the tokenizer fits the model, for example in its labels."""

    @abc.abstractmethod
    def signatures_by(self, forward: Callable[[], Any]) -> list[Signature]:
        """The signatures of the service: [`Signature`].

        Args:
            forward: a function that returns the forward pass; it is called in each graph.
        """

    def served(self, fused: Fuse, shortlist: Sequence[Tensor]) -> dict[str, Signature]:
        made = self.signatures_by(lambda: TextEncoderInference(*fused()))
        return {signature.name: signature for signature in made}

    def by_model(self) -> dict[str, Signature]:
        """As `served`, but with the Keras model in place of its inference layers."""
        made = self.signatures_by(lambda: AsModel(self.model))
        return {signature.name: signature for signature in made}

    def fused(self, dtype: str | None = None) -> tuple[Any, ...]:
        # More positions, because the model may add tokens, such as a bos before a text.
        return self.fused_for(self.max_source_length + max(1, self.model.config.added), dtype)

    def answer(
        self, texts: Iterable[str], batch_size: int | None = None, greedy: bool = False
    ) -> list[str]:
        """The output of `serving_default` for any number of texts.

        Raises:
            ValueError: `greedy` is set, but there is no search; or as `in_batches`.
        """
        if greedy:
            raise ValueError("greedy must be False, because this model does not search")
        default = self.functions["serving_default"]
        return self.in_batches(texts, batch_size, lambda some: default(some)[self.output])

    def outputs(
        self, texts: Sequence[str], batch_size: int = 32, name: str = "serving_default"
    ) -> dict[str, list[Any]]:
        """The outputs of a signature for any number of texts, in order: {output: list of rows}."""
        size = min(batch_size, self.max_batch_size)
        found: dict[str, list[Any]] = {}
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            answers = self.functions[name](tf.constant([texts[n] for n in chosen]))
            for key, value in answers.items():
                rows = found.setdefault(key, [None] * len(texts))
                for n, row in zip(chosen, value.numpy(), strict=True):
                    rows[n] = row
        return found

    def checked_rows(self, text: Tensor) -> Tensor:
        """`text`, checked against the maximum number of rows."""
        return counted(text, ("texts", tf.shape(text)[0], self.max_batch_size))

    def source_ids(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """string [B] -> int32 [B, S] of at most `max_source_length`; and whether a text was cut,
        bool [B]."""
        text = self.checked_rows(text)
        side = self.tokenizer.source
        return encode_texts(text, side.encode, self.max_source_length, side.clean)

    def limits(self) -> dict[str, int]:
        return {
            "max_batch_size": self.max_batch_size,
            "max_source_length": self.max_source_length,
            "max_characters": self.max_source_length * CHARACTERS_PER_TOKEN,
            "largest_request_bytes": self.largest_request(),
        }

    def largest_request(self) -> int:
        """The maximum memory of a request in bytes, without the weights."""
        config, size = self.model.config, 2 if self.dtype == "bfloat16" else 4
        rows, length = self.max_batch_size, self.max_source_length + 1
        states = rows * length * (6 * config.d_model + 2 * config.d_ff) * size
        return states + 3 * rows * config.num_heads * length * length * 4

    def page(self) -> Page:
        limits, flops = self.limits(), self.model.flops()
        return Page(
            about=self.ABOUT,
            asked=["echo @text@ | tfformer client --model @name@"],
            inputs="Bytes that are not UTF-8 are replaced. A text over the limit is cut, and "
            "flagged in\n`truncated`.",
            limits={
                "tokens of a text": f"{limits['max_source_length']:,}",
                "characters of a text": f"{limits['max_characters']:,}; what is longer is cut",
                "memory of the largest request": f"at most "
                f"{limits['largest_request_bytes'] / 2**20:,.0f} MiB, besides the weights",
            },
            costs={"FLOPs of a token": f"{flops['token'] / 1e6:.1f} M"},
        )


class EmbeddingService(TextService):
    """A `TextService` with the signature `embed`."""

    def embed(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Texts -> their vectors, float32 [n, D], in batches of `batch_size`."""
        found = self.outputs(texts, batch_size, "embed")
        vectors = np.array(found.get("vector", []))
        return vectors.reshape(len(texts), self.model.config.d_model)  # [n, D]


def embed(service, forward):
    """The signature `embed`: `text` [B] -> `vector` float32 [B, D], and whether a text was cut."""

    @graph(texts("text"))
    def embed(text):
        ids, truncated = service.source_ids(text)
        return {"vector": forward().embed(ids), "truncated": truncated}

    return Signature("embed", embed, text_examples)
