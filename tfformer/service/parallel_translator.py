"""Translates text by a model that predicts all tokens of a translation at once."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfformer.annotations import Fuse, Tensor
from tfformer.config import CTC, EOS, MASK_PREDICT, whole
from tfformer.config.search_options import PARALLEL
from tfformer.inference.fuse import fuse
from tfformer.inference.masks import behind_bos, padding_mask
from tfformer.inference.non_autoregressive import ParallelInference, best_of
from tfformer.inference.transformer import Inference
from tfformer.models.non_autoregressive import NonAutoregressive
from tfformer.search import length_penalty
from tfformer.search.parallel import Written
from tfformer.service.arguments import check_lengths, check_sides, check_vocabulary
from tfformer.service.document import translate_document
from tfformer.service.encoder_decoder_signatures import FromSource
from tfformer.service.limits import Limits
from tfformer.service.service import checked_dtype
from tfformer.service.signature import Signature
from tfformer.service.translation import serving_default
from tfformer.service.translator import Translating, Translator
from tfformer.text.tokenizer import Tokenizer

# In the order of the list on a model's page.
SIGNATURES = (serving_default, translate_document)


class ParallelGeneration(FromSource):
    """A non-autoregressive model with its tokenizer and its limits, for the signatures.

    Args:
        config, fused, tokenizer, options, limits: see `Limited`; with `rerank`, `fused` returns
            ((layer, its layer), (weights, its weights)), where "its" means the reranker's.
        rerank: the `Translator` that chooses among the candidates of several lengths, or None.
    """

    def __init__(self, config, fused, tokenizer, options, limits, rerank=None):
        super().__init__(config, fused, tokenizer, options, limits, penalty_form=None)
        self.rerank = rerank

    def written(self, source_ids):
        blank, (inference_layer, weights) = self.blank(source_ids), self.fused()
        if self.rerank is not None:
            (inference_layer, ranks), (weights, others) = inference_layer, weights
        inference = ParallelInference(inference_layer, weights)
        if self.config.decoding != MASK_PREDICT:
            found = inference.from_places(source_ids, self.config.decoding != CTC)
            # There are more positions than target tokens, so longer results are cut.
            found = Written(*[part[:, : self.max_target_length] for part in found])
            return found.token_ids, found.mean, blank
        passes, count = self.options["passes"], self.options["lengths"]
        # The limit counts eos, which mask-predict does not predict.
        longest = self.max_target_length - 1
        found = inference.by_mask_predict(source_ids, passes, count, longest)
        if self.rerank is None:
            found, scores = best_of(found, found.mean, count)
        else:
            ranking = Inference(ranks, others)
            found, scores = best_of(found, self._ranked(ranking, source_ids, found, count), count)
        return found.token_ids, scores, blank

    def _ranked(self, inference, source_ids, found, count):
        """The scores, float32 [B * count], that the reranker gives to the predictions."""
        ids = tf.pad(found.token_ids, [[0, 0], [0, 1]])
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        labels = tf.where(tf.range(tf.shape(ids)[1]) == lengths[:, None], EOS, ids)
        memory = inference.memory(source_ids)
        memory = tf.nest.map_structure(lambda part: tf.repeat(part, count, axis=0), memory)
        log_probs = inference.log_probs(behind_bos(labels), labels, memory)
        total = tf.reduce_sum(tf.where(padding_mask(labels), log_probs, 0.0), axis=1)
        alpha, form = self.rerank.length_penalty, self.rerank.length_penalty_form
        return total / length_penalty(tf.cast(lengths + 1, tf.float32), alpha, form)


class ParallelTranslator(Translating):
    """A non-autoregressive model and its tokenizer as functions of text.

    Args:
        model: a `NonAutoregressive`.
        tokenizer: its `Tokenizer`; the vocabulary sizes must be the model's.
        passes: for mask-predict, in [1, 64]: the first pass predicts all tokens, each later pass
            predicts the least certain ones again. Default 4.
        lengths: for mask-predict, in [1, 16]: how many of the most probable lengths to try in
            parallel. The candidate with the maximum mean log-probability wins. Default 3.
        max_source_length: maximum source tokens, with eos; a longer text is cut. Default 256.
        max_target_length: maximum target tokens, with eos. Default 256.
        max_batch_size: maximum rows of a request, at least 1. Default 256.
        dtype: see `Translator`.
        rerank: for mask-predict, a `Translator` with the same tokenizer. Its score, with its own
            length penalty, chooses among the lengths. Default None: the candidate's own score.

    Attributes:
        signatures: {name: `Signature`}, all served signatures: `serving_default` and
            `translate_document`, as in a `Translator`. A score is the mean log-probability of the
            tokens; with `rerank`, it is the reranker's score.
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.

    Raises:
        ValueError: an option breaks its rule; the message names the rule and the value. Or the
            tokenizer does not match the model or `rerank`.

    Example, with an untrained model (for the model of a run, use `load_service`):
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> config = NonAutoregressiveConfig.preset("test", tokenizer.source_vocabulary_size)
        >>> translator = ParallelTranslator(NonAutoregressive(config), tokenizer, passes=2)
        >>> translations = translator.translate(["ein Haus", ""])
        >>> len(translations), translations[1]
        (2, '')
    """

    ABOUT = "Text in, text out, all tokens at once: a non-autoregressive Transformer"
    LARGEST = "memory of the largest request"
    COSTS = "FLOPs of a source token; of a target token and pass"

    model: NonAutoregressive

    def __init__(
        self,
        model: NonAutoregressive,
        tokenizer: Tokenizer,
        *,
        passes: int = 4,
        lengths: int = 3,
        max_source_length: int = 256,
        max_target_length: int = 256,
        max_batch_size: int = 256,
        dtype: str | None = None,
        rerank: Translator | None = None,
    ) -> None:
        check_sides(model, tokenizer, NonAutoregressive)
        self.dtype = checked_dtype(dtype)
        given = {"passes": passes, "lengths": lengths}
        self.options = {name: PARALLEL[name].checked(value) for name, value in given.items()}
        longest = model.config.longest
        check_lengths(max_source_length, max_target_length, longest)
        if max_source_length * model.places > longest:
            raise ValueError(
                f"max_source_length must be at most {longest // model.places}, of which each "
                f"token has {model.places} places, got {max_source_length}"
            )
        whole("max_batch_size", max_batch_size)
        if rerank is not None:
            _check_rerank(rerank, model, tokenizer)
        self.rerank = rerank
        self.model, self.tokenizer = model, tokenizer
        self.max_source_length, self.max_target_length = max_source_length, max_target_length
        self.max_batch_size = max_batch_size
        self.make_signatures()

    def fused(self, dtype: str | None = None) -> tuple[Any, ...]:
        """The inference layers of the model, and its current weights."""
        places = max(self.max_source_length * self.model.places, self.max_target_length)
        own = self.fused_for(places, dtype)
        if self.rerank is None:
            return own
        other = fuse(self.rerank.model, places, dtype or self.dtype)
        return tuple(zip(own, other, strict=True))

    def translate(
        self, texts: Iterable[str], batch_size: int | None = None, greedy: bool = False
    ) -> list[str]:
        """Translate any number of texts, in order.

        Args:
            texts: strings.
            batch_size: the number of texts at once, at most `max_batch_size`; the result does not
                depend on it. Default: 32, or `max_batch_size` if that is less.
            greedy: has no effect, because there is no search.

        Returns:
            A list of strings.

        Raises:
            ValueError: `texts` is one string, or an item is not a string; or `batch_size` is not
                in [1, max_batch_size].
        """
        function = self.functions["serving_default"]
        return self.in_batches(texts, batch_size, lambda texts: function(texts)["translation"])

    answer = translate

    def search_facts(self, greedy: bool = False) -> dict[str, str | float]:
        """A description of the decoding, for a table of scores."""
        words = [self.model.config.decoding]
        if self.model.config.decoding == MASK_PREDICT:
            words += [f"{name} {number}" for name, number in self.options.items()]
        return {"search": ", ".join(words)}

    def served(self, fused: Fuse, shortlist: Sequence[Tensor]) -> dict[str, Signature]:
        limits = Limits(self.max_source_length, self.max_target_length, self.max_batch_size)
        known = self.model.config, fused, self.tokenizer, self.options, limits, self.rerank
        made = [make(ParallelGeneration(*known)) for make in SIGNATURES]
        return {signature.name: signature for signature in made}

    def largest_request(self) -> int:
        """The maximum memory of a request in bytes, without the weights."""
        config, size = self.model.config, 2 if self.dtype == "bfloat16" else 4
        if config.decoding == MASK_PREDICT:
            rows, places = self.max_batch_size * self.options["lengths"], self.max_target_length
        else:
            rows, places = self.max_batch_size, self.max_source_length * config.upsampling
        keys = rows * self.max_source_length * config.num_decoder_layers * config.key_value_width
        # One layer, and the output layer: its logits and what is computed from them.
        inside = 3 * config.num_heads * places * (places + self.max_source_length)
        return rows * (4 * (inside + 6 * places * config.target_vocabulary_size)) + 2 * keys * size


def _check_rerank(rerank, model, tokenizer):
    """Raises a ValueError unless this `Translator` can rerank the model's predictions."""
    if not isinstance(rerank, Translator):
        raise ValueError(f"rerank must be a Translator, got {type(rerank).__name__}")
    if model.config.decoding != MASK_PREDICT:
        raise ValueError(
            f"rerank must be None with decoding={model.config.decoding!r}, which writes one "
            "target for each source"
        )
    check_vocabulary("rerank", rerank, tokenizer)
