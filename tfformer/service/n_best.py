"""`beam_search` and `beam_search_ids`: the best hypotheses, with search options of the request."""

import tensorflow as tf

from tfformer.service.checks import require_in
from tfformer.service.encoder_decoder_signatures import finite
from tfformer.service.signature import Signature, texts

MAX_LENGTH = 24  # for the slow reference search, whose time grows with the square of the length


def asked_options(generation):
    """{name: default} of the beam options of a request; `max_length` 0 means the limit."""
    names = [option.name for option in generation.asked]
    names.insert(2, "max_length")
    return {name: {"max_length": 0, **generation.options}[name] for name in names}


def beam_search(generation):
    """`text` [B] and options -> `translations` [B, W], all outputs of `beam_search_ids`, and
    `truncated`, whether a text was cut."""

    def answer(generation, text, asked):
        source_ids, truncated = generation.source_ids(text)
        outputs = _n_best(generation, source_ids, asked)
        shape = tf.shape(outputs["token_ids"])
        flat = tf.reshape(outputs["token_ids"], [shape[0] * shape[1], shape[2]])  # [B * W, T]
        translations = generation.tokenizer.decode(flat)
        translations = tf.reshape(translations, shape[:2])  # [B, W]
        return {"translations": translations, **outputs, "truncated": truncated}

    def examples(samples):
        text, longest = {"text": samples.texts}, samples.longest
        small = {"beam_width": 2, "length_penalty": 0.0, "max_length": 7}
        rules = {"min_length": min(3, longest), "max_length_factor": 1.5, "coverage_penalty": 0.2}
        rules |= {"repetition_penalty": 1.3, "no_repeat_ngram": 2}
        rules = {name: value for name, value in rules.items() if name in options}
        return [text, {**text, **small}, {**text, **rules}]

    options = asked_options(generation)
    function = generation.graph("beam_search", texts("text"), answer, options)
    return Signature("beam_search", function, examples)


def beam_search_ids(generation):
    """`source_ids` [B, S] and options -> `token_ids`, `scores`, `lengths`, and the `kept` values of
    each token, `token_log_probs` and `alignment`, for W hypotheses."""

    def answer(generation, source_ids, asked):
        return _n_best(generation, generation.checked_ids(source_ids), asked)

    def examples(samples):
        # The slow reference search has no rules, so they are off here, also those of the export.
        short = {"max_length": min(MAX_LENGTH, samples.longest), "min_length": 0}
        short |= {"max_length_factor": 0.0, **generation.off}
        return [{"source_ids": samples.source_ids, **short}]

    source_ids = tf.TensorSpec([None, None], tf.int32, "source_ids")
    options = asked_options(generation)
    # The source ids contain their language's code.
    function = generation.graph("beam_search_ids", [source_ids], answer, options, ("target",))
    return Signature("beam_search_ids", function, examples)


def checked_options(generation, asked):
    """The beam options of a request, {name: number}; INVALID_ARGUMENT outside their bounds."""
    bounds = {option.name: (option.minimum, option.maximum) for option in generation.asked}
    bounds["min_length"] = 0, generation.max_target_length
    return {name: require_in(name, asked[name], *bounds[name]) for name in bounds}


def _n_best(generation, source_ids, asked):
    """Compute the outputs that `beam_search` and `beam_search_ids` share.

    The graph has two loops, with and without the rules that cost time at each step. If a request
    uses none of these rules, the second loop runs.
    """
    options = checked_options(generation, asked)
    source_ids = generation.checked_rows("rows", source_ids, options["beam_width"])
    inference = generation.searched(source_ids)
    state = inference, inference.start(source_ids, options["beam_width"])

    def found_with(**changes):
        found, _ = generation.beam_search(
            source_ids,
            {**options, **changes},
            state,
            asked["max_length"],
            keep=generation.kept,
        )
        return found

    on = [tf.not_equal(options[name], off) for name, off in generation.off.items()]
    found = tf.cond(tf.reduce_any(on), found_with, lambda: found_with(**generation.off))
    blank = generation.blank(source_ids)
    return {
        "token_ids": found.token_ids,
        "scores": finite(found.scores, blank[:, None]),
        "lengths": found.lengths,
        **{name: getattr(found, name) for name in generation.kept},
    }
