"""OpenNMT-tf's Transformer with random weights, through its exported SavedModel's signature."""

import os
import tempfile

from benchmarks.peers.protocol import Peer, padded, serve


def load(job):
    import opennmt
    import tensorflow as tf

    if job["threads"]:
        tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
        tf.config.threading.set_inter_op_parallelism_threads(job["threads"])
    with tempfile.TemporaryDirectory() as folder:
        export(job, folder)
        loaded = tf.saved_model.load(os.path.join(folder, "export"))
    signature = loaded.signatures["serving_default"]

    def prepare(batch):
        pieces = [[job["vocabulary"][i] if i else "" for i in row] for row in padded(batch["ids"])]
        lengths = [len(row) for row in batch["ids"]]
        return {"tokens": tf.constant(pieces), "length": tf.constant(lengths, tf.int32)}

    def decode(inputs):
        return {key: value.numpy() for key, value in signature(**inputs).items()}

    return Peer(
        version=f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}",
        prepare=prepare,
        decode=decode,
        lengths=lambda inputs: decode(inputs)["length"].ravel(),
    )


def export(job, folder):
    """Writes the SavedModel `export` into `folder`; its decoding options are part of the graph."""
    import opennmt

    special, pieces = ["<blank>", "<s>", "</s>"], job["vocabulary"][4:]  # unk is added by itself
    vocabulary = opennmt.data.Vocab(special_tokens=special)
    for piece in pieces:
        vocabulary.add(piece)
    path = os.path.join(folder, "vocabulary.txt")
    vocabulary.serialize(path)
    size = job["size"]
    model = opennmt.models.Transformer(
        num_layers=size["num_layers"],
        num_units=size["d_model"],
        num_heads=size["num_heads"],
        ffn_inner_dim=size["d_ff"],
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
        pre_norm=False,
    )
    model.initialize(
        {"source_vocabulary": path, "target_vocabulary": path},
        params={
            "beam_width": job["beam_width"],
            "minimum_decoding_length": job["steps"],
            "maximum_decoding_length": job["steps"],
            "num_hypotheses": 1,
        },
    )
    model.create_variables()
    model.export(os.path.join(folder, "export"))


if __name__ == "__main__":
    serve(load)
