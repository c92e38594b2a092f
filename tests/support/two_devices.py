"""Trains on one device, then on two logical ones; test_parallel.py compares what it writes.

python tests/support/two_devices.py FOLDER
"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfformer import Perplexity, SmoothedCrossEntropy, TokenAccuracy, Transformer, TransformerConfig
from tfformer.files import pack
from tfformer.run import model_weights
from training.step.adam import Adam
from training.step.parallel import in_parts
from training.step.strategy import Strategy

V, ROWS, STEPS = 53, 12, 5


def batches():
    """Rows of 1 to 11 tokens; the even ones, for replica 0, are much longer."""
    rng = np.random.default_rng(5)
    for _ in range(STEPS):
        ids = rng.integers(4, V, size=(ROWS, 11)).astype("int32")
        ids[::2] *= np.arange(11) < rng.integers(8, 12, size=(ROWS // 2, 1))
        ids[1::2] *= np.arange(11) < rng.integers(1, 3, size=(ROWS // 2, 1))
        yield ids


class Shards:
    """`batches` with the interface that `Strategy` needs."""

    def dataset(self, epoch, skip, shards=(0,), count=1):
        rows = [ids[n::count] for ids in batches() for n in shards]
        return tf.data.Dataset.from_tensor_slices(rows).map(
            lambda ids: ({"source_ids": ids, "target_ids": ids}, ids)
        )


def compiled(make, optimizer):
    keras.utils.set_random_seed(7)
    config = TransformerConfig.preset(
        "test", V, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    model = make(config, name="transformer")
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(optimizer, SmoothedCrossEntropy(), metrics=metrics)
    model.optimizer.build(model.trainable_variables)
    return model


def save(folder, name, model, history, evaluated):
    numbers = {k: np.array(v) for k, v in history.items() if k != "stop"}
    numbers |= {f"val_{k}": np.array(v) for k, v in evaluated.items() if k != "stop"}
    (folder / f"{name}.npz").write_bytes(pack({**model_weights(model), **numbers}))


def plain_fit(folder, strategy):
    """A usual program: Keras's own step, the dataset split by TensorFlow."""
    with strategy.scope():
        model = compiled(Transformer, keras.optimizers.SGD(0.3, momentum=0.9))
    # Each half of a batch is for one replica.
    ids = np.stack([np.concatenate([ids[::2], ids[1::2]]) for ids in batches()])
    dataset = tf.data.Dataset.from_tensor_slices(ids.reshape(-1, 11)).batch(ROWS)
    dataset = dataset.map(lambda ids: ({"source_ids": ids, "target_ids": ids}, ids))
    history = model.fit(dataset, epochs=2, verbose=0, shuffle=False).history
    evaluated = model.evaluate(dataset, verbose=0, return_dict=True)
    save(folder, f"plain-{strategy.replicas}", model, history, evaluated)


def our_fit(folder, strategy, make):
    """As in `training.trainer.fit`; gradients are clipped in each step."""
    with strategy.scope():
        model = compiled(make, Adam(0.01, epsilon=1e-4, global_clipnorm=0.1))
    dataset, history = strategy.dataset(Shards()), {}
    for _ in range(2):
        epoch = model.fit(dataset, steps_per_epoch=STEPS, verbose=0, shuffle=False).history
        history = {name: history.get(name, []) + value for name, value in epoch.items()}
    evaluated = model.evaluate(dataset, steps=STEPS, verbose=0, return_dict=True)
    save(folder, f"ours-{strategy.replicas}", model, history, evaluated)


def dropout(folder, strategy):
    """What each replica drops, three times: after creation, after a step, after resetting the
    seed."""
    with strategy.scope():
        layer = keras.layers.Dropout(0.5)
        model = keras.Sequential([keras.Input([101]), layer])
    state = layer.seed_generator.state
    first = state.numpy()
    found = {}

    def drop(name):
        dropped = strategy.distribute.run(lambda: model(tf.ones([1, 101]), training=True))
        for n, value in enumerate(strategy.distribute.experimental_local_results(dropped)):
            found[f"{name}-{n}"] = value.numpy()

    strategy.spread_dropout(model)
    drop("made")
    drop("stepped")
    state.assign(first)
    strategy.spread_dropout(model)
    drop("restored")
    (folder / "dropout.npz").write_bytes(pack(found))


def main(arguments):
    folder = Path(arguments[0])
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one, two = Strategy("none"), Strategy("mirrored")
    assert two.replicas == 2
    for strategy in (one, two):
        plain_fit(folder, strategy)
    our_fit(folder, one, Transformer)
    our_fit(folder, two, in_parts(Transformer))
    dropout(folder, two)


if __name__ == "__main__":
    main(sys.argv[1:])
