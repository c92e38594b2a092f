"""Imports mBART-50 models of Hugging Face: translators of 50 languages.

The weights are converted as those of BART. A target begins with eos, then with the code of its
language, as in M2M100.
"""

from pathlib import Path

import numpy as np

from .bart import positions, read_options
from .generation import read_generation
from .imported import Imported
from .m2m100_text import MBART, read_text
from .options import configuration, require_files
from .stack_weights import read_stacks, require_sizes
from .weights import Weights

NEEDED = ("config.json",)
OTHERS = (
    "generation_config.json", "model-*.safetensors", "sentencepiece.bpe.model",
    "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip


def read(folder, source_language=None, target_language=None):
    """Reads a folder of mBART-50 into an `Imported`.

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
    known = pad, eos, size, generation.first, asked
    tokenizer, numbering, notes = read_text(folder, *known, unnamed=MBART)
    both, order = (numbering, numbering), np.arange(options["d_model"])
    names = {"final_norm": "layer_norm", "embedding_norm": "layernorm_embedding"}
    tied, found = read_stacks(weights, options, both, generation.impossible, order, **names)
    found |= positions(weights, options)
    weights.require_all_taken()
    own = {"embedding_norm": True, "positions": "learned", "max_positions": longest}
    config = configuration(options, tokenizer, tied, norm="pre", **own)
    origin = {"system": "mBART-50 of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, generation.search, origin, notes)
