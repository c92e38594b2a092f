"""OpenNMT-tf's Transformer in its documented custom training loop."""

import os
import tempfile

from benchmarks.peers.protocol import Peer, serve, training_ids


def load(job):
    import opennmt
    import tensorflow as tf

    size, count = job["size"], len(job["vocabulary"])
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = opennmt.data.Vocab(special_tokens=["<blank>", "<s>", "</s>"])
        for piece in job["vocabulary"][4:]:
            vocabulary.add(piece)
        path = os.path.join(folder, "vocabulary.txt")
        vocabulary.serialize(path)
        model = opennmt.models.Transformer(
            num_layers=size["num_layers"],
            num_units=size["d_model"],
            num_heads=size["num_heads"],
            ffn_inner_dim=size["d_ff"],
            dropout=job["dropout"],
            # Dropout only on sub-layers and embeddings, as in the paper and in the other models.
            attention_dropout=0.0,
            ffn_dropout=0.0,
            share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
            pre_norm=False,
        )
        model.initialize(
            {"source_vocabulary": path, "target_vocabulary": path},
            params={"label_smoothing": job["smoothing"]},
        )
    model.create_variables()
    optimizer = tf.keras.optimizers.legacy.Adam(5e-4, beta_2=0.98, epsilon=1e-9)

    @tf.function(reduce_retracing=True)
    def step(source, target):
        outputs, _ = model(source, target, training=True, step=optimizer.iterations)
        loss, _, tokens = model.compute_loss(outputs, target, training=True)
        loss = loss / tokens
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables, strict=True))
        return loss

    def prepare(work):
        return [features(*training_ids(batch)) for batch in work["batches"]]

    def features(source, target, labels):
        # OpenNMT-tf has its own ids: pad 0, bos 1, eos 2, the pieces from 3 on, unk last. This is a
        # permutation, so the work is the same.
        own = [0, count - 1, 1, 2, *range(3, count - 1)]
        source, target, labels = (
            tf.constant([[own[i] for i in row] for row in ids], tf.int32)
            for ids in (source, target, labels)
        )
        length = [tf.reduce_sum(tf.cast(ids != 0, tf.int32), axis=1) for ids in (source, labels)]
        return (
            {"ids": source, "length": length[0]},
            {"ids": target, "ids_out": labels, "length": length[1]},
        )

    return Peer(
        version=f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}",
        prepare=prepare,
        decode=lambda batches: [float(step(*batch)) for batch in batches][-1],
    )


if __name__ == "__main__":
    serve(load)
