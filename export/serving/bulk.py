"""Many lines through a SavedModel without a server, for files and for pipelines of Apache Beam."""

import concurrent.futures

import numpy as np

from export.remote.answers import AnswerError, text_output
from export.serving.worker import Worker
from export.terminal.lines import batches
from export.verification.errors import UsageError
from export.verification.graph import text_signature
from export.verification.paths import find_saved_model


class BulkTranslator:
    """Lines to lines by a SavedModel, as the server runs it, in a process of its own.

    Args:
        directory: a SavedModel, or a base directory of numbered versions.
        batch_size: lines of a request. Default 32.
        document: use `translate_document`: a line may be many sentences. Default False.
        requests: how many are made at once. Default 2: the next begins while one ends.
        intra_op_threads, inter_op_threads: see `ServingSession`. Default: one thread for an
            operation, and TensorFlow's own number of operations side by side.

    Raises:
        UsageError: there is no SavedModel, or not with this signature.
        ServingError: it does not load.
    """

    def __init__(
        self,
        directory,
        batch_size=32,
        document=False,
        requests=2,
        intra_op_threads=1,
        inter_op_threads=None,
    ):
        self.path = find_saved_model(directory)
        name = "translate_document" if document else "serving_default"
        signature = text_signature(self.path, name)
        self._text = signature.inputs["text"].name
        try:
            self._translation = signature.outputs[text_output(signature.outputs)].name
        except AnswerError as error:
            raise UsageError(f"{directory} must answer texts: {error}") from error
        self.batch_size = batch_size
        self._worker = Worker(self.path, intra_op_threads, inter_op_threads)
        self._threads = concurrent.futures.ThreadPoolExecutor(requests)

    def translate(self, lines):
        """The translations of a list of lines, in order.

        Lines of like length go together. A translation does not depend on its batch-mates; what a
        language model draws depends on its row.

        Raises:
            ServingError: a request failed, or the process has died.
        """
        order = sorted(range(len(lines)), key=lambda n: len(lines[n]))
        translations = [None] * len(lines)
        chosen = list(batches(order, self.batch_size))
        for places, found in zip(
            chosen,
            self._threads.map(lambda places: self._ask([lines[n] for n in places]), chosen),
            strict=True,
        ):
            for place, translation in zip(places, found, strict=True):
                translations[place] = translation
        return translations

    def close(self):
        self._worker.close()  # first: a request that runs would be waited for
        self._threads.shutdown(cancel_futures=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _ask(self, lines):
        texts = np.array([line.encode() for line in lines], object)
        [found] = self._worker.run({self._text: texts}, [self._translation])
        return [value.decode(errors="replace") for value in found]
