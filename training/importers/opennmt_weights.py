"""Reads the weights of a checkpoint of OpenNMT-tf 2 and renames them to our variables."""

import glob
import math
import re
from pathlib import Path

import numpy as np

from tfformer.files import LONGEST_TEXT, open_regular, size_of

from .recognise import described
from .weights import Weights

ENDING = r"\.(index|data-\d{5}-of-\d{5})$"  # of the files of a checkpoint
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOT = ".OPTIMIZER_SLOT"  # the state of an optimizer
SOURCE = "model/examples_inputter/features_inputter/embedding"
TARGET = "model/examples_inputter/labels_inputter/embedding"
OUTPUT = "model/decoder/output_layer"
RELATIVE = "relative_position_keys"
# The number of positions of a table that replaces sinusoids.
MAX_POSITIONS = 512
# The parts of a layer: {theirs: (ours, our residual connection)}.
ENCODER_LAYER = {
    "self_attention": ("self_attention", "attention_residual"),
    "ffn": ("feed_forward", "feed_forward_residual"),
}
DECODER_LAYER = {
    "self_attention": ("self_attention", "self_residual"),
    "attention/0": ("cross_attention", "cross_residual"),
    "ffn": ("feed_forward", "feed_forward_residual"),
}
ATTENTION = {
    "linear_queries": "query",
    "linear_keys": "key",
    "linear_values": "value",
    "linear_output": "output",
}
FEED_FORWARD = {"inner": "inner", "outer": "outer"}


def read_checkpoint(path):
    """Reads the `Weights` of a checkpoint, given by its prefix or one of its files, or of the
    newest checkpoint in a directory. Raises a ValueError if it is damaged, or not of a
    Transformer."""
    import tensorflow as tf

    prefix = re.sub(ENDING, "", str(path))
    if Path(path).is_dir():
        if (named := Path(path, "checkpoint")).exists():
            open_regular(named, LONGEST_TEXT).close()
        prefix = tf.train.latest_checkpoint(str(path))
        if prefix is None:
            other = f", but {described(path)}" if Path(path, "config.json").exists() else ""
            raise ValueError(f"{path} must be a model directory with a checkpoint, got none{other}")
    files = Path(prefix).parent.glob(f"{glob.escape(Path(prefix).name)}.*")
    size = 0
    for file in files:
        with open_regular(file) as opened:
            size += size_of(opened)
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        names = [
            name
            for name in shapes
            if name.startswith("model/") and name.endswith(SUFFIX) and SLOT not in name
        ]
        if sum(math.prod(shapes[name]) * dtypes[name].size for name in names) > size:
            raise ValueError("its weights must each have bytes of their own")
        arrays = {name.removesuffix(SUFFIX): reader.get_tensor(name) for name in names}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        line = str(error).splitlines()[0]
        raise ValueError(f"{prefix} must be a checkpoint of TensorFlow 2: {line}") from error
    if not any(name.startswith("model/decoder/layers/0/") for name in arrays):
        raise ValueError(f"{prefix} must be of a Transformer of OpenNMT-tf 2, got other weights")
    if relative := [name for name in arrays if name.endswith(RELATIVE)]:
        raise ValueError(f"{prefix}: maximum_relative_position must be None, got {relative[0]}")
    return Weights(arrays, prefix)


def read_weights(weights, numberings, files):
    """{our name: array} of the weights, and the options of the configuration that they show.

    `numberings` are those of source and target. A weight that is missing, has another shape, is not
    finite or is not used is a ValueError.
    """
    reading = _Reading(weights)
    found = reading.tables(numberings, files)
    found |= reading.stack("encoder", ENCODER_LAYER) | reading.stack("decoder", DECODER_LAYER)
    weights.require_all_taken()
    return found, reading.sizes


