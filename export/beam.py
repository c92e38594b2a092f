"""Translates texts in a pipeline of Apache Beam, as `export.translate_files` does with files.

    with apache_beam.Pipeline() as pipeline:
        (
            pipeline
            | apache_beam.Create([(1, "A man walks."), (2, "A dog barks.")])
            | Translate("exported/multi30k")
            | apache_beam.io.WriteToText("translated")
        )

A pipeline does not keep the order of texts, so each text has a key. Each worker machine needs the
SavedModel under the same path, this checkout, and `pip install '.[tensorflow,beam]'`. Use a
separate environment, because Beam needs an older protobuf than the one that training is tested
with.
"""

import apache_beam
from apache_beam.utils.shared import Shared

from .serving.bulk import BulkTranslator


class Translate(apache_beam.PTransform):
    """(key, text) -> (key, translation).

    Args:
        directory: a SavedModel, or a base directory of numbered versions.
        batch_size: texts in a request. Default 32.
        document: whether a text may contain many sentences. Default False.
    """

    def __init__(self, directory, batch_size=32, document=False):
        super().__init__()
        self.directory, self.batch_size, self.document = str(directory), batch_size, document

    def expand(self, pairs):
        batches = apache_beam.BatchElements(
            min_batch_size=self.batch_size, max_batch_size=8 * self.batch_size
        )
        translate = _TranslateBatch(self.directory, self.batch_size, self.document)
        return pairs | batches | apache_beam.ParDo(translate)


class _TranslateBatch(apache_beam.DoFn):
    """Translates lists of pairs. Each process of the pipeline has one model."""

    def __init__(self, *model):
        self._model, self._shared = model, Shared()

    def setup(self):
        directory, batch_size, document = self._model
        self._translator = self._shared.acquire(
            lambda: BulkTranslator(directory, batch_size, document), tag=repr(self._model)
        )

    def process(self, pairs):
        keys, texts = zip(*pairs, strict=True)
        yield from zip(keys, self._translator.translate(list(texts)), strict=True)
