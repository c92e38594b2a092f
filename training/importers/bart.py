"""Imports BART and Pegasus models of Hugging Face, which summarise and translate.

The weights are converted once for these differences, so the resulting model needs no options for
them:

- A target of BART begins with eos, then with <s>. So our bos has the embedding of eos, and <s> is
  a piece that every text begins with. A target of Pegasus begins with the pad, which is our bos.
- BART's positions begin at 2: the first two rows of their tables are left out.
- Pegasus's sinusoids are all sines, then all cosines, as Marian's.
- Embeddings that the original does not scale are divided by sqrt(D).
- The feed-forward layers of encoder and decoder may differ in width. The narrower ones get inner
  units with zero weights.
"""

from pathlib import Path

import numpy as np

from .bart_text import FILES, read_bart, read_pegasus
from .generation import FIRST, read_generation
from .imported import Imported
from .marian_weights import alternating, require_sinusoids
from .options import (
    SIZES,
    activation_of,
    configuration,
    read_json_object,
    require_files,
    require_flags,
    require_whole,
)
from .stack_weights import read_stacks, require_sizes
from .weights import Weights

NEEDED = ("config.json",)
OTHERS = (*FILES, "generation_config.json", "model-*.safetensors")
BART, PEGASUS = "bart", "pegasus"
OFFSET = 2  # the first position of BART


def read(folder):
    """Reads a BART or Pegasus folder of Hugging Face into an `Imported`.

    Raises:
        ValueError: a file is missing or damaged, or an option has no counterpart here.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    options = read_options(folder / "config.json")
    family, longest = options["model_type"], options["max_position_embeddings"]
    generation = read_generation(folder, options, longest, has_first=family == BART)
    if generation.first not in (None, options.get("bos_token_id")):
        rule = f"must be bos_token_id = {options['bos_token_id']}"
        raise ValueError(f"{FIRST} {rule}, got {generation.first!r:.99}")
    weights = Weights.of_folder(folder)
    require_sizes(weights, options)  # before tables of these sizes are allocated
    if family == BART:
        tokenizer, numbering = read_bart(folder, options)
        order, names = np.arange(options["d_model"]), {"embedding_norm": "layernorm_embedding"}
    else:
        tokenizer, numbering = read_pegasus(folder, options)
        order, names = alternating(options["d_model"]), {"final_norm": "layer_norm"}
    known = weights, options, (numbering, numbering), generation.impossible, order
    tied, found = read_stacks(*known, **names)
    if family == BART:
        found |= positions(weights, options)
        own = {"embedding_norm": True, "positions": "learned", "max_positions": longest}
    else:
        require_sinusoids(weights, options)
        own = {"norm": "pre"}
    weights.require_all_taken()
    config = configuration(options, tokenizer, tied, **own)
    system = {BART: "BART", PEGASUS: "Pegasus"}[family]
    origin = {"system": f"{system} of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, generation.search, origin)


def read_options(path):
    """Reads the options of a `config.json`, and adds the defaults of those that we use."""
    found = read_json_object(path)
    is_bart = found["model_type"] != PEGASUS  # or mBART
    start = "eos_token_id" if is_bart else "pad_token_id"
    found.setdefault("decoder_start_token_id", found.get(start))
    require_whole(found, path, (*SIZES, *(["bos_token_id"] if is_bart else [])))
    require_flags(found, path, {"scale_embedding": False, "tie_word_embeddings": True})
    for name, other in (
        ("decoder_start_token_id", start),
        ("decoder_attention_heads", "encoder_attention_heads"),
    ):
        if found[name] != found[other]:
            raise ValueError(f"{path}: {name} must be {other} = {found[other]}, got {found[name]}")
    special = [found["pad_token_id"], found["eos_token_id"]]
    special += [found["bos_token_id"]] if is_bart else []
    if len(set(special)) < len(special) or max(special) >= found["vocab_size"]:
        raise ValueError(
            f"{path}: special ids must be different and below vocab_size, got {special}"
        )
    if not is_bart and found["d_model"] % 2:
        raise ValueError(f"{path}: d_model must be even, got {found['d_model']}")
    activation_of(found.setdefault("activation_function", "gelu"), path)
    shared = {"share_encoder_decoder_embeddings": True, "decoder_vocab_size": found["vocab_size"]}
    return {**found, **shared}


def positions(weights, options):
    """{our name: array} of the position tables of BART and mBART, [P, D] each."""
    length, width = options["max_position_embeddings"], options["d_model"]
    found = {}
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        name = f"model.{stack}.embed_positions.weight"
        found[f"{side}_positions/embeddings"] = weights.take(name, length + OFFSET, width)[OFFSET:]
    return found
