"""Writes a `.keras` file of each registered class, and what each model gives:
`python tests/support/write_keras_files.py FOLDER`.

`tests/data/keras-files` was written by it once, on 2026-11-23, and is never written again: what is
stored there has to load for ever. A class that is registered later gets a folder of its own.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np

import tfformer
from tfformer import TransformerConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.norm import LayerNorm
from tfformer.layers.residual import Residual

SIZES = {"d_model": 6, "num_heads": 2, "d_ff": 11}
SOURCE = {"source_ids": [[5, 7, 4, 3], [6, 3, 0, 0]], "target_ids": [[2, 5, 6], [2, 4, 0]]}


def functional(layer, *inputs):
    """A model with only this layer; an input is its shape without the batch, or "ids"."""
    keras_inputs = [
        keras.Input([None], dtype="int32") if given == "ids" else keras.Input(given)
        for given in inputs
    ]
    outputs = layer(*keras_inputs)
    return keras.Model(keras_inputs if len(inputs) > 1 else keras_inputs[0], outputs)


def models():
    """{file name: (model, its inputs)}"""
    rng = np.random.default_rng(5)
    ids = np.array([[5, 4, 6, 0], [3, 0, 0, 0]], "int32")
    x, memory = (rng.normal(size=(2, n, 6)).astype("float32") for n in (3, 5))
    made = {
        "token_embedding": (functional(tfformer.TokenEmbedding(7, 6), "ids"), ids),
        "sinusoids": (functional(tfformer.SinusoidalPositionalEncoding(6), [3, 6]), x),
        "learned_positions": (functional(tfformer.LearnedPositionalEmbedding(5, 6), [3, 6]), x),
        "attention": (
            functional(tfformer.MultiHeadAttention(6, 3, dropout=0.2), [3, 6], [5, 6]),
            [x, memory],
        ),
        "feed_forward": (functional(tfformer.FeedForward(6, 11, "swiglu"), [3, 6]), x),
        "layer_norm": (functional(LayerNorm(1e-5), [3, 6]), x),
        "dropout": (functional(Dropout(0.3, seed=7), [3, 6]), x),
        "encoder_layer": (functional(tfformer.EncoderLayer(**SIZES), [3, 6]), x),
        "encoder": (functional(tfformer.Encoder(2, **SIZES, norm="pre"), [3, 6]), x),
        "decoder_layer": (
            functional(tfformer.DecoderLayer(**SIZES, activation="gelu"), [3, 6], [5, 6]),
            [x, memory],
        ),
        "decoder": (
            functional(tfformer.Decoder(2, **SIZES, norm="pre", dropout=0.3), [3, 6], [5, 6]),
            [x, memory],
        ),
    }
    classifier = [
        keras.Input([None], dtype="int32"),
        tfformer.TokenEmbedding(7, 6),
        tfformer.SinusoidalPositionalEncoding(6),
        tfformer.Encoder(2, **SIZES),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(2),
    ]
    made["classifier"] = keras.Sequential(classifier), ids
    both = {name: np.array(value, "int32") for name, value in SOURCE.items()}
    shared = TransformerConfig.preset("test", 13, tie_embeddings="all", num_decoder_layers=2)
    apart = TransformerConfig.preset(
        "test", 13, target_vocabulary_size=11, norm="pre", activation="swiglu",
        positions="learned", max_positions=7, num_encoder_layers=1, num_decoder_layers=1,
    )  # fmt: skip
    made["transformer_tied"] = tfformer.Transformer(shared), both
    made["transformer"] = compiled(tfformer.Transformer(apart), both), both
    return made


def configurations():
    """The configurations that Keras writes for objects that are not models: {name: object}."""
    return {
        "residual": Residual(0.2, "pre", name="residual"),
        "schedule": tfformer.WarmupSchedule(14, 17, 0.5, total_steps=101, cooldown_steps=11),
        "loss": tfformer.SmoothedCrossEntropy(0.2),
        "accuracy": tfformer.TokenAccuracy(),
        "perplexity": tfformer.Perplexity(),
    }


def compiled(model, inputs):
    """The model after one step, compiled with the schedule, the loss and the metrics."""
    model.compile(
        keras.optimizers.Adam(tfformer.WarmupSchedule(14, 17), beta_2=0.98, epsilon=1e-9),
        tfformer.SmoothedCrossEntropy(0.1),
        metrics=[tfformer.TokenAccuracy(), tfformer.Perplexity()],
    )
    model.train_on_batch(inputs, np.array([[5, 6, 3], [4, 3, 0]], "int32"))
    return model


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True)
    keras.utils.set_random_seed(3)
    arrays = {}
    for name, (model, inputs) in models().items():
        rng = np.random.default_rng(11)
        for variable in model.trainable_variables:
            variable.assign(variable + rng.normal(scale=0.3, size=variable.shape))
        model.save(folder / f"{name}.keras")
        named = inputs
        if not isinstance(inputs, dict):
            named = dict(enumerate(inputs if isinstance(inputs, list) else [inputs]))
        for key, value in named.items():
            arrays[f"{name}/in/{key}"] = value
        arrays[f"{name}/out"] = np.asarray(model(inputs, training=False))
    np.savez_compressed(folder / "answers.npz", **arrays)
    serialized = {
        name: keras.saving.serialize_keras_object(value) for name, value in configurations().items()
    }
    (folder / "configurations.json").write_text(json.dumps(serialized, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
