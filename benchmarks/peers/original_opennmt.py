"""A model directory of OpenNMT-tf 2 by OpenNMT-tf; see `benchmarks.originals`.

Its own tokenizer splits the texts into pieces, the model runs as the graph of its exports, and the
pieces are joined again.
"""

from pathlib import Path

from benchmarks.peers.protocol import Peer, serve


def load(job):
    import opennmt
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(job["threads"])
    folder = Path(job["folder"])
    cut = {"type": "SentencePieceTokenizer", "params": {"model": str(folder / "joint.model")}}
    data = {f"{side}_vocabulary": str(folder / "joint.vocab") for side in ("source", "target")}
    data |= {f"{side}_tokenization": cut for side in ("source", "target")}
    model = opennmt.load_model(str(folder), as_builder=False)
    model.initialize(
        {**data, "source_sequence_controls": {"end": True}},
        params={
            "beam_width": job["beam_width"],
            "maximum_decoding_length": job["max_length"],
            "length_penalty": job.get("length_penalty", 0.0),
        },
    )
    model.create_variables()
    opennmt.utils.checkpoint.Checkpoint(model, model_dir=str(folder)).restore(weights_only=True)
    infer = tf.function(lambda features: model(features)[1], reduce_retracing=True)

    def translate(texts):
        features = model.features_inputter.make_features(tf.constant(texts))
        found = infer({name: features[name] for name in ("ids", "length")})
        return [row[0].decode() for row in found["text"].numpy()]

    version = f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}"
    return Peer(version, lambda batch: batch["texts"], translate, texts=translate)


if __name__ == "__main__":
    serve(load)
