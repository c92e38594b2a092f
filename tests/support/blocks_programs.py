"""The names that the programs of the pages take from the prose, as small substitutes."""

import tensorflow as tf
import tiny

import tfformer
from tfformer.config import EOS

SOURCE_IDS = [[7, 6, 5, EOS], [9, EOS, 0, 0]]
TARGET_IDS = [[2, 7, 6], [2, 8, 0]]
GPT2 = 50257


def texts_for_fit(folder):
    """What a `fit` of the user's own begins with: two lists of texts, and ids of them."""
    inputs = {"source_ids": tf.constant(SOURCE_IDS), "target_ids": tf.constant(TARGET_IDS)}
    labels = tf.constant([[7, 6, EOS], [8, EOS, 0]])
    return {
        "sources": tiny.sentences(41),
        "targets": tiny.sentences(41, seed=8),
        "dataset": tf.data.Dataset.from_tensors((inputs, labels)),
    }


def a_copying_translator(folder):
    """A translator that copies, and ids of texts."""
    return {
        "translator": tfformer.load_translator(folder / "runs" / "names"),
        "source_ids": tf.constant(SOURCE_IDS),
        "target_ids": tf.constant(TARGET_IDS),
    }


def a_transformer(folder):
    """A model with two sides, and ids of its sources."""
    model = tfformer.load_translator(folder / "runs" / "mine").model
    return {"model": model, "source_ids": tf.constant(SOURCE_IDS)}


def a_function(folder, size=23, rows=23):
    """A model with one side: a function from ids to logits."""
    table = tf.random.stateless_normal([rows, size], [3, 5])
    return {"model": lambda ids: tf.gather(table, ids % rows)}


def a_model_of_two_inputs(folder):
    """A user's own model: a function from ids of both sides to logits."""
    table = tf.random.stateless_normal([23, 23], [3, 5])
    return {"model": lambda inputs: tf.gather(table, inputs["target_ids"] % 23)}


def a_vocabulary_of_others(folder):
    """A function from ids of GPT-2's vocabulary to logits, and prompts of such ids."""
    return {**a_function(folder, GPT2, rows=7), "prompts": [[464, 2068], [464]]}


def a_step(folder):
    """The code behind the three dots of a step function, for one text."""
    return {
        "batch_size": 1,
        "memory": tf.zeros([1, 3, 5]),
        "cache": tf.zeros([1, 1, 1]),
        "logits": tf.random.stateless_normal([1, 4, 11], [3, 5]),
    }


def a_layer_of_kerashub(folder):
    """A built layer of KerasHub."""
    from keras_nlp.layers import TransformerEncoder

    theirs = TransformerEncoder(intermediate_dim=19, num_heads=2)
    theirs.build([None, 5, 14])
    return {"tfformer": tfformer, "theirs": theirs}


def an_export(folder):
    """The part of an export that translating files needs."""
    translator = tiny.make_translator(max_source_length=37, max_target_length=13)
    translator.save(str(folder / "exported/mine/1"), ["serving_default", "translate_document"])


def presets_of_kerashub(folder):
    """Two tiny presets instead of those that KerasHub would download."""
    import hub

    hub.t5().save_to_preset(str(folder / "presets/mine"))
    hub.CAUSAL["gemma"]().save_to_preset(str(folder / "presets/gemma"))


# {(page, beginning of a part of a program): the function that gives the names from there on}
NAMES = {
    ("docs/guide/copy.md", "mixture = "): a_copying_translator,
    ("docs/guide/fit_your_own.md", "import keras"): texts_for_fit,
    ("docs/guide/from_keras_hub.md", "ours = "): a_layer_of_kerashub,
    ("docs/guide/generate.md", "# A Transformer: "): a_transformer,
    ("docs/guide/generate.md", "# Any Keras model, or any function, "): a_function,
    ("docs/guide/generate.md", "# With a source: "): a_model_of_two_inputs,
    ("docs/guide/generate.md", "from tfformer import SpecialIds"): a_vocabulary_of_others,
    ("docs/guide/generate.md", "from tfformer import State"): a_step,
}
# {page: the function that makes the files that the page expects}
PREPARED = {
    "docs/guide/bulk.md": an_export,
    "docs/guide/from_keras_hub.md": presets_of_kerashub,
    "docs/guide/long_text.md": an_export,
}


def names_of(page, part, folder):
    """The names that a page assumes for a part of a program; {} if there are none."""
    found = {}
    for (place, beginning), make in NAMES.items():
        if place == page and part.startswith(beginning):
            found.update(make(folder))
    return found


def prepare(page, folder):
    """Writes the files that a page expects into the folder, unless they exist."""
    make = PREPARED.get(page)
    if make and not (folder / f"{make.__name__}.made").exists():
        make(folder)
        (folder / f"{make.__name__}.made").touch()
