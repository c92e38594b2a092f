"""Serves a recurrent model in Python, by the searches of a `Translator`. It is not exported."""

from typing import Any

from tfformer.inference.recurrent import RecurrentInference
from tfformer.models.recurrent import Recurrent
from tfformer.service.encoder_decoder_signatures import Generation
from tfformer.service.translator import Translator


class RecurrentGeneration(Generation):
    """A recurrent encoder-decoder with its tokenizer and its limits."""

    forward = RecurrentInference


class RecurrentTranslator(Translator):
    """A recurrent model and its tokenizer as functions of text.

    Args:
        model: a `Recurrent` model.
        tokenizer, **options: see `Translator`; without `xla`, `low_latency`, `shortlist`, `dtype`,
            `attention_window`, `ensemble`.

    Raises:
        ValueError: as `Translator`; or one of these six options is set.

    Example, with an untrained model:
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = RecurrentConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> translator = RecurrentTranslator(Recurrent(config), tokenizer, max_target_length=11)
        >>> translator.translate([""])
        ['']
    """

    ABOUT = "Text in, text out, by beam search: a recurrent encoder-decoder"
    model: Any  # a `Recurrent`
    KIND, GENERATION = Recurrent, RecurrentGeneration
    not_exported = "a recurrent model is not exported, it is here to be compared with others"

    def __init__(self, model, tokenizer, **options):
        for name in ("xla", "low_latency", "shortlist", "dtype", "attention_window", "ensemble"):
            if options.get(name):
                raise ValueError(f"{name} must be off for a recurrent model, got {options[name]!r}")
        super().__init__(model, tokenizer, **options)

    def fused_for(self, positions, dtype=None, few_rows=False):
        """The model itself; the search runs its layers directly."""
        return (self.model,)
