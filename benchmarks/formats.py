"""Measures SavedModel, LiteRT and ONNX files of `model.export`: `python -m benchmarks.formats`.

For a model of each family, each format, and any shape or a fixed one, it shows the maximum
difference of the logits from the model's own, or the error. ONNX needs
`pip install onnx onnxruntime tf2onnx`.

Exit codes: 0 measured; 2 wrong usage; 130 or 143 interrupted.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np

from tfformer.terminal.command import Parser, main_of

# A question and a text, for the family `span`.
IDS = np.array([[5, 6, 3, 7, 8, 3], [5, 3, 9, 3, 0, 0]], "int32")
OTHER_IDS = np.array([[5, 3, 9, 10, 11, 12, 13, 3]] * 3, "int32")
# {shape of the inputs: the tested batches}
SHAPES = {(None, None): [IDS, OTHER_IDS], IDS.shape: [IDS]}


def parser():
    """The command's arguments."""
    return Parser("benchmarks.formats", __doc__, prints=True)


def saved_model(path, inputs):
    """The outputs of a SavedModel."""
    import tensorflow as tf

    model = tf.saved_model.load(str(path))
    return model.serve(tf.nest.map_structure(tf.constant, inputs))


def litert(path, inputs):
    """The outputs of a LiteRT file. Keras numbers the inputs: args_0, args_0_1."""
    import tensorflow as tf

    run = tf.lite.Interpreter(str(path)).get_signature_runner()
    names = sorted(run.get_input_details())
    found = run(**dict(zip(names, tf.nest.flatten(inputs), strict=True)))
    return [found[name] for name in sorted(found)]


def onnx(path, inputs):
    """The outputs of an ONNX file."""
    import onnxruntime
    import tensorflow as tf

    session = onnxruntime.InferenceSession(str(path))
    names = sorted(one.name for one in session.get_inputs())
    return session.run(None, dict(zip(names, tf.nest.flatten(inputs), strict=True)))


# {format: (function that reads it, ending of its name)}
FORMATS = {
    "tf_saved_model": (saved_model, ""),
    "litert": (litert, ".tflite"),
    "onnx": (onnx, ".onnx"),
}


def measured(family, format, shape):
    """The maximum difference of a file's logits from the model's, or what fails, as a string."""
    import keras
    import tensorflow as tf

    from tfformer.models import FAMILIES

    kind = FAMILIES[family]
    labels = {"num_labels": 3} if "num_labels" in kind.configuration.__dataclass_fields__ else {}
    model = kind.model(kind.configuration.preset("test", 97, **labels))
    for weight in model.trainable_variables:  # Some are initialised with zeros.
        weight.assign(keras.random.normal(weight.shape, stddev=0.3, seed=1))
    spec = keras.InputSpec(shape=shape, dtype="int32")
    specs, batches = spec, SHAPES[shape]
    if isinstance(names := model.input_specs(), dict):
        specs, names = dict.fromkeys(names, spec), sorted(names)
        batches = [
            {name: np.where(ids, ids + n, 0) for n, name in enumerate(names)} for ids in batches
        ]
    expected = [tf.nest.flatten(model(inputs)) for inputs in batches]
    read, ending = FORMATS[format]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{ending}")
        try:
            model.export(path, format=format, input_signature=[specs], verbose=False)
            found = [tf.nest.flatten(read(path, inputs)) for inputs in batches]
        except Exception as error:  # Any error of a converter or runtime is a result.
            return f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"
    pairs = zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True)
    return f"{max(float(np.abs(one - np.asarray(other)).max()) for one, other in pairs):.0e}"


def _run(command, options):
    from tfformer.models import FAMILIES

    has_onnx = all(map(importlib.util.find_spec, ("onnx", "onnxruntime", "tf2onnx")))
    formats = [name for name in FORMATS if name != "onnx" or has_onnx]
    print("| family | format | any shape | a fixed shape |\n|---|---|---|---|")
    for family in FAMILIES:
        for format in formats:
            cells = [measured(family, format, shape) for shape in SHAPES]
            print(f"| {family} | {format} | {' | '.join(cells)} |", flush=True)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
