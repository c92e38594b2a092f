"""Imports the multilingual translators M2M100, NLLB-200 and SMALL-100 of Hugging Face.

The weights are converted once for these differences, so the resulting model needs no options for
them:

- A target begins with eos, then with the code of its language. So our bos has the embedding of eos;
  its own probability is 0.
- The sinusoids have other frequencies, and begin at position 2. They become a table of learned
  positions.
- Embeddings that the original does not scale are divided by sqrt(D), and the last LayerNorm is
  multiplied by it.
- The feed-forward layers of encoder and decoder may differ in width. The narrower ones get inner
  units with zero weights.
"""

import math
from pathlib import Path

import numpy as np

from .generation import read_generation
from .imported import Imported
from .m2m100_text import read_text
from .options import (
    SIZES,
    activation_of,
    configuration,
    read_json_object,
    require_files,
    require_fixed,
    require_flags,
    require_whole,
)
from .stack_weights import BIAS, read_stacks, require_sizes
from .weights import Weights

NEEDED = ("config.json",)
# Optional files. Besides, a folder has one file of `weights.READERS`.
OTHERS = (
    "added_tokens.json", "generation_config.json", "model-*.safetensors",
    "sentencepiece.bpe.model", "special_tokens_map.json",
    "tokenizer.json", "tokenizer_config.json", "vocab.json",
)  # fmt: skip
# Options that must have one value: {name: (the value, the default)}.
FIXED = {"model_type": ("m2m_100", None), "tie_word_embeddings": (True, True)}
OFFSET = 2  # the first position


def read(folder, source_language=None, target_language=None):
    """Reads a folder of M2M100, NLLB-200 or SMALL-100 into an `Imported`.

    Args:
        folder: its path.
        source_language, target_language: the languages of texts for which a request names none.
            Default: those of the folder.

    Raises:
        ValueError: a file is missing or damaged, an option has no counterpart here, or there is no
            such language.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    options = read_options(folder / "config.json")
    longest = options["max_position_embeddings"]
    generation = read_generation(folder, options, longest, has_first=True)
    weights = Weights.of_folder(folder)
    require_sizes(weights, options)  # before tables of these sizes are allocated
    asked = {"source_language": source_language, "target_language": target_language}
    pad, eos, size = (options[name] for name in ("pad_token_id", "eos_token_id", "vocab_size"))
    tokenizer, numbering, notes = read_text(folder, pad, eos, size, generation.first, asked)
    if BIAS in weights:
        raise ValueError(f"{weights.path}: the model here has no weight {BIAS}")
    both, order = (numbering, numbering), np.arange(options["d_model"])
    tied, found = read_stacks(weights, options, both, generation.impossible, order, "layer_norm")
    found |= positions(weights, options)
    weights.require_all_taken()
    own = {"positions": "learned", "max_positions": longest}
    config = configuration(options, tokenizer, tied, norm="pre", **own)
    origin = {"system": "M2M100 of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, generation.search, origin, notes)


def read_options(path):
    """Reads the options of a `config.json`, and adds those that all of these models have."""
    found = read_json_object(path)
    require_fixed(found, path, FIXED)
    require_whole(found, path, SIZES)
    require_flags(found, path, {"scale_embedding": True})
    found.setdefault("attention_dropout", 0.1)
    for name, other in (
        ("decoder_start_token_id", "eos_token_id"),
        ("decoder_attention_heads", "encoder_attention_heads"),
    ):
        if found[name] != found[other]:
            raise ValueError(f"{path}: {name} must be {other} = {found[other]}, got {found[name]}")
    if found["pad_token_id"] == found["eos_token_id"]:
        pad = found["pad_token_id"]
        raise ValueError(f"{path}: pad_token_id must not be eos_token_id, got {pad}")
    if found["d_model"] % 2 or found["d_model"] < 4:
        raise ValueError(f"{path}: d_model must be even and over 2, got {found['d_model']}")
    activation_of(found.setdefault("activation_function", "relu"), path)
    shared = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
    return {**found, **shared, "decoder_vocab_size": found["vocab_size"]}


def positions(weights, options):
    """{our name: array} of the position tables, [P, D] each."""
    length, width = options["max_position_embeddings"], options["d_model"]
    for side in ("encoder", "decoder"):  # only older files have them
        name = f"model.{side}.embed_positions.weights"
        if name in weights:
            table = weights.take(name, length + OFFSET, width)[OFFSET:]
            # float16 is accurate enough for this
            if not np.allclose(table, sinusoids(length, width), atol=2e-3):
                raise ValueError(f"{weights.path}: {name} must be sinusoids, got other numbers")
    names = ("source_positions/embeddings", "target_positions/embeddings")
    return {name: sinusoids(length, width) for name in names}


def sinusoids(length, width):
    """float32 [P, D] from position 2 on: all sines, then all cosines, with the frequencies
    10000^(-i / (D / 2 - 1))."""
    half = width // 2
    frequencies = np.exp(np.arange(half, dtype="float32") * -np.float32(math.log(1e4) / (half - 1)))
    angles = np.arange(OFFSET, OFFSET + length, dtype="float32")[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")
