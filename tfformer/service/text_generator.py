"""What a language model is asked: how a text goes on, and how likely a text is."""

import itertools

import tensorflow as tf

from tfformer.config import whole
from tfformer.models.language_model import LanguageModel
from tfformer.search.options import OPTIONS, SAMPLING, takes_second_names
from tfformer.service.limits import CHARACTERS_PER_TOKEN, Limits
from tfformer.service.service import Page, Searching, checked_dtype
from tfformer.service.writing import Writing, beam_search, generate, score, serving_default
from tfformer.text.tokenizer import Tokenizer

BATCH_SEED = 1_000_003  # between the seeds of two batches
# In the order in which a page of a model lists them.
SIGNATURES = (serving_default, generate, beam_search, score)


class TextGenerator(Searching):
    """A language model and its tokenizer as functions of text.

    Args:
        model: a `LanguageModel`.
        tokenizer: its `Tokenizer`, one for both sides.
        temperature, top_k, top_p: of the draw by which `serving_default` goes on, see
            `sample_search`. Default 1, 0 and 1: from the model as it is; `top_k=1` is greedy.
        beam_width, length_penalty, length_penalty_form: of `beam_search`. Default 4, 0.6, "gnmt".
        max_source_length: tokens of a prompt, bos counted; of a longer one the last are read.
            Default 256.
        max_target_length: tokens that are written, eos counted. Default 256.
        max_batch_size: rows of a request. Default 256.
        min_length: tokens that are written at least. Default 0.
        repetition_penalty, no_repeat_ngram: rules of all searches, see `beam_search`. Default 1
            and 0: none. A prompt's tokens count.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`} of all that is served.
        functions: the same by name, each a `tf.function` of tensors that gives a dict of tensors.
        writing: what they share, a `Writing`.

    Raises:
        ValueError: an option breaks its rule, which it names with the value received; or the
            tokenizer is not that of the model.

    Example, with a model that has learned nothing (`load_service` gives that of a run):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = LanguageModelConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> generator = TextGenerator(LanguageModel(config), tokenizer, max_target_length=11)
        >>> first, again = (generator.generate(["ein"], seed=5) for _ in range(2))
        >>> len(first), first == again
        (1, True)
    """

    output = "continuation"

    @takes_second_names
    def __init__(
        self,
        model,
        tokenizer,
        *,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beam_width=4,
        length_penalty=0.6,
        length_penalty_form="gnmt",
        max_source_length=256,
        max_target_length=256,
        max_batch_size=256,
        min_length=0,
        repetition_penalty=1.0,
        no_repeat_ngram=0,
        dtype=None,
    ):
        _check_tokenizer(model, tokenizer)
        self.dtype = checked_dtype(dtype)
        self.length_penalty_form = OPTIONS["length_penalty_form"].checked(length_penalty_form)
        longest = model.config.longest
        for name, value in (
            ("max_source_length", max_source_length),
            ("max_target_length", max_target_length),
            ("max_batch_size", max_batch_size),
        ):
            if whole(name, value) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if max_source_length + max_target_length - 1 > longest:
            raise ValueError(
                "max_source_length and max_target_length must together be at most "
                f"max_positions + 1 = {longest + 1}, got {max_source_length} and "
                f"{max_target_length}"
            )
        if min_length > max_target_length:
            raise ValueError(
                f"min_length must be at most max_target_length = {max_target_length}, "
                f"got {min_length}"
            )
        given = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "beam_width": beam_width,
            "length_penalty": length_penalty,
            "min_length": min_length,
            "repetition_penalty": repetition_penalty,
            "no_repeat_ngram": no_repeat_ngram,
        }
        known = {**OPTIONS, **SAMPLING}
        self.options = {name: known[name].checked(value) for name, value in given.items()}
        self.model, self.tokenizer = model, tokenizer
        self.max_source_length, self.max_target_length = max_source_length, max_target_length
        self.max_batch_size = max_batch_size
        self.make_signatures()
        self.writing = self._writing(self.fused)

    def fused(self, dtype=None):
        """The twin of the model and its weights as they are now."""
        return self.fused_for(self.max_source_length + self.max_target_length, dtype)

    def generate(self, prompts, batch_size=None, **options):
        """Texts -> how each goes on, in order.

        Args:
            prompts: strings; an empty one is how a text begins.
            batch_size: how many are written at once, at most `max_batch_size`. Default: 32.
            options: those of the signature `generate`, such as `temperature`, `top_k`, `seed`,
                `max_length` and `stop`. Default: the service's own.

        Returns:
            A list of strings. A draw depends on the seed, on the batch and on the row in it.

        Raises:
            ValueError: `prompts` is one string, or has what is none; there is no such option; or
                `batch_size` is not in [1, max_batch_size].
        """
        function, drawn = self.functions["generate"], itertools.count()
        specs = {spec.name: spec.dtype for spec in function.input_signature if spec.name != "text"}
        if unknown := sorted(set(options) - set(specs)):
            raise ValueError(f"options must be of {sorted(specs)}, got {unknown[0]!r}")
        first = options.pop("seed", 0)
        options = {name: tf.constant(value, specs[name]) for name, value in options.items()}

        def write(texts):
            # Two batches with one seed would be drawn alike, row by row.
            seed = tf.constant((first + BATCH_SEED * next(drawn)) % 2**31, tf.int32)
            return function(texts, seed=seed, **options)[self.output]

        return self.in_batches(prompts, batch_size, write)

    def answer(self, texts, batch_size=None, greedy=False):
        """What `serving_default` answers, of texts in any number; greedily if it is asked for."""
        return self.generate(texts, batch_size, **({"top_k": 1} if greedy else {}))

    def served(self, fused, shortlist):
        made = [make(self._writing(fused)) for make in SIGNATURES]
        return {signature.name: signature for signature in made}

    def _writing(self, fused):
        limits = Limits(self.max_source_length, self.max_target_length, self.max_batch_size)
        known = self.model.config, fused, self.tokenizer, self.options
        return Writing(*known, limits, self.length_penalty_form)

    def limits(self):
        return {
            "max_batch_size": self.max_batch_size,
            "max_source_length": self.max_source_length,
            "max_target_length": self.max_target_length,
            "max_characters": self.max_source_length * CHARACTERS_PER_TOKEN,
            "largest_request_bytes": self.largest_request(),
        }

    def request_bytes(self, rows, width):
        config, size = self.model.config, 2 if self.dtype == "bfloat16" else 4
        positions = (self.max_source_length + self.max_target_length) * width
        caches = 2 * rows * positions * 2 * config.num_layers * config.d_model * size
        logits = 6 * rows * width * config.vocabulary_size * 4
        scores = 3 * rows * config.num_heads * width * positions * 4
        return caches + logits + scores

    def page(self):
        limits, flops = self.limits(), self.model.flops()
        largest = limits["largest_request_bytes"] / 2**20
        return Page(
            about="Text in, how it goes on out: a language model, the decoder of a Transformer",
            asked=["echo @text@ | python -m export.client --model @name@"],
            inputs="Of nothing, a text is begun. Bytes that are not UTF-8 are replaced. Of a text "
            "over the limit\nthe end is read, and it is flagged in `truncated`.",
            limits={
                "tokens of a prompt; of what is written": f"{limits['max_source_length']:,}; "
                f"{limits['max_target_length']:,}",
                "characters of a prompt": f"{limits['max_characters']:,}; of what is longer the "
                "end is read",
                "memory of the largest request, of most rows or widest beam": f"at most "
                f"{largest:,.0f} MiB, besides the weights",
            },
            costs={"FLOPs of a token and beam": f"{flops['token'] / 1e6:.1f} M"},
        )


def _check_tokenizer(model, tokenizer):
    """Raises a ValueError unless it can be the `Tokenizer` of this `LanguageModel`."""
    if not isinstance(model, LanguageModel) or not isinstance(tokenizer, Tokenizer):
        kinds = f"{type(model).__name__} and {type(tokenizer).__name__}"
        raise ValueError(f"model must be a LanguageModel, tokenizer a Tokenizer, got {kinds}")
    size = model.config.vocabulary_size
    if not tokenizer.is_shared or tokenizer.source_vocabulary_size != size:
        raise ValueError(
            f"tokenizer must be one for both sides, of {size} ids as the model, got "
            f"{tokenizer.source_vocabulary_size}"
        )
