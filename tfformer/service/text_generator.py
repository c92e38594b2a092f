"""Serves a language model: continues a text, and computes the probability of a text."""

from typing import Any

from tfformer.annotations import Tensor
from tfformer.config.search_options import takes_second_names
from tfformer.models.language_model import LanguageModel
from tfformer.service.generator_service import Generating
from tfformer.service.language_model_signatures import Writing
from tfformer.service.limits import Limits
from tfformer.service.service import checked_dtype
from tfformer.text.tokenizer import Tokenizer


class TextGenerator(Generating):
    """A language model and its tokenizer as functions of text.

    Args:
        model: a `LanguageModel`.
        tokenizer: its `Tokenizer`, with one side for source and target.
        temperature, top_k, top_p: the sampling options of `serving_default`, see `sample_search`.
            Default 1, 0 and 1: the unchanged model; `top_k=1` is greedy.
        beam_width, length_penalty, length_penalty_form: for `beam_search`. Default 4, 0.6, "gnmt".
        max_source_length: maximum tokens of a prompt, with bos; of a longer prompt the last tokens
            are used. Default 256.
        max_target_length: maximum generated tokens, with eos. Default 256.
        max_batch_size: maximum rows of a request. Default 256.
        min_length: minimum generated tokens. Default 0.
        repetition_penalty, no_repeat_ngram: rules of all searches, see `beam_search`. Default 1
            and 0: none. They also count the tokens of the prompt.
        dtype: see `Translator`.

    Attributes:
        signatures: {name: `Signature`}, all served signatures.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.
        writing: see `Generating`.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = LanguageModelConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> generator = TextGenerator(LanguageModel(config), tokenizer, max_target_length=11)
        >>> first, again = (generator.generate(["ein"], seed=5) for _ in range(2))
        >>> len(first), first == again
        (1, True)
    """

    model: LanguageModel
    ABOUT = "Text in, how it goes on out: a language model, the decoder of a Transformer"

    @takes_second_names
    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        beam_width: int = 4,
        length_penalty: float = 0.6,
        length_penalty_form: str = "gnmt",
        max_source_length: int = 256,
        max_target_length: int = 256,
        max_batch_size: int = 256,
        min_length: int = 0,
        repetition_penalty: float = 1.0,
        no_repeat_ngram: int = 0,
        dtype: str | None = None,
    ) -> None:
        _check_tokenizer(model, tokenizer)
        self.dtype = checked_dtype(dtype)
        self.model, self.tokenizer = model, tokenizer
        self._set_up(
            model.config.longest,
            {
                "max_source_length": max_source_length,
                "max_target_length": max_target_length,
                "max_batch_size": max_batch_size,
            },
            length_penalty_form,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            beam_width=beam_width,
            length_penalty=length_penalty,
            min_length=min_length,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram=no_repeat_ngram,
        )

    def fused(self, dtype: str | None = None) -> tuple[Any, ...]:
        """The inference layers of the model, and its current weights."""
        return self.fused_for(self.max_source_length + self.max_target_length, dtype)

    def logits(self, ids: Tensor) -> Tensor:
        return self.model(ids, training=False)

    def _writing(self, fused):
        limits = Limits(self.max_source_length, self.max_target_length, self.max_batch_size)
        known = self.model.config, fused, self.tokenizer, self.options
        return Writing(*known, limits, self.length_penalty_form)

    def request_bytes(self, rows: int, width: int) -> int:
        config, size = self.model.config, 2 if self.dtype == "bfloat16" else 4
        positions = (self.max_source_length + self.max_target_length) * width
        caches = 2 * rows * positions * 2 * config.num_layers * config.key_value_width * size
        logits = 6 * rows * width * config.vocabulary_size * 4
        scores = 3 * rows * config.num_heads * width * positions * 4
        return caches + logits + scores


def _check_tokenizer(model, tokenizer):
    """Raises a ValueError unless the `Tokenizer` fits this `LanguageModel`."""
    if not isinstance(model, LanguageModel) or not isinstance(tokenizer, Tokenizer):
        kinds = f"{type(model).__name__} and {type(tokenizer).__name__}"
        raise ValueError(f"model must be a LanguageModel, tokenizer a Tokenizer, got {kinds}")
    size = model.config.vocabulary_size
    if not tokenizer.is_shared or tokenizer.source_vocabulary_size != size:
        raise ValueError(
            f"tokenizer must be one for both sides, of {size} ids as the model, got "
            f"{tokenizer.source_vocabulary_size}"
        )
