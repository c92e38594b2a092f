"""Serves a decoder-only model of KerasHub, wrapped without conversion: continues a text."""

import math
from typing import NamedTuple

from tfformer.config.search_options import OPTIONS, SAMPLING, first_names
from tfformer.inference.keras_hub_causal import KINDS, KerasHubCausalInference
from tfformer.inference.keras_hub_common import kind_of
from tfformer.service.generator_service import Generating
from tfformer.service.keras_hub_common import Wrapping, vocabulary_of
from tfformer.service.language_model_signatures import OF_BEAM, Writing
from tfformer.service.limits import Limits
from tfformer.text.imported_sentencepiece import ForeignModel, unknown_id
from tfformer.text.tokenizer import Tokenizer

KNOWN = {name: {**OPTIONS, **SAMPLING}[name] for name in (*SAMPLING, *OF_BEAM)}


class Size(NamedTuple):
    """The vocabulary size of a search, as in a configuration."""

    vocabulary_size: int


class KerasHubWriting(Writing):
    """The shared code of the signatures."""

    def inference(self):
        return self.fused()


class KerasHubGenerator(Wrapping, Generating):
    """A decoder-only model of KerasHub as functions of text: the signatures of a `TextGenerator`.

    The model runs unchanged, with its own layers and their caches. Only the search is ours. Ids in
    `token_ids`: 0 to 3 are pad, unk, bos and eos, and 4 + n is the model's id n.

    Args:
        model: a `GemmaCausalLM`, a `Gemma3CausalLM` without images, a `LlamaCausalLM` or a
            `MistralCausalLM`, with its preprocessor, whose vocabulary is a SentencePiece model.
        max_source_length: maximum tokens of a prompt, with bos; of a longer prompt the last tokens
            are used. Default 256.
        max_target_length: maximum generated tokens, with eos. Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        length_penalty_form: `"gnmt"` (default) or `"power"`.
        options: `temperature`, `beam_width` and other options of `TextGenerator`, with its
            defaults.

    Attributes:
        signatures, functions: see `Service`.

    Raises:
        ValueError: the model is of another class, its vocabulary is of another kind, or an option
            breaks its rule; the message names the rule and the value.
        TypeError: an option is unknown.

    Example:
        model = keras_hub.models.CausalLM.from_preset("gemma_2b_en")
        generator = KerasHubGenerator(model, top_k=1)
        generator.generate(["The house is"], max_length=20)
        generator.save("exported/gemma/1")
    """

    def __init__(
        self,
        model,
        *,
        max_source_length=256,
        max_target_length=256,
        max_batch_size=256,
        length_penalty_form="gnmt",
        **options,
    ):
        options = first_names(options)
        if unknown := sorted(set(options) - set(KNOWN)):
            raise TypeError(f"options must be of {sorted(KNOWN)}, got {unknown[0]!r}")
        options = {name: option.default for name, option in KNOWN.items()} | options
        self.model, self.dtype = model, None
        proto = vocabulary_of(model)
        self.kind = kind_of(model, KINDS, None if proto is None else unknown_id(proto))
        if proto is None:
            raise ValueError(
                f"model must have a SentencePiece vocabulary, got a {type(model).__name__} without"
            )
        side = ForeignModel(proto, self.kind.special_ids, model.backbone.vocabulary_size)
        self.tokenizer, self.inference = Tokenizer(side), KerasHubCausalInference(self.kind)
        lengths = {
            "max_source_length": max_source_length,
            "max_target_length": max_target_length,
            "max_batch_size": max_batch_size,
        }
        self._set_up(math.inf, lengths, length_penalty_form, **options)

    def _writing(self, fused):
        limits = Limits(self.max_source_length, self.max_target_length, self.max_batch_size)
        known = Size(self.tokenizer.source_vocabulary_size), fused, self.tokenizer, self.options
        return KerasHubWriting(*known, limits, self.length_penalty_form)

    def page(self):
        return self.page_of(super().page(), "Text in, how it goes on out", "`token_ids`")

    def request_bytes(self, rows, width):
        numbers, vocabulary = self.kind.cache.numbers, self.tokenizer.target_vocabulary_size
        # A step holds six caches: the cache, its longer copy, the past of each hypothesis in two
        # axis orders, and the new caches of the layers, single and stacked.
        positions = self.max_source_length + self.max_target_length
        return 6 * rows * width * positions * numbers * 4 + 7 * rows * width * vocabulary * 4
