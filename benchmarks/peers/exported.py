"""A SavedModel of this project, as TensorFlow Serving runs it; see `benchmarks.originals`."""

from benchmarks.peers.protocol import Peer, serve


def load(job):
    from export.serving.bulk import BulkTranslator

    sizes = {len(batch["texts"]) for batches in job["batches"].values() for batch in batches}
    models = {
        size: BulkTranslator(job["folder"], size, requests=1, inter_op_threads=job["threads"])
        for size in sizes
    }

    def translate(texts):
        return models[len(texts)].translate(texts)

    return Peer("the SavedModel", lambda batch: batch["texts"], translate, texts=translate)


if __name__ == "__main__":
    serve(load)
