"""tfformer's own SavedModel, as TensorFlow Serving loads it: the C API, no Python TensorFlow.

Options of the job: `directory`, the SavedModel; `signatures`, as from
`export.verification.graph`; `xla`, whether XLA is on. The work is the signature `serving_default`,
from strings to strings. `threads` are inter-op threads with one intra-op thread
(`--tensorflow_intra_op_parallelism=1` of a server), because searching parts of a batch in parallel
gains more than sharing an operation. XLA searches no parts and shares its operations, so `xla` uses
as many intra-op threads.
"""

import importlib.metadata

import numpy as np

from benchmarks.peers.protocol import Peer, serve
from export.capi.session import ServingSession


def load(job):
    threads, options = job["threads"], job["options"]
    session = ServingSession(
        options["directory"],
        intra_op_threads=threads if options["xla"] else threads and 1,
        inter_op_threads=threads,
        xla=options["xla"],
    )

    def call(name, texts):
        """The outputs of a signature by name; options get their defaults, as the server does."""
        signature = options["signatures"][name]
        values = {**signature["defaults"], "text": texts}
        feeds = {
            info["name"]: np.array(values[key], object if key == "text" else info["dtype"])
            for key, info in signature["inputs"].items()
        }
        fetches = [info["name"] for info in signature["outputs"].values()]
        return dict(zip(signature["outputs"], session.run(feeds, fetches), strict=True))

    return Peer(
        version=f"TensorFlow {importlib.metadata.version('tensorflow')}",
        prepare=lambda batch: [text.encode() for text in batch["texts"]],
        decode=lambda texts: call("serving_default", texts),
        lengths=lambda texts: call("beam_search", texts)["lengths"].ravel(),
    )


if __name__ == "__main__":
    serve(load)
