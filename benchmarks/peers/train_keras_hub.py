"""KerasHub's Transformer layers in `fit`. Options of the job: `jit_compile` and `dtype`."""

import keras
import keras_hub
from keras import layers, ops

from benchmarks.peers.protocol import Peer, serve, training_ids
from benchmarks.peers.train_tfformer import dataset


def load(job):
    options, size = job["options"], job["size"]
    keras.config.set_dtype_policy(options.get("dtype", "float32"))
    model = make(len(job["vocabulary"]), size, job["dropout"])
    # KerasHub has no smoothed loss for integer labels, so this loss computes less than the others.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    optimizer = keras.optimizers.Adam(5e-4, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, loss, jit_compile=options["jit_compile"])

    def prepare(work):
        data = dataset([training_ids(batch) for batch in work["batches"]])
        return data.map(lambda x, y: ((x["source_ids"], x["target_ids"]), y))

    return Peer(
        version=f"KerasHub {keras_hub.__version__}, Keras {keras.__version__}",
        prepare=prepare,
        decode=lambda data: model.fit(data, verbose=0, shuffle=False).history["loss"][-1],
    )


def make(vocabulary_size, size, dropout):
    """An encoder-decoder of KerasHub's layers, tied embeddings, learned positions."""
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    embedding = keras_hub.layers.ReversibleEmbedding(
        vocabulary_size, size["d_model"], tie_weights=True
    )
    positions = keras_hub.layers.PositionEmbedding(128)
    mask = ops.not_equal(source, 0)
    sizes = (size["d_ff"], size["num_heads"])

    def embed(ids):
        x = embedding(ids)
        return layers.Dropout(dropout)(x + positions(x))

    x = embed(source)
    for _ in range(size["num_layers"]):
        x = keras_hub.layers.TransformerEncoder(*sizes, dropout=dropout)(x, padding_mask=mask)
    y = embed(target)
    for _ in range(size["num_layers"]):
        layer = keras_hub.layers.TransformerDecoder(*sizes, dropout=dropout)
        y = layer(y, x, encoder_padding_mask=mask)
    model = keras.Model([source, target], embedding(y, reverse=True))
    for layer in model.layers:
        # Dropout only on sub-layers and embeddings, as in the paper; the default has more here.
        for name in ("_self_attention_layer", "_cross_attention_layer"):
            if (attention := getattr(layer, name, None)) is not None:
                attention._dropout_layer.rate = 0.0
    return model


if __name__ == "__main__":
    serve(load)
