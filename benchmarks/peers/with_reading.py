"""The floor: a loop in NumPy that only reads the matrices, as often as the search has to.

The encoder's matrices are read once a batch, the decoder's and the output layer's once a step. Each
is multiplied by one vector, which takes as long as reading the matrix. So a float32 search that
reads all its matrices in each step can hardly be faster. The cached keys and values are not read.
"""

import os

from benchmarks.peers.protocol import Peer, serve


def load(job):
    os.environ["OPENBLAS_NUM_THREADS"] = str(job["threads"])
    import numpy as np  # Reads the number of threads when it is imported.

    size, random = job["size"], np.random.default_rng(1)
    d_model, d_ff = size["d_model"], size["d_ff"]
    square, feed_forward = (d_model, d_model), [(d_ff, d_model), (d_model, d_ff)]
    # Queries, keys, values, output. The decoder makes keys and values of the source once a batch.
    encoder_layer = [square] * 4 + feed_forward
    decoder_layer = [square] * 6 + feed_forward
    once = size["num_layers"] * (encoder_layer + [square] * 2)
    step = size["num_layers"] * decoder_layer + [(len(job["vocabulary"]), d_model)]

    def made(shapes):
        matrices = [random.standard_normal(shape, "float32") for shape in shapes]
        return [(matrix, np.ones(matrix.shape[1], "float32")) for matrix in matrices]

    once, step = made(once), made(step)

    def decode(batch):
        for matrix, vector in once:
            matrix @ vector
        for _ in range(job["steps"]):
            for matrix, vector in step:
                matrix @ vector

    megabytes = sum(matrix.nbytes for matrix, _ in step) / 1e6
    return Peer(
        version=f"NumPy {np.__version__}, {megabytes:.1f} MB a step",
        prepare=lambda batch: batch["ids"],
        decode=decode,
        lengths=lambda batch: [job["steps"]] * len(batch),
    )


if __name__ == "__main__":
    serve(load)
