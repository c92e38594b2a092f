"""Generates ids with any model, by any search."""

import math
from collections.abc import Callable, Sized
from typing import Any

import tensorflow as tf

from tfformer import search as searches
from tfformer.annotations import Tensor
from tfformer.config import PAD
from tfformer.config.search_options import OPTIONS, first_names
from tfformer.inference.fuse import MODELS, fuse
from tfformer.inference.language_model import LanguageModelInference
from tfformer.inference.masks import padding_mask
from tfformer.inference.transformer import Inference
from tfformer.models.language_model import LanguageModel
from tfformer.search.hypotheses import SearchResult, check
from tfformer.search.uncached import SpecialIds, Uncached

SEARCHES: dict[str, Callable[..., SearchResult]] = {
    "beam": searches.beam_search,
    "greedy": searches.greedy_search,
    "sample": searches.sample_search,
    "exhaustive": searches.exhaustive_search,
}


def generate(
    model: Callable[..., Tensor],
    source_ids: Tensor | None = None,
    prompt: Tensor | None = None,
    max_length: int | Tensor = 64,
    search: str = "beam",
    special_ids: SpecialIds | None = None,
    **options: Any,
) -> SearchResult:
    """Continue a prompt, or convert a source into a target.

    A `Transformer` or a `LanguageModel` caches keys and values, and reads a prompt in one pass. Any
    other model is a function from ids to logits, which computes each prefix again; for the cost see
    `tfformer.search.Uncached`. For texts instead of ids use a `Translator`.

    Runs eagerly, or in a `tf.function`, which is faster from the second call on.

    Args:
        model: a `Transformer` or a `LanguageModel`; or a causal Keras model or function of int32
            [N, T] that returns logits [N, T, V]; with `source_ids`, of {"source_ids": [N, S],
            "target_ids": [N, T]}.
        source_ids: integers [B, S], padded on the right, or ragged. Default: none, for a model
            without a source.
        prompt: the text that each result continues, instead of bos: integers [B, P], padded on
            either side, or a ragged tensor, or lists of unequal lengths. Default: bos.
        max_length: the maximum length of a result, with eos but without the prompt. Default 64.
        search: `"beam"` (default), `"greedy"`, `"sample"`, which needs `seed`, or `"exhaustive"`.
        special_ids: a model's own `SpecialIds`, if they are not 0, 1, 2, 3 for pad, unk, bos and
            eos. Default: those.
        options: options of `beam_search`, `sample_search` and so on, such as `beam_width`,
            `num_results`, `top_p`. A `prefix` and `ends` are given in the model's ids.

    Returns:
        A `SearchResult`: token_ids int32 [B, W, T] in the model's ids, without the prompt, each
        ending with eos, then padding (or eos, if the model has no pad); with their scores,
        log-probabilities and lengths.

    Raises:
        ValueError: neither source nor prompt is given, or they are not rows of ids, or their
            numbers of rows differ; a row of the prompt has no token; there are too few learned
            positions; `model` is not a function; `special_ids` are not ids; or an option breaks
            its rule.
        TypeError: the search does not have such an option.

    Example, with a model that follows each id by the next one, up to eos (10):
        >>> special_ids = SpecialIds(pad=None, unk=None, bos=None, eos=10)
        >>> found = generate(
        ...     model=lambda ids: 9.0 * tf.one_hot(ids + 1, 11),
        ...     prompt=[[3, 4, 5], [7]], search="greedy", special_ids=special_ids)
        >>> found.token_ids.numpy().tolist()
        [[[6, 7, 8, 9, 10]], [[8, 9, 10, 10, 10]]]
    """
    if search not in tuple(SEARCHES):
        raise ValueError(f"search must be one of {tuple(SEARCHES)}, got {search!r}")
    if not callable(model):
        raise ValueError(
            f"model must be a Transformer, a LanguageModel or a function of ids, got {model!r}"
        )
    special = SpecialIds() if special_ids is None else SpecialIds(*special_ids)
    special.check()
    if prompt is not None:
        prompt, there = _left_padded(prompt, special.padding)
        prompt = tf.where(there, special.to_search(prompt), PAD)
    elif source_ids is None:
        raise ValueError("source_ids or prompt must be given, got None for both")
    elif special.bos is None:
        raise ValueError("prompt must be given where special_ids has no bos, got None")
    options, width = first_names(options), 1
    if options.pop("xla", False):
        raise ValueError("xla must be False: the steps of generate are not for XLA, got True")
    if search == "beam":
        width = options.setdefault("beam_width", OPTIONS["beam_width"].default)
        check(max_length, beam_width=(width, 1))
    if options.get("prefix") is not None:
        options["prefix"] = _prefix(options["prefix"], special)
    if options.get("ends"):
        options["ends"] = tf.unstack(special.to_search(tf.constant([*options["ends"]], tf.int32)))
    if source_ids is not None:
        source_ids = _source(source_ids, prompt, special)
        if options.get("coverage_penalty") is not None:
            seen = getattr(model, "seen", lambda ids: ids)(source_ids)
            options.setdefault("source_mask", padding_mask(seen))
    if isinstance(model, tuple(MODELS)):
        searchable = _cached(model, source_ids, prompt, special, max_length)
    else:
        searchable = Uncached(model, special)
    state = None if source_ids is None else searchable.start(source_ids, width)
    if prompt is not None:
        state, options["prompt"] = searchable.prefill(prompt, width, state), prompt
    rows: Tensor = source_ids if prompt is None else prompt
    batch_size = rows.shape[0] or tf.shape(rows)[0]
    found = SEARCHES[search](searchable.step, state, batch_size, max_length, **options)
    return found._replace(token_ids=searchable.vocabulary_ids(found.token_ids))


