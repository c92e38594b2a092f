"""Reads a SavedModel without running it: signatures, ops, weights, files.

A stock server has no Python and no XLA, and links only the ops of TensorFlow and tensorflow-text.
A SavedModel that needs more is saved without an error and loads in Python, but the graph shows it.
The bodies of functions are read too, because `tf.function` puts the model there.
"""

import functools
import hashlib
import importlib.util
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfformer.inference.int8 import OPERATION

from .errors import BrokenModel, UsageError, one_line

MAIN = "the main graph"


@dataclass(frozen=True)
class TensorInfo:
    name: str  # in the graph, for example "serving_default_text:0"
    dtype: str
    shape: tuple[int | None, ...] | None  # None: any rank; a None in it: any size


@dataclass(frozen=True)
class Signature:
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    defaults: dict[str, np.ndarray]  # the server feeds them for inputs that a request lacks


@dataclass(frozen=True)
class Graph:
    signatures: dict[str, Signature]
    ops: dict[str, Counter]  # op -> place (a function's name, or MAIN) -> count
    jit_compiled: list[str]  # places that XLA must compile
    definitions: dict  # every SignatureDef unchanged, including those of the loader

    def python_ops(self) -> list[str]:
        """Ops that call back into the Python process that built the graph."""
        return self._where(lambda op: "PyFunc" in op)

    def xla_ops(self) -> list[str]:
        """Ops and functions that need XLA, which TF Serving disables when it starts."""
        return self._where(lambda op: "Xla" in op) + [
            f"jit_compile=True in {p}" for p in self.jit_compiled
        ]

    def custom_ops(self) -> list[str]:
        """Ops of a library that a stock server does not link."""
        # `tf.raw_ops` has TensorFlow's own, whatever other libraries are in this process.
        return self._where(
            lambda op: not ("Xla" in op or _is_tensorflow(op) or _bare(op) in _text())
        )

    def _where(self, wanted) -> list[str]:
        return [
            f"{op} in {place}"
            for op, places in sorted(self.ops.items())
            if wanted(op)
            for place in sorted(places)
        ]

    def to_dict(self) -> dict:
        def tensors(infos):
            return {key: vars(info) for key, info in infos.items()}

        return {
            "signatures": {
                name: {
                    "inputs": tensors(signature.inputs),
                    "outputs": tensors(signature.outputs),
                    "defaults": {k: plain(v) for k, v in signature.defaults.items()},
                }
                for name, signature in self.signatures.items()
            },
            "ops": {op: places.total() for op, places in sorted(self.ops.items())},
        }


def plain(default):
    """A default value for JSON: a number, a text, or a list of them."""
    if isinstance(default, np.ndarray) and default.ndim:
        return [plain(one) for one in default]
    value = default.tolist() if isinstance(default, np.ndarray | np.generic) else default
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def read_graph(directory) -> Graph:
    """Reads the MetaGraph tagged `serve`: signatures, and ops of the graph and its functions."""
    try:
        saved_model = SavedModel.FromString(Path(directory, "saved_model.pb").read_bytes())
    except DecodeError as error:
        raise BrokenModel("saved_model.pb is truncated or damaged: it does not parse") from error
    tagged = [m for m in saved_model.meta_graphs if list(m.meta_info_def.tags) == ["serve"]]
    if not tagged:
        raise BrokenModel("saved_model.pb has no MetaGraph with the one tag 'serve'")
    [meta_graph] = tagged[:1]
    functions = meta_graph.graph_def.library.function
    bodies = [(MAIN, meta_graph.graph_def.node)]
    bodies += [(function.signature.name, function.node_def) for function in functions]
    own = {function.signature.name for function in functions}  # calls of functions look like ops
    ops: dict[str, Counter] = {}
    for place, nodes in bodies:
        for node in nodes:
            if node.op not in own:
                ops.setdefault(node.op, Counter())[place] += 1
    jit_compiled = {f.signature.name for f in functions if _must_compile(f)}
    jit_compiled |= {place for place, nodes in bodies if any(map(_must_compile, nodes))}
    signatures = {
        name: Signature(
            {key: _tensor_info(info) for key, info in sorted(definition.inputs.items())},
            {key: _tensor_info(info) for key, info in sorted(definition.outputs.items())},
            {key: tf.make_ndarray(proto) for key, proto in sorted(definition.defaults.items())},
        )
        for name, definition in sorted(meta_graph.signature_def.items())
        if not name.startswith("__saved_model_")  # for the loader, not for requests
    }
    return Graph(signatures, ops, sorted(jit_compiled), dict(meta_graph.signature_def))


def text_signature(directory, name: str = "serving_default") -> Signature:
    """The signature `name` of a SavedModel. Its only input must be `text`, besides
    inputs with a default."""
    signature = read_graph(directory).signatures.get(name)
    if signature is None or set(signature.inputs) - set(signature.defaults) != {"text"}:
        raise UsageError(f"{directory} must have a signature {name} whose input is text")
    return signature


def read_variables(directory, graph: Graph) -> dict[str, int]:
    """Reads every weight and checks its checksum. Returns {"variables": n, "parameters": n}.

    A SavedModel without its `variables/` folder loads on the server as a model without variables,
    and fails at the first request.
    """
    prefix = Path(directory, "variables", "variables")
    if not prefix.with_suffix(".index").is_file():
        if any(re.fullmatch(r"VarHandleOp|Variable(V2)?", op) for op in graph.ops):
            raise BrokenModel("the graph has variables, but variables/variables.index is missing")
        return {"variables": 0, "parameters": 0}
    sizes = []
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        for name in reader.get_variable_to_shape_map():
            value = reader.get_tensor(name)
            if name != "_CHECKPOINTABLE_OBJECT_GRAPH":
                sizes.append(np.size(value))
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise BrokenModel(f"variables/ does not read back: {one_line(error)}") from error
    return {"variables": len(sizes), "parameters": int(sum(sizes))}


def read_files(directory) -> dict[str, dict]:
    """{path in the SavedModel: size and SHA-256} of every file."""
    facts = {}
    for path in sorted(p for p in Path(directory).rglob("*") if p.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = path.relative_to(directory).as_posix()
        facts[name] = {"bytes": path.stat().st_size, "sha256": digest}
    return facts


def _tensor_info(info) -> TensorInfo:
    shape = tf.TensorShape(info.tensor_shape)
    shape = None if shape.rank is None else tuple(shape.as_list())
    return TensorInfo(info.name, tf.as_dtype(info.dtype).name, shape)


def _is_tensorflow(op: str) -> bool:
    """Whether TensorFlow has this op: a public one, or the one of int8, which has no function."""
    return hasattr(tf.raw_ops, op) or op == OPERATION


def _must_compile(definition) -> bool:
    """Whether a FunctionDef or NodeDef was made with `jit_compile=True`."""
    return "_XlaMustCompile" in definition.attr and definition.attr["_XlaMustCompile"].b


@functools.cache
def _text() -> frozenset[str]:
    """The ops of tensorflow-text's libraries. The stock server links all of them."""
    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None:
        return frozenset()
    folder = Path(spec.submodule_search_locations[0], "python", "ops")
    modules = [tf.load_op_library(str(path)) for path in sorted(folder.glob("_*.so"))]
    return frozenset(_bare(name) for module in modules for name in dir(module))


def _bare(op: str) -> str:
    """One spelling for an op: `TFText>RougeL` and its Python wrapper `TFText_Rouge_L` are equal."""
    return re.sub(r"[^a-z0-9]", "", op.lower())
