"""What an importer makes of a foreign folder, and how it becomes a run."""

from typing import Any, NamedTuple

from tfformer import run
from tfformer.models import ENCODER_DECODER, FAMILIES


class Imported(NamedTuple):
    """A model from elsewhere.

    config: its `TransformerConfig`.
    weights: {name of a variable of ours: array}; what it lacks is a state of dropout.
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

    model = FAMILIES[ENCODER_DECODER].model(imported.config)
    missing = set(run.model_weights(model)) - set(imported.weights)
    if missing := sorted(name for name in missing if "seed_generator" not in name):
        raise ValueError(f"weights must be the model's own, got none for {missing[0]}")
    run.set_weights(model, imported.weights, partly=True)
    SERVICES[ENCODER_DECODER](model, imported.tokenizer, **imported.search)  # which checks them
    training = {"imported": imported.origin}
    run.save_new(directory, model, imported.tokenizer, imported.search, training)
