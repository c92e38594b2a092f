"""The base class of services that continue a text: limits, page, and calls from Python."""

import abc
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfformer.annotations import Fuse, Tensor
from tfformer.config import whole
from tfformer.config.search_options import OPTIONS, SAMPLING
from tfformer.service.arguments import check_min_length
from tfformer.service.language_model_signatures import beam_search, generate, score, serving_default
from tfformer.service.limits import CHARACTERS_PER_TOKEN
from tfformer.service.service import Page, Searching
from tfformer.service.signature import Signature

BATCH_SEED = 1_000_003  # between the seeds of two batches
# In the order of the list on a model's page.
SIGNATURES = (serving_default, generate, beam_search, score)


class Generating(Searching):
    """A service that continues texts, with any model. A subclass sets `ABOUT`, the beginning of a
    sentence.

    Attributes:
        writing: the shared code of its signatures, a `Writing`.
    """

    ABOUT = ""
    output = "continuation"

    def _set_up(self, longest, lengths, length_penalty_form, **options):
        """Check the arguments of the service, and set its attributes and signatures.

        Args:
            longest: the maximum number of tokens that the model reads at once.
            lengths: {name: number} of `max_source_length`, `max_target_length`, `max_batch_size`.
            length_penalty_form: for `beam_search`.
            options: the other options by name.
        """
        self.length_penalty_form = OPTIONS["length_penalty_form"].checked(length_penalty_form)
        for name, value in lengths.items():
            if whole(name, value) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
            setattr(self, name, value)
        if self.max_source_length + self.max_target_length - 1 > longest:
            raise ValueError(
                "max_source_length and max_target_length must together be at most "
                f"max_positions + 1 = {longest + 1}, got {self.max_source_length} and "
                f"{self.max_target_length}"
            )
        known = {**OPTIONS, **SAMPLING}
        self.options = {name: known[name].checked(value) for name, value in options.items()}
        check_min_length(options["min_length"], self.max_target_length)
        self.make_signatures()
        self.writing = self._writing(self.fused)

    @abc.abstractmethod
    def _writing(self, fused):
        """Make the `Writing` with the inference layers and weights of `fused()`."""

    @abc.abstractmethod
    def logits(self, ids: Tensor) -> Tensor:
        """Run the whole model without a cache: ids [N, T], bos first -> logits [N, T, V]."""

    def generate(
        self, prompts: Iterable[str], batch_size: int | None = None, **options: Any
    ) -> list[str]:
        """Continue texts, in order.

        Args:
            prompts: strings; an empty one begins a new text.
            batch_size: the number of texts at once, at most `max_batch_size`. Default: 32.
            options: those of the signature `generate`, such as `temperature`, `top_k`, `seed`,
                `max_length` and `stop`. Default: the options of the service.

        Returns:
            A list of strings. A draw depends on the seed, the batch and the row in the batch.

        Raises:
            ValueError: `prompts` is one string, or an item is not a string; an option is unknown
                or breaks its rule; or `batch_size` is not in [1, max_batch_size].
        """
        function, drawn = self.functions["generate"], itertools.count()
        specs = {spec.name: spec.dtype for spec in function.input_signature if spec.name != "text"}
        if unknown := sorted(set(options) - set(specs)):
            raise ValueError(f"options must be of {sorted(specs)}, got {unknown[0]!r}")
        for name, option in {**OPTIONS, **SAMPLING}.items():
            if name in options:
                option.checked(options[name])
        if options.get("max_length", 0) > self.max_target_length:
            raise ValueError(
                f"max_length must be at most max_target_length = {self.max_target_length}, got "
                f"{options['max_length']}"
            )
        first = options.pop("seed", 0)
        options = {name: tf.constant(value, specs[name]) for name, value in options.items()}

        def write(texts):
            # Two batches need different seeds, or their rows would use the same random numbers.
            seed = tf.constant((first + BATCH_SEED * next(drawn)) % 2**31, tf.int32)
            return function(texts, seed=seed, **options)[self.output]

        return self.in_batches(prompts, batch_size, write)

    def answer(
        self, texts: Iterable[str], batch_size: int | None = None, greedy: bool = False
    ) -> list[str]:
        """The output of `serving_default` for any number of texts; with `greedy`, greedy search."""
        return self.generate(texts, batch_size, **({"top_k": 1} if greedy else {}))

    def served(self, fused: Fuse, shortlist: Sequence[Tensor]) -> dict[str, Signature]:
        made = [make(self._writing(fused)) for make in SIGNATURES]
        return {signature.name: signature for signature in made}

    def limits(self) -> dict[str, int]:
        return {
            "max_batch_size": self.max_batch_size,
            "max_source_length": self.max_source_length,
            "max_target_length": self.max_target_length,
            "max_characters": self.max_source_length * CHARACTERS_PER_TOKEN,
            "largest_request_bytes": self.largest_request(),
        }

    def page(self) -> Page:
        limits = self.limits()
        largest = limits["largest_request_bytes"] / 2**20
        return Page(
            about=self.ABOUT,
            asked=["echo @text@ | tfformer client --model @name@"],
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
            costs=self.costs(),
        )

    def costs(self) -> dict[str, str]:
        """The cost of a token, for `Page`."""
        return {"FLOPs of a token and beam": f"{self.flops()['token'] / 1e6:.1f} M"}
