"""What `model_description.py` says of a model of OpenNMT-tf. It is a program, and is not run: what
it calls is read off its syntax tree."""

import ast
from pathlib import Path
from typing import NamedTuple

# The models of its catalog that are known here, and their heads.
CATALOG = {
    "Transformer": 8,
    "TransformerBase": 8,
    "TransformerBaseSharedEmbeddings": 8,
    "TransformerBig": 16,
    "TransformerBigSharedEmbeddings": 16,
    "TransformerTiny": 2,
    "ScalingNmtEnDe": 16,
}
# Activations by the last part of their names; its own gelu is an approximation.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
APPROXIMATE = "layers"
POSITIONS = ("SinusoidalPositionEncoder", "PositionEmbedder")


class Description(NamedTuple):
    """What weights do not tell.

    path: of the file.
    num_heads: None where it is not said.
    activation: as `TransformerConfig` has it.
    """

    path: Path
    num_heads: int | None = None
    activation: str = "relu"


def read_description(path):
    """The `Description` of a file; the defaults of a Transformer where there is none.

    Raises:
        ValueError: it is no Python, or asks for what has no counterpart here.
        OSError: it cannot be read.
    """
    path = Path(path)
    if not path.exists():
        return Description(path)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{path} is no Python: {error}") from error
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(_last_name(call.func), call) for call in calls]
    for name, call in named:
        if name in CATALOG:
            return _of_call(path, CATALOG[name], call)
    # A class of one's own, that says the same to the class which it is made from.
    for name, call in named:
        if name == "__init__" and any(one.arg == "num_heads" for one in call.keywords):
            return _of_call(path, None, call)
    return Description(path)


def _of_call(path, num_heads, call):
    """What the arguments of a call say."""
    given = {one.arg: one.value for one in call.keywords}
    found = {"num_heads": num_heads, "activation": "relu"}
    if "num_heads" in given:
        value = getattr(given["num_heads"], "value", None)
        found["num_heads"] = value if type(value) is int else None
    if "ffn_activation" in given:
        words = ast.unparse(given["ffn_activation"])
        found["activation"] = ACTIVATIONS.get(words.split(".")[-1])
        if found["activation"] is None or APPROXIMATE in words.split("."):
            raise ValueError(
                f"{path}: ffn_activation must be one of {list(ACTIVATIONS)} of tf.nn, got {words}"
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
