"""The result of an importer, and how it is written as a run directory."""

import dataclasses
import sys
from typing import Any, NamedTuple

from tfformer import run
from tfformer.models import ENCODER_DECODER, FAMILIES

from .weights import compact


class Imported(NamedTuple):
    """A model imported from another system.

    config: the configuration of its family, such as a `TransformerConfig`.
    weights: {name of our variable: array}.
    tokenizer: its `Tokenizer`.
    search: the search options that the run stores, by name.
    origin: facts about where the model is from, as JSON.
    notes: lines for the user.
    family: its family, one of `tfformer.models.FAMILIES`. Default: the encoder-decoder.
    """

    config: Any
    weights: dict
    tokenizer: Any
    search: dict
    origin: dict
    notes: tuple = ()
    family: str = ENCODER_DECODER

    def describe(self):
        """A description of the model in words."""
        config, search = self.config, self.search
        if hasattr(config, "num_layers"):
            return (
                f"{self.family}: {config.num_layers} layers of width {config.d_model}, "
                f"{config.vocabulary_size:,} pieces; texts of at most "
                f"{search['max_source_length']:,} tokens"
            )
        layers = f"{config.num_encoder_layers} + {config.num_decoder_layers} layers"
        sizes = sorted({config.source_vocabulary_size, config.target_vocabulary_size})
        pieces = " and ".join(f"{size:,}" for size in sizes)
        return (
            f"{layers} of width {config.d_model}, {pieces} pieces; a beam of "
            f"{search['beam_width']}, length penalty {search['length_penalty']:g}"
        )


def run_import(command, directory, read):
    """Writes what `read` returns as a run directory; the exit code of the `command`."""
    try:
        imported = read()
        for note in imported.notes:
            print(note, file=sys.stderr)
        write(imported, directory)
    except (ValueError, OSError) as error:
        return command.fail(error)
    with command.remarks():
        print(f"{directory}: {imported.describe()}")
    return 0


def write(imported, directory):
    """Writes an `Imported` as a run directory, completely or not at all."""
    from tfformer.service.families import SERVICES

    family, config, search = imported.family, imported.config, imported.search
    # The service checks the search options. A small model is enough for that.
    small = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_layers": 1}
    small = {name: value for name, value in small.items() if hasattr(config, name)}
    small |= {"d_model": 2 * config.num_heads, "d_ff": 1}
    model = FAMILIES[family].model(dataclasses.replace(config, **small))
    SERVICES[family](model, imported.tokenizer, **search)
    # Most importers do this when they read a matrix; here, for embeddings and the other importers.
    weights = {name: compact(array) for name, array in imported.weights.items()}
    parts = family, config, weights, imported.tokenizer, search
    training = {"imported": imported.origin}
    run.save_new(directory, *parts, training, write=run.save_weights)