def _cached(model, source_ids, prompt, special, max_length):
    """The forward pass of one of our models, with enough positions."""
    name = type(model).__name__
    if special != SpecialIds():
        raise ValueError(f"special_ids of a {name} must be {SpecialIds()}, got {special}")
    has_source = not isinstance(model, LanguageModel)
    if has_source != (source_ids is not None):
        needs = "needs source_ids" if has_source else "has no source: source_ids must be None"
        raise ValueError(f"a {name} {needs}, got source_ids={source_ids}")
    longest = tf.reduce_max(max_length) + (0 if prompt is None else tf.shape(prompt)[1] - 1)
    maximum = model.config.longest
    if math.isfinite(maximum):
        rule = (
            "max_length and the prompt but for its last token must be at most max_positions = "
            f"{maximum} tokens"
        )
        _require(longest <= maximum, rule, longest)
    if not has_source:
        return LanguageModelInference(*fuse(model, longest + 1))
    return Inference(*fuse(model, tf.maximum(longest + 1, tf.shape(source_ids)[1])))


def _require(truth, rule, value):
    """Raises a ValueError with the value if the rule is broken; in a graph, an assertion."""
    known = tf.get_static_value(truth)
    if known is None:
        tf.debugging.Assert(truth, [rule, value])
    elif not known:
        raise ValueError(f"{rule}, got {tf.get_static_value(value).tolist()}")


def _rows(name, ids):
    """Convert any rows of ids to int32 [B, N], dense or ragged."""
    try:
        if isinstance(ids, list | tuple) and all(isinstance(row, Sized) for row in ids):
            ids = tf.ragged.constant([list(row) for row in ids], tf.int32, ragged_rank=1)
        ids = tf.cast(ids, tf.int32)
    except (TypeError, ValueError, tf.errors.UnimplementedError) as error:
        raise ValueError(f"{name} must be rows of ids, got {ids!r}") from error
    if ids.shape.rank != 2:
        raise ValueError(f"{name} must be rows of ids, got shape {ids.shape}")
    return ids


def _source(source_ids, prompt, special):
    """The source ids as int32 [B, S]; a prompt must have the same number of rows."""
    source_ids = _rows("source_ids", source_ids)
    if isinstance(source_ids, tf.RaggedTensor):  # as from a tokenizer
        source_ids = source_ids.to_tensor(special.pad or PAD)
    if prompt is not None:
        rows = tf.shape(prompt)[0]
        same = rows == tf.shape(source_ids)[0]
        _require(same, "prompt must have a row for each of source_ids", rows)
    return source_ids


def _prefix(prefix, special):
    """The `prefix` of all results, in ids of a search, padded with 0."""
    prefix, padding = _rows("prefix", prefix), -1 if special.pad is None else special.pad
    if isinstance(prefix, tf.RaggedTensor):
        prefix = prefix.to_tensor(padding)
    return tf.where(prefix == padding, PAD, special.to_search(prefix))


def _left_padded(prompt, padding):
    """Any prompt as int32 [B, P], tokens on the right, and the mask of tokens, boolean [B, P]."""
    prompt, there = _rows("prompt", prompt), True
    if isinstance(prompt, tf.RaggedTensor):
        there = tf.sequence_mask(prompt.row_lengths())
        prompt = prompt.to_tensor()
    there = tf.broadcast_to(there, tf.shape(prompt))
    if padding is not None:
        there &= prompt != padding
    full = tf.reduce_all(tf.reduce_any(there, axis=1)) & (tf.shape(prompt)[1] > 0)
    _require(full, "prompt must have a token in each row", prompt)
    order = tf.argsort(tf.cast(there, tf.int32), axis=1, stable=True)  # [B, P]
    return tf.gather(prompt, order, batch_dims=1), tf.gather(there, order, batch_dims=1)
