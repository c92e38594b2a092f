"""Imports Marian models of Hugging Face, such as those of OPUS-MT: a folder becomes an `Imported`.

The weights are converted once for these differences, so the resulting model needs no options for
them:

- Marian's ids come from a table in the folder, and a target begins with the pad. Here the special
  ids are 0 to 3, as everywhere. Marian's pad becomes our bos. Our pad is new and has probability 0.
- Marian's sinusoids are all sines, then all cosines. Here they alternate. So the features between
  layers are reordered, but not those inside a head.
- Marian may not scale embeddings by sqrt(D). Then they are divided by it. If the output layer uses
  the same matrix, the last LayerNorm, which only the output layer reads, is multiplied by it.
- The feed-forward layers of encoder and decoder may differ in width. The narrower ones get inner
  units with zero weights.
"""

from pathlib import Path

from .generation import read_generation
from .imported import Imported
from .marian_options import read_options
from .marian_text import read_text
from .marian_weights import read_weights
from .options import configuration, require_files
from .stack_weights import require_sizes
from .weights import Weights

NEEDED = ("config.json", "source.spm", "target.spm", "vocab.json")
# Optional files. Besides, a folder has one file of `weights.READERS`.
OTHERS = (
    "added_tokens.json", "generation_config.json", "model-*.safetensors",
    "target_vocab.json", "tokenizer_config.json",
)  # fmt: skip


def read(folder):
    """Reads a Marian folder of Hugging Face into an `Imported`.

    Raises:
        ValueError: a file is missing or damaged, or an option has no counterpart here.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    options = read_options(folder / "config.json")
    generation = read_generation(
        folder,
        {**options, "vocab_size": options["decoder_vocab_size"]},
        options["max_position_embeddings"],
    )
    pad, eos = options["pad_token_id"], options["eos_token_id"]
    sizes = options["vocab_size"], options["decoder_vocab_size"]
    shares = options["share_encoder_decoder_embeddings"]
    weights = Weights.of_folder(folder)
    require_sizes(weights, options)  # before tables of these sizes are allocated
    tokenizer, numberings, notes = read_text(folder, pad, eos, sizes, shares)
    tied, found = read_weights(weights, options, numberings, generation.impossible)
    config = configuration(options, tokenizer, tied)
    origin = {"system": "Marian of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, generation.search, origin, notes)
