"""Marian models of Hugging Face, as those of OPUS-MT: a folder becomes an `Imported`.

What differs is settled here, in the weights, once; the model that comes out has no option for it.

- Ids are those of a table in the folder, and a target begins with the pad. Here they are 0 to 3 as
  everywhere; the original's pad is our bos, and our pad, which is new, has no probability.
- Sinusoids are all sines, then all cosines. Here they alternate: what flows from layer to layer is
  reordered, not what is inside a head.
- Embeddings may be without the factor sqrt(D): they are divided by it. Where the output layer has
  the same matrix, the last LayerNorm, which nobody else reads, is multiplied.
- The feed-forward layers of the two sides may differ in width: the narrower ones get inner places
  that do nothing.
"""

from pathlib import Path

from training.importers.foreign import MARIAN, described
from training.importers.imported import Imported
from training.importers.marian_options import configuration, read_options
from training.importers.marian_search import (
    impossible_ids,
    read_generation,
    require_same_ids,
    search_options,
)
from training.importers.marian_text import read_text
from training.importers.marian_weights import read_weights, require_sizes
from training.importers.weights import Weights

NEEDED = ("config.json", "source.spm", "target.spm", "vocab.json")
# What a folder may have besides, and one file of `weights.READERS`.
OTHERS = (
    "added_tokens.json",
    "generation_config.json",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "target_vocab.json",
    "tokenizer_config.json",
)


def read_marian(folder):
    """The `Imported` of a Marian folder of Hugging Face.

    Raises:
        ValueError: it is none; a file is missing, damaged or does not fit the others; or an option
            has no counterpart here, which is named.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    if (found := described(folder)) != MARIAN:
        raise ValueError(f"{folder} must be a Marian folder (config.json: model_type), got {found}")
    for name in NEEDED:
        if not folder.joinpath(name).is_file():
            raise ValueError(f"{folder} must be a Marian folder, with {name}, got none")
    options = read_options(folder / "config.json")
    generation = read_generation(folder, options)
    require_same_ids(generation, options)
    pad, eos = options["pad_token_id"], options["eos_token_id"]
    sizes = options["vocab_size"], options["decoder_vocab_size"]
    search = search_options(generation, eos, options["max_position_embeddings"])
    impossible = impossible_ids(generation, pad, eos, sizes[1])
    shares = options["share_encoder_decoder_embeddings"]
    weights = Weights.of_folder(folder)
    require_sizes(weights, options)  # before tables of that size are made
    tokenizer, numberings, notes = read_text(folder, pad, eos, sizes, shares)
    tied, found = read_weights(weights, options, numberings, impossible)
    config = configuration(options, tokenizer, tied)
    origin = {"system": "Marian of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, search, origin, notes)
