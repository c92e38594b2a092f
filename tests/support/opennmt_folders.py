"""The stored models of OpenNMT-tf, with the results of the original."""

import json
import shutil

import numpy as np
import tensorflow as tf
from paths import DATA

# {name: the options of its data configuration}
FOLDERS = {
    "joint": ["--vocabulary", "joint.vocab", "--sentencepiece", "joint.model", "--source-eos"],
    "words": ["--source-vocabulary", "source.vocab", "--target-vocabulary", "target.vocab"],
    "learned": [
        "--source-vocabulary", "source.vocab", "--target-vocabulary", "target.vocab",
        "--source-sentencepiece", "source.model", "--target-sentencepiece", "target.model",
    ],
}  # fmt: skip
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"  # of the name of each weight


def folder(name):
    return DATA / "opennmt" / name


def words(name, run, of=None):
    """The arguments of `training.import_opennmt`; `of`: another folder than the stored one."""
    of = of or folder(name)
    options = [one if one.startswith("--") else str(of / one) for one in FOLDERS[name]]
    return [str(of), str(run), *options]


def answers(name):
    return json.loads((folder(name) / "answers.json").read_text())


def logits(name):
    """[T, V] of each pair, and the target's ids after <s>, in the original's ids."""
    with np.load(folder(name) / "logits.npz") as file:
        count = len(file.files) // 2
        return [(file[str(n)], file[f"target_{n}"]) for n in range(count)]


def our_ids(name, side):
    """An array: our id of each id of the original."""
    path = folder(name) / f"{side}.vocab"
    path = path if path.exists() else folder(name) / "joint.vocab"
    count = len(path.read_text().splitlines())
    return np.array([0, 2, 3, *range(4, count + 1), 1])


def copied(name, to):
    """A copy of a folder."""
    return shutil.copytree(folder(name), to)


def rewrite(folder, change):
    """Writes the checkpoint of a folder again, with the result of `change({name: array})`."""
    prefix = tf.train.latest_checkpoint(str(folder))
    reader = tf.train.load_checkpoint(prefix)
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith(SUFFIX)]
    arrays = change({name: reader.get_tensor(name) for name in names})
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=[tf.constant(array) for array in arrays.values()],
    )
