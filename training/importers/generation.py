"""Converts the generation options of a Hugging Face model to search options of a run."""

from pathlib import Path
from typing import NamedTuple

from tfformer.config.search_options import OPTIONS

from .options import read_json_object

# Options that change a search and have no counterpart here, by the value that changes nothing. None
# always changes nothing. (Hugging Face applies the repetition penalty to log-probabilities, not to
# logits as tfformer does.)
WITHOUT_COUNTERPART = (
    ([], "begin_suppress_tokens constraints force_words_ids stop_strings suppress_tokens"),
    ({}, "sequence_bias"),
    (False, "do_sample remove_invalid_values"),
    (0, "diversity_penalty encoder_no_repeat_ngram_size min_new_tokens penalty_alpha"),
    (1, "encoder_repetition_penalty guidance_scale num_beam_groups repetition_penalty"),
    (None, "exponential_decay_length_penalty forced_bos_token_id"),
)
# Options with a counterpart: {option: ours}.
SAME = {
    "num_beams": "beam_width",
    "length_penalty": "length_penalty",
    "min_length": "min_length",
    "no_repeat_ngram_size": "no_repeat_ngram",
}
FIRST = "forced_bos_token_id"
# The defaults of Hugging Face.
DEFAULTS = {"num_beams": 1, "length_penalty": 1.0}


class Generation(NamedTuple):
    """How a model writes.

    search: the keyword arguments for a `Translator` that searches in this way.
    impossible: the original's ids with probability 0.
    first: the original's id that begins each target, or None.
    """

    search: dict
    impossible: list
    first: int | None


def read_generation(folder, options, longest, has_first=False):
    """Reads the generation options of a folder. Older folders have them in `config.json`.

    Args:
        folder: its path.
        options: those of `config.json` by name.
        longest: the maximum length of source and target.
        has_first: whether a target may begin with a given token. Default False.

    Raises:
        ValueError: an option has no counterpart, breaks its rule, or contradicts `options`.
    """
    path = Path(folder, "generation_config.json")
    found = read_json_object(path) if path.exists() else options
    _require_same_ids(found, options)
    first = found.get(FIRST) if has_first else None
    if has_first:
        found = {**found, FIRST: None}
    pad, eos = options["pad_token_id"], options["eos_token_id"]
    impossible = impossible_ids(found, pad, eos, options["vocab_size"])
    return Generation(_search_options(found, eos, longest), impossible, first)


def _require_same_ids(generation, config):
    """Raises a ValueError if the special ids of the two files differ."""
    for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
        value = generation.get(name)
        if value not in (None, config[name], [config[name]]):
            raise ValueError(f"{name} must be {config[name]}, as in config.json, got {value!r}")


def _search_options(generation, eos, max_positions):
    """The keyword arguments for a `Translator` that searches with these options.

    In Hugging Face a length includes the start token; here it does not. `eos` is its id there.

    Raises:
        ValueError: an option has no counterpart, or breaks its rule. The message names it.
    """
    for harmless, names in WITHOUT_COUNTERPART:
        for name in names.split():
            if (value := generation.get(name)) not in (None, harmless):
                raise ValueError(f"{name} has no counterpart here, got {value!r}")
    forced = generation.get("forced_eos_token_id")
    if forced not in (None, eos, [eos]):
        raise ValueError(f"forced_eos_token_id must be eos_token_id = {eos}, got {forced!r}")
    if generation.get("renormalize_logits"):  # the last step, after the rules of these options
        for name in ("min_length", "no_repeat_ngram_size"):
            if generation.get(name):
                raise ValueError(
                    f"{name} must be 0 with renormalize_logits, got {generation[name]!r}"
                )
    found = {"length_penalty_form": "power"}
    for name, ours in SAME.items():
        value = generation.get(name)
        value = DEFAULTS.get(name) if value is None else value
        if value is not None:
            try:
                found[ours] = OPTIONS[ours].checked(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    longest = _length(generation, "max_new_tokens")
    if longest is None:
        longest = (_length(generation, "max_length") or max_positions) - 1
    longest = max(2, min(longest, max_positions))
    return {**found, "max_source_length": max_positions, "max_target_length": longest}


def _length(generation, name):
    """The value of an option that is a length, or None."""
    value = generation.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    return value


def impossible_ids(generation, pad, eos, size):
    """The ids that get probability 0, from `bad_words_ids`.

    The pad is one of them only with `renormalize_logits`, where the original normalises again
    without it. Otherwise the pad counts in the softmax, but no search here returns it.
    """
    banned, given = set(), generation.get("bad_words_ids") or []
    if not isinstance(given, list):
        raise ValueError(f"bad_words_ids must be lists of one id each, got {given!r}")
    for words in given:
        if not isinstance(words, list) or len(words) != 1:
            raise ValueError(f"bad_words_ids must be lists of one id each, got {words!r}")
        [word] = words
        if type(word) is not int or not 0 <= word < size:
            raise ValueError(f"bad_words_ids must be ids below {size:,}, got {word!r}")
        banned.add(word)
    if not generation.get("renormalize_logits"):
        banned.discard(pad)
    return sorted(banned - {eos})  # the original allows eos too