class _Reading:
    """Converts the weights part by part; `sizes` are the options found from them."""

    def __init__(self, weights):
        self.weights = weights
        kernel = weights.shape("model/encoder/layers/0/ffn/layer/inner/kernel")
        if len(kernel) != 2:
            raise ValueError(f"{weights.path} must be of a Transformer of OpenNMT-tf 2")
        self.width, self.inner = kernel
        self.sizes = {
            "d_model": self.width,
            "d_ff": self.inner,
            "num_encoder_layers": self._count("encoder"),
            "num_decoder_layers": self._count("decoder"),
            "norm": "pre" if "model/encoder/layer_norm/gamma" in weights else "post",
        }

    def _count(self, stack):
        """The number of layers of a stack."""
        count = 0
        while f"model/{stack}/layers/{count}/ffn/layer/inner/kernel" in self.weights:
            count += 1
        return count

    # The tables.

    def tables(self, numberings, files):
        """{our name: array} of embeddings, positions and output layer."""
        source, target = numberings
        self._require_size(SOURCE, source, files.source_vocabulary)
        has_two = TARGET in self.weights
        name = TARGET if has_two else SOURCE
        self._require_size(name, target, files.target_vocabulary)
        table = self.weights.take(SOURCE, source.old_size, self.width)
        encoder = source.rows(table)
        if has_two:
            table = self.weights.take(TARGET, target.old_size, self.width)
        decoder = target.rows(table)
        found = {"target_embedding/embeddings": decoder, **self._positions()}
        tied = "target"
        if f"{OUTPUT}/kernel" in self.weights:
            kernel = self.weights.take(f"{OUTPUT}/kernel", self.width, target.old_size)
            found["output_projection/kernel"] = target.rows(kernel.T).T
            tied = "none"
        elif not has_two and source is target:
            tied = "all"
        if tied != "all":
            found["source_embedding/embeddings"] = encoder
        if f"{OUTPUT}/bias" in self.weights:
            bias = self.weights.take(f"{OUTPUT}/bias", target.old_size)
            found["output_projection/bias"] = target.rows(bias)
        self.sizes |= {"tie_embeddings": tied, "output_bias": f"{OUTPUT}/bias" in self.weights}
        return found

    def _require_size(self, name, numbering, vocabulary):
        """Raises a ValueError if a table is missing or does not have one row per id."""
        if name not in self.weights:
            raise ValueError(f"{self.weights.path} must have one source of words, got no {name}")
        rows = self.weights.shape(name)[:1]
        if rows != (numbering.old_size,):
            raise ValueError(
                f"{vocabulary} must have as many words as the model, {rows[0] - 1:,} and the "
                f"unknown one, got {numbering.old_size - 1:,}"
            )

    def _positions(self):
        """Both tables of positions: learned ones, or the sinusoids of OpenNMT-tf.

        Its positions begin with 1, so row 0 of a learned table is never used.
        """
        found, name = {}, "model/{}/position_encoder/position_embedding"
        if name.format("encoder") in self.weights:
            length = self.weights.shape(name.format("encoder"))[0] - 1
            for stack, side in (("encoder", "source"), ("decoder", "target")):
                table = self.weights.take(name.format(stack), length + 1, self.width)
                found[f"{side}_positions/embeddings"] = table[1:]
        else:
            length = MAX_POSITIONS
            table = sinusoids(np.arange(1, length + 1), self.width)
            found = {f"{side}_positions/embeddings": table for side in ("source", "target")}
        self.sizes["max_positions"] = length
        return found

    # The layers.

    def stack(self, stack, parts):
        """{our name: array} of the layers of a stack, and of its last norm if it has one."""
        found, shapes = {}, {"inner": (self.width, self.inner), "outer": (self.inner, self.width)}
        for n in range(self.sizes[f"num_{stack}_layers"]):
            for part, (sublayer, residual) in parts.items():
                theirs, ours = f"model/{stack}/layers/{n}/{part}", f"{stack}/layer_{n}"
                norm = f"{'input' if self.sizes['norm'] == 'pre' else 'output'}_layer_norm"
                found |= self._norm(f"{theirs}/{norm}", f"{ours}/{residual}/layer_norm")
                layers = FEED_FORWARD if part == "ffn" else ATTENTION
                for their_name, our_name in layers.items():
                    names = f"{theirs}/layer/{their_name}", f"{ours}/{sublayer}/{our_name}"
                    found |= self._linear(*names, shapes.get(our_name, (self.width, self.width)))
        if self.sizes["norm"] == "pre":
            found |= self._norm(f"model/{stack}/layer_norm", f"{stack}/final_norm")
        return found

    def _norm(self, theirs, ours):
        return {
            f"{ours}/{name}": self.weights.take(f"{theirs}/{name}", self.width)
            for name in ("gamma", "beta")
        }

    def _linear(self, theirs, ours, shape):
        bias = np.zeros(shape[1], "float32")
        if f"{theirs}/bias" in self.weights:
            bias = self.weights.take(f"{theirs}/bias", shape[1])
        return {
            f"{ours}/kernel": self.weights.take(f"{theirs}/kernel", *shape),
            f"{ours}/bias": bias,
        }


def sinusoids(positions, width):
    """The sinusoids of OpenNMT-tf, [P, D]: all sines, then all cosines. The D / 2 frequencies go
    from 1 to 1 / 10,000, both included."""
    frequencies = np.exp(-np.arange(width // 2) * (math.log(10000) / max(width // 2 - 1, 1)))
    angles = np.asarray(positions)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")
