"""Imports models of OpenNMT-tf 2: a checkpoint and its vocabularies become an `Imported`.

The weights are converted once for these differences:

| OpenNMT-tf | here |
|---|---|
| ids 0, 1, 2 are padding, start and end; the last id is the unknown word | 0 to 3 as everywhere |
| sinusoids: sines, then cosines, of other frequencies, counted from 1 | a table of positions |
| no </s> after a source, unless configured | `source_eos`: whether the encoder sees it |
| attention may have no biases, where the feed-forward layer has them | biases of zeros |
"""

from pathlib import Path
from typing import NamedTuple

from tfformer.config import TransformerConfig

from .imported import Imported
from .opennmt_description import read_description
from .opennmt_text import read_text
from .opennmt_weights import read_checkpoint, read_weights

EPSILON = 1e-3  # of its LayerNorm
DROPOUT = 0.1  # its default for all three kinds of dropout
# Its default search.
SEARCH = {"beam_width": 4, "length_penalty": 0.0}
LONGEST_TARGET = 251  # `maximum_decoding_length`, 250, plus eos


class Files(NamedTuple):
    """The vocabulary files of a model, and its SentencePiece models.

    Without a SentencePiece model, texts are already tokenized, with a space between two words.
    """

    source_vocabulary: Path
    target_vocabulary: Path
    source_model: Path | None = None
    target_model: Path | None = None


def read_opennmt(folder, files, num_heads=None, source_eos=None, activation=None):
    """Reads a model directory of OpenNMT-tf, or one of its checkpoints, into an `Imported`.

    `num_heads`, `activation` and `source_eos`, whether </s> ends a source, are those of
    `model_description.py` by default.

    Raises:
        ValueError: a file is missing, damaged or does not fit, or a part has no counterpart here.
        OSError: a file cannot be read.
    """
    weights = read_checkpoint(folder)
    folder = Path(weights.path).parent  # of an average of checkpoints, it is in the one above
    found = [one / "model_description.py" for one in (folder, folder.parent)]
    description = read_description(next((path for path in found if path.exists()), found[0]))
    num_heads = num_heads or description.num_heads
    activation = activation or description.activation
    for name, value in (("--num-heads", num_heads), ("--activation", activation)):
        if value is None:
            raise ValueError(
                f"{name} must be given, because {description.path} does not name a known model"
            )
    tokenizer, numberings, notes = read_text(files)
    if source_eos is None and description.source_eos:
        notes += (
            "</s> ends a source, as the automatic configuration of this model has it: if it was "
            "trained without, give --no-source-eos",
        )
    found, sizes = read_weights(weights, numberings, files)
    try:
        config = TransformerConfig(
            tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size,
            num_heads=num_heads, activation=activation, epsilon=EPSILON, positions="learned",
            dropout=DROPOUT, attention_dropout=DROPOUT, activation_dropout=DROPOUT,
            source_eos=bool(description.source_eos if source_eos is None else source_eos),
            **sizes,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"{weights.path}: {error}") from error
    longest = {
        "max_source_length": config.max_positions,
        "max_target_length": min(config.max_positions, LONGEST_TARGET),
    }
    origin = {"system": "OpenNMT-tf", "file": Path(weights.path).name}
    return Imported(config, found, tokenizer, {**SEARCH, **longest}, origin, notes)
