"""What an importer makes of a foreign folder, and how it becomes a run."""

import dataclasses
from typing import Any, NamedTuple

from tfformer import run
from tfformer.models import ENCODER_DECODER, FAMILIES


class Imported(NamedTuple):
    """A model from elsewhere.

    config: its `TransformerConfig`.
    weights: {name of a variable of ours: array}.
    tokenizer: its `Tokenizer`.
    search: the options of the search that a run keeps, by name.
    origin: what is worth remembering of where it is from, anything JSON.
    notes: what a user is told besides, a line each.
    """

    config: Any
    weights: dict
    tokenizer: Any
    search: dict
    origin: dict
    notes: tuple = ()

    def describe(self):
        """What it is, in words."""
        config, search = self.config, self.search
        layers = f"{config.num_encoder_layers} + {config.num_decoder_layers} layers"
        sizes = sorted({config.source_vocabulary_size, config.target_vocabulary_size})
        pieces = " and ".join(f"{size:,}" for size in sizes)
        return (
            f"{layers} of width {config.d_model}, {pieces} pieces; a beam of "
            f"{search['beam_width']}, length penalty {search['length_penalty']:g}"
        )


def write(imported, directory):
    """Makes the run directory of an `Imported`, whole or not at all.

    Raises:
        FileExistsError: there is something by that name.
        ValueError: weights are missing or of other shapes, or an option of the search breaks its
            rule.
        OSError: it cannot be written.
    """
    from tfformer.service.families import SERVICES

    config, tokenizer, search = imported.config, imported.tokenizer, imported.search
    # The service checks the options of the search, of a model of any width and depth.
    small = {"d_model": 2 * config.num_heads, "d_ff": 1}
    small |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = FAMILIES[ENCODER_DECODER].model(dataclasses.replace(config, **small))
    SERVICES[ENCODER_DECODER](model, tokenizer, **search)
    parts = ENCODER_DECODER, config, imported.weights, tokenizer, search
    training = {"imported": imported.origin}
    run.save_new(directory, *parts, training, write=run.save_weights)
