"""Trains on the JAX backend, on all devices that there are; test_jax.py compares what it writes.

    KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=2 \\
        python tests/support/jax_devices.py FILE
"""

import sys

import keras
import numpy as np

from tfformer import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
    Transformer,
    TransformerConfig,
    WarmupSchedule,
)
from tfformer.run import model_weights

V, ROWS, STEPS = 53, 12, 5


def ids():
    """Each batch of 12 rows begins with 6 long ones, for device 0; then come 6 short ones."""
    rng = np.random.default_rng(5)
    found = rng.integers(4, V, size=(STEPS, ROWS, 11)).astype("int32")
    lengths = rng.integers((8, 1), (12, 3), size=(STEPS, ROWS // 2, 2))
    lengths = lengths.transpose(0, 2, 1).reshape(STEPS, ROWS, 1)
    return (found * (np.arange(11) < lengths)).reshape(-1, 11)


def main(path):
    keras.utils.set_random_seed(7)
    devices = keras.distribution.list_devices()
    if len(devices) > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    config = TransformerConfig.preset(
        "test", V, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    model = Transformer(config)
    model.compile(
        keras.optimizers.Adam(WarmupSchedule(14, 8), epsilon=1e-4, global_clipnorm=0.1),
        SmoothedCrossEntropy(),
        metrics=[TokenAccuracy(), Perplexity()],
    )
    labels = ids()
    inputs = {"source_ids": labels, "target_ids": labels}
    options = {"batch_size": ROWS, "verbose": 0}
    history = model.fit(inputs, labels, epochs=2, shuffle=False, **options).history
    evaluated = model.evaluate(inputs, labels, return_dict=True, **options)
    placed = {len(v.value.sharding.device_set) for v in model.weights}
    np.savez(path, devices=len(devices), placed=max(placed), **model_weights(model), **history)
    assert np.isfinite(list(evaluated.values())).all()


if __name__ == "__main__":
    main(sys.argv[1])
