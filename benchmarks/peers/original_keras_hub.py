"""A preset of KerasHub by its own `generate`; see `benchmarks.originals`."""

import os

from benchmarks.peers.protocol import Peer, serve


def load(job):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras_hub
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(job["threads"])
    model = keras_hub.models.Seq2SeqLM.from_preset(job["folder"], dtype="float32")
    width = job["beam_width"]
    sampler = "greedy" if width == 1 else keras_hub.samplers.BeamSampler(num_beams=width)
    # With XLA, which its `compile` does not choose here: four times as fast.
    model.compile(sampler=sampler, jit_compile=True)

    def translate(texts):
        return model.generate(texts, max_length=job["max_length"])

    version = f"KerasHub {keras_hub.__version__}, TensorFlow {tf.__version__}"
    return Peer(version, lambda batch: batch["texts"], translate, texts=translate)


if __name__ == "__main__":
    serve(load)
