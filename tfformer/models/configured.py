"""The base class of all models: a Keras model that is built from a configuration."""

from collections.abc import Iterable
from typing import Any

import keras

from tfformer.annotations import StrPath
from tfformer.config import StackOptions
from tfformer.layers.layer import KeepsFrozen


class ConfiguredModel(KeepsFrozen, keras.Model):
    """A model that is built from its configuration and saved with it.

    Args:
        config: an instance of the class `configuration`, or its fields by name.
        frozen: paths of layers that `build` freezes, see `KeepsFrozen`. Default: none.

    Raises:
        ValueError: `config` is of another class.
    """

    configuration: type[StackOptions]
    config: Any  # a subclass has its own class of configuration

    def __init__(
        self, config: StackOptions | dict[str, Any], frozen: Iterable[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.frozen = tuple(frozen)
        kind = self.configuration
        if isinstance(config, dict):
            config = kind.from_dict(config)
        if not isinstance(config, kind):
            raise ValueError(f"config must be a {kind.__name__}, got {config!r}")
        self.config = config

    def export(
        self,
        filepath: StrPath,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **more: Any,
    ) -> None:
        """`keras.Model.export`; the default `input_signature` is the inputs of a call.

        It writes only the model, from ids to logits. To export a model that takes and returns text
        and runs a search, call `save` of its service, such as `Translator.save`.
        """
        known = {"verbose": verbose, "input_signature": input_signature or [self.input_specs()]}
        return super().export(filepath, format, **known, **more)

    def input_specs(self) -> dict[str, keras.InputSpec]:
        """The inputs of a call as `keras.InputSpec`: a source and a target."""
        names = ("source_ids", "target_ids")
        return {name: keras.InputSpec(shape=(None, None), dtype="int32") for name in names}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_dict()}
