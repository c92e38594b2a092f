"""Runs many lines through a SavedModel without a server: for files and Apache Beam pipelines."""

import concurrent.futures
import contextlib

import numpy as np

from ..remote.answers import AnswerError, text_output
from ..remote.lines import batches
from ..verification.errors import UsageError
from ..verification.graph import text_signature
from ..verification.paths import find_saved_model
from .worker import Worker


class BulkTranslator(contextlib.AbstractContextManager):
    """Translates lines with a SavedModel in a separate process, which runs it as the server does.

    Args:
        directory: a SavedModel, or a base directory of numbered versions.
        batch_size: lines of a request. Default 32.
        document: use `translate_document`: a line may be many sentences. Default False.
        requests: number of requests at the same time. Default 2: the next begins while one ends.
        inter_op_threads: see `ServingSession`. An operation has one thread.

    Raises:
        UsageError: there is no SavedModel, or it lacks this signature.
        ServingError: the SavedModel does not load.
    """

    def __init__(self, directory, batch_size=32, document=False, requests=2, inter_op_threads=None):
        self.path = find_saved_model(directory)
        name = "translate_document" if document else "serving_default"
        signature = text_signature(self.path, name)
        self._text = signature.inputs["text"].name
        self._defaults = {
            signature.inputs[key].name: value for key, value in signature.defaults.items()
        }
        try:
            self._translation = signature.outputs[text_output(signature.outputs)].name
        except AnswerError as error:
            raise UsageError(f"{directory} must answer texts: {error}") from error
        self.batch_size = batch_size
        self._worker = Worker(self.path, 1, inter_op_threads)
        self._threads = concurrent.futures.ThreadPoolExecutor(requests)

    def translate(self, lines):
        """Translates a list of lines and returns the translations in the same order.

        Lines of similar length share a batch. A translation does not depend on the other lines of
        its batch. (Text that a language model samples depends on its row.)
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
        self._worker.close()  # first: `shutdown` waits for running requests
        self._threads.shutdown(cancel_futures=True)

    def __exit__(self, *_):
        self.close()

    def _ask(self, lines):
        texts = np.array([line.encode() for line in lines], object)
        [found] = self._worker.run({**self._defaults, self._text: texts}, [self._translation])
        return [value.decode(errors="replace") for value in found]
