"""tfformer's training step in `fit`, with what `training` does to be fast, or plain.

That is: padding left out, Adam in one operation, freed memory kept, and oneDNN's products of
matrices, for which the environment asks. Metrics and clipping, which the others do not compute, are
left out too.

Of the job's `options` it takes `plain`, whether a plain `compile` and `fit` of the padded batches
with Keras's own Adam is measured, and `dtype`, a Keras dtype policy.
"""

import keras
import tensorflow as tf

from benchmarks.peers.protocol import Peer, serve, training_ids
from tfformer import SmoothedCrossEntropy, Transformer, TransformerConfig
from tfformer.layers.packing import without_padding
from training.adam import Adam
from training.allocator import keep_freed_memory


def load(job):
    options, size = job["options"], job["size"]
    plain = options.get("plain", False)
    if not plain:
        keep_freed_memory()
    config = TransformerConfig(
        source_vocabulary_size=len(job["vocabulary"]),
        num_encoder_layers=size["num_layers"],
        num_decoder_layers=size["num_layers"],
        d_model=size["d_model"],
        d_ff=size["d_ff"],
        num_heads=size["num_heads"],
        dropout=job["dropout"],
        tie_embeddings="all",
    )
    model = Transformer(config, dtype=options.get("dtype", "float32"))
    optimizer = (keras.optimizers.Adam if plain else Adam)(5e-4, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, SmoothedCrossEntropy(job["smoothing"]))

    def prepare(work):
        return dataset([training_ids(batch) for batch in work["batches"]], pack=not plain)

    def decode(data):
        return model.fit(data, verbose=0, shuffle=False).history["loss"][-1]

    return Peer(
        version=f"TensorFlow {tf.__version__}, Keras {keras.__version__}",
        prepare=prepare,
        decode=decode,
    )


def dataset(batches, pack=False):
    """The batches as a `tf.data.Dataset` of known length."""
    batches = [[tf.constant(ids, tf.int32) for ids in batch] for batch in batches]

    def get(n):
        return batches[int(n)]

    def element(source, target, labels):
        source, target, labels = (
            tf.ensure_shape(ids, [None, None]) for ids in (source, target, labels)
        )
        inputs = {"source_ids": source, "target_ids": target}
        return without_padding(inputs, labels) if pack else (inputs, labels)

    data = tf.data.Dataset.range(len(batches))
    data = data.map(lambda n: tf.numpy_function(get, [n], (tf.int32,) * 3)).map(element)
    # See `training.batches`: with the tuning thread the end of a pass waits for it.
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.prefetch(4).with_options(options)


if __name__ == "__main__":
    serve(load)
