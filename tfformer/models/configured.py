"""A model that is made of a configuration."""

import keras

from tfformer.layers.layer import KeepsFrozen


class ConfiguredModel(KeepsFrozen, keras.Model):
    """What every model has: its configuration, by which it is made and saved.

    Args:
        config: of the class `configuration`, or its fields by name.
        frozen: paths of layers that are frozen when it is built, see `KeepsFrozen`. Default: none.

    Raises:
        ValueError: `config` is none.
    """

    configuration = None

    def __init__(self, config, frozen=(), **kwargs):
        super().__init__(**kwargs)
        self.frozen = tuple(frozen)
        kind = self.configuration
        if isinstance(config, dict):
            config = kind.from_dict(config)
        if not isinstance(config, kind):
            raise ValueError(f"config must be a {kind.__name__}, got {config!r}")
        self.config = config

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **more):
        """`keras.Model.export`, with the inputs of a call as the default `input_signature`.

        It writes the model alone, from ids to logits. What takes and returns text, and searches, is
        written by `save` of the service, such as `Translator.save`.
        """
        known = {"verbose": verbose, "input_signature": input_signature or [self.input_specs()]}
        return super().export(filepath, format, **known, **more)

    def input_specs(self):
        """What a call takes, as `keras.InputSpec`: of a source and a target."""
        names = ("source_ids", "target_ids")
        return {name: keras.InputSpec(shape=(None, None), dtype="int32") for name in names}

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
