"""Text in, text out: the very functions that TensorFlow Serving runs.

`Translator` calls them in-process; `Translator.save` writes them as a SavedModel.
"""

import dataclasses

from tfformer.config import whole
from tfformer.inference.ensemble import mixed
from tfformer.inference.fuse import fuse
from tfformer.inference.low_latency import by_rows, with_constants, zeros_of
from tfformer.models import Transformer
from tfformer.search.options import ENSEMBLE_MEAN, OPTIONS, takes_second_names
from tfformer.service.align import align
from tfformer.service.arguments import check_forms, check_sides, check_vocabulary
from tfformer.service.complete import complete
from tfformer.service.document import document_limits, translate_document
from tfformer.service.explain import explain
from tfformer.service.generation import Generation
from tfformer.service.limits import CHARACTERS_PER_TOKEN, Limits
from tfformer.service.n_best import beam_search, beam_search_ids
from tfformer.service.sample import sample
from tfformer.service.score import score
from tfformer.service.service import Page, Searching, Service, checked_dtype
from tfformer.service.translation import greedy, serving_default

# What a translator answers, in the order in which a page of a model lists it.
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
    """A service whose texts are translated, by whatever search; a subclass has `ABOUT`, the
    beginning of a sentence, `LARGEST`, a request that may need most memory, and `COSTS`."""

    ABOUT = LARGEST = COSTS = ""
    output = "translation"

    def limits(self):
        characters = self.max_source_length * CHARACTERS_PER_TOKEN
        return {
            "max_batch_size": self.max_batch_size,
            "max_source_length": self.max_source_length,
            "max_target_length": self.max_target_length,
            "max_characters": characters,
            **document_limits(self.max_source_length, self.max_batch_size),
            "largest_request_bytes": self.largest_request(),
        }

    def page(self):
        limits = self.limits()
        largest = limits["largest_request_bytes"] / 2**20
        return Page(
            about=self.ABOUT,
            asked=["echo @text@ | python -m export.client --model @name@"],
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

    def costs(self):
        """What a token costs, as `Page` has it."""
        flops = self.flops()
        words = f"{flops['source_token'] / 1e6:.1f} M; {flops['target_token'] / 1e6:.1f} M"
        return {self.COSTS: words}


class Translator(Translating, Searching):
    """A model and its tokenizer as functions of text.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`; the vocabulary sizes must be the model's.
        beam_width: W, in [1, 64]. Default 4.
        length_penalty: alpha, in [0, 10]; 0 is none. Default 0.6.
        length_penalty_form: `"gnmt"` (default) or `"power"`; see `tfformer.search`.
        max_source_length: source tokens, eos counted; a longer text is cut. Default 256.
        max_target_length: target tokens, eos counted. Default 256.
        max_batch_size: rows of a request, at least 1; a wider beam than 4 (or than `beam_width`,
            if that is more) may have accordingly fewer. Default 256.
        min_length: target tokens at least, eos counted; at most `max_target_length`. Default 0.
        max_length_factor: target tokens for each source token at most, eos counted in both, in
            [0, 100]; 0 (default) sets no such limit.
        coverage_penalty: beta, in [0, 10], see `beam_search`; 0 (default) is none.
        repetition_penalty: in [1, 100], see `beam_search`; 1 (default) is none.
        no_repeat_ngram: n, in [0, 8], see `beam_search`; 0 (default) is no rule. These last three
            are rules of beam search: greedy search and `sample` know the lengths alone.
        attention_window: n, source tokens that each step of a search may attend to, in a window
            that only moves forward, see `tfformer.inference.window`; for models whose attention is
            monotonic. `score` and `align`, which know the whole target, know no window. 0
            (default): all.
        dtype: of what is multiplied, `"float32"` or `"bfloat16"`; softmax, norms and scores are
            float32. Default None: the model's compute dtype, and float32 in what is saved.
        shortlist: a `tfformer.shortlist.Shortlist` of this tokenizer. Greedy search,
            `serving_default`, `translate_document`, `beam_search` and `beam_search_ids` then know
            the candidates of each text alone, and their log-probabilities are normalised over
            these: a little higher than what `score` says. `score`, `sample`, `complete` and
            `align` know the whole vocabulary. Default None: so do all.
        xla: whether XLA compiles `serving_default` (`tfformer.inference.xla`), for a server of
            one's own with XLA on: a stock TensorFlow Serving cannot run it. Default False.
        low_latency: whether `serving_default` of a SavedModel has a graph of its own for requests
            of one text (`tfformer.inference.low_latency`): where TensorFlow computes by oneDNN
            these take less time, and the server more memory. Not with a shortlist, `xla`, bfloat16
            or one beam. Default False.
        explain: whether there is one signature more, `explain`: attention of each layer and head,
            the steps of the search, probabilities. Default False.
        ensemble: `Translator`s of the same vocabulary, whose models are searched with this one as
            one; their own options count for nothing. Not with a shortlist, `xla`, `explain` or an
            attention window. Default: none.
        ensemble_mean: of what they say comes next, the mean of `"probabilities"` (default) or of
            `"log-probabilities"`; see `tfformer.inference.ensemble.mixed`.

    `min_target_length` is a second name of `min_length`.

    Attributes:
        models: that of the translator, and those of the ensemble.
        ensemble_mean: that of an ensemble; None of one model.
        signatures: {name: `Signature`} of all that is served.
        functions: the same by name, each a `tf.function` of tensors that gives a dict of tensors.
            Options have default values; `max_length` 0 means the limit.

    An empty or blank text gives an empty translation with score 0. A text is cut at
    `max_source_length` tokens, and before that at 16 characters for each of them.

    Raises:
        ValueError: an option breaks its rule, which it names with the value received; or the
            tokenizer or the shortlist is not that of the model.

    Example, with a model that has learned nothing (`load_translator` gives that of a run):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = TransformerConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> translator = Translator(Transformer(config), tokenizer, max_target_length=11)
        >>> translations = translator.translate(["ein Haus", ""])
        >>> len(translations), translations[1]
        (2, '')
    """

    # The class of the model, and of what its signatures share.
    KIND, GENERATION = Transformer, Generation
    ABOUT = "Text in, text out, by beam search: an encoder-decoder Transformer"
    LARGEST = "memory of the largest request, of most rows or widest beam"
    COSTS = "FLOPs of a source token; of a target token and beam"

    @takes_second_names
    def __init__(
        self,
        model,
        tokenizer,
        *,
        beam_width=4,
        length_penalty=0.6,
        length_penalty_form="gnmt",
        max_source_length=256,
        max_target_length=256,
        max_batch_size=256,
        min_length=0,
        max_length_factor=0.0,
        coverage_penalty=0.0,
        repetition_penalty=1.0,
        no_repeat_ngram=0,
        attention_window=0,
        dtype=None,
        shortlist=None,
        xla=False,
        low_latency=False,
        explain=False,
        ensemble=(),
        ensemble_mean=ENSEMBLE_MEAN.default,
    ):
        check_sides(model, tokenizer, self.KIND)
        config = model.config
        OPTIONS["length_penalty_form"].checked(length_penalty_form)
        self.dtype = checked_dtype(dtype)
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
        for name, value in (
            ("max_source_length", max_source_length),
            ("max_target_length", max_target_length),
        ):
            if not 2 <= whole(name, value, least=0) <= longest:
                raise ValueError(f"{name} must be in [2, {longest}], got {value}")
        check_forms(xla, low_latency, shortlist, attention_window, beam_width, dtype)
        if whole("max_batch_size", max_batch_size, least=0) < 1:
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
        if min_length > max_target_length:
            raise ValueError(
                f"min_length must be at most max_target_length = {max_target_length}, "
                f"got {min_length}"
            )
        self.model, self.tokenizer = model, tokenizer
        self.beam_width, self.length_penalty = beam_width, float(length_penalty)
        self.length_penalty_form = length_penalty_form
        self.max_source_length, self.max_target_length = max_source_length, max_target_length
        self.max_batch_size = max_batch_size
        self.shortlist, self.xla, self.explain = shortlist, xla, explain
        self.low_latency = low_latency
        self.make_signatures()
        self._greedy = greedy(self._generation(self.fused, self._constants))

    def translate(self, texts, batch_size=None, greedy=False):
        """Texts in any number -> their translations, in order, by beam search or greedily.

        Args:
            texts: strings.
            batch_size: how many are searched at once, at most `max_batch_size`; the result does
                not depend on it. Default: 32, if there may be so many.
            greedy: follow the most probable token alone. Default False.

        Returns:
            A list of strings.

        Raises:
            ValueError: `texts` is one string, or has what is none; or `batch_size` is not in
                [1, max_batch_size].
        """
        function = self._greedy if greedy else self.functions["serving_default"]
        return self.in_batches(texts, batch_size, lambda texts: function(texts)["translation"])

    answer = translate

    def logits(self, inputs):
        """The model, whole and without a cache: {"source_ids": int32 [N, S], "target_ids": [N, T]}
        -> logits [N, T, V]."""
        found = [model(inputs, training=False) for model in self.models]
        return mixed(found, self.ensemble_mean) if self.ensemble_mean else found[0]

    def fused_for(self, positions, dtype=None, few_rows=False):
        """The twins and the weights of all models of an ensemble; else those of the model."""
        if not self.ensemble_mean:
            return super().fused_for(positions, dtype, few_rows)
        how = positions, dtype or self.dtype, few_rows
        found = [fuse(model, *how) for model in self.models]
        return tuple(zip(*found, strict=True))

    def search_facts(self, greedy=False):
        """How `translate` searches, for a table of scores."""
        search = "greedy" if greedy else f"beam {self.beam_width}"
        if self.ensemble_mean:
            search += f", ensemble of {len(self.models)} by {self.ensemble_mean}"
        return {
            "search": search,
            "length_penalty": 0.0 if greedy else self.length_penalty,
        }

    def served(self, fused, shortlist):
        generation = self._generation(fused, shortlist)
        more = (explain,) if self.explain else ()
        made = [make(generation) for make in (*SIGNATURES, *more)]
        return {signature.name: signature for signature in made}

    def saved(self, root):
        served = super().saved(root)
        if self.low_latency:
            twin, _ = self.fused("float32", few_rows=True)
            own = with_constants(root.weights)
            root.zeros = zeros_of(own)
            single = self.served(lambda: (twin, own), root.shortlist)["serving_default"]
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

    def page(self):
        page = super().page()
        words, about = ["export.saved_model"], page.about
        if self.low_latency:
            words.append("--low-latency")
        if self.ensemble_mean:
            words.append(f"--ensemble RUN ... --ensemble-mean {self.ensemble_mean}")
            about += f"; {len(self.models)} of them, searched as one"
        return page._replace(about=about, command=" ".join([*words, "RUN"]))

    def flops(self):
        found = [model.flops() for model in self.models]
        return {name: sum(one[name] for one in found) for name in found[0]}

    def request_bytes(self, rows, width):
        size = 2 if self.dtype == "bfloat16" else 4
        # Twice: between two blocks of the search a cache and its longer copy are there together.
        positions = 2 * rows * (self.max_target_length * width + self.max_source_length)
        configs = [model.config for model in self.models]
        caches = sum(2 * one.num_decoder_layers * one.key_value_width for one in configs)
        # Of one step: logits, of each model, and what the rules of the search make of them; and an
        # attention's scores, of each beam for all that stands in all beams, biased and as weights.
        logits = (5 + len(configs)) * rows * width * configs[0].target_vocabulary_size
        heads = max(one.num_heads for one in configs)
        scores = 3 * rows * heads * width * width * self.max_target_length
        return positions * caches * size + 4 * (logits + scores)


def _check_ensemble(ensemble, tokenizer, of_one):
    """Raises a ValueError unless these `Translator`s can be searched with one of this tokenizer.

    `of_one`: {name: value} of the options that are for one model.
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
