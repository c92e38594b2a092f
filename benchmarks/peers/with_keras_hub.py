"""KerasHub's layers and `BeamSampler` with random weights, in one `tf.function`.

KerasHub's own sequence-to-sequence models (T5, T5Gemma, BART) have other layers than those measured
here. So its layers, their caches and its sampler are combined as in `BartSeq2SeqLM`. Option of the
job: `jit_compile`, whether to use XLA. It compiles for each shape, so sources are padded to a
multiple of 8.
"""

import os

from benchmarks.peers.protocol import Peer, padded, serve

POSITIONS = 512


def load(job):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import keras_hub
    import tensorflow as tf

    if job["threads"]:
        tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
        tf.config.threading.set_inter_op_parallelism_threads(job["threads"])
    keras.utils.set_random_seed(1)
    jit_compile = job["options"]["jit_compile"]
    model = Model(job["size"], len(job["vocabulary"]), job["steps"])
    model.decode(tf.zeros([1, 1], tf.int32), *model.encode(tf.zeros([1, 1], tf.int32)))  # builds
    sampler = keras_hub.samplers.BeamSampler(num_beams=job["beam_width"])
    generate = tf.function(lambda source: model.generate(source, sampler), jit_compile=jit_compile)
    multiple = 8 if jit_compile else 1

    def decode(source):
        return generate(source).numpy()

    return Peer(
        version=f"KerasHub {keras_hub.__version__}, TensorFlow {tf.__version__}",
        prepare=lambda batch: tf.constant(padded(batch["ids"], multiple), tf.int32),
        decode=decode,
        lengths=lambda source: [len(row) - 1 for row in decode(source)],  # a row begins with bos
    )


class Model:
    """An encoder and a decoder of KerasHub's layers; B, S, T as in their documentation."""

    def __init__(self, size, vocabulary_size, steps):
        from keras_hub import layers

        self.size, self.steps = size, steps
        d_ff, heads, count = size["d_ff"], size["num_heads"], size["num_layers"]
        self.embedding = layers.ReversibleEmbedding(vocabulary_size, size["d_model"])
        self.position = layers.PositionEmbedding(POSITIONS)
        self.encoder = [layers.TransformerEncoder(d_ff, heads) for _ in range(count)]
        self.decoder = [layers.TransformerDecoder(d_ff, heads) for _ in range(count)]

    def embed(self, ids, start=0):
        embedded = self.embedding(ids)
        return embedded + self.position(embedded, start_index=start)

    def encode(self, source):
        """int32 [B, S] -> the memory [B, S, D] and its mask [B, S]."""
        from keras import ops

        mask = ops.not_equal(source, 0)
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, padding_mask=mask)
        return x, mask

    def decode(self, ids, memory, mask):
        """int32 [B, T] -> logits [B, T, V], without a cache."""
        x = self.embed(ids)
        for layer in self.decoder:
            x = layer(x, memory, encoder_padding_mask=mask)
        return self.embedding(x, reverse=True)

    def decode_cached(self, ids, memory, mask, cache, index, cross_cache, cross_index):
        """int32 [B, T] at position `index` -> logits [B, T, V] and both caches.

        With `cross_index` 0 the memory's keys and values are written, with None only read.
        """
        from keras import ops

        x, caches, cross_caches = self.embed(ids, index), [], []
        for n, layer in enumerate(self.decoder):
            x, layer_cache, layer_cross_cache = layer(
                x,
                memory,
                encoder_padding_mask=mask,
                self_attention_cache=cache[:, n],
                self_attention_cache_update_index=index,
                cross_attention_cache=cross_cache[:, n],
                cross_attention_cache_update_index=cross_index,
            )
            caches.append(layer_cache)
            cross_caches.append(layer_cross_cache)
        if cross_index is not None:
            cross_cache = ops.stack(cross_caches, axis=1)
        return self.embedding(x, reverse=True), ops.stack(caches, axis=1), cross_cache

    def generate(self, source, sampler):
        """int32 [B, S] -> int32 [B, 1 + steps], bos in front."""
        from keras import ops

        memory, mask = self.encode(source)
        batch, length = ops.shape(source)[0], ops.shape(source)[1]
        heads = self.size["num_heads"]
        head_size = self.size["d_model"] // heads
        bos = ops.full((batch, 1), 2, "int32")
        prompt = ops.concatenate([bos, ops.zeros((batch, self.steps), "int32")], axis=1)
        layers = len(self.decoder)
        cache = ops.zeros((batch, layers, 2, self.steps + 1, heads, head_size))
        cross_cache = ops.zeros((batch, layers, 2, length, heads, head_size))
        _, cache, cross_cache = self.decode_cached(prompt, memory, mask, cache, 0, cross_cache, 0)

        def step(prompt, cache, index):
            rows = ops.shape(prompt)[0]  # a row for each beam
            ids = ops.slice(prompt, [0, index - 1], [rows, 1])
            beams = [ops.repeat(x, rows // batch, axis=0) for x in (memory, mask, cross_cache)]
            logits, cache, _ = self.decode_cached(
                ids, beams[0], beams[1], cache, index - 1, beams[2], None
            )
            return ops.squeeze(logits, axis=1), None, cache

        return sampler(step, prompt, cache=cache, index=1)


if __name__ == "__main__":
    serve(load)
