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

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
