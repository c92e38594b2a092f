"""Translates text with the functions that TensorFlow Serving runs.

`Translator` calls them in Python; `Translator.save` writes them as a SavedModel.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfformer.annotations import Fuse, Tensor
from tfformer.config import whole
from tfformer.config.search_options import (
    ENSEMBLE_MEAN,
    ENSEMBLE_MEANS,
    OPTIONS,
    takes_second_names,
)
from tfformer.inference.ensemble import mixed
from tfformer.inference.fuse import fuse
from tfformer.inference.int8 import with_int8
from tfformer.inference.low_latency import SMALL, by_rows, constant_bytes, with_constants, zeros_of
from tfformer.models import Transformer
from tfformer.service.align import align
from tfformer.service.arguments import (
    check_forms,
    check_lengths,
    check_min_length,
    check_one_language,
    check_sides,
    check_vocabulary,
)
from tfformer.service.complete import complete
from tfformer.service.document import document_limits, translate_document
from tfformer.service.encoder_decoder_signatures import Generation
from tfformer.service.explain import explain
from tfformer.service.limits import CHARACTERS_PER_TOKEN, Limits
from tfformer.service.n_best import beam_search, beam_search_ids
from tfformer.service.sample import sample
from tfformer.service.score import score
from tfformer.service.service import Page, Searching, Service, checked_dtype
from tfformer.service.signature import Signature
from tfformer.service.translation import greedy, serving_default
from tfformer.shortlist import Shortlist
from tfformer.text.tokenizer import Tokenizer

# The signatures of a translator, in the order of the list on a model's page.
SIGNATURES = (
    serving_default,
    translate_document,
    beam_search,
    beam_search_ids,
    score,
    sample,
    complete,
    align,
)


class Translating(Service):
    """A service that translates texts, by any search. A subclass sets `ABOUT`, the beginning of a
    sentence; `LARGEST`, the name of its largest request; and `COSTS`, the names of its costs."""

    ABOUT = LARGEST = COSTS = ""
    output = "translation"

    @property
    def first_token(self) -> int | None:
        """The id that each target begins with by default; None: there is none."""
        return None

    def limits(self) -> dict[str, int]:
        characters = self.max_source_length * CHARACTERS_PER_TOKEN
        return {
            "max_batch_size": self.max_batch_size,
            "max_source_length": self.max_source_length,
            "max_target_length": self.max_target_length,
            "max_characters": characters,
            **document_limits(self.max_source_length, self.max_batch_size),
            "largest_request_bytes": self.largest_request(),
        }

    def page(self) -> Page:
        limits = self.limits()
        largest = limits["largest_request_bytes"] / 2**20
        return Page(
            about=self.ABOUT,
            asked=["echo @text@ | tfformer client --model @name@"],
            inputs="An empty or blank text gives an empty translation. Bytes that are not UTF-8 "
            "are replaced. A text over\nthe limit is cut, and flagged in `truncated`.",
            limits={
                "tokens of a source; of a translation": f"{limits['max_source_length']:,}; "
                f"{limits['max_target_length']:,}; what is longer is cut",
                "characters of a source; of a document": f"{limits['max_characters']:,}; "
                f"{limits['max_document_characters']:,}; what is longer is cut",
                "tokens of a document; its pieces, sentences and windows of long ones": ""
                f"{limits['max_document_tokens']:,}; {limits['max_document_pieces']:,}; what is "
                "longer is cut",
                "pieces of all documents of a request": f"{limits['max_request_pieces']:,}; more "
                "are INVALID_ARGUMENT",
                self.LARGEST: f"at most {largest:,.0f} MiB, besides the weights",
            },
            costs=self.costs(),
        )

    def costs(self) -> dict[str, str]:
        """The cost of a token, for `Page`."""
        flops = self.flops()
        words = f"{flops['source_token'] / 1e6:.1f} M; {flops['target_token'] / 1e6:.1f} M"
        return {self.COSTS: words}


class Translator(Translating, Searching):
    """A model and its tokenizer as functions of text.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`; the vocabulary sizes must be the model's.
        beam_width: W, in [1, 64]. Default 4.
        length_penalty: alpha, in [0, 10]; 0 means none. Default 0.6.
        length_penalty_form: `"gnmt"` (default) or `"power"`; see `tfformer.search`.
        max_source_length: maximum source tokens, with eos; a longer text is cut. Default 256.
        max_target_length: maximum target tokens, with eos. Default 256.
        max_batch_size: maximum rows of a request, at least 1. With a beam wider than 4 (or than
            `beam_width`, if that is more), the maximum falls in proportion. Default 256.
        min_length: minimum target tokens, with eos; at most `max_target_length`. Default 0.
        max_length_factor: maximum target tokens for each source token, with eos in both, in
            [0, 100]; 0 (default) sets no such limit.
        coverage_penalty: beta, in [0, 10], see `beam_search`; 0 (default) means none.
        repetition_penalty: in [1, 100], see `beam_search`; 1 (default) means none.
        no_repeat_ngram: n, in [0, 8], see `beam_search`; 0 (default) means no rule. The two
            penalties and this rule apply to beam search only. Greedy search and `sample` use only
            the lengths.
        attention_window: n, the number of source tokens to which a search step may attend, in a
            window that only moves forward (`tfformer.inference.monotonic_attention`); for models
            whose attention is monotonic. `score` and `align`, which get the whole target, use no
            window.
            0 (default): all source tokens.
        dtype: the dtype of products: `"float32"`, `"bfloat16"`, or `"int8"` for large matrices
            (`tfformer.inference.int8`), which are converted once, when they are first used;
            softmax, norms and scores are float32. Default None: the model's compute dtype, but
            float32 in a SavedModel.
        shortlist: a `tfformer.shortlist.Shortlist` of this tokenizer. Greedy search,
            `serving_default`, `translate_document`, `beam_search` and `beam_search_ids` then use
            only the candidates of each text. Their log-probabilities are normalised over these, so
            they are slightly higher than those of `score`. `score`, `sample`, `complete` and
            `align` use the whole vocabulary. Default None: all use it.
        xla: whether XLA compiles `serving_default` (`tfformer.inference.xla`), for your own server
            with XLA enabled; a stock TensorFlow Serving cannot run it. Default False.
        low_latency: whether a SavedModel has a separate graph of `serving_default` for requests of
            one text (`tfformer.inference.low_latency`). If TensorFlow uses oneDNN, such requests
            take less time, and the server needs more memory. Not with `xla`, bfloat16 or one beam.
            Default False.
        explain: whether to add the signature `explain`: attention weights of each layer and head,
            the steps of the search, probabilities. Default False.
        ensemble: `Translator`s with the same vocabulary. Their models are searched together with
            this one; their own options are ignored. Not with a shortlist, `xla`, `explain` or an
            attention window. Default: none.
        ensemble_mean: the mean of the models' predictions, of `"probabilities"` (default) or of
            `"log-probabilities"`; see `tfformer.inference.ensemble.mixed`.
        source_language, target_language: for a multilingual model, the languages of requests that
            name none. Default: those of the tokenizer. Not with a shortlist, `xla` or
            `low_latency`.

    `min_target_length` is a second name of `min_length`.

    Attributes:
        models: the model of the translator, and those of the ensemble.
        ensemble_mean: that of an ensemble; None for one model.
        signatures: {name: `Signature`}, all served signatures.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors. Options have
            default values; `max_length` 0 means the limit.

    An empty or blank text gives an empty translation with score 0. A text is cut at
    `max_source_length` tokens, and before that at 16 characters for each of these tokens.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer or the shortlist does not match the model.

    Example, with an untrained model (for the model of a run, use `load_translator`):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = TransformerConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> translator = Translator(Transformer(config), tokenizer, max_target_length=11)
        >>> translations = translator.translate(["ein Haus", ""])
        >>> len(translations), translations[1]
        (2, '')
    """

    model: Transformer
    # The class of the model, and the class of the signatures' shared code.
    KIND, GENERATION = Transformer, Generation
    ABOUT = "Text in, text out, by beam search: an encoder-decoder Transformer"
    LARGEST = "memory of the largest request, of most rows or widest beam"
    COSTS = "FLOPs of a source token; of a target token and beam"

    @takes_second_names
    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        *,
        beam_width: int = 4,
        length_penalty: float = 0.6,
        length_penalty_form: str = "gnmt",
        max_source_length: int = 256,
        max_target_length: int = 256,
        max_batch_size: int = 256,
        min_length: int = 0,
        max_length_factor: float = 0.0,
        coverage_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        no_repeat_ngram: int = 0,
        attention_window: int = 0,
        dtype: str | None = None,
        shortlist: Shortlist | None = None,
        xla: bool = False,
        low_latency: bool = False,
        explain: bool = False,
        ensemble: Sequence["Translator"] = (),
        ensemble_mean: str = ENSEMBLE_MEANS[0],
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        check_sides(model, tokenizer, self.KIND)
        config = model.config
        OPTIONS["length_penalty_form"].checked(length_penalty_form)
        self.dtype = checked_dtype(dtype, also=("int8",))
        self._int8: tuple[Any, Any] | None = None
        ENSEMBLE_MEAN.checked(ensemble_mean)
        ensemble = tuple(ensemble)
        if ensemble:
            of_one = {"shortlist": shortlist, "xla": xla, "explain": explain}
            _check_ensemble(ensemble, tokenizer, {**of_one, "attention_window": attention_window})
        self.models = (model, *[one.model for one in ensemble])
        self.ensemble_mean = ensemble_mean if ensemble else None
        longest = min(one.config.longest for one in self.models)
        if shortlist is not None:
            if config.copy:
                raise ValueError("shortlist must be None with copy=True: any word may be copied")
            shortlist.check(tokenizer)
        check_lengths(max_source_length, max_target_length, longest)
        check_forms(xla, low_latency, shortlist, attention_window, beam_width, dtype)
        if shortlist is not None and tokenizer.target.first is not None:
            raise ValueError("shortlist must be None if a given token begins each target")
        if tokenizer.languages:
            check_one_language(xla=xla, low_latency=low_latency, shortlist=shortlist)
        tokenizer = tokenizer.with_languages(source_language, target_language)
        if whole("max_batch_size", max_batch_size, minimum=0) < 1:
            raise ValueError(f"max_batch_size must be at least 1, got {max_batch_size}")
        self.options = {
            name: OPTIONS[name].checked(value)
            for name, value in (
                ("beam_width", beam_width),
                ("length_penalty", length_penalty),
                ("min_length", min_length),
                ("max_length_factor", max_length_factor),
                ("coverage_penalty", coverage_penalty),
                ("repetition_penalty", repetition_penalty),
                ("no_repeat_ngram", no_repeat_ngram),
                ("attention_window", attention_window),
            )
        }
        check_min_length(min_length, max_target_length)
        self.model, self.tokenizer = model, tokenizer
        self.beam_width, self.length_penalty = beam_width, float(length_penalty)
        self.length_penalty_form = length_penalty_form
        self.max_source_length, self.max_target_length = max_source_length, max_target_length
        self.max_batch_size = max_batch_size
        self.shortlist, self.xla, self.explain = shortlist, xla, explain
        self.low_latency = low_latency
        self.make_signatures()
        self._greedy = greedy(self._generation(self.fused, self._constants))

    def translate(
        self,
        texts: Iterable[str],
        batch_size: int | None = None,
        greedy: bool = False,
        **languages: str | None,
    ) -> list[str]:
        """Translate any number of texts, in order, by beam search or greedy search.

        Args:
            texts: strings.
            batch_size: the number of texts at once, at most `max_batch_size`; the result does not
                depend on it. Default: 32, or `max_batch_size` if that is less.
            greedy: take only the most probable token at each step. Default False.
            **languages: `source_language` and `target_language`, for a multilingual model. Default:
                those of the translator.

        Returns:
            A list of strings.

        Raises:
            ValueError: `texts` is one string, or an item is not a string; or `batch_size` is not
                in [1, max_batch_size]; or the model has no such language.
        """
        function = self._greedy if greedy else self.functions["serving_default"]
        self.tokenizer.require_languages(**languages)
        asked = {name: tf.constant([one]) for name, one in languages.items() if one is not None}
        return self.in_batches(
            texts, batch_size, lambda texts: function(texts, **asked)["translation"]
        )

    answer = translate

    @property
    def first_token(self) -> int | None:
        """The id that each target begins with by default: the code of its language, or BART's <s>.
        None: there is none."""
        return self.tokenizer.target.first

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Run the whole model without a cache: {"source_ids": int32 [N, S], "target_ids": [N, T]}
        -> logits [N, T, V]."""
        found = [model(inputs, training=False) for model in self.models]
        return mixed(found, self.ensemble_mean) if self.ensemble_mean else found[0]

    def fused_for(
        self, positions: int, dtype: str | None = None, few_rows: bool = False
    ) -> tuple[Any, ...]:
        """The inference layers and the weights of the model, or of all models of an ensemble."""
        if (dtype := dtype or self.dtype) != "int8":
            return self._fused_float(positions, dtype, few_rows)
        if self._int8 is None:
            with tf.init_scope():
                inference_layer, weights = self._fused_float(positions, "float32", few_rows)
                weights = tf.nest.map_structure(tf.Variable, with_int8(weights))
                self._int8 = inference_layer, weights
        return self._int8

    def _fused_float(self, positions, dtype, few_rows):
        if not self.ensemble_mean:
            return super().fused_for(positions, dtype, few_rows)
        found = [fuse(model, positions, dtype, few_rows) for model in self.models]
        return tuple(zip(*found, strict=True))

    def search_facts(self, greedy: bool = False) -> dict[str, str | float]:
        """A description of the search, for a table of scores."""
        search = "greedy" if greedy else f"beam {self.beam_width}"
        if self.ensemble_mean:
            search += f", ensemble of {len(self.models)} by {self.ensemble_mean}"
        return {
            "search": search,
            "length_penalty": 0.0 if greedy else self.length_penalty,
        }

    def served(self, fused: Fuse, shortlist: Sequence[Tensor]) -> dict[str, Signature]:
        generation = self._generation(fused, shortlist)
        more = (explain,) if self.explain else ()
        made = [make(generation) for make in (*SIGNATURES, *more)]
        return {signature.name: signature for signature in made}

    def choose_form(self) -> None:
        """Set `low_latency` if the options allow it and the matrices are small.

        Requests of one text then take 0.5 to 0.8 of the time if TensorFlow uses oneDNN, and 1.03
        to 1.07 of it otherwise (docs/measured/decoding.md).
        """
        alone = self.beam_width == 1 or self.xla or self.dtype == "bfloat16"
        if alone or self.tokenizer.languages:
            return
        # Traced only, because large models would compute all of their matrices.
        traced = tf.function(lambda: self.fused(self.dtype or "float32")[1], autograph=False)
        weights = traced.get_concrete_function().structured_outputs
        self.low_latency = constant_bytes(weights, self.shortlist is not None) <= SMALL

    def saved(self, root: tf.Module) -> dict[str, Signature]:
        served = super().saved(root)
        if self.low_latency:
            positions = max(self.max_source_length, self.max_target_length)
            inference_layer, _ = self.fused_for(positions, "float32", few_rows=True)
            own = with_constants(root.weights, self.shortlist is not None)
            root.zeros = zeros_of(own)
            single = self.served(lambda: (inference_layer, own), root.shortlist)["serving_default"]
            several = served["serving_default"]
            function = by_rows(single.function, several.function)
            served["serving_default"] = dataclasses.replace(several, function=function)
        return served

    def _generation(self, fused, shortlist):
        return self.GENERATION(
            self.model.config,
            fused,
            self.tokenizer,
            self.options,
            Limits(self.max_source_length, self.max_target_length, self.max_batch_size),
            self.length_penalty_form,
            shortlist,
            self.xla,
            self.ensemble_mean,
        )

    def page(self) -> Page:
        page = super().page()
        words, about = [page.command], page.about
        words.append("--low-latency" if self.low_latency else "--no-low-latency")
        if self.ensemble_mean:
            words.append(f"--ensemble RUN ... --ensemble-mean {self.ensemble_mean}")
            about += f"; {len(self.models)} of them, searched as one"
        return page._replace(about=about, command=" ".join(words))

    def flops(self) -> dict[str, int]:
        found = [model.flops() for model in self.models]
        return {name: sum(one[name] for one in found) for name in found[0]}

    def request_bytes(self, rows: int, width: int) -> int:
        size = 2 if self.dtype == "bfloat16" else 4
        # Twice: between two blocks of the search, a cache and its longer copy exist together.
        positions = 2 * rows * (self.max_target_length * width + self.max_source_length)
        configs = [model.config for model in self.models]
        caches = sum(2 * one.num_decoder_layers * one.key_value_width for one in configs)
        # One step: the logits of each model, and copies made by the rules of the search; and the
        # scores of an attention, each beam to the positions of all beams, also biased and as
        # weights.
        logits = (5 + len(configs)) * rows * width * configs[0].target_vocabulary_size
        heads = max(one.num_heads for one in configs)
        scores = 3 * rows * heads * width * width * self.max_target_length
        return positions * caches * size + 4 * (logits + scores)


def _check_ensemble(ensemble, tokenizer, of_one):
    """Raises a ValueError unless these `Translator`s can form an ensemble with this tokenizer.

    `of_one`: {name: value} of the options that work with one model only.
    """
    for n, other in enumerate(ensemble):
        name = f"ensemble[{n}]"
        if type(other) is not Translator:
            raise ValueError(f"{name} must be a Translator, got {type(other).__name__}")
        if other.ensemble_mean:
            raise ValueError(f"{name} must be a Translator of one model, got an ensemble")
        check_vocabulary(name, other, tokenizer)
    for name, value in of_one.items():
        if value:
            raise ValueError(f"{name} must be off with an ensemble, got {value!r}")
