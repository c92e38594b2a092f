"""tfformer's training step in `fit`, with the optimizations of `training`, or plain.

The optimizations: a part of the batch for each core, no padding, Adam in one operation, freed
memory is kept, no product fused with its bias, huge pages and oneDNN's matrix products, which the
environment turns on. Metrics and clipping are left out, because the others do not compute them.

Options of the job: `plain`, whether to measure a plain `compile` and `fit` of the padded batches
with Keras's own Adam; `dtype`, a Keras dtype policy.
"""

import math

import keras
import tensorflow as tf

from benchmarks.peers.protocol import Peer, serve, training_ids
from tfformer import SmoothedCrossEntropy, Transformer, TransformerConfig
from tfformer.layers.packing import without_padding
from training.step import machine
from training.step.adam import Adam
from training.step.allocator import keep_freed_memory
from training.step.cores import MAXIMUM, keep_operations_apart, share_threads
from training.step.parallel import in_parts


def load(job):
    options, size = job["options"], job["size"]
    plain = options.get("plain", False)
    # All parts must have the same number of rows.
    rows = {len(batch["source"]) for batch in job["batches"]["train"][0]["batches"]}
    cores = 1 if plain else math.gcd(min(machine.cores(), MAXIMUM), *rows)
    if cores > 1:
        share_threads(cores)
    if not plain:
        keep_operations_apart()
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
    dtype = options.get("dtype", "float32")
    if plain:
        model = Transformer(config, dtype=dtype)
    else:
        model = in_parts(Transformer)(
            config, cores=cores, without_padding=without_padding, dtype=dtype
        )
    optimizer = (keras.optimizers.Adam if plain else Adam)(5e-4, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, SmoothedCrossEntropy(job["smoothing"]))

    def prepare(work):
        return dataset([training_ids(batch) for batch in work["batches"]])

    def decode(data):
        return model.fit(data, verbose=0, shuffle=False).history["loss"][-1]

    return Peer(
        version=f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {cores} parts a batch",
        prepare=prepare,
        decode=decode,
    )


def dataset(batches):
    """The batches as a `tf.data.Dataset` of known length."""
    batches = [[tf.constant(ids, tf.int32) for ids in batch] for batch in batches]

    def get(n):
        return batches[int(n)]

    def element(source, target, labels):
        source, target, labels = (
            tf.ensure_shape(ids, [None, None]) for ids in (source, target, labels)
        )
        return {"source_ids": source, "target_ids": target}, labels

    data = tf.data.Dataset.range(len(batches))
    data = data.map(lambda n: tf.numpy_function(get, [n], (tf.int32,) * 3)).map(element)
    # See `training.data.batches`: with a tuning thread, the end of an epoch would wait for it.
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.prefetch(4).with_options(options)


if __name__ == "__main__":
    serve(load)
