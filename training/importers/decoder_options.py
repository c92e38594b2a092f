"""Reads the options that all decoder-only models of Hugging Face have."""

from pathlib import Path
from typing import NamedTuple

from tfformer.config.search_options import OPTIONS, SAMPLING

from .decoder_files import SpecialTokens
from .generation import WITHOUT_COUNTERPART, impossible_ids
from .options import read_json_object

# The maximum number of tokens of a prompt and its continuation together, and of a continuation. A
# longer limit costs memory and time for each request; a service or an export can set it.
LONGEST, LONGEST_ANSWER = 2048, 256
# Options of generation with a counterpart, which greedy search and sampling use alike.
RULES = {"repetition_penalty": "repetition_penalty", "no_repeat_ngram_size": "no_repeat_ngram"}
# More options without a counterpart, by the value that changes nothing.
OTHERS = (
    (0, "epsilon_cutoff eta_cutoff min_length min_p"),
    (1, "typical_p"),
    (None, "forced_eos_token_id watermarking_config"),
)
HERE = ("do_sample", "repetition_penalty")  # unlike for a translator
TOP_K = 50  # the default of Hugging Face


class Generation(NamedTuple):
    """How a model continues a text.

    search: the keyword arguments for a `TextGenerator` that generates in this way.
    special: the original's `SpecialTokens`.
    impossible: the original's ids with probability 0.
    """

    search: dict
    special: SpecialTokens
    impossible: list


def read_generation(folder, options, positions):
    """Reads the generation options of a folder. Older folders have them in `config.json`.

    Args:
        folder: its path.
        options: those of `config.json` by name.
        positions: the maximum number of tokens that the model reads.

    Raises:
        ValueError: an option has no counterpart, or breaks its rule.
    """
    path = Path(folder, "generation_config.json")
    found = read_json_object(path) if path.exists() else options
    special = _special(found, options)
    for harmless, names in (*WITHOUT_COUNTERPART, *OTHERS):
        for name in names.split():
            if name not in HERE and (value := found.get(name)) not in (None, harmless):
                raise ValueError(f"{name} has no counterpart here, got {value!r:.99}")
    impossible = impossible_ids(found, None, special.eos, options["vocab_size"])
    return Generation(_search(found, positions), special, impossible)


def _special(generation, config):
    """The `SpecialTokens`. The eos of `config.json` is ours; the others end a text too."""
    size, first = config["vocab_size"], _ids("eos_token_id", config)
    ends = _ids("eos_token_id", generation) or first
    bos = _ids("bos_token_id", config) or _ids("bos_token_id", generation)
    if not ends or max(*ends, *bos, 0) >= size or len(bos) > 1:
        raise ValueError(
            f"eos_token_id and bos_token_id must be ids below vocab_size = {size:,}, got {ends} "
            f"and {bos}"
        )
    eos = next((n for n in first if n in ends), ends[0])
    return SpecialTokens(bos[0] if bos else eos, eos, tuple(n for n in ends if n != eos))


def _ids(name, options):
    """The ids of an option that may be one id, a list or None."""
    value = options.get(name)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if wrong := [one for one in found if type(one) is not int or one < 0]:
        raise ValueError(f"{name} must be an id or a list of ids, got {wrong[0]!r:.99}")
    return list(dict.fromkeys(found))


def _search(generation, positions):
    """The keyword arguments for a `TextGenerator`. Without `do_sample` the search is greedy."""
    sampled = generation.get("do_sample") or False
    if type(sampled) is not bool:
        raise ValueError(f"do_sample must be true or false, got {sampled!r:.99}")
    asked = {"num_beams": "beam_width", "length_penalty": "length_penalty", **RULES}
    asked |= {name: name for name in SAMPLING} if sampled else {}
    defaults = {"num_beams": 1, "length_penalty": 1.0, "top_k": TOP_K}
    found = {"length_penalty_form": "power"}
    for name, ours in asked.items():
        value = generation.get(name)
        value = defaults.get(name) if value is None else value
        if value is not None:
            try:
                found[ours] = {**OPTIONS, **SAMPLING}[ours].checked(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    total = min(positions, LONGEST) + 1
    answer = min(total - total // 2, LONGEST_ANSWER)
    lengths = {"max_source_length": total - answer, "max_target_length": answer}
    return {**found, **({} if sampled else {"top_k": 1}), **lengths}
