"""Serves a sequence-to-sequence model of KerasHub, wrapped without conversion."""

import math
from typing import NamedTuple

from tfformer.config import whole
from tfformer.config.search_options import OPTIONS, first_names
from tfformer.inference.keras_hub import KINDS, KerasHubInference
from tfformer.inference.keras_hub_common import kind_of
from tfformer.service.arguments import check_min_length
from tfformer.service.complete import complete
from tfformer.service.document import translate_document
from tfformer.service.encoder_decoder_signatures import Generation
from tfformer.service.keras_hub_common import Wrapping, vocabulary_of
from tfformer.service.limits import Limits
from tfformer.service.n_best import beam_search, beam_search_ids
from tfformer.service.sample import sample
from tfformer.service.score import score
from tfformer.service.service import Searching
from tfformer.service.translation import greedy, serving_default
from tfformer.service.translator import Translating
from tfformer.text.byte_pairs import BytePairs
from tfformer.text.imported_sentencepiece import ForeignModel, unknown_id
from tfformer.text.tokenizer import Tokenizer

# Those of a `Translator` except `align`, which needs attention weights.
SIGNATURES = (
    serving_default,
    translate_document,
    beam_search,
    beam_search_ids,
    score,
    sample,
    complete,
)
NEEDS_ATTENTION = ("coverage_penalty",)
LENGTH = 256  # the default maximum tokens of a source and of a target
LEFT_OUT = (
    "Its cached decoder gives no attention weights: there is no `align`, no `alignment` and no\n"
    "coverage penalty."
)


class Sizes(NamedTuple):
    """The vocabulary sizes of a search, and `source_eos`, as in a configuration."""

    source_vocabulary_size: int
    target_vocabulary_size: int
    source_eos: bool = True


class KerasHubGeneration(Generation):
    """The shared code of the signatures, without attention weights."""

    asked = [option for option in Generation.asked if option.name not in NEEDS_ATTENTION]
    kept = ("token_log_probs",)

    def inference(self, source_ids=None):
        return self.fused()


class KerasHubTranslator(Wrapping, Translating, Searching):
    """A sequence-to-sequence model of KerasHub as functions of text. It has the signatures of a
    `Translator` except `align`, and its options except `coverage_penalty`.

    The model runs unchanged, with its own encoder and its own cached decoder. Only the search is
    ours. Ids in `source_ids` and `token_ids`: 0 to 3 are pad, unk, bos and eos, and 4 + n is the
    model's id n.

    Args:
        model: a `T5Seq2SeqLM`, a `T5GemmaSeq2SeqLM` or a `BartSeq2SeqLM` with its preprocessor.
        max_source_length: maximum tokens of a source, with eos; a longer text is cut. Default 256,
            or less if the model has fewer positions.
        max_target_length: maximum tokens of a target, with eos. The same default.
        max_batch_size: maximum rows of a request. Default 256.
        length_penalty_form: `"gnmt"` (default) or `"power"`.
        options: `beam_width` and other options of `Translator`, with its defaults.

    Attributes:
        signatures, functions: see `Service`.

    Raises:
        ValueError: the model is of another class, its vocabulary cannot be read, or an option
            breaks its rule; the message names the rule and the value.
        TypeError: an option is unknown.

    Example:
        model = keras_hub.models.Seq2SeqLM.from_preset("bart_base_en")
        translator = KerasHubTranslator(model, beam_width=5)
        translator.translate(["The house is"])
        translator.save("exported/bart/1")
    """

    LARGEST = "memory of the largest request, of most rows or widest beam"

    def __init__(
        self,
        model,
        *,
        max_source_length=None,
        max_target_length=None,
        max_batch_size=256,
        length_penalty_form="gnmt",
        **options,
    ):
        options = first_names(options)
        known = {option.name: option for option in KerasHubGeneration.asked}
        if unknown := sorted(set(options) - set(known)):
            raise TypeError(f"options must be of {sorted(known)}, got {unknown[0]!r}")
        given = {name: options.get(name, option.default) for name, option in known.items()}
        self.options = {name: known[name].checked(value) for name, value in given.items()}
        self.length_penalty_form = OPTIONS["length_penalty_form"].checked(length_penalty_form)
        self.model, self.dtype = model, None
        self.kind, side = _read(model)
        self.tokenizer, self.inference = Tokenizer(side), KerasHubInference(self.kind)
        self.max_batch_size = whole("max_batch_size", max_batch_size, minimum=1)
        self.max_source_length = self._length("max_source_length", max_source_length)
        self.max_target_length = self._length("max_target_length", max_target_length)
        check_min_length(self.options["min_length"], self.max_target_length)
        self.make_signatures()
        self._greedy = greedy(self._generation(self.fused))

    def _length(self, name, value):
        """A checked number of tokens, within the model's positions; None means the default."""
        # One position is for the token in front of a source, or in front of a target's bos.
        maximum = math.inf if self.kind.longest is None else self.kind.longest - 1
        value = min(LENGTH, maximum) if value is None else value
        if whole(name, value, minimum=2) > maximum:
            raise ValueError(f"{name} must be in [2, {maximum}], got {value}")
        return value

    @property
    def beam_width(self):
        return self.options["beam_width"]

    @property
    def length_penalty(self):
        return self.options["length_penalty"]

    def translate(self, texts, batch_size=None, greedy=False):
        """Translate any number of texts, as `Translator.translate`."""
        function = self._greedy if greedy else self.functions["serving_default"]
        return self.in_batches(texts, batch_size, lambda texts: function(texts)["translation"])

    answer = translate

    def served(self, fused, shortlist):
        generation = self._generation(fused)
        made = [make(generation) for make in SIGNATURES]
        return {signature.name: signature for signature in made}

    def _generation(self, fused):
        size = self.tokenizer.source_vocabulary_size
        limits = Limits(self.max_source_length, self.max_target_length, self.max_batch_size)
        known = Sizes(size, size), fused, self.tokenizer, self.options, limits
        return KerasHubGeneration(*known, self.length_penalty_form)

    def page(self):
        what, ids = "Text in, text out, by beam search", "`source_ids` and `token_ids`"
        return self.page_of(super().page(), what, ids, f"{LEFT_OUT} ")

    def request_bytes(self, rows, width):
        numbers, vocabulary = self.kind.cache.numbers, self.tokenizer.target_vocabulary_size
        # A step holds six caches: the cache, its longer copy, the past of each hypothesis in two
        # axis orders, and the decoder's new cache, by layer and stacked.
        caches = 6 * rows * width * self.max_target_length * numbers * 4
        # The keys of the source for each beam, and the layers that a step takes out of them.
        keys = 3 * rows * width * (self.max_source_length + 1) * numbers * 4
        return caches + keys + 7 * rows * width * vocabulary * 4


def _read(model):
    """The kind of a model, and the `Side` of its vocabulary, with the ids of a search."""
    proto = vocabulary_of(model)
    kind = kind_of(model, KINDS, None if proto is None else unknown_id(proto))
    size = model.backbone.vocabulary_size
    if proto is not None:
        return kind, ForeignModel(proto, kind.special_ids, size)
    tokenizer = model.preprocessor.tokenizer
    whole = tokenizer.unsplittable_tokens
    tables = tokenizer.vocabulary, tokenizer.merges
    return kind, BytePairs(*tables, kind.special_ids, size, whole)
