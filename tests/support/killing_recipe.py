"""A recipe that dies at the point named by the environment variable DIE; see test_train.py.

It learns to reverse words, with dropout, R-Drop, noise and shuffling, in a second or two. DROPOUT
is another probability; with 0 only the order is random. OPTIMIZER is another one than adam; DEVICES
is the number of logical devices of the CPU.
"""

import itertools
import os
import random
import re
import signal
import threading
import time

import tensorflow as tf

from tfformer.service.translator import Translator
from training.data.reader import Pair
from training.recipe import Recipe
from training.trainer import fit
from training.trainer.state import Keeper

if devices := int(os.environ.get("DEVICES", 0)):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * devices,
    )


def pairs(split, data):
    letters = random.Random(split)
    for _ in range({"train": 211, "val": 13}[split]):
        word = "".join(letters.choices("abcdefg", k=letters.randint(2, 11)))
        yield Pair(word, word[::-1])


DROPOUT = float(os.environ.get("DROPOUT", 0.2))

RECIPE = Recipe(
    pairs=pairs,
    preset="test",
    model_changes={
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "dropout": DROPOUT,
    },
    vocabulary_size=300,
    max_tokens=16,
    batch_tokens=128,
    epochs=3,
    optimizer=os.environ.get("OPTIMIZER", "adam"),
    warmup_steps=40,
    average=2,
    checkpoint_steps=5,
    # Everything that is drawn from seeds, or nothing; subword sampling is not drawn from seeds.
    r_drop=1.0 if DROPOUT else 0.0,
    r_drop_from=1,
    both_ways=1 if DROPOUT else 0,
    word_dropout=0.1 if DROPOUT else 0.0,
)


def die_on_call(owner, name, number, before=True, when=lambda *args: True):
    """Kills the process at the `number`th call of owner.name, before or after it.

    Only calls for whose arguments `when` is true are counted.
    """
    original, calls = getattr(owner, name), itertools.count(1)

    def dying(*args, **kwargs):
        fatal = when(*args) and next(calls) == number
        if fatal and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def die_after(batches, seconds):
    """Kills the process `seconds` after the end of `batches` batches, whatever it does."""
    original, calls = Keeper.on_train_batch_end, itertools.count(1)

    def kill():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(*args, **kwargs):
        original(*args, **kwargs)
        if next(calls) == batches:
            threading.Thread(target=kill, daemon=True).start()

    Keeper.on_train_batch_end = counted


def nan_from_step(number):
    """Makes a weight NaN before the batch after step `number`."""
    original = Keeper.on_train_batch_end

    def poisoned(keeper, batch, logs=None):
        original(keeper, batch, logs)
        if int(keeper.model.optimizer.iterations) == number:
            weight = keeper.model.weights[0]
            weight.assign(weight.numpy() * float("nan"))

    Keeper.on_train_batch_end = poisoned


match os.environ.get("DIE"):
    case "middle of an epoch":
        die_on_call(Keeper, "on_train_batch_end", 8)
    case "during a save":
        # The new file is written, but not yet renamed over the old one.
        die_on_call(os, "replace", 2, when=lambda old, new: new.name == "last.npz")
    case "during validation":
        die_on_call(Translator, "translate", 1)
    case "end of an epoch":
        die_on_call(fit.Training, "_finish_epoch", 1, before=False)
    case "terminated":
        original = Keeper.on_train_batch_end

        def terminated(keeper, batch, logs=None):
            if batch == 6:
                os.kill(os.getpid(), signal.SIGTERM)
            original(keeper, batch, logs)

        Keeper.on_train_batch_end = terminated
    case "terminated at the last batch":
        original = Keeper.on_train_batch_end

        def terminated(keeper, batch, logs=None):
            if keeper.state.progress["batch"] == keeper.params["steps"] - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            original(keeper, batch, logs)

        Keeper.on_train_batch_end = terminated
    case "nan":
        nan_from_step(12)
    case str(text) if moment := re.fullmatch(r"(\d+) batches, ([\d.]+) seconds", text):
        die_after(int(moment[1]), float(moment[2]))
