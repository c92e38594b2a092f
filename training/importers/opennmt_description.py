"""Reads `model_description.py` of a model of OpenNMT-tf. The file is a program, but it is not run:
its calls are read from the syntax tree."""

import ast
from pathlib import Path
from typing import NamedTuple

from tfformer.files import read_bytes

LONGEST = 1_000_000  # bytes of the file
# The supported models of OpenNMT-tf's catalog, and their numbers of heads.
CATALOG = {
    "Transformer": 8, "TransformerBase": 8, "TransformerBaseSharedEmbeddings": 8,
    "TransformerBig": 16, "TransformerBigSharedEmbeddings": 16, "TransformerTiny": 2,
    "ScalingNmtEnDe": 16, "ScalingNmtEnFr": 16,
}  # fmt: skip
# Models whose automatic configuration ends a source with </s>, even if the data configuration does
# not set it.
SOURCE_EOS = ("ScalingNmtEnDe", "ScalingNmtEnFr")
# {name of an activation: ours}. `opennmt.layers.gelu` is missing: it is an approximation.
ACTIVATIONS = {
    f"{module}.{name}": ours
    for module in ("tf.nn", "tensorflow.nn")
    for name, ours in (("relu", "relu"), ("gelu", "gelu"), ("silu", "silu"), ("swish", "silu"))
}
POSITIONS = ("SinusoidalPositionEncoder", "PositionEmbedder")


class Description(NamedTuple):
    """The options of a model that its weights do not show; None if the file does not give them.

    `source_eos` is whether the automatic configuration of the model ends a source with </s>.
    """

    path: Path
    num_heads: int | None = None
    activation: str | None = None
    source_eos: bool | None = None


def read_description(path):
    """Reads the `Description` of a file. If there is no file, the `Description` is empty.

    Raises:
        ValueError: the file is no Python, or has several models or a part without a counterpart.
    """
    path = Path(path)
    if not path.exists():
        return Description(path)
    content = read_bytes(path, LONGEST)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{path} is no Python: {error}") from error
    made = [*_made_by_calls(tree), *_made_by_classes(tree)]
    if not made:
        return Description(path)
    try:
        described = {_described(path, name, arguments) for name, arguments in made}
    except RecursionError as error:
        raise ValueError(f"{path} must not be nested so deep: {error}") from error
    if len(described) > 1:
        names = ", ".join(name for name, _ in made)
        raise ValueError(f"{path} must describe one model, got {names}, which differ")
    return described.pop()


def _made_by_calls(tree):
    """Yields (name in the catalog, call) of each call that creates a model, also through
    `functools.partial` and `get_model_from_catalog`, which OpenNMT-tf writes for --model_type."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            if _last_name(call.func) == "get_model_from_catalog":
                given = [*call.args, *(one.value for one in call.keywords if one.arg == "name")]
                name = getattr(given[0], "value", None) if given else None
                if isinstance(name, str) and name in CATALOG:
                    yield name, ast.Call(call.func, [], [])
            if _last_name(call.func) in CATALOG:
                yield _last_name(call.func), call
            elif _last_name(call.func) == "partial" and call.args:
                name = _last_name(call.args[0])
                if name in CATALOG:
                    yield name, ast.Call(call.func, call.args[1:], call.keywords)


def _made_by_classes(tree):
    """The same for each subclass of a catalog model: the call of the base's `__init__`."""
    for node in ast.walk(tree):
        bases = getattr(node, "bases", ()) if isinstance(node, ast.ClassDef) else ()
        for name in [_last_name(base) for base in bases if _last_name(base) in CATALOG]:
            inside = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            calls = [call for call in inside if _last_name(call.func) == "__init__"]
            for call in calls or [ast.Call(node, [], [])]:
                # `Transformer.__init__(self, ...)` has `self` as a positional argument.
                own = [one for one in call.args if _last_name(one) != "self"]
                yield name, ast.Call(call.func, own, call.keywords)


def _described(path, name, call):
    """The `Description` of a call that creates a model of the catalog."""
    given = {one.arg: one.value for one in call.keywords}
    if call.args or None in given:
        raise ValueError(f"{path}: {name} must be called with arguments by their names alone")
    found = {"num_heads": CATALOG[name], "activation": "relu", "source_eos": name in SOURCE_EOS}
    if "num_heads" in given:
        value = getattr(given["num_heads"], "value", None)
        found["num_heads"] = value if type(value) is int else None
    if "ffn_activation" in given:
        words = ast.unparse(given["ffn_activation"])
        found["activation"] = ACTIVATIONS.get(words)
        if found["activation"] is None:
            raise ValueError(
                f"{path}: ffn_activation must be one of {', '.join(ACTIVATIONS)}, got {words}"
            )
    if "position_encoder_class" in given:
        words = ast.unparse(given["position_encoder_class"])
        if not any(name in words for name in POSITIONS):
            raise ValueError(
                f"{path}: position_encoder_class must be one of {POSITIONS}, got {words}"
            )
    return Description(path, **found)


def _last_name(node):
    """The last part of a dotted name, or None."""
    return getattr(node, "attr", getattr(node, "id", None))
