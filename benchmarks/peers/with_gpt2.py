"""KerasHub's `GPT2CausalLM` with random weights, by its own `generate`.

Option of the job: `jit_compile`, whether to use XLA, which compiles for each shape. The prompts are
ids of one length; it continues them greedily by `steps` tokens.
"""

import os

from benchmarks.peers.protocol import Peer, serve


def load(job):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import keras_hub
    import numpy as np
    import tensorflow as tf

    if job["threads"]:
        tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
        tf.config.threading.set_inter_op_parallelism_threads(job["threads"])
    keras.utils.set_random_seed(1)
    steps = job["steps"]
    model = make(len(job["vocabulary"]), job["size"])
    model.compile(sampler="greedy", jit_compile=job["options"]["jit_compile"])

    def prepare(batch):
        ids = np.pad(np.array(batch["ids"], "int32"), [[0, 0], [0, steps]])
        return {"token_ids": ids, "padding_mask": ids != 0}

    def decode(prompts):
        return model.generate(prompts, stop_token_ids=None)["token_ids"]

    def lengths(prompts):
        return decode(prompts).shape[1] - prompts["padding_mask"].sum(axis=1)

    return Peer(
        version=f"KerasHub {keras_hub.__version__}, TensorFlow {tf.__version__}",
        prepare=prepare,
        decode=decode,
        lengths=lengths,
    )


def make(vocabulary_size, size, dropout=0.1, longest=128):
    """A `GPT2CausalLM` of a size of `benchmarks.work`, of ids alone."""
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=vocabulary_size,
        num_layers=size["num_layers"],
        num_heads=size["num_heads"],
        hidden_dim=size["d_model"],
        intermediate_dim=size["d_ff"],
        dropout=dropout,
        max_sequence_length=longest,
    )
    return keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


if __name__ == "__main__":
    serve(load)
